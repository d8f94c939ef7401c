/* vec_neon.h - what the NEON files share: tails, sums in one fixed order, the exponential. */
#ifndef DEVICE_CPU_ARM_VEC_NEON_H
#define DEVICE_CPU_ARM_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

/* The first n of 4 values, 0 <= n <= 4; the other lanes are 0. */
static inline float32x4_t load_part(const float *p, int n)
{
    float v[4] = { 0 };
    memcpy(v, p, (size_t)n * sizeof *p);
    return vld1q_f32(v);
}

static inline void store_part(float *p, float32x4_t x, int n)
{
    float v[4];
    vst1q_f32(v, x);
    memcpy(p, v, (size_t)n * sizeof *p);
}

/* Half floats are moved as plain 16-bit values: the conversions are base instructions, the arithmetic is not needed. */
static inline float32x4_t load_half(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }

static inline float32x4_t load_half_part(const uint16_t *p, int n)
{
    uint16_t v[4] = { 0 };
    memcpy(v, p, (size_t)n * sizeof *p);
    return load_half(v);
}

/* The sums of four vectors, each in the same order: (0+1) + (2+3). */
static inline float32x4_t sum4(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d)
{
    return vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d));
}

static inline float sum1(float32x4_t a) { return vgetq_lane_f32(sum4(a, a, a, a), 0); }

/* e^x, at most 2 ulp from it: x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its series to r^7 / 7! (cut off at 6e-9); 2^n
 * in two factors, so that both ends are reached gradually: 0 below -104, infinity above 88.8.  NaN stays NaN. */
static inline float32x4_t exp4(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f);
    x = vminq_f32(vdupq_n_f32(128.0f), vmaxq_f32(vdupq_n_f32(-128.0f), x));
    float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(1.44269504f)));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0.693145752f)); /* ln 2: the upper 15 bits, then the rest */
    r = vfmsq_f32(r, n, vdupq_n_f32(1.42860677e-6f));
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(one, p, r);
    p = vfmaq_f32(one, p, r);
    int32x4_t e = vcvtq_s32_f32(n), e1 = vshrq_n_s32(e, 1), e2 = vsubq_s32(e, e1), bias = vdupq_n_s32(127);
    float32x4_t s1 = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e1, bias), 23));
    float32x4_t s2 = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e2, bias), 23));
    return vmulq_f32(vmulq_f32(p, s1), s2);
}

#endif
