/* mm_avx2.c - matrix product for AVX2: 4 rows of x times 3 rows of w, 12 accumulators along k (16 registers: 12 + 3
 * + 1). */
#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

enum { MR = 4, NR = 3 };

static ALWAYS_INLINE __m256 load(const float *p, bool whole, __m256i t)
{
    return whole ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, t);
}

/* One step of k: 8 columns, or (not `whole`) those of the mask t; the others count as 0. */
static ALWAYS_INLINE void step(int mr, __m256 acc[MR][NR], const float *x, size_t ldx, const float *const w[NR], int p,
                               bool whole, __m256i t)
{
    __m256 b[NR];

    for (int j = 0; j < NR; j++) b[j] = load(w[j] + p, whole, t);
    for (int i = 0; i < mr; i++) {
        __m256 v = load(x + (size_t)i * ldx + p, whole, t);
        for (int j = 0; j < NR; j++) acc[i][j] = _mm256_fmadd_ps(v, b[j], acc[i][j]);
    }
}

/* One tile of mr rows (a constant at each call; lanes of rows behind it hold 0) and nj <= 3 columns.  Rows of w
 * behind nj repeat the last, and are not stored. */
static ALWAYS_INLINE void tile(int mr, float *c, size_t ldc, const float *x, size_t ldx, const float *const w[NR],
                               int nj, int k, bool add)
{
    __m256 acc[MR][NR];
    int p = 0;

    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++) acc[i][j] = _mm256_setzero_ps();
    for (; p + 8 <= k; p += 8) step(mr, acc, x, ldx, w, p, true, _mm256_setzero_si256());
    if (p < k) step(mr, acc, x, ldx, w, p, false, tail8(k - p));
    __m128 s[NR];
    for (int j = 0; j < NR; j++) s[j] = sum4(acc[0][j], acc[1][j], acc[2][j], acc[3][j]);
    for (int j = 0; j < NR; j++, c += ldc)
        if (j < nj) _mm_storeu_ps(c, add ? _mm_add_ps(_mm_loadu_ps(c), s[j]) : s[j]);
}

void mm_f32_4x3_avx2(float *c, size_t ldc, const float *x, size_t ldx, int m, const float *w, size_t ldw, int n, int k,
                     bool add)
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
