/* row_avx2.c - norm, rotation, gate and softmax for AVX2. */
#include <math.h>

#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

/* Squares add up in double, 8 lanes: a float's square is exact there. */
static double sum_of_squares(const float *x, int n)
{
    __m256d lo = _mm256_setzero_pd(), hi = lo;
    for (int i = 0; i < n; i += 8) {
        __m256 v = n - i >= 8 ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, tail8(n - i));
        __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v)), b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        lo = _mm256_fmadd_pd(a, a, lo);
        hi = _mm256_fmadd_pd(b, b, hi);
    }
    double s[4];
    _mm256_storeu_pd(s, _mm256_add_pd(lo, hi));
    return (s[0] + s[1]) + (s[2] + s[3]);
}

void norm_avx2(float *out, const float *x, const float *w, int n, float eps)
{
    float scale = (float)(1.0 / sqrt(sum_of_squares(x, n) / n + eps));
    __m256 f = _mm256_set1_ps(scale);
    int i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), f), _mm256_loadu_ps(w + i)));
    for (; i < n; i++) out[i] = x[i] * scale * w[i];
}

void rope_pairs_avx2(float *x, const float *cs, int half)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const float *sn = cs + half;
    int i = 0;

    for (; i + 4 <= half; i += 4) { /* four pairs: even lanes a cos - b sin, odd lanes b cos + a sin */
        __m256 v = _mm256_loadu_ps(x + 2 * i), swap = _mm256_permute_ps(v, 0xb1);
        __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cs + i)), twice);
        __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sn + i)), twice);
        _mm256_storeu_ps(x + 2 * i, _mm256_addsub_ps(_mm256_mul_ps(v, c), _mm256_mul_ps(swap, s)));
    }
    for (; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cs[i] - b * sn[i];
        x[2 * i + 1] = b * cs[i] + a * sn[i];
    }
}

void rope_halves_avx2(float *x, const float *cs, int half)
{
    const float *sn = cs + half;
    float *y = x + half;
    int i = 0;

    for (; i + 8 <= half; i += 8) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(y + i);
        __m256 c = _mm256_loadu_ps(cs + i), s = _mm256_loadu_ps(sn + i);
        _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
    }
    for (; i < half; i++) {
        float a = x[i], b = y[i];
        x[i] = a * cs[i] - b * sn[i];
        y[i] = b * cs[i] + a * sn[i];
    }
}

static inline __m256 swiglu8(__m256 a, __m256 b)
{
    __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), a));
    return _mm256_mul_ps(_mm256_div_ps(a, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), b);
}

void swiglu_avx2(float *out, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, swiglu8(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
    if (i < n) {
        __m256i t = tail8((int)(n - i));
        _mm256_maskstore_ps(out + i, t, swiglu8(_mm256_maskload_ps(a + i, t), _mm256_maskload_ps(b + i, t)));
    }
}

float softmax_avx2(float *s, int n)
{
    __m256 top = _mm256_set1_ps(s[0]), sum = _mm256_setzero_ps();
    float lane[8], max = s[0];
    int i = 0;

    for (; i + 8 <= n; i += 8) top = _mm256_max_ps(top, _mm256_loadu_ps(s + i));
    _mm256_storeu_ps(lane, top);
    for (int l = 0; l < 8; l++) max = lane[l] > max ? lane[l] : max;
    for (; i < n; i++) max = s[i] > max ? s[i] : max;

    const __m256 m = _mm256_set1_ps(max);
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(s + i), m));
        _mm256_storeu_ps(s + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    if (i < n) {
        __m256i t = tail8(n - i);
        __m256 e = exp8(_mm256_sub_ps(_mm256_maskload_ps(s + i, t), m));
        e = _mm256_and_ps(e, _mm256_castsi256_ps(t));
        _mm256_maskstore_ps(s + i, t, e);
        sum = _mm256_add_ps(sum, e);
    }
    return sum1(sum);
}
