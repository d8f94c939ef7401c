/* quant.c - the table of block formats, and those that need no more than a scale: F32, F16, BF16, Q4_0, Q8_0. */
#include "format/quant.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/size.h"
#include "format/quant_impl.h"

/* ------------------------------------------------------------ plain numbers, little-endian */

static void decode_f32(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)q_le16(s + 4 * i) | (uint32_t)q_le16(s + 4 * i + 2) << 16;
        memcpy(dst + i, &u, 4);
    }
}

static void encode_f32(void *dst, const float *src, size_t n)
{
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, src + i, 4);
        q_put16(d + 4 * i, (uint16_t)u);
        q_put16(d + 4 * i + 2, (uint16_t)(u >> 16));
    }
}

static void decode_f16(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++) dst[i] = q_half(s + 2 * i);
}

static void encode_f16(void *dst, const float *src, size_t n)
{
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i++) q_put16(d + 2 * i, half_from_float(src[i]));
}

static void decode_bf16(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++) dst[i] = bf16_to_float(q_le16(s + 2 * i));
}

static void encode_bf16(void *dst, const float *src, size_t n)
{
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i++) q_put16(d + 2 * i, bf16_from_float(src[i]));
}

/* ------------------------------------------------------------ Q4_0: d f16, 16 bytes; w = d * (q - 8)
 * byte j holds value j in its low and value j + 16 in its high nibble */

static void levels_q4_0(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 32, s += 18, level += 32) {
        *scale++ = q_half(s);
        q_nibbles(level, s + 2);
    }
}

/* The value of largest magnitude becomes exactly -8: the side of the grid that has one step more. */
static void encode_q4_0(void *dst, const float *src, size_t n)
{
    uint8_t *s = dst;
    for (; n; n -= 32, s += 18, src += 32) {
        float d = q_peak(src, 32) / -8.0f;
        float inv = d != 0.0f ? 1.0f / d : 0.0f;
        q_put16(s, half_from_float(d));
        for (int j = 0; j < 16; j++)
            s[2 + j] = (uint8_t)(q_level(src[j] * inv + 8.5f, 15) | q_level(src[j + 16] * inv + 8.5f, 15) << 4);
    }
}

/* The scale of least weighed error among several. */
static void weigh_q4_0(void *dst, const float *src, const float *w, size_t n)
{
    uint8_t *s = dst;
    for (; n; n -= 32, s += 18, src += 32, w += 32) {
        float d = half_to_float(half_from_float(quant_best_linear(src, w, 32, 8)));
        if (d == 0.0f || !isfinite(d)) { /* no weights, or nothing that a half float can scale */
            encode_q4_0(s, src, 32);
            continue;
        }
        q_put16(s, half_from_float(d));
        for (int j = 0; j < 16; j++)
            s[2 + j] = (uint8_t)((q_round(src[j] / d, -8, 7) + 8) | (q_round(src[j + 16] / d, -8, 7) + 8) << 4);
    }
}

/* ------------------------------------------------------------ Q8_0: d f16, 32 signed bytes; w = d * q */

static void levels_q8_0(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;
    for (; n; n -= 32, s += 34, level += 32) {
        *scale++ = q_half(s);
        for (int j = 0; j < 32; j++) level[j] = s[2 + j] ^ 128;
    }
}

static void encode_q8_0(void *dst, const float *src, size_t n)
{
    uint8_t *s = dst;
    for (; n; n -= 32, s += 34, src += 32) {
        float d = fabsf(q_peak(src, 32)) / 127.0f;
        float inv = d != 0.0f ? 1.0f / d : 0.0f;
        q_put16(s, half_from_float(d));
        for (int j = 0; j < 32; j++) s[2 + j] = (uint8_t)q_round(src[j] * inv, -127, 127);
    }
}

/* ------------------------------------------------------------ from levels to values */

static void decode_levels(float *dst, const void *src, size_t n, const quant_info *q)
{
    enum { STEP = 256 }; /* a multiple of every block */
    uint8_t level[STEP];
    float scale[STEP / 16], low[STEP / 16] = { 0 };
    const uint8_t *s = src;

    while (n) {
        size_t m = n < STEP ? n : STEP;
        q->levels(level, scale, low, s, m);
        for (size_t i = 0; i < m; i++) {
            size_t b = i / (size_t)q->grid.sub;
            dst[i] = scale[b] * (float)(level[i] - q->grid.zero);
            if (q->grid.low) dst[i] -= low[b];
        }
        s += m / (size_t)q->block * (size_t)q->bytes;
        dst += m;
        n -= m;
    }
}

