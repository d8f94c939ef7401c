/* mm_ref.c - matrix product in plain C.  Sixteen partial sums a product let any compiler use its vectors without
 * re-ordering anything; they are folded in halves at the end. */
#include "device/cpu/kern.h"

enum { LANES = 16 };

static float dot(const float *x, const float *w, int k)
{
    float s[LANES] = { 0 };
    int i = 0;

    for (; i + LANES <= k; i += LANES)
        for (int l = 0; l < LANES; l++) s[l] += x[i + l] * w[i + l];
    for (int l = 0; i + l < k; l++) s[l] += x[i + l] * w[i + l];
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) s[l] += s[l + half];
    return s[0];
}

void mm_f32_1x1_ref(float *c, size_t ldc, const float *x, size_t ldx, int m, const float *w, size_t ldw, int n, int k,
                    bool add)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            float v = dot(x + (size_t)i * ldx, w + (size_t)j * ldw, k);
            float *to = c + (size_t)j * ldc + i;
            *to = add ? *to + v : v;
        }
}
