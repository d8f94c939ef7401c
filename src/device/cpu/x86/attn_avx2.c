/* attn_avx2.c - attention over a list of slots for AVX2, K,V as float or half (F16C).
 * dots: four columns at a time, so that each piece of q is loaded once; mix: 64 values at a time in registers. */
#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

enum { COLS = 4 };

static ALWAYS_INLINE __m256 load8(bool f16, const void *base, size_t at)
{
    if (f16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)base + at)));
    return _mm256_loadu_ps((const float *)base + at);
}

static ALWAYS_INLINE __m256 load_tail(bool f16, const void *base, size_t at, int n)
{
    if (f16) return load_half_tail((const uint16_t *)base + at, n);
    return _mm256_maskload_ps((const float *)base + at, tail8(n));
}

static ALWAYS_INLINE void dots(bool f16, float *s, const float *q, const void *k, size_t stride, const int32_t *slot,
                               int n, int d, float scale)
{
    for (int c = 0; c < n; c += COLS) {
        size_t at[COLS];
        __m256 acc[COLS];
        int i = 0, nc = n - c < COLS ? n - c : COLS;

        for (int j = 0; j < COLS; j++) { /* columns behind the last repeat it and are not stored */
            at[j] = (size_t)slot[c + (j < nc ? j : nc - 1)] * stride;
            acc[j] = _mm256_setzero_ps();
        }
        for (; i + 8 <= d; i += 8) {
            __m256 v = _mm256_loadu_ps(q + i);
            for (int j = 0; j < COLS; j++) acc[j] = _mm256_fmadd_ps(v, load8(f16, k, at[j] + (size_t)i), acc[j]);
        }
        if (i < d) {
            __m256 v = _mm256_maskload_ps(q + i, tail8(d - i));
            for (int j = 0; j < COLS; j++)
                acc[j] = _mm256_fmadd_ps(v, load_tail(f16, k, at[j] + (size_t)i, d - i), acc[j]);
        }
        float r[COLS];
        _mm_storeu_ps(r, _mm_mul_ps(sum4(acc[0], acc[1], acc[2], acc[3]), _mm_set1_ps(scale)));
        memcpy(s + c, r, (size_t)nc * sizeof *r);
    }
}

/* `vecs` (a constant at each call) vectors of 8 values from value i on. */
static ALWAYS_INLINE void mix_part(bool f16, int vecs, float *out, const float *p, const void *v, size_t stride,
                                   const int32_t *slot, int n, int i, float scale)
{
    __m256 acc[8];

    for (int j = 0; j < vecs; j++) acc[j] = _mm256_setzero_ps();
    for (int c = 0; c < n; c++) {
        __m256 w = _mm256_broadcast_ss(p + c);
        size_t at = (size_t)slot[c] * stride + (size_t)i;
        for (int j = 0; j < vecs; j++) acc[j] = _mm256_fmadd_ps(w, load8(f16, v, at + 8 * (size_t)j), acc[j]);
    }
    for (int j = 0; j < vecs; j++) _mm256_storeu_ps(out + i + 8 * j, _mm256_mul_ps(acc[j], _mm256_set1_ps(scale)));
}

static ALWAYS_INLINE void mix(bool f16, float *out, const float *p, const void *v, size_t stride, const int32_t *slot,
                              int n, int d, float scale)
{
    int i = 0;

    for (; i + 64 <= d; i += 64) mix_part(f16, 8, out, p, v, stride, slot, n, i, scale);
    for (; i + 8 <= d; i += 8) mix_part(f16, 1, out, p, v, stride, slot, n, i, scale);
    if (i == d) return;
    __m256 acc = _mm256_setzero_ps();
    for (int c = 0; c < n; c++)
        acc = _mm256_fmadd_ps(_mm256_broadcast_ss(p + c),
                              load_tail(f16, v, (size_t)slot[c] * stride + (size_t)i, d - i), acc);
    _mm256_maskstore_ps(out + i, tail8(d - i), _mm256_mul_ps(acc, _mm256_set1_ps(scale)));
}

void dots_f32_avx2(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                   float scale)
{
    dots(false, s, q, k, stride, slot, n, d, scale);
}

void dots_f16_avx2(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                   float scale)
{
    dots(true, s, q, k, stride, slot, n, d, scale);
}

void mix_f32_avx2(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                  float scale)
{
    mix(false, out, p, v, stride, slot, n, d, scale);
}

void mix_f16_avx2(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                  float scale)
{
    mix(true, out, p, v, stride, slot, n, d, scale);
}
