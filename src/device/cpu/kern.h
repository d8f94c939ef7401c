/* kern.h - the kernels of the CPU device: one typedef a signature, and the table that holds one of each.  The plain
 * C kernels (ref/) fill the whole table; x86/ and arm/ then replace entries in rising order of instruction set, as
 * far as the mask allows.  A kernel's name says type, operation, tile and instruction set; block sizes belong to its
 * entry.
 *
 * Two promises of every kernel: a result depends only on its own operands, never on which other rows, columns or
 * values share the call (so passes may be cut anywhere and give the same bits); and no pointer needs more than the
 * alignment of its type (packed weights: none). */
#ifndef DEVICE_CPU_KERN_H
#define DEVICE_CPU_KERN_H

#include <stdbool.h>

#include "device/cpu/features.h"
#include "format/quant.h"

/* One block of k of a matrix product: c[j][i] = sum over k of x[i][k] w[j][k], added to c where `add`.
 * x: m rows, ldx floats apart; w: n rows, ldw apart; c: n rows, ldc apart, ldc a multiple of 4: the kernel may write
 * up to the next multiple of 4 behind column m. */
typedef void kern_mm_fn(float *c, size_t ldc, const float *x, size_t ldx, int m, const float *w, size_t ldw, int n,
                        int k, bool add);

/* ---- Products in integers, with weights that are stored as levels on a grid (format/quant.h).
 *
 * A row of x becomes 8-bit integers, with one scale for each 32 values: of the QSCALES scales with which the largest
 * of them becomes 127, 126, ... the one that leaves the least squared error.  The sum over each `sub` values of the grid
 * is exact; the sums are then added in rising order of k, each with one fused multiply-add:
 *     acc = fma(scale_w * scale_x, sum of x (level - zero), acc)
 * and on grids with a low one more before it:
 *     acc = fma(-low, scale_x * sum of x, acc)
 * so that all kernels, for any number of rows, give the same bits. */
enum { QCOLS = 32, QQUAD = 4, QBLOCK = 32, QSUB = 16, QSCALES = 8 };

typedef struct {
    int8_t *q;            /* [m][k], -127..127 */
    float *scale;         /* [m][k / QBLOCK] */
    float *sum32, *sum16; /* [m][k / 32], [m][k / 16]: sums of q, whole numbers */
} kern_qrows;

/* One row of k values, a multiple of 32.  Where a value is NaN or infinite its block's scale is so too, and q is 0. */
typedef void kern_quantize_fn(int8_t *q, float *scale, float *sum32, float *sum16, const float *x, size_t k);

/* QCOLS weight rows (columns of the product) by k values, woven so that 4 values of a column lie together. */
typedef struct {
    uint8_t *level;     /* [k / 4][QCOLS][4] */
    float *scale, *low; /* [k / sub][QCOLS] */
} kern_qpanel;

/* Rows of levels to a panel: level: [QCOLS][ld], k a multiple of 4. */
typedef void kern_weave_fn(uint8_t *panel, const uint8_t *level, size_t ld, int k);

/* Packed weights to a panel, in one go; k: a multiple of the type's block.  Of GGUF rows, `row` bytes apart: */
typedef void kern_expand_fn(const kern_qpanel *p, const uint8_t *src, size_t row, int k);
/* of T32 tiles (format/t32.h), one behind the other: */
typedef void kern_expand_tiles_fn(const kern_qpanel *p, const uint8_t *tiles, int k);

/* c[i][j] (+)= row i of x times column j over k values, a multiple of the type's block; m rows whose values are ldx
 * apart (ldx / 32 scales and so on).  c: [m][QCOLS]. */
typedef void kern_qmm_fn(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k,
                         const quant_grid *grid, bool add);

/* One row of x times the QCOLS columns of T32 tiles, one behind the other: the bits of expand_tiles and qmm. */
typedef void kern_row_tiles_fn(float *c, const kern_qrows *x, const uint8_t *tiles, int k);

/* n packed values to floats; n is a multiple of the type's block. */
typedef void kern_unpack_fn(float *dst, const void *src, size_t n);

/* out = x / sqrt(mean(x^2) + eps) * w over n values; out may be x. */
typedef void kern_norm_fn(float *out, const float *x, const float *w, int n, float eps);

/* Rotates one head of 2 * half values in place; cs: half cosines, then half sines. */
typedef void kern_rope_fn(float *x, const float *cs, int half);

/* out = silu(a) * b over n values; out may be a or b. */
typedef void kern_swiglu_fn(float *out, const float *a, const float *b, size_t n);

/* s = exp(s - max s) over n values, n > 0; returns their sum. */
typedef float kern_softmax_fn(float *s, int n);

/* Attention of one query head over n columns of a K or V store whose slots are `stride` values apart.
 * dots: s[c] = scale * (q . k[slot[c]]);  mix: out = scale * sum over c of p[c] v[slot[c]], in the order of the
 * columns. */
typedef void kern_dots_fn(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                          float scale);
typedef void kern_mix_fn(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                         float scale);

/* n floats to half floats. */
typedef void kern_half_fn(uint16_t *dst, const float *src, size_t n);

typedef struct {
    kern_mm_fn *fn;
    const char *name;
    int mr, nr; /* rows of x and of w in a tile: cut work in multiples of them */
    int nb;     /* rows of w in a panel ... */
    int kc;     /* ... and columns, a multiple of every format's block: nb * kc floats stay in the second cache */
} kern_mm;

