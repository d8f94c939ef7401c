/* attn_neon.c - attention over a list of slots for NEON, K,V as float or half.
 * dots: four columns at a time, so that each piece of q is loaded once; mix: 32 values at a time in registers. */
#include "device/cpu/arm/vec_neon.h"
#include "device/cpu/kern.h"

enum { COLS = 4 };

static ALWAYS_INLINE float32x4_t load4(bool f16, const void *base, size_t at)
{
    return f16 ? load_half((const uint16_t *)base + at) : vld1q_f32((const float *)base + at);
}

static ALWAYS_INLINE float32x4_t load_tail(bool f16, const void *base, size_t at, int n)
{
    return f16 ? load_half_part((const uint16_t *)base + at, n) : load_part((const float *)base + at, n);
}

static ALWAYS_INLINE void dots(bool f16, float *s, const float *q, const void *k, size_t stride, const int32_t *slot,
                               int n, int d, float scale)
{
    for (int c = 0; c < n; c += COLS) {
        size_t at[COLS];
        float32x4_t acc[COLS];
        int i = 0, nc = n - c < COLS ? n - c : COLS;

        for (int j = 0; j < COLS; j++) { /* columns behind the last repeat it and are not stored */
            at[j] = (size_t)slot[c + (j < nc ? j : nc - 1)] * stride;
            acc[j] = vdupq_n_f32(0);
        }
        for (; i + 4 <= d; i += 4) {
            float32x4_t v = vld1q_f32(q + i);
            for (int j = 0; j < COLS; j++) acc[j] = vfmaq_f32(acc[j], v, load4(f16, k, at[j] + (size_t)i));
        }
        if (i < d) {
            float32x4_t v = load_part(q + i, d - i);
            for (int j = 0; j < COLS; j++) acc[j] = vfmaq_f32(acc[j], v, load_tail(f16, k, at[j] + (size_t)i, d - i));
        }
        store_part(s + c, vmulq_n_f32(sum4(acc[0], acc[1], acc[2], acc[3]), scale), nc);
    }
}

/* `vecs` (a constant at each call) vectors of 4 values from value i on. */
static ALWAYS_INLINE void mix_part(bool f16, int vecs, float *out, const float *p, const void *v, size_t stride,
                                   const int32_t *slot, int n, int i, float scale)
{
    float32x4_t acc[8];

    for (int j = 0; j < vecs; j++) acc[j] = vdupq_n_f32(0);
    for (int c = 0; c < n; c++) {
        size_t at = (size_t)slot[c] * stride + (size_t)i;
        for (int j = 0; j < vecs; j++) acc[j] = vfmaq_n_f32(acc[j], load4(f16, v, at + 4 * (size_t)j), p[c]);
    }
    for (int j = 0; j < vecs; j++) vst1q_f32(out + i + 4 * j, vmulq_n_f32(acc[j], scale));
}

static ALWAYS_INLINE void mix(bool f16, float *out, const float *p, const void *v, size_t stride, const int32_t *slot,
                              int n, int d, float scale)
{
    int i = 0;

    for (; i + 32 <= d; i += 32) mix_part(f16, 8, out, p, v, stride, slot, n, i, scale);
    for (; i + 4 <= d; i += 4) mix_part(f16, 1, out, p, v, stride, slot, n, i, scale);
    if (i == d) return;
    float32x4_t acc = vdupq_n_f32(0);
    for (int c = 0; c < n; c++)
        acc = vfmaq_n_f32(acc, load_tail(f16, v, (size_t)slot[c] * stride + (size_t)i, d - i), p[c]);
    store_part(out + i, vmulq_n_f32(acc, scale), d - i);
}

void dots_f32_neon(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                   float scale)
{
    dots(false, s, q, k, stride, slot, n, d, scale);
}

void dots_f16_neon(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                   float scale)
{
    dots(true, s, q, k, stride, slot, n, d, scale);
}

void mix_f32_neon(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                  float scale)
{
    mix(false, out, p, v, stride, slot, n, d, scale);
}

void mix_f16_neon(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                  float scale)
{
    mix(true, out, p, v, stride, slot, n, d, scale);
}
