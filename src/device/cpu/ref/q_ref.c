/* q_ref.c - products in integers, plain C: the definition of right for kern.h's second kind of matrix product. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "device/cpu/kern.h"

static const float LEAST = 1e-30f; /* smaller blocks count as zeros: the inverse of their scale would overflow */

/* The largest magnitude; NaN where a value is NaN. */
static float peak(const float *x)
{
    float most = 0;

    for (int i = 0; i < QBLOCK; i++) {
        float a = fabsf(x[i]);
        if (!(a <= most)) most = a;
        if (a != a) return a;
    }
    return most;
}

void quantize_ref(int8_t *q, float *scale, float *sum32, float *sum16, const float *x, size_t k)
{
    for (size_t b = 0; b < k / QBLOCK; b++, q += QBLOCK, x += QBLOCK) {
        float most = peak(x), d = most >= LEAST ? most / 127.0f : 0, inv = d > 0 && most <= FLT_MAX ? 1.0f / d : 0;
        int half[2] = { 0, 0 };

        scale[b] = most == most ? d : most;
        for (int i = 0; i < QBLOCK; i++) {
            q[i] = inv > 0 ? (int8_t)lrintf(x[i] * inv) : 0;
            half[i / QSUB] += q[i];
        }
        sum16[2 * b] = (float)half[0];
        sum16[2 * b + 1] = (float)half[1];
        sum32[b] = (float)(half[0] + half[1]);
    }
}

void weave_ref(uint8_t *panel, const uint8_t *level, size_t ld, int k)
{
    for (int q = 0; q < k / QQUAD; q++)
        for (int j = 0; j < QCOLS; j++)
            memcpy(panel + ((size_t)q * QCOLS + (size_t)j) * QQUAD, level + (size_t)j * ld + (size_t)q * QQUAD, QQUAD);
}

/* One block of one row: c[j] for all columns. */
static void block(float *c, const int8_t *x, float scale, float sum, const kern_qpanel *w, int b, const quant_grid *g)
{
    const uint8_t *level = w->level + (size_t)b * (size_t)g->sub * QCOLS;
    const float *ws = w->scale + (size_t)b * QCOLS, *low = w->low + (size_t)b * QCOLS;
    int s[QCOLS] = { 0 };

    for (int q = 0; q < g->sub; q += QQUAD)
        for (int j = 0; j < QCOLS; j++)
            for (int i = 0; i < QQUAD; i++) s[j] += (level[q * QCOLS + j * QQUAD + i] - g->zero) * x[q + i];
    for (int j = 0; j < QCOLS; j++) {
        if (g->low) c[j] = fmaf(-low[j], scale * sum, c[j]);
        c[j] = fmaf(ws[j] * scale, (float)s[j], c[j]);
    }
}

void qmm_ref(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *grid,
             bool add)
{
    const float *sum = grid->sub == QSUB ? x->sum16 : x->sum32;

    for (int i = 0; i < m; i++, c += QCOLS) {
        const int8_t *q = x->q + (size_t)i * ldx;
        const float *scale = x->scale + (size_t)i * (ldx / QBLOCK);
        const float *sums = sum + (size_t)i * (ldx / (size_t)grid->sub);
        if (!add) memset(c, 0, QCOLS * sizeof *c);
        for (int b = 0; b < k / grid->sub; b++)
            block(c, q + (size_t)b * (size_t)grid->sub, scale[b * grid->sub / QBLOCK], sums[b], w, b, grid);
    }
}
