/* row_avx512.c - norm, gate and softmax for AVX-512. */
#include <math.h>

#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx512.h"

static inline __mmask16 lanes(size_t left) { return left >= 16 ? 0xffff : tail16((int)left); }

/* Squares add up in double, 16 lanes: a float's square is exact there. */
static double sum_of_squares(const float *x, int n)
{
    __m512d lo = _mm512_setzero_pd(), hi = lo;
    for (int i = 0; i < n; i += 16) {
        __m512 v = _mm512_maskz_loadu_ps(lanes((size_t)(n - i)), x + i);
        __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v)), b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        lo = _mm512_fmadd_pd(a, a, lo);
        hi = _mm512_fmadd_pd(b, b, hi);
    }
    double s[8];
    _mm512_storeu_pd(s, _mm512_add_pd(lo, hi));
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

void norm_avx512(float *out, const float *x, const float *w, int n, float eps)
{
    const __m512 f = _mm512_set1_ps((float)(1.0 / sqrt(sum_of_squares(x, n) / n + eps)));
    for (int i = 0; i < n; i += 16) {
        __mmask16 t = lanes((size_t)(n - i));
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(t, x + i), f);
        _mm512_mask_storeu_ps(out + i, t, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(t, w + i)));
    }
}

void swiglu_avx512(float *out, const float *a, const float *b, size_t n)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 t = lanes(n - i);
        __m512 v = _mm512_maskz_loadu_ps(t, a + i);
        __m512 e = exp16(_mm512_sub_ps(_mm512_setzero_ps(), v));
        __m512 gate = _mm512_div_ps(v, _mm512_add_ps(one, e));
        _mm512_mask_storeu_ps(out + i, t, _mm512_mul_ps(gate, _mm512_maskz_loadu_ps(t, b + i)));
    }
}

float softmax_avx512(float *s, int n)
{
    __m512 top = _mm512_set1_ps(s[0]), sum = _mm512_setzero_ps();
    float lane[16], max = s[0];

    for (int i = 0; i < n; i += 16)
        top =
            _mm512_mask_max_ps(top, lanes((size_t)(n - i)), top, _mm512_maskz_loadu_ps(lanes((size_t)(n - i)), s + i));
    _mm512_storeu_ps(lane, top);
    for (int l = 0; l < 16; l++) max = lane[l] > max ? lane[l] : max;
    for (int i = 0; i < n; i += 16) {
        __mmask16 t = lanes((size_t)(n - i));
        __m512 e = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(t, s + i), _mm512_set1_ps(max)));
        _mm512_mask_storeu_ps(s + i, t, e);
        sum = _mm512_mask_add_ps(sum, t, sum, e);
    }
    return sum1(fold16(sum));
}
