/* features.c - asks the processor what it is. */
#include "device/cpu/features.h"

#include "base/compiler.h"
#include "base/os.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Bits of CPUID leaves 1 and 7 and of XCR0, from the vendors' manuals. */
enum { L1_FMA = 1u << 12, L1_OSXSAVE = 1u << 27, L1_AVX = 1u << 28, L1_F16C = 1u << 29 };
enum { L7_AVX2 = 1u << 5, L7_F = 1u << 16, L7_DQ = 1u << 17, L7_BW = 1u << 30 }; /* EBX */
static const unsigned L7_VL = 1u << 31;
enum { L7_VBMI = 1u << 1, L7_VNNI = 1u << 11 };          /* ECX */
enum { L7_AMX_TILE = 1u << 24, L7_AMX_INT8 = 1u << 25 }; /* EDX */
enum { L7_1_AVXVNNI = 1u << 4 };                         /* EAX of subleaf 1 */
enum { XCR_YMM = 0x06, XCR_ZMM = 0xe6, XCR_TILES = 0x60000 };

static uint64_t detect(void)
{
    const unsigned need1 = L1_FMA | L1_OSXSAVE | L1_AVX | L1_F16C;
    const unsigned tiles = L7_AMX_TILE | L7_AMX_INT8;
    const unsigned need512 = L7_F | L7_DQ | L7_BW | L7_VL;
    unsigned a, b, c, d, a7, b7, c7, d7, xcr_lo, xcr_hi; /* a7: the last subleaf of leaf 7 */
    uint64_t found = 0;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1) return 0;
    READ_XCR0(xcr_lo, xcr_hi);
    if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7) || !(b7 & L7_AVX2) || (xcr_lo & XCR_YMM) != XCR_YMM) return 0;
    found |= CPU_AVX2;
    if ((b7 & need512) == need512 && (xcr_lo & XCR_ZMM) == XCR_ZMM) found |= CPU_AVX512;
    if ((found & CPU_AVX512) && (c7 & L7_VNNI)) found |= CPU_AVX512VNNI;
    if ((found & CPU_AVX512) && (c7 & L7_VBMI)) found |= CPU_AVX512VBMI;
    if (a7 >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & L7_1_AVXVNNI)) found |= CPU_AVXVNNI;
    if ((d7 & tiles) == tiles && (xcr_lo & XCR_TILES) == XCR_TILES && os_allow_tiles()) found |= CPU_AMX;
    return found;
}

static const char *const names[] = { "avx2", "avx512", "avxvnni", "avx512vnni", "amx", "avx512vbmi" };
enum { N_NAMES = 6 };

#elif defined(__aarch64__)

/* Bits of the two words in which Linux describes the processor: HWCAP_ASIMDDP, HWCAP2_I8MM. */
static const uint64_t CAPS0_DOTPROD = 1 << 20, CAPS1_I8MM = 1 << 13;

static uint64_t detect(void)
{
    uint64_t caps[2], found = CPU_NEON; /* part of the base architecture */

    os_cpu_caps(caps);
    if (caps[0] & CAPS0_DOTPROD) found |= CPU_DOTPROD;
    if (caps[1] & CAPS1_I8MM) found |= CPU_I8MM;
    return found;
}

static const char *const names[] = { "neon", "dotprod", "i8mm" };
enum { N_NAMES = 3 };

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
