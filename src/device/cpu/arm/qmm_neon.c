/* qmm_neon.c - products in integers with what every 64-bit ARM has.  Products of bytes are added in 16 bits, which hold
 * a whole block of levels of 5 bits (8 * 31 * 127 = 31496) or of 6 bits where a block is 16 values (4 * 63 * 127 =
 * 32004), and two quads of signed bytes (2 * 128 * 127 = 32512). */
#include <stddef.h>

enum { MR = 4, NV = 1, WIDE_RUN = 2 };
#include "device/cpu/arm/qmm_tile.h"

static ALWAYS_INLINE int8x8_t quad_twice(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return vreinterpret_s8_s32(vdup_n_s32(v));
}

static ALWAYS_INLINE void sums(int mr, shape s, int32x4_t out[MR][NV], const int8_t *const x[MR], const uint8_t *w)
{
    const int quads = s.sub / QQUAD, run = s.wide ? WIDE_RUN : quads;
    int32x4_t halves[MR][2]; /* columns 0 0 1 1, columns 2 2 3 3 */

    for (int i = 0; i < mr; i++) halves[i][0] = halves[i][1] = vdupq_n_s32(0);
    for (int q = 0; q < quads; q += run) {
        int16x8_t n[MR][2];
        for (int i = 0; i < mr; i++) n[i][0] = n[i][1] = vdupq_n_s16(0);
        for (int r = q; r < q + run; r++, w += QCOLS * QQUAD) {
            const int8x16_t u = signed_levels(s, w);
            for (int i = 0; i < mr; i++) {
                const int8x8_t v = quad_twice(x[i] + r * QQUAD);
                n[i][0] = vmlal_s8(n[i][0], vget_low_s8(u), v);
                n[i][1] = vmlal_s8(n[i][1], vget_high_s8(u), v);
            }
        }
        for (int i = 0; i < mr; i++)
            for (int h = 0; h < 2; h++) halves[i][h] = vpadalq_s16(halves[i][h], n[i][h]);
    }
    for (int i = 0; i < mr; i++) out[i][0] = vpaddq_s32(halves[i][0], halves[i][1]);
}

void qmm_neon(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *g,
              bool add)
{
    by_grid(c, x, ldx, m, w, k, g, add);
}
