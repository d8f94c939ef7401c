/* qmm_avx512vnni.c - products in integers with vpdpbusd in registers of 512 bits: a tile is 6 rows by all columns of a
 * panel, so that 12 sums hide the instruction's latency. */
#include <immintrin.h>

enum { LANES = 16, NV = 2, SIGNED_BYTES = 0 };
typedef __m512 vec_f;
typedef __m512i vec_i;
#define MR 6
#define VEC(op) _mm512_##op
#include "device/cpu/x86/qmm_tile.h"

static ALWAYS_INLINE void sums(int mr, shape s, vec_i out[MR][NV], const int8_t *const x[MR], const uint8_t *w)
{
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < NV; j++) out[i][j] = _mm512_setzero_si512();
    for (int p = 0; p < s.sub; p += QQUAD, w += QCOLS * QQUAD) {
        __m512i u[NV];
        for (int j = 0; j < NV; j++) u[j] = _mm512_loadu_si512(w + j * LANES * QQUAD);
        for (int i = 0; i < mr; i++) {
            const __m512i v = _mm512_set1_epi32(quad_at(x[i] + p));
            for (int j = 0; j < NV; j++) out[i][j] = _mm512_dpbusd_epi32(out[i][j], u[j], v);
        }
    }
}

void qmm_avx512vnni(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *g,
                    bool add)
{
    by_grid(c, x, ldx, m, w, k, g, add);
}