/* ------------------------------------------------------------ the table */

#define DECODE(name, type)                                                                                             \
    static void name(float *dst, const void *src, size_t n) { decode_levels(dst, src, n, quant_get(type)); }

DECODE(decode_q4_0, QT_Q4_0)
DECODE(decode_q4_1, QT_Q4_1)
DECODE(decode_q5_0, QT_Q5_0)
DECODE(decode_q5_1, QT_Q5_1)
DECODE(decode_q8_0, QT_Q8_0)
DECODE(decode_q2_k, QT_Q2_K)
DECODE(decode_q3_k, QT_Q3_K)
DECODE(decode_q4_k, QT_Q4_K)
DECODE(decode_q5_k, QT_Q5_K)
DECODE(decode_q6_k, QT_Q6_K)
DECODE(decode_iq4_nl, QT_IQ4_NL)
DECODE(decode_iq4_xs, QT_IQ4_XS)

static const quant_info table[QT_COUNT] = {
    [QT_F32] = { "F32", 1, 4, decode_f32, encode_f32, NULL, { 0 }, NULL },
    [QT_F16] = { "F16", 1, 2, decode_f16, encode_f16, NULL, { 0 }, NULL },
    [QT_BF16] = { "BF16", 1, 2, decode_bf16, encode_bf16, NULL, { 0 }, NULL },
    [QT_Q4_0] = { "Q4_0", 32, 18, decode_q4_0, encode_q4_0, levels_q4_0, { 32, 4, 8, false }, weigh_q4_0 },
    [QT_Q4_1] = { "Q4_1", 32, 20, decode_q4_1, quant_encode_q4_1, quant_levels_q4_1, { 32, 4, 0, true }, NULL },
    [QT_Q5_0] = { "Q5_0", 32, 22, decode_q5_0, quant_encode_q5_0, quant_levels_q5_0, { 32, 5, 16, false }, NULL },
    [QT_Q5_1] = { "Q5_1", 32, 24, decode_q5_1, quant_encode_q5_1, quant_levels_q5_1, { 32, 5, 0, true }, NULL },
    [QT_Q8_0] = { "Q8_0", 32, 34, decode_q8_0, encode_q8_0, levels_q8_0, { 32, 8, 128, false }, NULL },
    [QT_Q2_K] = { "Q2_K", 256, 84, decode_q2_k, NULL, quant_levels_q2_k, { 16, 2, 0, true }, NULL },
    [QT_Q3_K] = { "Q3_K", 256, 110, decode_q3_k, NULL, quant_levels_q3_k, { 16, 3, 4, false }, NULL },
    [QT_Q4_K] = { "Q4_K", 256, 144, decode_q4_k, quant_encode_q4_k, quant_levels_q4_k,
       { 32, 4, 0, true }, quant_weigh_q4_k },
    [QT_Q5_K] = { "Q5_K", 256, 176, decode_q5_k, quant_encode_q5_k, quant_levels_q5_k,
       { 32, 5, 0, true }, quant_weigh_q5_k },
    [QT_Q6_K] = { "Q6_K", 256, 210, decode_q6_k, quant_encode_q6_k, quant_levels_q6_k,
       { 16, 6, 32, false }, quant_weigh_q6_k },
    [QT_IQ4_NL] = { "IQ4_NL", 32, 18, decode_iq4_nl, NULL, quant_levels_iq4_nl, { 32, 8, 128, false }, NULL },
    [QT_IQ4_XS] = { "IQ4_XS", 256, 136, decode_iq4_xs, NULL, quant_levels_iq4_xs, { 32, 8, 128, false }, NULL },
};

const quant_info *quant_get(uint32_t type) { return type < QT_COUNT && table[type].name ? &table[type] : NULL; }

bool quant_row_bytes(uint32_t type, uint64_t n, size_t *bytes)
{
    const quant_info *q = quant_get(type);
    if (!q || n > SIZE_MAX || n % (uint64_t)q->block) return false;
    return size_mul((size_t)n / (size_t)q->block, (size_t)q->bytes, bytes);
}
