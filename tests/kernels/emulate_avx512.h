/* emulate_avx512.h - the AVX-512 operations that the kernels use, done by pairs of AVX2 ones or value by value, so that
 * the kernels' logic (tails, masks, orders of adding) can be run where the instructions are missing.  Meanings: Intel's
 * intrinsics guide.  The real header is included first; the names are then taken over by macros. */
#ifndef EMULATE_AVX512_H
#define EMULATE_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    __m256 lo, hi;
} e512;

typedef struct {
    __m256i lo, hi;
} e512i;

typedef struct {
    __m256d lo, hi;
} e512d;

typedef uint16_t emask;

static inline e512 e_set1(float x) { return (e512){ _mm256_set1_ps(x), _mm256_set1_ps(x) }; }

static inline e512 e_from(const float v[16]) { return (e512){ _mm256_loadu_ps(v), _mm256_loadu_ps(v + 8) }; }

static inline void e_to(float v[16], e512 x)
{
    _mm256_storeu_ps(v, x.lo);
    _mm256_storeu_ps(v + 8, x.hi);
}

static inline e512 e_maskz_loadu(emask t, const void *p)
{
    float v[16] = { 0 };
    for (int i = 0; i < 16; i++)
        if (t >> i & 1) memcpy(&v[i], (const char *)p + 4 * i, 4);
    return e_from(v);
}

static inline void e_mask_storeu(void *p, emask t, e512 x)
{
    float v[16];
    e_to(v, x);
    for (int i = 0; i < 16; i++)
        if (t >> i & 1) memcpy((char *)p + 4 * i, &v[i], 4);
}

static inline e512 e_mask(e512 src, emask t, e512 x)
{
    float a[16], b[16];
    e_to(a, src);
    e_to(b, x);
    for (int i = 0; i < 16; i++) a[i] = t >> i & 1 ? b[i] : a[i];
    return e_from(a);
}

#define E_PAIR(name, op)                                                                                               \
    static inline e512 name(e512 a, e512 b)                                                                            \
    {                                                                                                                  \
        return (e512){ _mm256_##op##_ps(a.lo, b.lo), _mm256_##op##_ps(a.hi, b.hi) };                                   \
    }
E_PAIR(e_add, add)
E_PAIR(e_sub, sub)
E_PAIR(e_mul, mul)
E_PAIR(e_div, div)
E_PAIR(e_min, min)
E_PAIR(e_max, max)

#define E_TRIPLE(name, op)                                                                                             \
    static inline e512 name(e512 a, e512 b, e512 c)                                                                    \
    {                                                                                                                  \
        return (e512){ _mm256_##op##_ps(a.lo, b.lo, c.lo), _mm256_##op##_ps(a.hi, b.hi, c.hi) };                       \
    }
E_TRIPLE(e_fmadd, fmadd)
E_TRIPLE(e_fnmadd, fnmadd)

static inline e512 e_round(e512 a) { return (e512){ _mm256_round_ps(a.lo, 8), _mm256_round_ps(a.hi, 8) }; }

/* a * 2^floor(b), rounded once. */
static inline e512 e_scalef(e512 a, e512 b)
{
    float x[16], y[16];
    e_to(x, a);
    e_to(y, b);
    for (int i = 0; i < 16; i++) x[i] = isnan(y[i]) ? y[i] : ldexpf(x[i], (int)floorf(y[i]));
    return e_from(x);
}

static inline __m256 e_upper(e512 a, int which) { return which ? a.hi : a.lo; }

static inline e512d e_cvtps_pd(__m256 x)
{
    return (e512d){ _mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)) };
}

static inline e512d e_zero_pd(void) { return (e512d){ _mm256_setzero_pd(), _mm256_setzero_pd() }; }

static inline e512d e_fmadd_pd(e512d a, e512d b, e512d c)
{
    return (e512d){ _mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi) };
}

static inline e512d e_add_pd(e512d a, e512d b)
{
    return (e512d){ _mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi) };
}

static inline void e_storeu_pd(double *p, e512d a)
{
    _mm256_storeu_pd(p, a.lo);
    _mm256_storeu_pd(p + 4, a.hi);
}

static inline e512i e_cvtepi8(__m128i x)
{
    return (e512i){ _mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(x, x)) };
}

static inline e512i e_cvtepu16(__m256i x)
{
    return (e512i){ _mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                    _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)) };
}

static inline e512 e_cvtepi32(e512i x) { return (e512){ _mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi) }; }

static inline e512i e_slli(e512i x, int n) { return (e512i){ _mm256_slli_epi32(x.lo, n), _mm256_slli_epi32(x.hi, n) }; }

static inline e512 e_castsi(e512i x) { return (e512){ _mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi) }; }

static inline e512 e_cvtph(__m256i x)
{
    return (e512){ _mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)) };
}

static inline __m256i e_maskz_loadu16(emask t, const void *p)
{
    uint16_t v[16] = { 0 };
    for (int i = 0; i < 16; i++)
        if (t >> i & 1) memcpy(&v[i], (const char *)p + 2 * i, 2);
    return _mm256_loadu_si256((const __m256i *)v);
}

