/* quant_impl.h - what the quant*.c files share: little-endian half floats, rounding to a grid, and the functions of the
 * table in quant.c. */
#ifndef FORMAT_QUANT_IMPL_H
#define FORMAT_QUANT_IMPL_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/half.h"
#include "format/quant.h"

static inline uint16_t q_le16(const uint8_t *s) { return (uint16_t)(s[0] | s[1] << 8); }

static inline void q_put16(uint8_t *d, uint16_t v)
{
    d[0] = (uint8_t)v;
    d[1] = (uint8_t)(v >> 8);
}

static inline float q_half(const uint8_t *s) { return half_to_float(q_le16(s)); }

/* 16 bytes to 32 levels: byte j holds value j in its low nibble and value j + 16 in its high one. */
static inline void q_nibbles(uint8_t *level, const uint8_t *s)
{
    for (int j = 0; j < 16; j++) {
        level[j] = s[j] & 15;
        level[j + 16] = s[j] >> 4;
    }
}

/* The value of largest magnitude, with its sign; the first one when several are equal; NaN is passed over. */
static inline float q_peak(const float *x, int n)
{
    float best = 0.0f;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(best)) best = x[i];
    return best;
}

/* x cut off to a level 0..top; NaN gives 0 (a conversion out of range would be undefined). */
static inline int q_level(float x, int top)
{
    if (!(x > 0.0f)) return 0;
    return x >= (float)top ? top : (int)x;
}

/* x rounded half away from zero, into [lo, hi]; NaN gives 0 when the range has it. */
static inline int q_round(float x, int lo, int hi)
{
    float r = roundf(x);
    if (!(r == r)) return lo > 0 ? lo : 0;
    if (r <= (float)lo) return lo;
    return r >= (float)hi ? hi : (int)r;
}

/* n: values, a multiple of the block. */
typedef void quant_encode_fn(void *dst, const float *src, size_t n);
typedef void quant_weigh_fn(void *dst, const float *src, const float *w, size_t n); /* w: see quant.h */

/* quant_legacy.c */
quant_levels_fn quant_levels_q4_1, quant_levels_q5_0, quant_levels_q5_1, quant_levels_iq4_nl;
quant_encode_fn quant_encode_q4_1, quant_encode_q5_0, quant_encode_q5_1;
/* quant_k.c */
quant_levels_fn quant_levels_q2_k, quant_levels_q3_k, quant_levels_q4_k, quant_levels_q5_k, quant_levels_q6_k;
quant_levels_fn quant_levels_iq4_xs;
/* quant_k_encode.c */
quant_encode_fn quant_encode_q4_k, quant_encode_q5_k, quant_encode_q6_k;
quant_weigh_fn quant_weigh_q4_k, quant_weigh_q5_k, quant_weigh_q6_k;
/* The scale of x ~ a * q, q in -half..half - 1, errors weighed by w; 0 for all zeros. */
float quant_best_linear(const float *x, const float *w, int n, int half);

/* Levels of IQ4_NL and IQ4_XS (defined in quant_legacy.c). */
extern const int8_t quant_iq4_levels[16];

#endif
