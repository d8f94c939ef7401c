/* levels_avx2.c - rows of the formats with super-blocks, and of Q8_0, to levels for AVX2.  Layouts: format/quant_k.c. */
#include <string.h>

#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

enum { SUPER = 256 };

static ALWAYS_INLINE __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

static ALWAYS_INLINE void store32(uint8_t *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }

static ALWAYS_INLINE float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}

/* (v >> shift) & mask of each byte. */
static ALWAYS_INLINE __m256i bits_of(__m256i v, int shift, int mask)
{
    return _mm256_and_si256(_mm256_srl_epi16(v, _mm_cvtsi32_si128(shift)), _mm256_set1_epi8((char)mask));
}

static ALWAYS_INLINE void put_8(float *to, float d, uint32_t lo, uint32_t hi)
{
    const __m128i bytes = _mm_insert_epi32(_mm_cvtsi32_si128((int)lo), (int)hi, 1);
    _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))));
}

/* Eight scales and minima of six bits (see scale_min in format/quant_k.c), four to a word. */
static ALWAYS_INLINE void scales_mins(float *scale, float *low, const uint8_t *s)
{
    const uint32_t six = 0x3f3f3f3fu, four = 0x0f0f0f0fu, two = 0x03030303u;
    uint32_t w[3];
    memcpy(w, s + 4, sizeof w);
    put_8(scale, half_at(s), w[0] & six, (w[2] & four) | (w[0] >> 6 & two) << 4);
    put_8(low, half_at(s + 2), w[1] & six, (w[2] >> 4 & four) | (w[1] >> 6 & two) << 4);
}

void levels_q8_0_avx2(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const __m256i top = _mm256_set1_epi8((char)128);
    const uint8_t *s = src;

    for (; n; n -= 32, s += 34, level += 32) {
        *scale++ = half_at(s);
        store32(level, _mm256_xor_si256(load32(s + 2), top));
    }
}

void levels_q4_k_avx2(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;

    for (; n; n -= SUPER, s += 144, level += SUPER, scale += 8, low += 8) {
        scales_mins(scale, low, s);
        for (int i = 0; i < 4; i++) {
            const __m256i v = load32(s + 16 + 32 * i);
            store32(level + 64 * i, bits_of(v, 0, 15));
            store32(level + 64 * i + 32, bits_of(v, 4, 15));
        }
    }
}

void levels_q5_k_avx2(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;

    for (; n; n -= SUPER, s += 176, level += SUPER, scale += 8, low += 8) {
        const __m256i fifth = load32(s + 16);
        scales_mins(scale, low, s);
        for (int i = 0; i < 8; i++) {
            const __m256i v = bits_of(load32(s + 48 + i / 2 * 32), i % 2 * 4, 15), h = bits_of(fifth, i, 1);
            store32(level + 32 * i, _mm256_or_si256(v, _mm256_slli_epi16(h, 4)));
        }
    }
}

void levels_q6_k_avx2(uint8_t *level, float *scale, float *low, const void *src, size_t n)
{
    const uint8_t *s = src;

    for (; n; n -= SUPER, s += 210, level += SUPER, scale += 16) {
        const __m256 d = _mm256_set1_ps(half_at(s + 208));
        for (int i = 0; i < 16; i += 8) {
            const __m128i bytes = _mm_loadl_epi64((const __m128i *)(s + 192 + i));
            _mm256_storeu_ps(scale + i, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))));
        }
        for (int run = 0; run < 8; run++) {
            const int at = run / 4 * 64 + run % 2 * 32;
            const __m256i v = bits_of(load32(s + at), run % 4 / 2 * 4, 15);
            const __m256i h = bits_of(load32(s + 128 + run / 4 * 32), run % 4 * 2, 3);
            store32(level + 32 * run, _mm256_or_si256(v, _mm256_slli_epi16(h, 4)));
        }
    }
}
