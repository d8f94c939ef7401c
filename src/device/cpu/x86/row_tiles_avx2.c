/* row_tiles_avx2.c - one row of x times a stripe of T32 tiles for AVX2, straight from the tiles: with one row the weights
 * are used once, so a panel would only be written and read again.  Columns stand as unpacking leaves them, 0..3 | 16..19
 * and so on, and are put in order at the end. */
#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

enum { TILE = 576, SCALES = 512, AHEAD = 8 * TILE, PARTS = 4 /* registers of 8 columns */ };

static ALWAYS_INLINE __m256i quad_of(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return _mm256_set1_epi32(v);
}

/* 32 columns of a pair of k -> pair[0]: columns 0..7 | 16..23, pair[1]: 8..15 | 24..31, 16 bits each. */
static ALWAYS_INLINE void pair_of(__m256i pair[2], const uint8_t *t)
{
    const __m256i low = _mm256_set1_epi8(15), v = _mm256_loadu_si256((const __m256i *)t);
    const __m256i even = _mm256_and_si256(v, low), odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    pair[0] = _mm256_unpacklo_epi8(even, odd);
    pair[1] = _mm256_unpackhi_epi8(even, odd);
}

/* The four scales from `col` on and those 16 columns further on. */
static ALWAYS_INLINE __m256 scales_of(const uint8_t *half, int col)
{
    const __m128i a = _mm_loadl_epi64((const __m128i *)(half + 2 * col));
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(a, _mm_loadl_epi64((const __m128i *)(half + 2 * (col + 16)))));
}

/* Sums of pairs in 16 bits over the 32 values of a tile, see qmm_avx2.c. */
static ALWAYS_INLINE void tile_sums(__m256i sum[PARTS], const int8_t *x, const uint8_t *t)
{
    for (int q = 0; q < 8; q++) {
        const __m256i v = quad_of(x + 4 * q);
        __m256i a[2], b[2], p[PARTS];
        pair_of(a, t + 64 * q);
        pair_of(b, t + 64 * q + 32);
        for (int h = 0; h < 2; h++) {
            p[2 * h] = _mm256_maddubs_epi16(_mm256_unpacklo_epi16(a[h], b[h]), v);
            p[2 * h + 1] = _mm256_maddubs_epi16(_mm256_unpackhi_epi16(a[h], b[h]), v);
        }
        for (int i = 0; i < PARTS; i++) {
            sum[i] = q ? _mm256_add_epi16(sum[i], p[i]) : p[i];
            KEEP_ORDER(sum[i]);
        }
    }
}

void row_tiles_q4_0_avx2(float *c, const kern_qrows *x, const uint8_t *t, int k)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256 zero = _mm256_set1_ps(8);
    __m256 acc[PARTS];

    for (int i = 0; i < PARTS; i++) acc[i] = _mm256_setzero_ps();
    for (int b = 0; b < k / QBLOCK; b++, t += TILE) {
        const __m256 d = _mm256_broadcast_ss(x->scale + b), total = _mm256_broadcast_ss(x->sum32 + b);
        __m256i sum[PARTS];
        for (int i = 0; i < TILE; i += 64) PREFETCH(t + AHEAD + i);
        tile_sums(sum, x->q + b * QBLOCK, t);
        for (int i = 0; i < PARTS; i++) {
            __m256 f = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[i], ones));
            f = _mm256_fnmadd_ps(zero, total, f); /* whole numbers: exact */
            acc[i] = _mm256_fmadd_ps(_mm256_mul_ps(scales_of(t + SCALES, 4 * i), d), f, acc[i]);
        }
    }
    for (int i = 0; i < PARTS; i += 2) {
        _mm256_storeu_ps(c + 4 * i, _mm256_permute2f128_ps(acc[i], acc[i + 1], 0x20));
        _mm256_storeu_ps(c + 4 * i + 16, _mm256_permute2f128_ps(acc[i], acc[i + 1], 0x31));
    }
}
