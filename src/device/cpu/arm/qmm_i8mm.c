/* qmm_i8mm.c - products in integers with smmla, which multiplies 8 values of each of 2 columns with 8 values of each of
 * 2 rows: twice the work of sdot.  A last odd row is computed twice. */
#include <stddef.h>

enum { MR = 4, NV = 2, STEP = 8 };
#include "device/cpu/arm/qmm_tile.h"

static ALWAYS_INLINE int8x16_t two_rows(const int8_t *a, const int8_t *b)
{
    return vcombine_s8(vld1_s8(a), vld1_s8(b));
}

static ALWAYS_INLINE void sums(int mr, shape s, int32x4_t out[MR][NV], const int8_t *const x[MR], const uint8_t *w)
{
    int32x4_t n[(MR + 1) / 2][NV][2]; /* two rows of columns 0 and 1, of columns 2 and 3 */

    for (int i = 0; i < mr; i += 2)
        for (int j = 0; j < NV; j++) n[i / 2][j][0] = n[i / 2][j][1] = vdupq_n_s32(0);
    for (int p = 0; p < s.sub; p += STEP, w += STEP * QCOLS) {
        int8x16_t u[NV][2];
        for (int j = 0; j < NV; j++) {
            const int32x4_t a = vreinterpretq_s32_s8(signed_levels(s, w + j * LANES * QQUAD));
            const int32x4_t b = vreinterpretq_s32_s8(signed_levels(s, w + (QCOLS + j * LANES) * QQUAD));
            u[j][0] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
            u[j][1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
        }
        for (int i = 0; i < mr; i += 2) {
            const int8x16_t v = two_rows(x[i] + p, x[i + 1 < mr ? i + 1 : i] + p);
            for (int j = 0; j < NV; j++)
                for (int h = 0; h < 2; h++) n[i / 2][j][h] = vmmlaq_s32(n[i / 2][j][h], u[j][h], v);
        }
    }
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < NV; j++) {
            const int32x4_t a = n[i / 2][j][0], b = n[i / 2][j][1];
            out[i][j] = i % 2 ? vuzp2q_s32(a, b) : vuzp1q_s32(a, b);
        }
}

void qmm_i8mm(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *g,
              bool add)
{
    by_grid(c, x, ldx, m, w, k, g, add);
}
