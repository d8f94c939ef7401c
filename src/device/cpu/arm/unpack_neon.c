/* unpack_neon.c - packed weights to floats for NEON.  Layouts: format/quant.h. */
#include "base/half.h"
#include "device/cpu/arm/vec_neon.h"
#include "device/cpu/kern.h"

/* Packed data has no alignment: it is loaded as bytes. */
static inline uint16x8_t load8(const uint8_t *p) { return vreinterpretq_u16_u8(vld1q_u8(p)); }

void unpack_f16_neon(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        uint16x8_t h = load8(s + 2 * i);
        vst1q_f32(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h))));
        vst1q_f32(dst + i + 4, vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(h))));
    }
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, s + 2 * i, sizeof h);
        dst[i] = half_to_float(h);
    }
}

void unpack_bf16_neon(float *dst, const void *src, size_t n)
{
    const uint8_t *s = src;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        uint16x8_t h = load8(s + 2 * i);
        vst1q_f32(dst + i, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)));
        vst1q_f32(dst + i + 4, vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(h), 16)));
    }
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, s + 2 * i, sizeof h);
        dst[i] = bf16_to_float(h);
    }
}

/* The half float scale at the head of a block. */
static inline float scale_of(const uint8_t *block)
{
    uint16_t h;
    memcpy(&h, block, sizeof h);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

static inline void put8(float *dst, int8x8_t b, float scale)
{
    int16x8_t w = vmovl_s8(b);
    vst1q_f32(dst, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(w))), scale));
    vst1q_f32(dst + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(w))), scale));
}

static inline void put16(float *dst, int8x16_t b, float scale)
{
    put8(dst, vget_low_s8(b), scale);
    put8(dst + 8, vget_high_s8(b), scale);
}

/* Block of 32: scale, 32 signed bytes. */
void unpack_q8_0_neon(float *dst, const void *src, size_t n)
{
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += 32, b += 34) {
        float scale = scale_of(b);
        put16(dst + i, vreinterpretq_s8_u8(vld1q_u8(b + 2)), scale);
        put16(dst + i + 16, vreinterpretq_s8_u8(vld1q_u8(b + 18)), scale);
    }
}

/* Block of 32: scale, 16 bytes whose low nibbles are values 0..15 and high nibbles values 16..31, each 8 too large. */
void unpack_q4_0_neon(float *dst, const void *src, size_t n)
{
    const uint8_t *b = src;
    const int8x16_t eight = vdupq_n_s8(8);
    for (size_t i = 0; i < n; i += 32, b += 18) {
        float scale = scale_of(b);
        uint8x16_t q = vld1q_u8(b + 2);
        put16(dst + i, vsubq_s8(vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15))), eight), scale);
        put16(dst + i + 16, vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(q, 4)), eight), scale);
    }
}

void half_neon(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
    for (; i < n; i++) dst[i] = half_from_float(src[i]);
}
