/* panel_avx2.c - packed weights to panels of levels for AVX2.  Layouts: format/quant.h, format/t32.h. */
#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

enum { LANES = 8, BLOCK_Q4_0 = 18, TILE_Q4_0 = 576, TILE_Q8_0 = 1088, AHEAD = 8 * TILE_Q4_0, NEXT_Q4_0 = 16 * BLOCK_Q4_0 };

/* 16 bytes of each of 8 rows, in t[r]: row r low, row r + 4 high -> t[q]: quad q of the 8 rows. */
static ALWAYS_INLINE void transpose(__m256i t[4])
{
    __m256i a = _mm256_unpacklo_epi32(t[0], t[1]), b = _mm256_unpackhi_epi32(t[0], t[1]);
    __m256i c = _mm256_unpacklo_epi32(t[2], t[3]), d = _mm256_unpackhi_epi32(t[2], t[3]);
    t[0] = _mm256_unpacklo_epi64(a, c);
    t[1] = _mm256_unpackhi_epi64(a, c);
    t[2] = _mm256_unpacklo_epi64(b, d);
    t[3] = _mm256_unpackhi_epi64(b, d);
}

static ALWAYS_INLINE void load_8x16(__m256i t[4], const uint8_t *src, size_t row)
{
    for (size_t r = 0; r < 4; r++)
        t[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(src + r * row))),
                                       _mm_loadu_si128((const __m128i *)(src + (r + 4) * row)), 1);
}

static inline void put(uint8_t *panel, int quad, int col, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(panel + ((size_t)quad * QCOLS + (size_t)col) * QQUAD), v);
}

void weave_avx2(uint8_t *panel, const uint8_t *level, size_t ld, int k)
{
    int p = 0;

    for (; p + 16 <= k; p += 16)
        for (int j = 0; j < QCOLS; j += LANES) {
            __m256i t[4];
            load_8x16(t, level + (size_t)j * ld + (size_t)p, ld);
            transpose(t);
            for (int q = 0; q < 4; q++) put(panel, p / QQUAD + q, j, t[q]);
        }
    for (; p < k; p += QQUAD)
        for (int j = 0; j < QCOLS; j++) memcpy(panel + p * QCOLS + j * QQUAD, level + (size_t)j * ld + (size_t)p, QQUAD);
}

static ALWAYS_INLINE int half_bits(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* The half floats that 8 rows begin with, put in one by one: by way of memory the wide load would wait for the stores. */
static ALWAYS_INLINE __m128i halves_of_rows(const uint8_t *s, size_t row)
{
    __m128i h = _mm_cvtsi32_si128(half_bits(s));
    h = _mm_insert_epi16(h, half_bits(s + row), 1);
    h = _mm_insert_epi16(h, half_bits(s + 2 * row), 2);
    h = _mm_insert_epi16(h, half_bits(s + 3 * row), 3);
    h = _mm_insert_epi16(h, half_bits(s + 4 * row), 4);
    h = _mm_insert_epi16(h, half_bits(s + 5 * row), 5);
    h = _mm_insert_epi16(h, half_bits(s + 6 * row), 6);
    return _mm_insert_epi16(h, half_bits(s + 7 * row), 7);
}

void expand_q4_0_avx2(const kern_qpanel *w, const uint8_t *src, size_t row, int k)
{
    const __m256i low = _mm256_set1_epi8(15);

    for (int b = 0; b < k / QBLOCK; b++, src += BLOCK_Q4_0)
        for (int j = 0; j < QCOLS; j += LANES) {
            const uint8_t *s = src + (size_t)j * row;
            __m256i t[4];
            for (size_t r = 0; r < LANES; r++) PREFETCH(s + r * row + NEXT_Q4_0); /* of the next panel, in the same row */
            _mm256_storeu_ps(w->scale + b * QCOLS + j, _mm256_cvtph_ps(halves_of_rows(s, row)));
            load_8x16(t, s + 2, row);
            transpose(t);
            for (int q = 0; q < 4; q++) {
                put(w->level, b * 8 + q, j, _mm256_and_si256(t[q], low));
                put(w->level, b * 8 + q + 4, j, _mm256_and_si256(_mm256_srli_epi16(t[q], 4), low));
            }
        }
}

/* ------------------------------------------------------------ tiles: pairs of k, 32 columns each */

static ALWAYS_INLINE void tile_scales(float *to, const uint8_t *half)
{
    for (int j = 0; j < QCOLS; j += LANES)
        _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(half + 2 * j))));
}

/* Pairs of 16-bit columns a (k, k + 1) and b (k + 2, k + 3), 16 columns in each: to the quads of the columns, which are
 * 0..3 | 8..11 and 4..7 | 12..15 in lanes, and so are put in order. */
static ALWAYS_INLINE void put_pairs(uint8_t *panel, int quad, int col, __m256i a, __m256i b)
{
    __m256i lo = _mm256_unpacklo_epi16(a, b), hi = _mm256_unpackhi_epi16(a, b);
    put(panel, quad, col, _mm256_permute2x128_si256(lo, hi, 0x20));
    put(panel, quad, col + LANES, _mm256_permute2x128_si256(lo, hi, 0x31));
}

void expand_tiles_q4_0_avx2(const kern_qpanel *w, const uint8_t *t, int k)
{
    const __m256i low = _mm256_set1_epi8(15);

    for (int b = 0; b < k / QBLOCK; b++, t += TILE_Q4_0) {
        tile_scales(w->scale + b * QCOLS, t + 512);
        for (int i = 0; i < TILE_Q4_0; i += 64) PREFETCH(t + AHEAD + i);
        for (int q = 0; q < 8; q++) {
            __m256i pair[2][2]; /* [k, k + 2][columns 0..7 | 16..23, 8..15 | 24..31] */
            for (int i = 0; i < 2; i++) {
                __m256i v = _mm256_loadu_si256((const __m256i *)(t + q * 64 + i * 32));
                __m256i even = _mm256_and_si256(v, low), odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
                pair[i][0] = _mm256_unpacklo_epi8(even, odd);
                pair[i][1] = _mm256_unpackhi_epi8(even, odd);
            }
            for (int h = 0; h < 2; h++) {
                __m256i lo = _mm256_unpacklo_epi16(pair[0][h], pair[1][h]);
                __m256i hi = _mm256_unpackhi_epi16(pair[0][h], pair[1][h]);
                put(w->level, b * 8 + q, h * LANES, _mm256_permute2x128_si256(lo, hi, 0x20));
                put(w->level, b * 8 + q, h * LANES + 16, _mm256_permute2x128_si256(lo, hi, 0x31));
            }
        }
    }
}

void expand_tiles_q8_0_avx2(const kern_qpanel *w, const uint8_t *t, int k)
{
    const __m256i top = _mm256_set1_epi8((char)128);

    for (int b = 0; b < k / QBLOCK; b++, t += TILE_Q8_0) {
        tile_scales(w->scale + b * QCOLS, t + 1024);
        for (int i = 0; i < TILE_Q8_0; i += 64) PREFETCH(t + AHEAD + i);
        for (int q = 0; q < 8; q++)
            for (int h = 0; h < 2; h++) { /* 16 columns */
                const __m256i *v = (const __m256i *)(t + q * 128 + h * 32);
                put_pairs(w->level, b * 8 + q, h * 16, _mm256_xor_si256(_mm256_loadu_si256(v), top),
                          _mm256_xor_si256(_mm256_loadu_si256(v + 2), top));
            }
    }
}
