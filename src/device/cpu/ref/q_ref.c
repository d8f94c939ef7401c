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

/* The squared error of a block whose values are rounded to whole multiples of 1 / inv, in units of that squared.  Added
 * in the order of eight lanes: every kernel must choose the same scale. */
static float rounding_error(const float *x, float inv)
{
    float lane[8] = { 0 };

    for (int i = 0; i < QBLOCK; i++) {
        const float v = x[i] * inv, off = v - rintf(v);
        lane[i % 8] = fmaf(off, off, lane[i % 8]);
    }
    for (int half = 4; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* The largest magnitude is `most`: how many steps of the best scale it takes; of equals the largest. */
static float best_steps(const float *x, float most)
{
    float best = 0, least = INFINITY;

    for (int i = 0; i < QSCALES; i++) {
        const float steps = 127.0f - (float)i, ratio = 127.0f / steps;
        const float error = rounding_error(x, 1.0f / (most / steps)) * (ratio * ratio);
        if (error < least) {
            least = error;
            best = steps;
        }
    }
    return best;
}

void quantize_ref(int8_t *q, float *scale, float *sum32, float *sum16, const float *x, size_t k)
{
    for (size_t b = 0; b < k / QBLOCK; b++, q += QBLOCK, x += QBLOCK) {
        const float most = peak(x);
        const bool ordinary = most >= LEAST && most <= FLT_MAX;
        const float d = ordinary ? most / best_steps(x, most) : 0, inv = ordinary ? 1.0f / d : 0;
        int half[2] = { 0, 0 };

        scale[b] = ordinary || most < LEAST ? d : most; /* infinity or NaN */
        for (int i = 0; i < QBLOCK; i++) {
            q[i] = ordinary ? (int8_t)lrintf(x[i] * inv) : 0;
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
