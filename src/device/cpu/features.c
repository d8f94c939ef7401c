/* features.c - asks the processor what it is. */
#include "device/cpu/features.h"

#include "base/compiler.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Bits of CPUID leaves 1 and 7 and of XCR0, from the vendors' manuals. */
enum { L1_FMA = 1u << 12, L1_OSXSAVE = 1u << 27, L1_AVX = 1u << 28, L1_F16C = 1u << 29 };
enum { L7_AVX2 = 1u << 5, L7_F = 1u << 16, L7_DQ = 1u << 17, L7_BW = 1u << 30 };
static const unsigned L7_VL = 1u << 31;
enum { XCR_YMM = 0x06, XCR_ZMM = 0xe6 };

static uint64_t detect(void)
{
    const unsigned need1 = L1_FMA | L1_OSXSAVE | L1_AVX | L1_F16C;
    const unsigned need512 = L7_F | L7_DQ | L7_BW | L7_VL;
    unsigned a, b, c, d, xcr_lo, xcr_hi;
    uint64_t found = 0;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1) return 0;
    READ_XCR0(xcr_lo, xcr_hi);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & L7_AVX2) || (xcr_lo & XCR_YMM) != XCR_YMM) return 0;
    found |= CPU_AVX2;
    if ((b & need512) == need512 && (xcr_lo & XCR_ZMM) == XCR_ZMM) found |= CPU_AVX512;
    return found;
}

static const char *const names[] = { "avx2", "avx512" };
enum { N_NAMES = 2 };

#elif defined(__aarch64__)

static uint64_t detect(void) { return CPU_NEON; } /* part of the base architecture */
static const char *const names[] = { "neon" };
enum { N_NAMES = 1 };

#else

static uint64_t detect(void) { return 0; }
static const char *const names[] = { "" };
enum { N_NAMES = 0 };

#endif

const char *const *cpu_features(size_t *n, uint64_t *found)
{
    *n = N_NAMES;
    if (found) *found = detect();
    return names;
}
