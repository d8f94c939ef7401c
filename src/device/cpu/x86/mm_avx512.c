/* mm_avx512.c - matrix product for AVX-512: 4 rows of x times 6 rows of w, 24 accumulators along k (32 registers:
 * 24 + 6 + 1). */
#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx512.h"

enum { MR = 4, NR = 6 };

/* One step of k: lanes outside the mask count as 0. */
static ALWAYS_INLINE void step(int mr, __m512 acc[MR][NR], const float *x, size_t ldx, const float *const w[NR], int p,
                               __mmask16 t)
{
    __m512 b[NR];

    for (int j = 0; j < NR; j++) b[j] = _mm512_maskz_loadu_ps(t, w[j] + p);
    for (int i = 0; i < mr; i++) {
        __m512 v = _mm512_maskz_loadu_ps(t, x + (size_t)i * ldx + p);
        for (int j = 0; j < NR; j++) acc[i][j] = _mm512_fmadd_ps(v, b[j], acc[i][j]);
    }
}

/* One tile of mr rows (a constant at each call; lanes of rows behind it hold 0) and nj <= 6 columns.  Rows of w
 * behind nj repeat the last, and are not stored. */
static ALWAYS_INLINE void tile(int mr, float *c, size_t ldc, const float *x, size_t ldx, const float *const w[NR],
                               int nj, int k, bool add)
{
    __m512 acc[MR][NR];
    int p = 0;

    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++) acc[i][j] = _mm512_setzero_ps();
    for (; p + 16 <= k; p += 16) step(mr, acc, x, ldx, w, p, 0xffff);
    if (p < k) step(mr, acc, x, ldx, w, p, tail16(k - p));
    __m128 s[NR];
    for (int j = 0; j < NR; j++)
        s[j] = sum4(fold16(acc[0][j]), fold16(acc[1][j]), fold16(acc[2][j]), fold16(acc[3][j]));
    for (int j = 0; j < NR; j++, c += ldc)
        if (j < nj) _mm_storeu_ps(c, add ? _mm_add_ps(_mm_loadu_ps(c), s[j]) : s[j]);
}

void mm_f32_4x6_avx512(float *c, size_t ldc, const float *x, size_t ldx, int m, const float *w, size_t ldw, int n,
                       int k, bool add)
{
    for (int i = 0; i < m; i += MR) {
        const float *xi = x + (size_t)i * ldx;
        for (int j = 0; j < n; j += NR) {
            const float *wj[NR];
            int nj = n - j < NR ? n - j : NR;
            float *cj = c + (size_t)j * ldc + i;
            for (int q = 0; q < NR; q++) wj[q] = w + (size_t)(j + (q < nj ? q : nj - 1)) * ldw;
            switch (m - i) {
            case 1: tile(1, cj, ldc, xi, ldx, wj, nj, k, add); break;
            case 2: tile(2, cj, ldc, xi, ldx, wj, nj, k, add); break;
            case 3: tile(3, cj, ldc, xi, ldx, wj, nj, k, add); break;
            default: tile(4, cj, ldc, xi, ldx, wj, nj, k, add); break;
            }
        }
    }
}
