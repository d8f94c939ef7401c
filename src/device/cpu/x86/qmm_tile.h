/* qmm_tile.h - products in integers for x86-64 (see kern.h): what the forms of it share, whatever the width of their
 * vectors.  The file that includes this has said
 *   vec_f, vec_i, VEC(op)   registers of floats and of integers, LANES 32-bit values each, and the name of an operation
 *   MR, NV                  the size of a tile: rows (3 or 6), and registers of columns
 *   SIGNED_BYTES            8-bit levels are made signed, which takes their zero of 128 away
 * and defines sums(). */
#ifndef DEVICE_CPU_X86_QMM_TILE_H
#define DEVICE_CPU_X86_QMM_TILE_H

#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

/* How the levels of a grid are multiplied: constants at each call of tile(). */
typedef struct {
    int sub, run; /* run: quads whose products of pairs fit in 16 bits, 0: 8-bit levels; only for SIGNED_BYTES */
    bool low;
} shape;

/* The operands of a kernel. */
typedef struct {
    float *c;
    const kern_qrows *x;
    size_t ldx;
    const kern_qpanel *w;
    int k, zero;
    bool add;
} operands;

/* Exact sums over one block of the grid, of mr rows and NV * LANES columns. */
static ALWAYS_INLINE void sums(int mr, shape s, vec_i out[MR][NV], const int8_t *const x[MR], const uint8_t *w);

static ALWAYS_INLINE int32_t quad_at(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* mr rows from row i0 on and the columns from `col` on, all of k. */
static ALWAYS_INLINE void tile(int mr, shape s, const operands *o, int i0, int col)
{
    const float *sum = s.sub == QSUB ? o->x->sum16 : o->x->sum32, *scale[MR], *total[MR];
    const vec_f zeros = VEC(set1_ps)((float)o->zero);
    const int8_t *q[MR];
    float *c = o->c + (size_t)i0 * QCOLS + col;
    vec_f acc[MR][NV];

    for (int i = 0; i < mr; i++) {
        const size_t at = (size_t)(i0 + i) * o->ldx;
        q[i] = o->x->q + at;
        scale[i] = o->x->scale + at / QBLOCK;
        total[i] = sum + at / (size_t)s.sub;
        for (int j = 0; j < NV; j++)
            acc[i][j] = o->add ? VEC(loadu_ps)(c + i * QCOLS + j * LANES) : VEC(setzero_ps)();
    }
    for (int b = 0; b < o->k / s.sub; b++) {
        const size_t row = (size_t)b * QCOLS + (size_t)col;
        const float *ws = o->w->scale + row, *low = o->w->low + row;
        vec_i n[MR][NV];
        sums(mr, s, n, q, o->w->level + (size_t)b * (size_t)s.sub * QCOLS + (size_t)col * QQUAD);
        for (int i = 0; i < mr; i++) {
            const vec_f d = VEC(set1_ps)(scale[i][b * s.sub / QBLOCK]), t = VEC(set1_ps)(total[i][b]);
            for (int j = 0; j < NV; j++) {
                vec_f f = VEC(cvtepi32_ps)(n[i][j]);
                if (s.low)
                    acc[i][j] = VEC(fnmadd_ps)(VEC(loadu_ps)(low + j * LANES), VEC(mul_ps)(d, t), acc[i][j]);
                else if (s.run)
                    f = VEC(fnmadd_ps)(zeros, t, f); /* whole numbers below 2^24: exact */
                acc[i][j] = VEC(fmadd_ps)(VEC(mul_ps)(VEC(loadu_ps)(ws + j * LANES), d), f, acc[i][j]);
            }
            q[i] += s.sub;
        }
    }
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < NV; j++) VEC(storeu_ps)(c + i * QCOLS + j * LANES, acc[i][j]);
}

static ALWAYS_INLINE void all_rows(shape s, const operands *o, int m)
{
    for (int i = 0; i < m; i += MR)
        for (int col = 0; col < QCOLS; col += NV * LANES)
            switch (m - i < MR ? m - i : MR) {
            case 1: tile(1, s, o, i, col); break;
            case 2: tile(2, s, o, i, col); break;
            case 3: tile(3, s, o, i, col); break;
#if MR > 3
            case 4: tile(4, s, o, i, col); break;
            case 5: tile(5, s, o, i, col); break;
            case 6: tile(6, s, o, i, col); break;
#endif
            }
}

/* What a kernel does, by the shape of the grid. */
static ALWAYS_INLINE void by_grid(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k,
                                  const quant_grid *g, bool add)
{
    const operands o = { c, x, ldx, w, k, g->zero, add };

    if (g->sub == QSUB && g->low)
        all_rows((shape){ QSUB, 2, true }, &o, m);
    else if (g->sub == QSUB)
        all_rows((shape){ QSUB, 2, false }, &o, m);
    else if (SIGNED_BYTES && g->bits == 8)
        all_rows((shape){ QBLOCK, 0, false }, &o, m);
    else if (SIGNED_BYTES && g->bits == 5 && g->low)
        all_rows((shape){ QBLOCK, 4, true }, &o, m);
    else if (SIGNED_BYTES && g->bits == 5)
        all_rows((shape){ QBLOCK, 4, false }, &o, m);
    else if (g->low)
        all_rows((shape){ QBLOCK, 8, true }, &o, m);
    else
        all_rows((shape){ QBLOCK, 8, false }, &o, m);
}

#endif