#define KERN_ENTRY(type)                                                                                               \
    struct {                                                                                                           \
        type *fn;                                                                                                      \
        const char *name;                                                                                              \
    }
#define KERN_PUT(entry, kernel) ((entry).fn = (kernel), (entry).name = #kernel)

enum { KV_F32, KV_F16, KV_KINDS };

typedef struct {
    kern_mm mm;
    KERN_ENTRY(kern_quantize_fn) quantize;
    KERN_ENTRY(quant_levels_fn) levels[QT_COUNT]; /* fn NULL: not on a grid */
    KERN_ENTRY(kern_weave_fn) weave;
    KERN_ENTRY(kern_expand_fn) expand[QT_COUNT]; /* fn NULL, here and below: by way of rows of levels, and weave */
    KERN_ENTRY(kern_expand_tiles_fn) expand_tiles[QT_COUNT];
    KERN_ENTRY(kern_row_tiles_fn) row_tiles[QT_COUNT]; /* fn NULL: one row goes the way of many */
    KERN_ENTRY(kern_qmm_fn) qmm;
    int qmm_rows; /* rows of a call of it, between which weights are fetched ahead: a multiple of its tiles */
    KERN_ENTRY(kern_unpack_fn) unpack[QT_COUNT]; /* fn NULL: not a type, or one that can't be decoded yet */
    KERN_ENTRY(kern_norm_fn) norm;
    KERN_ENTRY(kern_rope_fn) rope[2]; /* by rope_style */
    KERN_ENTRY(kern_swiglu_fn) swiglu;
    KERN_ENTRY(kern_softmax_fn) softmax;
    KERN_ENTRY(kern_dots_fn) dots[KV_KINDS];
    KERN_ENTRY(kern_mix_fn) mix[KV_KINDS];
    KERN_ENTRY(kern_half_fn) half;
} kern_table;

/* Fills the table with the best kernels among the features in `mask` that this machine has; mask 0: plain C only. */
void kern_fill(kern_table *t, uint64_t mask);

/* Each replaces what its features allow. */
void kern_init_ref(kern_table *t);
void kern_init_x86(kern_table *t, uint64_t features);
void kern_init_arm(kern_table *t, uint64_t features);

/* ------------------------------------------------------------ declarations, one a kernel */

kern_mm_fn mm_f32_1x1_ref;
kern_quantize_fn quantize_ref;
kern_weave_fn weave_ref;
kern_qmm_fn qmm_ref;
kern_norm_fn norm_ref;
kern_rope_fn rope_pairs_ref, rope_halves_ref;
kern_swiglu_fn swiglu_ref;
kern_softmax_fn softmax_ref;
kern_dots_fn dots_f32_ref, dots_f16_ref;
kern_mix_fn mix_f32_ref, mix_f16_ref;
kern_half_fn half_ref;

#if defined(__x86_64__)
kern_mm_fn mm_f32_4x3_avx2, mm_f32_4x6_avx512;
kern_quantize_fn quantize_avx2;
kern_weave_fn weave_avx2;
quant_levels_fn levels_q8_0_avx2, levels_q4_k_avx2, levels_q5_k_avx2, levels_q6_k_avx2;
kern_expand_fn expand_q4_0_avx2;
kern_expand_tiles_fn expand_tiles_q4_0_avx2, expand_tiles_q8_0_avx2;
kern_expand_tiles_fn expand_tiles_q4_0_avx512vbmi, expand_tiles_q8_0_avx512vbmi;
kern_row_tiles_fn row_tiles_q4_0_avx2;
kern_qmm_fn qmm_avx2, qmm_avxvnni, qmm_avx512vnni, qmm_amx;
kern_unpack_fn unpack_f16_avx2, unpack_bf16_avx2, unpack_q8_0_avx2, unpack_q4_0_avx2;
kern_unpack_fn unpack_f16_avx512, unpack_bf16_avx512, unpack_q8_0_avx512, unpack_q4_0_avx512;
kern_norm_fn norm_avx2, norm_avx512;
kern_rope_fn rope_pairs_avx2, rope_halves_avx2;
kern_swiglu_fn swiglu_avx2, swiglu_avx512;
kern_softmax_fn softmax_avx2, softmax_avx512;
kern_dots_fn dots_f32_avx2, dots_f16_avx2, dots_f32_avx512, dots_f16_avx512;
kern_mix_fn mix_f32_avx2, mix_f16_avx2, mix_f32_avx512, mix_f16_avx512;
kern_half_fn half_avx2;
#elif defined(__aarch64__)
kern_mm_fn mm_f32_4x5_neon;
kern_quantize_fn quantize_neon;
kern_weave_fn weave_neon;
kern_expand_fn expand_q4_0_neon;
kern_expand_tiles_fn expand_tiles_q4_0_neon, expand_tiles_q8_0_neon;
kern_qmm_fn qmm_neon, qmm_dotprod, qmm_i8mm;
kern_unpack_fn unpack_f16_neon, unpack_bf16_neon, unpack_q8_0_neon, unpack_q4_0_neon;
kern_norm_fn norm_neon;
kern_rope_fn rope_pairs_neon, rope_halves_neon;
kern_swiglu_fn swiglu_neon;
kern_softmax_fn softmax_neon;
kern_dots_fn dots_f32_neon, dots_f16_neon;
kern_mix_fn mix_f32_neon, mix_f16_neon;
kern_half_fn half_neon;
#endif

#endif
