/* vec_avx2.h - what the AVX2 files share: tails, sums in one fixed order, the exponential. */
#ifndef DEVICE_CPU_X86_VEC_AVX2_H
#define DEVICE_CPU_X86_VEC_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "base/compiler.h"

/* The first n of 8 lanes, 0 <= n <= 8.  Masked loads and stores touch only those; the other lanes read 0. */
static inline __m256i tail8(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n of 8 half floats as floats. */
static inline __m256 load_half_tail(const uint16_t *p, int n)
{
    uint16_t v[8] = { 0 };
    memcpy(v, p, (size_t)n * sizeof *p);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)v));
}

/* The sums of four vectors, each in the same order: ((0+1)+(2+3)) + ((4+5)+(6+7)). */
static inline __m128 sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

static inline float sum1(__m256 a) { return _mm_cvtss_f32(sum4(a, a, a, a)); }

/* e^x, at most 2 ulp from it: x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its series to r^7 / 7! (cut off at 6e-9); 2^n
 * in two factors, so that both ends are reached gradually: 0 below -104, infinity above 88.8.  NaN stays NaN (the order
 * of operands of min and max matters: they return the second when one is NaN). */
static inline __m256 exp8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    x = _mm256_min_ps(_mm256_set1_ps(128.0f), _mm256_max_ps(_mm256_set1_ps(-128.0f), x));
    __m256 n =
        _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x); /* ln 2: the upper 15 bits, then the rest */
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    __m256i e = _mm256_cvtps_epi32(n), e1 = _mm256_srai_epi32(e, 1), e2 = _mm256_sub_epi32(e, e1);
    const __m256i bias = _mm256_set1_epi32(127);
    __m256 s1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e1, bias), 23));
    __m256 s2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e2, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(p, s1), s2);
}

#endif
