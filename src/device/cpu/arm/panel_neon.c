/* panel_neon.c - rows of x to 8-bit integers, packed weights to panels of levels, for NEON.  Layouts: format/quant.h,
 * format/t32.h. */
#include <float.h>
#include <math.h>

#include "device/cpu/arm/vec_neon.h"
#include "device/cpu/kern.h"

enum { BLOCK_Q4_0 = 18, TILE_Q4_0 = 576, TILE_Q8_0 = 1088, AHEAD = 8 * TILE_Q4_0 };

static const float LEAST = 1e-30f; /* as in quantize_ref */

/* The largest of 32 magnitudes, compared as bits: NaN above infinity above all numbers. */
static inline float peak(const float32x4_t v[8])
{
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < 8; i++) most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    return vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(most))), 0);
}

/* 16 values, rounded to nearest, ties to even; NaN becomes 0. */
static inline int8x16_t bytes_of(const float32x4_t v[4], float inv)
{
    int16x4_t n[4];
    for (int i = 0; i < 4; i++) n[i] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[i], inv)));
    return vcombine_s8(vqmovn_s16(vcombine_s16(n[0], n[1])), vqmovn_s16(vcombine_s16(n[2], n[3])));
}

/* rounding_error of quantize_ref. */
static inline float rounding_error(const float32x4_t v[8], float inv)
{
    float32x4_t sum[2] = { vdupq_n_f32(0), vdupq_n_f32(0) };
    for (int i = 0; i < 8; i++) {
        const float32x4_t at = vmulq_n_f32(v[i], inv), off = vsubq_f32(at, vrndnq_f32(at));
        sum[i % 2] = vfmaq_f32(sum[i % 2], off, off);
    }
    const float32x4_t four = vaddq_f32(sum[0], sum[1]);
    return vaddv_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

/* The scale of a block of ordinary numbers. */
static inline float best_scale(const float32x4_t v[8], float most)
{
    float best = 0, least = INFINITY;
    for (int i = 0; i < QSCALES; i++) {
        const float steps = 127.0f - (float)i, ratio = 127.0f / steps, d = most / steps;
        const float error = rounding_error(v, 1.0f / d) * (ratio * ratio);
        if (error < least) {
            least = error;
            best = d;
        }
    }
    return best;
}

void quantize_neon(int8_t *q, float *scale, float *sum32, float *sum16, const float *x, size_t k)
{
    for (size_t b = 0; b < k / QBLOCK; b++, q += QBLOCK, x += QBLOCK) {
        float32x4_t v[8];
        for (int i = 0; i < 8; i++) v[i] = vld1q_f32(x + 4 * i);
        const float most = peak(v);
        const bool ordinary = most >= LEAST && most <= FLT_MAX;
        const float d = ordinary ? best_scale(v, most) : 0, inv = ordinary ? 1.0f / d : 0;
        const int8x16_t lo = bytes_of(v, inv), hi = bytes_of(v + 4, inv);
        scale[b] = ordinary || most < LEAST ? d : most;
        vst1q_s8(q, lo);
        vst1q_s8(q + 16, hi);
        sum16[2 * b] = (float)vaddlvq_s8(lo);
        sum16[2 * b + 1] = (float)vaddlvq_s8(hi);
        sum32[b] = sum16[2 * b] + sum16[2 * b + 1];
    }
}

/* ------------------------------------------------------------ rows */

/* 16 levels of each of 4 columns to their quads; those of one column are a quad's QCOLS * QQUAD bytes apart. */
static inline void put_4x16(uint8_t *panel, const uint8x16_t v[4])
{
    uint32x4_t r[4];
    for (int i = 0; i < 4; i++) r[i] = vreinterpretq_u32_u8(v[i]);
    const uint32x4x2_t a = vzipq_u32(r[0], r[2]), b = vzipq_u32(r[1], r[3]);
    for (int h = 0; h < 2; h++) {
        const uint32x4x2_t z = vzipq_u32(a.val[h], b.val[h]);
        vst1q_u8(panel + (2 * h + 0) * QCOLS * QQUAD, vreinterpretq_u8_u32(z.val[0]));
        vst1q_u8(panel + (2 * h + 1) * QCOLS * QQUAD, vreinterpretq_u8_u32(z.val[1]));
    }
}

void weave_neon(uint8_t *panel, const uint8_t *level, size_t ld, int k)
{
    int p = 0;

    for (; p + 16 <= k; p += 16)
        for (int j = 0; j < QCOLS; j += 4) {
            uint8x16_t v[4];
            for (int i = 0; i < 4; i++) v[i] = vld1q_u8(level + (size_t)(j + i) * ld + (size_t)p);
            put_4x16(panel + p * QCOLS + j * QQUAD, v);
        }
    for (; p < k; p += QQUAD)
        for (int j = 0; j < QCOLS; j++)
            memcpy(panel + p * QCOLS + j * QQUAD, level + (size_t)j * ld + (size_t)p, QQUAD);
}

void expand_q4_0_neon(const kern_qpanel *w, const uint8_t *src, size_t row, int k)
{
    for (int b = 0; b < k / QBLOCK; b++, src += BLOCK_Q4_0)
        for (int j = 0; j < QCOLS; j += 4) {
            uint8_t *panel = w->level + b * QBLOCK * QCOLS + j * QQUAD;
            uint16_t half[4];
            uint8x16_t lo[4], hi[4];
            for (int i = 0; i < 4; i++) {
                const uint8_t *s = src + (size_t)(j + i) * row;
                const uint8x16_t v = vld1q_u8(s + 2);
                memcpy(&half[i], s, sizeof *half);
                lo[i] = vandq_u8(v, vdupq_n_u8(15));
                hi[i] = vshrq_n_u8(v, 4);
            }
            vst1q_f32(w->scale + b * QCOLS + j, load_half(half));
            put_4x16(panel, lo);
            put_4x16(panel + QSUB * QCOLS, hi);
        }
}

/* ------------------------------------------------------------ tiles: pairs of k, 32 columns each */

static inline void tile_scales(float *to, const uint8_t *half)
{
    for (int j = 0; j < QCOLS; j += 4) vst1q_f32(to + j, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(half + 2 * j))));
}

