/* mm_neon.c - matrix product for NEON: 4 rows of x times 5 rows of w, 20 accumulators along k (32 registers: 20 + 5
 * + 4). */
#include "device/cpu/arm/vec_neon.h"
#include "device/cpu/kern.h"

enum { MR = 4, NR = 5 };

static ALWAYS_INLINE float32x4_t load(const float *p, bool whole, int left)
{
    return whole ? vld1q_f32(p) : load_part(p, left);
}

/* One step of k: 4 columns, or (not `whole`) the `left` last ones; the others count as 0. */
static ALWAYS_INLINE void step(int mr, float32x4_t acc[MR][NR], const float *x, size_t ldx, const float *const w[NR],
                               int p, bool whole, int left)
{
    float32x4_t b[NR];

    for (int j = 0; j < NR; j++) b[j] = load(w[j] + p, whole, left);
    for (int i = 0; i < mr; i++) {
        float32x4_t v = load(x + (size_t)i * ldx + p, whole, left);
        for (int j = 0; j < NR; j++) acc[i][j] = vfmaq_f32(acc[i][j], v, b[j]);
    }
}

/* One tile of mr rows (a constant at each call; lanes of rows behind it hold 0) and nj <= 5 columns.  Rows of w
 * behind nj repeat the last, and are not stored. */
static ALWAYS_INLINE void tile(int mr, float *c, size_t ldc, const float *x, size_t ldx, const float *const w[NR],
                               int nj, int k, bool add)
{
    float32x4_t acc[MR][NR], s[NR];
    int p = 0;

    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++) acc[i][j] = vdupq_n_f32(0);
    for (; p + 4 <= k; p += 4) step(mr, acc, x, ldx, w, p, true, 0);
    if (p < k) step(mr, acc, x, ldx, w, p, false, k - p);
    for (int j = 0; j < NR; j++) s[j] = sum4(acc[0][j], acc[1][j], acc[2][j], acc[3][j]);
    for (int j = 0; j < NR; j++, c += ldc)
        if (j < nj) vst1q_f32(c, add ? vaddq_f32(vld1q_f32(c), s[j]) : s[j]);
}

void mm_f32_4x5_neon(float *c, size_t ldc, const float *x, size_t ldx, int m, const float *w, size_t ldw, int n, int k,
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
