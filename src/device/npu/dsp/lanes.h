/* lanes.h - work for the vector unit: moving halves into and out of tiles, expanding packed weights.  lanes.c is plain
 * C and the definition of right; hexagon/lanes_hvx.c does the same with vectors of 128 bytes. */
#ifndef DSP_LANES_H
#define DSP_LANES_H

#include "device/npu/dsp/plan.h"
#include "device/npu/dsp/port.h"

/* Up to 32 rows of halves, `stride` apart, to k_tiles activation tiles; missing rows become zero. */
void lanes_pack(half *tiles, const half *src, uint32_t stride, uint32_t rows, uint32_t k_tiles);

/* A result tile to `rows` rows of 32 columns; residual (NULL: none): the same shape, added; out may be it. */
void lanes_unpack(half *out, uint32_t stride, const half *tile, uint32_t rows, const half *residual);

/* Packed tiles (see npu_type) to n tiles of halves: each value times its scale, rounded once. */
void lanes_expand_q8_0(half *tiles, const uint8_t *packed, uint32_t n);
void lanes_expand_q4_0(half *tiles, const uint8_t *packed, uint32_t n);

/* A row as integers: value i is about scale[i / 32] times byte i % 4 (signed, the lowest first) of word[i / 4]. */
typedef struct {
    float scale[PLAN_FEW_K / TILE];
    int32_t sum[PLAN_FEW_K / TILE]; /* of the integers of each 32 */
    uint32_t word[PLAN_FEW_K / 4];
} few_row;

/* Rounded to nearest; the largest of 32 becomes 127.  Where one is not finite, the scale is neither. */
void lanes_to_integers(few_row *to, const half *in, uint32_t k_tiles);

/* acc[r][column] += x[r] times a stripe of n tiles: exact sums of 32 products of integers, each times the product of
 * both scales, added as floats in rising k.  acc begins on a multiple of 128 bytes. */
void lanes_few_q8_0(float *acc, const few_row *x, uint32_t rows, const uint8_t *packed, uint32_t n);
void lanes_few_q4_0(float *acc, const few_row *x, uint32_t rows, const uint8_t *packed, uint32_t n);

/* The sum of a[i] b[i], in a fixed order over 8 partial sums. */
float lanes_dot(const half *a, const half *b, uint32_t n);
/* acc[i] += p * v[i] */
void lanes_mix(float *acc, const half *v, float p, uint32_t n);

#endif
