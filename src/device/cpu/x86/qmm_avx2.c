/* qmm_avx2.c - products in integers for AVX2 (see kern.h).  vpmaddubsw multiplies unsigned levels with signed values of
 * x and adds pairs to 16 bits, which hold the sum of `run` quads: 8 quads of 4-bit levels (8 * 2 * 15 * 127 = 30480), 4
 * of 5-bit ones, 2 of 6-bit ones.  8-bit levels are turned into signed weights and their signs handed to x, where a
 * single pair is at most 2 * 128 * 127 = 32512. */
#include <float.h>
#include <immintrin.h>

enum { LANES = 8, NV = 2, SIGNED_BYTES = 1 };
typedef __m256 vec_f;
typedef __m256i vec_i;
#define MR      3
#define VEC(op) _mm256_##op
#include "device/cpu/x86/qmm_tile.h"

static ALWAYS_INLINE __m256i levels(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

static ALWAYS_INLINE void sums(int mr, shape s, vec_i out[MR][NV], const int8_t *const x[MR], const uint8_t *w)
{
    const __m256i ones = _mm256_set1_epi16(1), top = _mm256_set1_epi8((char)128);
    const int quads = s.sub / QQUAD, run = s.run ? s.run : 1;

    for (int i = 0; i < mr; i++)
        for (int j = 0; j < NV; j++) out[i][j] = _mm256_setzero_si256();
    for (int q = 0; q < quads; q += run) {
        __m256i pairs[MR][NV];
        for (int r = 0; r < run; r++, w += QCOLS * QQUAD) {
            __m256i u[NV], size[NV];
            for (int j = 0; j < NV; j++) {
                u[j] = levels(w + j * LANES * QQUAD);
                if (s.run == 0) u[j] = _mm256_xor_si256(u[j], top);
                size[j] = s.run == 0 ? _mm256_abs_epi8(u[j]) : u[j];
            }
            for (int i = 0; i < mr; i++) {
                const __m256i v = _mm256_set1_epi32(quad_at(x[i] + (q + r) * QQUAD));
                for (int j = 0; j < NV; j++) {
                    __m256i p = _mm256_maddubs_epi16(size[j], s.run == 0 ? _mm256_sign_epi8(v, u[j]) : v);
                    pairs[i][j] = r ? _mm256_add_epi16(pairs[i][j], p) : p;
                    KEEP_ORDER(pairs[i][j]);
                }
            }
        }
        for (int i = 0; i < mr; i++)
            for (int j = 0; j < NV; j++) out[i][j] = _mm256_add_epi32(out[i][j], _mm256_madd_epi16(pairs[i][j], ones));
    }
}

void qmm_avx2(float *c, const kern_qrows *x, size_t ldx, int m, const kern_qpanel *w, int k, const quant_grid *g,
              bool add)
{
    by_grid(c, x, ldx, m, w, k, g, add);
}

/* ------------------------------------------------------------ x */

static inline __m256i magnitude(__m256 v)
{
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

static const float LEAST = 1e-30f; /* as in quantize_ref */

static inline float bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* The largest of 32 magnitudes, compared as bits: NaN above infinity above all numbers. */
static inline float peak(const __m256 v[4])
{
    __m256i a = _mm256_max_epu32(_mm256_max_epu32(magnitude(v[0]), magnitude(v[1])),
                                 _mm256_max_epu32(magnitude(v[2]), magnitude(v[3])));
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1));
    return bits_float((uint32_t)_mm_cvtsi128_si32(b));
}

static inline int sum_bytes(__m128i q)
{
    const __m128i ones = _mm_set1_epi16(1);
    __m128i s = _mm_madd_epi16(_mm_maddubs_epi16(_mm_set1_epi8(1), q), ones);
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* rounding_error of quantize_ref for one scale, before its lanes are added. */
static inline __m256 lane_errors(const __m256 v[4], float inv)
{
    __m256 sum = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        const __m256 at = _mm256_mul_ps(v[i], _mm256_set1_ps(inv));
        const __m256 off = _mm256_sub_ps(at, _mm256_round_ps(at, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        sum = _mm256_fmadd_ps(off, off, sum);
    }
    return sum;
}

/* Lane i: the sum of vector i's lanes, l with l + 4, then with l + 2, then the two. */
static inline __m256 add_lanes(const __m256 v[8])
{
    __m256 four[4], two[2];
    for (int i = 0; i < 4; i++)
        four[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20), _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
    for (int i = 0; i < 2; i++)
        two[i] = _mm256_add_ps(_mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                               _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xdd));
}

static inline __m256 least_lane(__m256 v)
{
    v = _mm256_min_ps(v, _mm256_permute2f128_ps(v, v, 1));
    v = _mm256_min_ps(v, _mm256_shuffle_ps(v, v, 0x4e));
    return _mm256_min_ps(v, _mm256_shuffle_ps(v, v, 0xb1));
}

/* The scale of a block of ordinary numbers. */
static inline float best_scale(const __m256 v[4], float most)
{
    const __m256 steps = _mm256_setr_ps(127, 126, 125, 124, 123, 122, 121, 120);
    const __m256 ratio = _mm256_div_ps(_mm256_set1_ps(127), steps), d = _mm256_div_ps(_mm256_set1_ps(most), steps);
    float scale[QSCALES], inv[QSCALES];
    __m256 lanes[QSCALES];

    _mm256_storeu_ps(scale, d);
    _mm256_storeu_ps(inv, _mm256_div_ps(_mm256_set1_ps(1), d));
    for (int i = 0; i < QSCALES; i++) lanes[i] = lane_errors(v, inv[i]);
    const __m256 error = _mm256_mul_ps(add_lanes(lanes), _mm256_mul_ps(ratio, ratio));
    const int best = _mm256_movemask_ps(_mm256_cmp_ps(error, least_lane(error), _CMP_EQ_OQ));
    return scale[__builtin_ctz((unsigned)best)];
}

void quantize_avx2(int8_t *q, float *scale, float *sum32, float *sum16, const float *x, size_t k)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

    for (size_t b = 0; b < k / QBLOCK; b++, q += QBLOCK, x += QBLOCK) {
        __m256 v[4];
        __m256i n[4];
        for (int i = 0; i < 4; i++) v[i] = _mm256_loadu_ps(x + 8 * i);
        const float most = peak(v);
        const bool ordinary = most >= LEAST && most <= FLT_MAX;
        const float d = ordinary ? best_scale(v, most) : 0, inv = ordinary ? 1.0f / d : 0;
        scale[b] = ordinary || most < LEAST ? d : most;
        for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inv)));
        __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
        bytes = ordinary ? _mm256_permutevar8x32_epi32(bytes, order) : _mm256_setzero_si256();
        _mm256_storeu_si256((__m256i *)q, bytes);
        const int lo = sum_bytes(_mm256_castsi256_si128(bytes)), hi = sum_bytes(_mm256_extracti128_si256(bytes, 1));
        sum16[2 * b] = (float)lo;
        sum16[2 * b + 1] = (float)hi;
        sum32[b] = (float)(lo + hi);
    }
}