void expand_tiles_q4_0_neon(const kern_qpanel *w, const uint8_t *t, int k)
{
    const uint8x16_t low = vdupq_n_u8(15);

    for (int b = 0; b < k / QBLOCK; b++, t += TILE_Q4_0) {
        tile_scales(w->scale + b * QCOLS, t + 512);
        for (int i = 0; i < TILE_Q4_0; i += 64) PREFETCH(t + AHEAD + i);
        for (int q = 0; q < 8; q++)
            for (int h = 0; h < QCOLS; h += 16) { /* 16 columns: k and k + 1, k + 2 and k + 3 */
                const uint8x16_t a = vld1q_u8(t + q * 64 + h), c = vld1q_u8(t + q * 64 + 32 + h);
                const uint8x16x4_t v = { { vandq_u8(a, low), vshrq_n_u8(a, 4), vandq_u8(c, low), vshrq_n_u8(c, 4) } };
                vst4q_u8(w->level + ((b * 8 + q) * QCOLS + h) * QQUAD, v);
            }
    }
}

void expand_tiles_q8_0_neon(const kern_qpanel *w, const uint8_t *t, int k)
{
    const uint8x16_t top = vdupq_n_u8(128);

    for (int b = 0; b < k / QBLOCK; b++, t += TILE_Q8_0) {
        tile_scales(w->scale + b * QCOLS, t + 1024);
        for (int i = 0; i < TILE_Q8_0; i += 64) PREFETCH(t + AHEAD + i);
        for (int q = 0; q < 8; q++)
            for (int h = 0; h < QCOLS; h += 8) { /* 8 columns: pairs of k, pairs of k + 2 */
                const uint8_t *s = t + q * 128 + 2 * h;
                const uint16x8_t a = vreinterpretq_u16_u8(veorq_u8(vld1q_u8(s), top));
                const uint16x8x2_t z = vzipq_u16(a, vreinterpretq_u16_u8(veorq_u8(vld1q_u8(s + 64), top)));
                uint8_t *panel = w->level + ((b * 8 + q) * QCOLS + h) * QQUAD;
                vst1q_u8(panel, vreinterpretq_u8_u16(z.val[0]));
                vst1q_u8(panel + 16, vreinterpretq_u8_u16(z.val[1]));
            }
    }
}
