/* runtime.c - what compilers for Hexagon expect of a run-time library: copying, integer division, division of floats.
 * Written for this project, so that a program needs nothing else. */
#include <stdint.h>
#include <string.h>

#undef memcpy

void *memcpy(void *to, const void *from, size_t n)
{
    uint8_t *d = to;
    const uint8_t *s = from;
    for (; n >= 4 && (((uintptr_t)d | (uintptr_t)s) & 3) == 0; n -= 4, d += 4, s += 4)
        *(uint32_t *)(void *)d = *(const uint32_t *)(const void *)s;
    while (n--) *d++ = *s++;
    return to;
}

/* The compiler's own name for copying records: at least 32 bytes, whole groups of 8, mostly aligned. */
void *__hexagon_memcpy_likely_aligned_min32bytes_mult8bytes(void *to, const void *from, size_t n);
void *__hexagon_memcpy_likely_aligned_min32bytes_mult8bytes(void *to, const void *from, size_t n)
{
    return memcpy(to, from, n);
}

void *memmove(void *to, const void *from, size_t n)
{
    uint8_t *d = to;
    const uint8_t *s = from;
    if (d <= s || d >= s + n) return memcpy(to, from, n);
    while (n--) d[n] = s[n];
    return to;
}

void *memset(void *to, int c, size_t n)
{
    uint8_t *d = to;
    const uint32_t word = (uint8_t)c * UINT32_C(0x01010101);
    for (; n > 0 && ((uintptr_t)d & 3) != 0; n--) *d++ = (uint8_t)c;
    for (; n >= 4; n -= 4, d += 4) *(uint32_t *)(void *)d = word;
    while (n--) *d++ = (uint8_t)c;
    return to;
}

/* ------------------------------------------------------------ integers */

uint32_t __hexagon_udivsi3(uint32_t a, uint32_t b);
uint32_t __hexagon_umodsi3(uint32_t a, uint32_t b);
int32_t __hexagon_divsi3(int32_t a, int32_t b);
int32_t __hexagon_modsi3(int32_t a, int32_t b);
uint64_t __hexagon_udivdi3(uint64_t a, uint64_t b);
uint64_t __hexagon_umoddi3(uint64_t a, uint64_t b);
float __hexagon_divsf3(float a, float b);

/* Bit by bit, from the first bit where the divisor can fit. */
uint32_t __hexagon_udivsi3(uint32_t a, uint32_t b)
{
    uint32_t q = 0, bit = 1;
    if (b == 0) return UINT32_MAX;
    while (b <= a && !(b >> 31)) {
        b <<= 1;
        bit <<= 1;
    }
    for (; bit; bit >>= 1, b >>= 1)
        if (a >= b) {
            a -= b;
            q |= bit;
        }
    return q;
}

uint32_t __hexagon_umodsi3(uint32_t a, uint32_t b) { return b ? a - b * __hexagon_udivsi3(a, b) : a; }

static uint32_t magnitude(int32_t x) { return x < 0 ? 0 - (uint32_t)x : (uint32_t)x; }

int32_t __hexagon_divsi3(int32_t a, int32_t b)
{
    const uint32_t q = __hexagon_udivsi3(magnitude(a), magnitude(b));
    return (int32_t)((a < 0) != (b < 0) ? 0 - q : q);
}

int32_t __hexagon_modsi3(int32_t a, int32_t b)
{
    const uint32_t r = __hexagon_umodsi3(magnitude(a), magnitude(b));
    return (int32_t)(a < 0 ? 0 - r : r);
}

uint64_t __hexagon_udivdi3(uint64_t a, uint64_t b)
{
    uint64_t q = 0, bit = 1;
    if (b == 0) return UINT64_MAX;
    while (b <= a && !(b >> 63)) {
        b <<= 1;
        bit <<= 1;
    }
    for (; bit; bit >>= 1, b >>= 1)
        if (a >= b) {
            a -= b;
            q |= bit;
        }
    return q;
}

uint64_t __hexagon_umoddi3(uint64_t a, uint64_t b) { return b ? a - b * __hexagon_udivdi3(a, b) : a; }

/* ------------------------------------------------------------ floats */

static uint32_t bits_of(float f)
{
    union {
        float f;
        uint32_t u;
    } x = { f };
    return x.u;
}

static float float_of(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } x = { u };
    return x.f;
}

/* Mantissa of 24 bits with its leading one, and the exponent that goes with it; x is finite and not zero. */
static uint32_t split(uint32_t x, int32_t *e)
{
    uint32_t m = x & 0x7fffff;
    *e = (int32_t)(x >> 23 & 255);
    if (*e > 0) return m | 0x800000;
    for (*e = 1; !(m & 0x800000); --*e) m <<= 1;
    return m;
}

/* m, 24 bits and two more below for rounding (the last says whether anything was left), at exponent e. */
static float join(uint32_t sign, int32_t e, uint32_t m)
{
    if (e >= 255) return float_of(sign | 0x7f800000u);
    for (; e < 1; e++) m = m >> 1 | (m & 1); /* subnormal */
    const uint32_t tail = m & 3;
    uint32_t r = m >> 2;
    r += tail > 2 || (tail == 2 && (r & 1));
    return float_of(sign | (r & 0x800000 ? (uint32_t)(e - 1) << 23 : 0) + r); /* a carry steps the exponent */
}

/* Rounded to nearest, ties to even, as IEEE 754 has it. */
float __hexagon_divsf3(float fa, float fb)
{
    const uint32_t a = bits_of(fa) & 0x7fffffff, b = bits_of(fb) & 0x7fffffff;
    const uint32_t sign = (bits_of(fa) ^ bits_of(fb)) & 0x80000000u, inf = 0x7f800000u;
    int32_t ea, eb;
    if (a > inf || b > inf || (a == inf && b == inf) || (a == 0 && b == 0)) return float_of(0x7fc00000u);
    if (a == inf || b == 0) return float_of(sign | inf);
    if (a == 0 || b == inf) return float_of(sign);
    uint32_t ma = split(a, &ea);
    const uint32_t mb = split(b, &eb);
    int32_t e = ea - eb + 127;
    if (ma < mb) {
        ma <<= 1;
        e--;
    }
    uint32_t q = 0; /* 26 bits: the first is a one */
    for (int i = 0; i < 26; i++) {
        q <<= 1;
        if (ma >= mb) {
            ma -= mb;
            q |= 1;
        }
        ma <<= 1;
    }
    return join(sign, e, q | (ma != 0));
}
