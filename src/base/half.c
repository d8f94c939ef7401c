/* half.c - binary16 and bfloat16 by integer arithmetic alone: independent of rounding mode and flush-to-zero flags. */
#include "base/half.h"

#include <string.h>

enum {
    F32_INF = 0x7f800000,
    F32_HALF_MIN = 0x38800000, /* 2^-14, the smallest normal half */
    F32_HALF_INF = 0x47800000, /* 2^16; what lies between the largest half and this is decided by rounding */
    HALF_INF = 0x7c00
};

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* x / 2^s, rounded to nearest, ties to even; 1 <= s <= 31. */
static uint32_t shift_even(uint32_t x, unsigned s)
{
    uint32_t q = x >> s, rest = x & ((UINT32_C(1) << s) - 1), tie = UINT32_C(1) << (s - 1);
    return q + (rest > tie || (rest == tie && (q & 1)));
}

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31)
        return float_of(sign | F32_INF | m << 13);
    if (e)
        return float_of(sign | (e + 112) << 23 | m << 13); /* 112: difference of the exponent biases */
    return sign ? -(float)m * 0x1p-24f : (float)m * 0x1p-24f;
}

uint16_t half_from_float(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff, r;
    if (a > F32_INF) {
        r = 0x7e00 | (a >> 13 & 0x3ff); /* quiet, with the upper bits of the payload, as F16C does */
    } else if (a >= F32_HALF_INF) {
        r = HALF_INF;
    } else if (a >= F32_HALF_MIN) {
        r = shift_even(a - (UINT32_C(112) << 23), 13); /* a carry out of the mantissa steps the exponent, up to inf */
    } else {
        /* subnormal: the mantissa in units of 2^-24; below 2^-25 nothing is left */
        uint32_t e = a >> 23, m = (a & 0x7fffff) | 0x800000;
        r = e < 102 ? 0 : shift_even(m, 126 - e);
    }
    return (uint16_t)(sign | r);
}

float bf16_to_float(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t bf16_from_float(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    uint32_t r = a > F32_INF ? a >> 16 | 0x40 : shift_even(a, 16);
    return (uint16_t)(sign | r);
}
