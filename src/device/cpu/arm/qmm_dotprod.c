/* qmm_dotprod.c - products in integers with sdot, which multiplies a quad of each of 4 columns with a quad of x. */
#include <stddef.h>

enum { MR = 4, NV = 2 };
#include "device/cpu/arm/qmm_tile.h"

/* One quad, the lane-th of 16 values of x; a lane must be written as a number. */
#define QUAD(lane)                                                                                                     \
    for (int j = 0; j < NV; j++) u[j] = signed_levels(s, w + ((lane) * QCOLS + j * LANES) * QQUAD);                    \
    for (int i = 0; i < mr; i++)                                                                                       \
        for (int j = 0; j < NV; j++) out[i][j] = vdotq_laneq_s32(out[i][j], u[j], v[i], lane)

static ALWAYS_INLINE void sums(int mr, shape s, int32x4_t out[MR][NV], const int8_t *const x[MR], const uint8_t *w)
{
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < NV; j++) out[i][j] = vdupq_n_s32(0);
    for (int p = 0; p < s.sub; p += 16, w += 16 * QCOLS) {
        int8x16_t u[NV], v[MR];
        for (int i = 0; i < mr; i++) v[i] = vld1q_s8(x[i] + p);
        QUAD(0);
        QUAD(1);
        QUAD(2);
        QUAD(3);
    }
}

void qmm_dotprod(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *g,
                 bool add)
{
    by_grid(c, x, ldx, m, w, k, g, add);
}
