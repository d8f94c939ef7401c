/* qmm_tile.h - products in integers for NEON (see kern.h): what the forms of it share.  The file that includes this has
 * said how large a tile is, MR rows by NV * 4 columns, and defines sums(). */
#ifndef DEVICE_CPU_ARM_QMM_TILE_H
#define DEVICE_CPU_ARM_QMM_TILE_H

#include "device/cpu/arm/vec_neon.h"
#include "device/cpu/kern.h"

enum { LANES = 4 };

/* How the levels of a grid are multiplied: constants at each call of tile(). */
typedef struct {
    int sub;
    bool wide; /* 8-bit levels, and so a zero of 128; others are signed bytes as they are */
    bool low;
} shape;

/* Exact sums over one block of the grid, of mr rows and NV * 4 columns: of x (level - 128) where `wide`, else of
 * x level. */
static ALWAYS_INLINE void sums(int mr, shape s, int32x4_t out[MR][NV], const int8_t *const x[MR], const uint8_t *w);

static ALWAYS_INLINE int8x16_t signed_levels(shape s, const uint8_t *w)
{
    const uint8x16_t u = vld1q_u8(w);
    return vreinterpretq_s8_u8(s.wide ? veorq_u8(u, vdupq_n_u8(128)) : u);
}

/* mr rows from row i0 on and the columns from `col` on, all of k. */
static ALWAYS_INLINE void tile(int mr, shape s, float *c, const kern_qrows *x, size_t ldx, int i0, int col,
                               const kern_qpanel *w, int k, int zero, bool add)
{
    const float *sum = s.sub == QSUB ? x->sum16 : x->sum32, *scale[MR], *total[MR];
    const float32x4_t zeros = vdupq_n_f32((float)zero);
    const int8_t *q[MR];
    float32x4_t acc[MR][NV];

    c += (size_t)i0 * QCOLS + col;
    for (int i = 0; i < mr; i++) {
        const size_t at = (size_t)(i0 + i) * ldx;
        q[i] = x->q + at;
        scale[i] = x->scale + at / QBLOCK;
        total[i] = sum + at / (size_t)s.sub;
        for (int j = 0; j < NV; j++) acc[i][j] = add ? vld1q_f32(c + i * QCOLS + j * LANES) : vdupq_n_f32(0);
    }
    for (int b = 0; b < k / s.sub; b++) {
        const size_t row = (size_t)b * QCOLS + (size_t)col;
        int32x4_t n[MR][NV];
        sums(mr, s, n, q, w->level + (size_t)b * (size_t)s.sub * QCOLS + (size_t)col * QQUAD);
        for (int i = 0; i < mr; i++) {
            const float d = scale[i][b * s.sub / QBLOCK];
            const float32x4_t t = vdupq_n_f32(total[i][b]);
            for (int j = 0; j < NV; j++) {
                float32x4_t f = vcvtq_f32_s32(n[i][j]), ws = vld1q_f32(w->scale + row + j * LANES);
                if (s.low)
                    acc[i][j] = vfmsq_f32(acc[i][j], vld1q_f32(w->low + row + j * LANES), vmulq_n_f32(t, d));
                else if (!s.wide)
                    f = vfmsq_f32(f, zeros, t); /* whole numbers below 2^24: exact */
                acc[i][j] = vfmaq_f32(acc[i][j], vmulq_n_f32(ws, d), f);
            }
            q[i] += s.sub;
        }
    }
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < NV; j++) vst1q_f32(c + i * QCOLS + j * LANES, acc[i][j]);
}

static ALWAYS_INLINE void all_rows(shape s, float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w,
                                   int k, int zero, bool add)
{
    for (int i = 0; i < m; i += MR)
        for (int col = 0; col < QCOLS; col += NV * LANES)
            switch (m - i) {
            case 1: tile(1, s, c, x, ldx, i, col, w, k, zero, add); break;
            case 2: tile(2, s, c, x, ldx, i, col, w, k, zero, add); break;
            case 3: tile(3, s, c, x, ldx, i, col, w, k, zero, add); break;
            default: tile(4, s, c, x, ldx, i, col, w, k, zero, add); break;
            }
}

/* What a kernel does, by the shape of the grid. */
static ALWAYS_INLINE void by_grid(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k,
                                  const quant_grid *g, bool add)
{
    if (g->sub == QSUB && g->low)
        all_rows((shape){ QSUB, false, true }, c, x, ldx, m, w, k, 0, add);
    else if (g->sub == QSUB)
        all_rows((shape){ QSUB, false, false }, c, x, ldx, m, w, k, g->zero, add);
    else if (g->bits == 8)
        all_rows((shape){ QBLOCK, true, false }, c, x, ldx, m, w, k, 0, add);
    else if (g->low)
        all_rows((shape){ QBLOCK, false, true }, c, x, ldx, m, w, k, 0, add);
    else
        all_rows((shape){ QBLOCK, false, false }, c, x, ldx, m, w, k, g->zero, add);
}

#endif
