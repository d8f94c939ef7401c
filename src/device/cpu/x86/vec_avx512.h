/* vec_avx512.h - what the AVX-512 files share: tails, sums in one fixed order, the exponential. */
#ifndef DEVICE_CPU_X86_VEC_AVX512_H
#define DEVICE_CPU_X86_VEC_AVX512_H

#include "device/cpu/x86/vec_avx2.h"

/* The first n of 16 lanes, 0 <= n <= 16. */
static inline __mmask16 tail16(int n) { return (__mmask16)((1u << n) - 1); }

/* Upper half added to the lower. */
static inline __m256 fold16(__m512 v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }

/* exp8 of vec_avx2.h with sixteen lanes; one scaling instruction does both ends gradually. */
static inline __m512 exp16(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    x = _mm512_min_ps(_mm512_set1_ps(128.0f), _mm512_max_ps(_mm512_set1_ps(-128.0f), x));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    return _mm512_scalef_ps(p, n);
}

#endif
