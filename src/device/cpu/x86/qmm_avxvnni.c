/* qmm_avxvnni.c - products in integers with vpdpbusd in registers of 256 bits: quads of levels times quads of x, added
 * in 32 bits at once. */
#include <immintrin.h>

enum { LANES = 8, NV = 2, SIGNED_BYTES = 0 };
typedef __m256 vec_f;
typedef __m256i vec_i;
#define MR 3
#define VEC(op) _mm256_##op
#include "device/cpu/x86/qmm_tile.h"

static ALWAYS_INLINE void sums(int mr, shape s, vec_i out[MR][NV], const int8_t *const x[MR], const uint8_t *w)
{
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < NV; j++) out[i][j] = _mm256_setzero_si256();
    for (int p = 0; p < s.sub; p += QQUAD, w += QCOLS * QQUAD) {
        __m256i u[NV];
        for (int j = 0; j < NV; j++) u[j] = _mm256_loadu_si256((const __m256i *)(w + j * LANES * QQUAD));
        for (int i = 0; i < mr; i++) {
            const __m256i v = _mm256_set1_epi32(quad_at(x[i] + p));
            for (int j = 0; j < NV; j++) out[i][j] = _mm256_dpbusd_avx_epi32(out[i][j], u[j], v);
        }
    }
}

void qmm_avxvnni(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *g,
                 bool add)
{
    by_grid(c, x, ldx, m, w, k, g, add);
}