static inline __m256i e_dpbusd8(__m256i sum, __m256i u, __m256i v)
{
    const __m256i low = _mm256_set1_epi16(255);
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, low), _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(v, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

static inline e512i e_dpbusd(e512i sum, e512i u, e512i v)
{
    return (e512i){ e_dpbusd8(sum.lo, u.lo, v.lo), e_dpbusd8(sum.hi, u.hi, v.hi) };
}

/* Of each eight bytes of `from`, eight bits from the bit on that the bytes of `at` name, round about. */
static inline e512i e_multishift(e512i at, e512i from)
{
    uint64_t v[8];
    uint8_t bit[64], out[64];
    memcpy(v, &from, sizeof v);
    memcpy(bit, &at, sizeof bit);
    for (int i = 0; i < 64; i++) {
        const int n = bit[i] % 64;
        out[i] = (uint8_t)(n ? v[i / 8] >> n | v[i / 8] << (64 - n) : v[i / 8]);
    }
    memcpy(&from, out, sizeof out);
    return from;
}

static inline e512i e_permute_bytes(e512i index, e512i from)
{
    uint8_t at[64], v[64], out[64];
    memcpy(at, &index, sizeof at);
    memcpy(v, &from, sizeof v);
    for (int i = 0; i < 64; i++) out[i] = v[at[i] % 64];
    memcpy(&from, out, sizeof out);
    return from;
}

/* Words 0..31 of a, 32..63 of b. */
static inline e512i e_permute2_words(e512i a, e512i index, e512i b)
{
    uint16_t at[32], v[64], out[32];
    memcpy(at, &index, sizeof at);
    memcpy(v, &a, sizeof a);
    memcpy(v + 32, &b, sizeof b);
    for (int i = 0; i < 32; i++) out[i] = v[at[i] % 64];
    memcpy(&a, out, sizeof out);
    return a;
}

static inline e512i e_and(e512i a, e512i b)
{
    return (e512i){ _mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi) };
}

static inline e512i e_xor(e512i a, e512i b)
{
    return (e512i){ _mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi) };
}

static inline e512i e_set1_bytes(char x) { return (e512i){ _mm256_set1_epi8(x), _mm256_set1_epi8(x) }; }

static inline e512i e_set1_eight(long long x) { return (e512i){ _mm256_set1_epi64x(x), _mm256_set1_epi64x(x) }; }

static inline e512i e_set1_i(int32_t x) { return (e512i){ _mm256_set1_epi32(x), _mm256_set1_epi32(x) }; }

static inline e512i e_loadu_i(const void *p)
{
    const __m256i *v = p;
    return (e512i){ _mm256_loadu_si256(v), _mm256_loadu_si256(v + 1) };
}

#define __m512                           e512
#define __m512i                          e512i
#define __m512d                          e512d
#define __mmask16                        emask
#define _mm512_setzero_ps()              e_set1(0)
#define _mm512_set1_ps                   e_set1
#define _mm512_loadu_ps(p)               e_from(p)
#define _mm512_maskz_loadu_ps            e_maskz_loadu
#define _mm512_mask_storeu_ps            e_mask_storeu
#define _mm512_storeu_ps(p, x)           e_mask_storeu(p, 0xffff, x)
#define _mm512_add_ps                    e_add
#define _mm512_sub_ps                    e_sub
#define _mm512_mul_ps                    e_mul
#define _mm512_div_ps                    e_div
#define _mm512_min_ps                    e_min
#define _mm512_max_ps                    e_max
#define _mm512_mask_max_ps(src, t, a, b) e_mask(src, t, e_max(a, b))
#define _mm512_mask_add_ps(src, t, a, b) e_mask(src, t, e_add(a, b))
#define _mm512_fmadd_ps                  e_fmadd
#define _mm512_fnmadd_ps                 e_fnmadd
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps(x, how) e_round(x)
#define _mm512_scalef_ps             e_scalef
#define _mm512_castps512_ps256(x)    e_upper(x, 0)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps e_upper
#define _mm512_cvtps_pd        e_cvtps_pd
#define _mm512_setzero_pd      e_zero_pd
#define _mm512_fmadd_pd        e_fmadd_pd
#define _mm512_add_pd          e_add_pd
#define _mm512_storeu_pd       e_storeu_pd
#define _mm512_cvtepi8_epi32   e_cvtepi8
#define _mm512_cvtepu16_epi32  e_cvtepu16
#define _mm512_cvtepi32_ps     e_cvtepi32
#undef _mm512_slli_epi32
#define _mm512_slli_epi32   e_slli
#define _mm512_castsi512_ps e_castsi
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps          e_cvtph
#define _mm512_broadcastss_ps(x) e_set1(_mm_cvtss_f32(x))
#define _mm256_maskz_loadu_epi16 e_maskz_loadu16
#define _mm512_setzero_si512()   e_set1_i(0)
#define _mm512_set1_epi32        e_set1_i
#define _mm512_loadu_si512       e_loadu_i
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32          e_dpbusd
#define _mm512_storeu_si512(p, x)    memcpy(p, &(e512i[]){ x }, sizeof(e512i))
#define _mm512_set1_epi8             e_set1_bytes
#define _mm512_set1_epi64            e_set1_eight
#define _mm512_and_si512             e_and
#define _mm512_xor_si512             e_xor
#define _mm512_multishift_epi64_epi8 e_multishift
#define _mm512_permutexvar_epi8      e_permute_bytes
#define _mm512_permutex2var_epi16    e_permute2_words
#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32 e_dpbusd8 /* AVX-VNNI */

#endif
