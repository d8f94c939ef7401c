/* row_neon.c - norm, rotation, gate and softmax for NEON. */
#include <math.h>

#include "device/cpu/arm/vec_neon.h"
#include "device/cpu/kern.h"

/* Squares add up in double, 4 lanes: a float's square is exact there. */
static double sum_of_squares(const float *x, int n)
{
    float64x2_t lo = vdupq_n_f64(0), hi = lo;
    for (int i = 0; i < n; i += 4) {
        float32x4_t v = n - i >= 4 ? vld1q_f32(x + i) : load_part(x + i, n - i);
        float64x2_t a = vcvt_f64_f32(vget_low_f32(v)), b = vcvt_high_f64_f32(v);
        lo = vfmaq_f64(lo, a, a);
        hi = vfmaq_f64(hi, b, b);
    }
    float64x2_t s = vaddq_f64(lo, hi);
    return vgetq_lane_f64(s, 0) + vgetq_lane_f64(s, 1);
}

void norm_neon(float *out, const float *x, const float *w, int n, float eps)
{
    float scale = (float)(1.0 / sqrt(sum_of_squares(x, n) / n + eps));
    int i = 0;

    for (; i + 4 <= n; i += 4) vst1q_f32(out + i, vmulq_f32(vmulq_n_f32(vld1q_f32(x + i), scale), vld1q_f32(w + i)));
    for (; i < n; i++) out[i] = x[i] * scale * w[i];
}

void rope_pairs_neon(float *x, const float *cs, int half)
{
    const float *sn = cs + half;
    int i = 0;

    for (; i + 4 <= half; i += 4) {
        float32x4x2_t v = vld2q_f32(x + 2 * i), r;
        float32x4_t c = vld1q_f32(cs + i), s = vld1q_f32(sn + i);
        r.val[0] = vsubq_f32(vmulq_f32(v.val[0], c), vmulq_f32(v.val[1], s));
        r.val[1] = vaddq_f32(vmulq_f32(v.val[1], c), vmulq_f32(v.val[0], s));
        vst2q_f32(x + 2 * i, r);
    }
    for (; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cs[i] - b * sn[i];
        x[2 * i + 1] = b * cs[i] + a * sn[i];
    }
}

void rope_halves_neon(float *x, const float *cs, int half)
{
    const float *sn = cs + half;
    float *y = x + half;
    int i = 0;

    for (; i + 4 <= half; i += 4) {
        float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(y + i), c = vld1q_f32(cs + i), s = vld1q_f32(sn + i);
        vst1q_f32(x + i, vsubq_f32(vmulq_f32(a, c), vmulq_f32(b, s)));
        vst1q_f32(y + i, vaddq_f32(vmulq_f32(b, c), vmulq_f32(a, s)));
    }
    for (; i < half; i++) {
        float a = x[i], b = y[i];
        x[i] = a * cs[i] - b * sn[i];
        y[i] = b * cs[i] + a * sn[i];
    }
}

static inline float32x4_t swiglu4(float32x4_t a, float32x4_t b)
{
    return vmulq_f32(vdivq_f32(a, vaddq_f32(vdupq_n_f32(1.0f), exp4(vnegq_f32(a)))), b);
}

void swiglu_neon(float *out, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) vst1q_f32(out + i, swiglu4(vld1q_f32(a + i), vld1q_f32(b + i)));
    if (i < n) {
        int left = (int)(n - i);
        store_part(out + i, swiglu4(load_part(a + i, left), load_part(b + i, left)), left);
    }
}

float softmax_neon(float *s, int n)
{
    float32x4_t top = vdupq_n_f32(s[0]), sum = vdupq_n_f32(0);
    int i = 0;

    for (; i + 4 <= n; i += 4) top = vmaxq_f32(top, vld1q_f32(s + i));
    float max = vmaxvq_f32(top);
    for (; i < n; i++) max = s[i] > max ? s[i] : max;

    const float32x4_t m = vdupq_n_f32(max);
    for (i = 0; i + 4 <= n; i += 4) {
        float32x4_t e = exp4(vsubq_f32(vld1q_f32(s + i), m));
        vst1q_f32(s + i, e);
        sum = vaddq_f32(sum, e);
    }
    if (i < n) {
        float32x4_t e = exp4(vsubq_f32(load_part(s + i, n - i), m));
        store_part(s + i, e, n - i);
        sum = vaddq_f32(sum, load_part(s + i, n - i)); /* read back: lanes behind the end are 0 */
    }
    return sum1(sum);
}
