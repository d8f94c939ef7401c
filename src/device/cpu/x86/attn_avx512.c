/* attn_avx512.c - attention over a list of slots for AVX-512, K,V as float or half.
 * dots: four columns at a time, so that each piece of q is loaded once; mix: 128 values at a time in registers. */
#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx512.h"

enum { COLS = 4 };

static ALWAYS_INLINE __m512 load(bool f16, const void *base, size_t at, __mmask16 t)
{
    if (f16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(t, (const uint16_t *)base + at));
    return _mm512_maskz_loadu_ps(t, (const float *)base + at);
}

static ALWAYS_INLINE void dots(bool f16, float *s, const float *q, const void *k, size_t stride, const int32_t *slot,
                               int n, int d, float scale)
{
    for (int c = 0; c < n; c += COLS) {
        size_t at[COLS];
        __m512 acc[COLS];
        int nc = n - c < COLS ? n - c : COLS;

        for (int j = 0; j < COLS; j++) { /* columns behind the last repeat it and are not stored */
            at[j] = (size_t)slot[c + (j < nc ? j : nc - 1)] * stride;
            acc[j] = _mm512_setzero_ps();
        }
        for (int i = 0; i < d; i += 16) {
            __mmask16 t = d - i >= 16 ? 0xffff : tail16(d - i);
            __m512 v = _mm512_maskz_loadu_ps(t, q + i);
            for (int j = 0; j < COLS; j++) acc[j] = _mm512_fmadd_ps(v, load(f16, k, at[j] + (size_t)i, t), acc[j]);
        }
        float r[COLS];
        __m128 sums = sum4(fold16(acc[0]), fold16(acc[1]), fold16(acc[2]), fold16(acc[3]));
        _mm_storeu_ps(r, _mm_mul_ps(sums, _mm_set1_ps(scale)));
        memcpy(s + c, r, (size_t)nc * sizeof *r);
    }
}

/* `vecs` (a constant at each call) vectors of 16 values from value i on; t: lanes of each. */
static ALWAYS_INLINE void mix_part(bool f16, int vecs, float *out, const float *p, const void *v, size_t stride,
                                   const int32_t *slot, int n, int i, __mmask16 t, float scale)
{
    __m512 acc[8];

    for (int j = 0; j < vecs; j++) acc[j] = _mm512_setzero_ps();
    for (int c = 0; c < n; c++) {
        __m512 w = _mm512_set1_ps(p[c]);
        size_t at = (size_t)slot[c] * stride + (size_t)i;
        for (int j = 0; j < vecs; j++) acc[j] = _mm512_fmadd_ps(w, load(f16, v, at + 16 * (size_t)j, t), acc[j]);
    }
    for (int j = 0; j < vecs; j++)
        _mm512_mask_storeu_ps(out + i + 16 * j, t, _mm512_mul_ps(acc[j], _mm512_set1_ps(scale)));
}

static ALWAYS_INLINE void mix(bool f16, float *out, const float *p, const void *v, size_t stride, const int32_t *slot,
                              int n, int d, float scale)
{
    int i = 0;

    for (; i + 128 <= d; i += 128) mix_part(f16, 8, out, p, v, stride, slot, n, i, 0xffff, scale);
    for (; i + 64 <= d; i += 64) mix_part(f16, 4, out, p, v, stride, slot, n, i, 0xffff, scale);
    for (; i < d; i += 16) mix_part(f16, 1, out, p, v, stride, slot, n, i, d - i >= 16 ? 0xffff : tail16(d - i), scale);
}

void dots_f32_avx512(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                     float scale)
{
    dots(false, s, q, k, stride, slot, n, d, scale);
}

void dots_f16_avx512(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                     float scale)
{
    dots(true, s, q, k, stride, slot, n, d, scale);
}

void mix_f32_avx512(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                    float scale)
{
    mix(false, out, p, v, stride, slot, n, d, scale);
}

void mix_f16_avx512(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                    float scale)
{
    mix(true, out, p, v, stride, slot, n, d, scale);
}
