/* unpack_avx512.c - packed weights to floats for AVX-512.  Layouts: format/quant.h. */
#include <string.h>

#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx512.h"

/* 16-bit values of src from i on, at most 16 of n; *t: the lanes that exist. */
static inline __m256i load16(const uint8_t *src, size_t i, size_t n, __mmask16 *t)
{
    *t = n - i >= 16 ? 0xffff : tail16((int)(n - i));
    return _mm256_maskz_loadu_epi16(*t, src + 2 * i);
}

void unpack_f16_avx512(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 t;
        __m256i h = load16(src, i, n, &t);
        _mm512_mask_storeu_ps(dst + i, t, _mm512_cvtph_ps(h));
    }
}

void unpack_bf16_avx512(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 t;
        __m256i h = load16(src, i, n, &t);
        _mm512_mask_storeu_ps(dst + i, t, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)));
    }
}

/* The half float scale at the head of a block, in all lanes. */
static inline __m512 scale_of(const uint8_t *block)
{
    uint16_t h;
    memcpy(&h, block, sizeof h);
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

/* 16 signed bytes, scaled. */
static inline void put16(float *dst, __m128i b, __m512 scale)
{
    _mm512_storeu_ps(dst, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b))));
}

/* Block of 32: scale, 32 signed bytes. */
void unpack_q8_0_avx512(float *dst, const void *src, size_t n)
{
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += 32, b += 34) {
        __m512 scale = scale_of(b);
        put16(dst + i, _mm_loadu_si128((const __m128i *)(b + 2)), scale);
        put16(dst + i + 16, _mm_loadu_si128((const __m128i *)(b + 18)), scale);
    }
}

/* Block of 32: scale, 16 bytes whose low nibbles are values 0..15 and high nibbles values 16..31, each 8 too large. */
void unpack_q4_0_avx512(float *dst, const void *src, size_t n)
{
    const uint8_t *b = src;
    const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    for (size_t i = 0; i < n; i += 32, b += 18) {
        __m512 scale = scale_of(b);
        __m128i q = _mm_loadu_si128((const __m128i *)(b + 2));
        put16(dst + i, _mm_sub_epi8(_mm_and_si128(q, low), eight), scale);
        put16(dst + i + 16, _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(q, 4), low), eight), scale);
    }
}
