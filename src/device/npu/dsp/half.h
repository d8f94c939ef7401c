/* half.h - half floats and the few functions of a float that the operators need.  Built of exact steps (+, -, *, /,
 * bits), in a fixed order, so that every flavour gives the same bits. */
#ifndef DSP_HALF_H
#define DSP_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/half.h"

static inline float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t bits_of_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* Exact.  The exponent is moved by a product, which also makes subnormals right; a compiler can do several at once. */
static inline float widen(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    uint32_t bits = bits_of_float(float_of_bits(magnitude) * 0x1p112f) | special;
    return float_of_bits(bits | (uint32_t)(h & 0x8000) << 16);
}

static inline uint16_t narrow(float f) { return half_from_float(f); }

/* e^x to about 2 units in the last place; 0 below -87, infinity above 88. */
static inline float exp_of(float x)
{
    if (!(x > -87.0f)) return x < 0 ? 0.0f : x; /* NaN stays NaN */
    if (x > 88.0f) return float_of_bits(0x7f800000u);
    const float n = x * 1.44269504f;
    const int32_t i = (int32_t)(n < 0 ? n - 0.5f : n + 0.5f);
    /* ln 2 in two parts, the first short enough for an exact product */
    const float r = (x - (float)i * 0.693359375f) - (float)i * -2.12194440e-4f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * float_of_bits((uint32_t)(i + 127) << 23);
}

/* Square root by Newton's method; x is positive and finite. */
static inline float sqrt_of(float x)
{
    float y = float_of_bits((bits_of_float(x) >> 1) + 0x1fbd1df5u); /* within 4 % */
    for (int i = 0; i < 4; i++) y = 0.5f * (y + x / y);
    return y;
}

#endif
