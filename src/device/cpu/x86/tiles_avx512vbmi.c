/* tiles_avx512vbmi.c - T32 tiles of Q4_0 and Q8_0 (format/t32.h) to panels of levels for AVX-512 with VBMI, whose
 * instructions move bytes and nibbles of a whole register. */
#include <immintrin.h>

#include "device/cpu/kern.h"
#include "device/cpu/x86/vec_avx2.h"

enum { HALF = 16, TILE_Q4_0 = 576, TILE_Q8_0 = 1088, AHEAD = 16 * TILE_Q4_0 }; /* HALF: columns in a register */

/* Where the quads of 16 columns, from `col` on, come from in the 64 bytes of two pairs of k.  Eight bytes hold two
 * columns: bytes of both pairs for the one, then for the other, and all four again. */
static ALWAYS_INLINE __m512i bytes_of_columns(int col)
{
    uint8_t from[64];
    for (int i = 0; i < 64; i++) from[i] = (uint8_t)(col + i / 8 * 2 + i / 2 % 2 + i % 2 * 32);
    return _mm512_loadu_si512(from);
}

/* The 4-bit levels of 16 columns: of eight bytes the nibbles in order. */
static ALWAYS_INLINE __m512i quads(__m512i pairs, __m512i from)
{
    const __m512i nibbles = _mm512_set1_epi64(0x1c1814100c080400), low = _mm512_set1_epi8(15);
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(nibbles, _mm512_permutexvar_epi8(from, pairs)), low);
}

static ALWAYS_INLINE __m512 scales(const uint8_t *half, int col)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(half + 2 * col)));
}

static ALWAYS_INLINE void put(uint8_t *panel, int quad, int col, __m512i v)
{
    _mm512_storeu_si512(panel + ((size_t)quad * QCOLS + (size_t)col) * QQUAD, v);
}

void expand_tiles_q4_0_avx512vbmi(const kern_qpanel *w, const uint8_t *t, int k)
{
    const __m512i from[2] = { bytes_of_columns(0), bytes_of_columns(HALF) };

    for (int b = 0; b < k / QBLOCK; b++, t += TILE_Q4_0) {
        for (int i = 0; i < TILE_Q4_0; i += 64) PREFETCH(t + AHEAD + i);
        for (int h = 0; h < 2; h++) _mm512_storeu_ps(w->scale + b * QCOLS + h * HALF, scales(t + 512, h * HALF));
        for (int q = 0; q < 8; q++) {
            const __m512i pairs = _mm512_loadu_si512(t + 64 * q);
            for (int h = 0; h < 2; h++) put(w->level, b * 8 + q, h * HALF, quads(pairs, from[h]));
        }
    }
}

void expand_tiles_q8_0_avx512vbmi(const kern_qpanel *w, const uint8_t *t, int k)
{
    const __m512i top = _mm512_set1_epi8((char)128);
    uint16_t of[2][32]; /* 16 bits of the first pair of k, then of the second, column by column */

    for (int i = 0; i < 64; i++) of[i / 32][i % 32] = (uint16_t)(i / 2 + i % 2 * 32);
    for (int b = 0; b < k / QBLOCK; b++, t += TILE_Q8_0) {
        for (int i = 0; i < TILE_Q8_0; i += 64) PREFETCH(t + AHEAD + i);
        for (int h = 0; h < 2; h++) _mm512_storeu_ps(w->scale + b * QCOLS + h * HALF, scales(t + 1024, h * HALF));
        for (int q = 0; q < 8; q++) {
            const __m512i first = _mm512_loadu_si512(t + 128 * q), second = _mm512_loadu_si512(t + 128 * q + 64);
            for (int h = 0; h < 2; h++) {
                const __m512i v = _mm512_permutex2var_epi16(first, _mm512_loadu_si512(of[h]), second);
                put(w->level, b * 8 + q, h * HALF, _mm512_xor_si512(v, top));
            }
        }
    }
}
