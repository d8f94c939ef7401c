/* quant_legacy.c - the other formats with blocks of 32: Q4_1, Q5_0, Q5_1, and IQ4_NL with its uneven grid. */
#include <string.h>

#include "format/quant_impl.h"

/* Fifth bits: 32 of them, bit j of the little-endian word belongs to value j. */
static void add_fifth_bits(uint8_t *level, const uint8_t *s)
{
    for (int j = 0; j < 32; j++) level[j] |= (uint8_t)((s[j / 8] >> (j % 8) & 1) << 4);
}

static void put_fifth_bits(uint8_t *d, uint32_t v)
{
    q_put16(d, (uint16_t)v);
    q_put16(d + 2, (uint16_t)(v >> 16));
}

static void range(const float *x, float *lo, float *hi)
{
    *lo = INFINITY;
    *hi = -INFINITY;
    for (int i = 0; i < 32; i++) {
        if (x[i] < *lo) *lo = x[i];
        if (x[i] > *hi) *hi = x[i];
    }
    if (!(*lo <= *hi)) /* nothing but NaN */
        *lo = *hi = 0.0f;
}

/* ------------------------------------------------------------ Q4_1: d f16, m f16, 16 bytes; w = d * q + m */

void quant_levels_q4_1(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 32, s += 20, level += 32) {
        *scale++ = q_half(s);
        *low++ = -q_half(s + 2);
        q_nibbles(level, s + 4);
    }
}

void quant_encode_q4_1(void *dst, const float *src, size_t n)
{
    uint8_t *s = dst;
    for (; n; n -= 32, s += 20, src += 32) {
        float lo, hi;
        range(src, &lo, &hi);
        float d = (hi - lo) / 15.0f;
        float inv = d != 0.0f ? 1.0f / d : 0.0f;
        q_put16(s, half_from_float(d));
        q_put16(s + 2, half_from_float(lo));
        for (int j = 0; j < 16; j++)
            s[4 + j] =
                (uint8_t)(q_level((src[j] - lo) * inv + 0.5f, 15) | q_level((src[j + 16] - lo) * inv + 0.5f, 15) << 4);
    }
}

/* ------------------------------------------------------------ Q5_0: d f16, fifth bits, 16 bytes; w = d * (q - 16) */

void quant_levels_q5_0(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 32, s += 22, level += 32) {
        *scale++ = q_half(s);
        q_nibbles(level, s + 6);
        add_fifth_bits(level, s + 2);
    }
}

void quant_encode_q5_0(void *dst, const float *src, size_t n)
{
    uint8_t *s = dst;
    for (; n; n -= 32, s += 22, src += 32) {
        float d = q_peak(src, 32) / -16.0f;
        float inv = d != 0.0f ? 1.0f / d : 0.0f;
        uint32_t h = 0;
        q_put16(s, half_from_float(d));
        for (int j = 0; j < 16; j++) {
            int a = q_level(src[j] * inv + 16.5f, 31), b = q_level(src[j + 16] * inv + 16.5f, 31);
            s[6 + j] = (uint8_t)((a & 15) | (b & 15) << 4);
            h |= (uint32_t)(a >> 4) << j | (uint32_t)(b >> 4) << (j + 16);
        }
        put_fifth_bits(s + 2, h);
    }
}

/* ------------------------------------------------------------ Q5_1: d f16, m f16, fifth bits, 16 bytes
 * w = d * q + m */

void quant_levels_q5_1(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 32, s += 24, level += 32) {
        *scale++ = q_half(s);
        *low++ = -q_half(s + 2);
        q_nibbles(level, s + 8);
        add_fifth_bits(level, s + 4);
    }
}

void quant_encode_q5_1(void *dst, const float *src, size_t n)
{
    uint8_t *s = dst;
    for (; n; n -= 32, s += 24, src += 32) {
        float lo, hi;
        range(src, &lo, &hi);
        float d = (hi - lo) / 31.0f;
        float inv = d != 0.0f ? 1.0f / d : 0.0f;
        uint32_t h = 0;
        q_put16(s, half_from_float(d));
        q_put16(s + 2, half_from_float(lo));
        for (int j = 0; j < 16; j++) {
            int a = q_level((src[j] - lo) * inv + 0.5f, 31), b = q_level((src[j + 16] - lo) * inv + 0.5f, 31);
            s[8 + j] = (uint8_t)((a & 15) | (b & 15) << 4);
            h |= (uint32_t)(a >> 4) << j | (uint32_t)(b >> 4) << (j + 16);
        }
        put_fifth_bits(s + 4, h);
    }
}

/* ------------------------------------------------------------ IQ4_NL: d f16, 16 bytes; w = d * level[q] */

const int8_t quant_iq4_levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

void quant_levels_iq4_nl(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 32, s += 18, level += 32) {
        *scale++ = q_half(s);
        q_nibbles(level, s + 2);
        for (int j = 0; j < 32; j++) level[j] = (uint8_t)(quant_iq4_levels[level[j]] + 128);
    }
}
