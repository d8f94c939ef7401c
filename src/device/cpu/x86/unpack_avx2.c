/* unpack_avx2.c - packed weights to floats for AVX2.  Layouts: format/quant.h. */
#include <string.h>

#include "base/half.h"
#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

void unpack_f16_avx2(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + 2 * i))));
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, s + 2 * i, sizeof h);
        dst[i] = _cvtsh_ss(h);
    }
}

void unpack_bf16_avx2(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(s + 2 * i)));
        _mm256_storeu_ps(dst + i, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
    }
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, s + 2 * i, sizeof h);
        dst[i] = bf16_to_float(h);
    }
}

/* The half float scale at the head of a block, in all lanes. */
static inline __m256 scale_of(const uint8_t *block)
{
    uint16_t h;
    memcpy(&h, block, sizeof h);
    return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

/* 8 signed bytes (the low half of b), scaled. */
static inline void put8(float *dst, __m128i b, __m256 scale)
{
    _mm256_storeu_ps(dst, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b))));
}

static inline void put16(float *dst, __m128i b, __m256 scale)
{
    put8(dst, b, scale);
    put8(dst + 8, _mm_unpackhi_epi64(b, b), scale);
}

/* Block of 32: scale, 32 signed bytes. */
void unpack_q8_0_avx2(float *dst, const void *src, size_t n)
{
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += 32, b += 34) {
        __m256 scale = scale_of(b);
        put16(dst + i, _mm_loadu_si128((const __m128i *)(b + 2)), scale);
        put16(dst + i + 16, _mm_loadu_si128((const __m128i *)(b + 18)), scale);
    }
}

/* Block of 32: scale, 16 bytes whose low nibbles are values 0..15 and high nibbles values 16..31, each 8 too large. */
void unpack_q4_0_avx2(float *dst, const void *src, size_t n)
{
    const uint8_t *b = src;
    const __m128i low = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    for (size_t i = 0; i < n; i += 32, b += 18) {
        __m256 scale = scale_of(b);
        __m128i q = _mm_loadu_si128((const __m128i *)(b + 2));
        put16(dst + i, _mm_sub_epi8(_mm_and_si128(q, low), eight), scale);
        put16(dst + i + 16, _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(q, 4), low), eight), scale);
    }
}

void half_avx2(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(dst + i), h);
    }
    for (; i < n; i++) dst[i] = half_from_float(src[i]);
}
