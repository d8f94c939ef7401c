/* attn_ref.c - attention over a list of slots in plain C, K,V as float or half. */
#include "base/half.h"
#include "device/cpu/kern.h"

enum { LANES = 8 };

static float fold(float s[LANES])
{
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) s[l] += s[l + half];
    return s[0];
}

void dots_f32_ref(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                  float scale)
{
    for (int c = 0; c < n; c++) {
        const float *kc = (const float *)k + (size_t)slot[c] * stride;
        float part[LANES] = { 0 };
        for (int i = 0; i < d; i++) part[i % LANES] += q[i] * kc[i];
        s[c] = scale * fold(part);
    }
}

void dots_f16_ref(float *s, const float *q, const void *k, size_t stride, const int32_t *slot, int n, int d,
                  float scale)
{
    for (int c = 0; c < n; c++) {
        const uint16_t *kc = (const uint16_t *)k + (size_t)slot[c] * stride;
        float part[LANES] = { 0 };
        for (int i = 0; i < d; i++) part[i % LANES] += q[i] * half_to_float(kc[i]);
        s[c] = scale * fold(part);
    }
}

void mix_f32_ref(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                 float scale)
{
    for (int i = 0; i < d; i++) out[i] = 0;
    for (int c = 0; c < n; c++) {
        const float *vc = (const float *)v + (size_t)slot[c] * stride;
        for (int i = 0; i < d; i++) out[i] += p[c] * vc[i];
    }
    for (int i = 0; i < d; i++) out[i] *= scale;
}

void mix_f16_ref(float *out, const float *p, const void *v, size_t stride, const int32_t *slot, int n, int d,
                 float scale)
{
    for (int i = 0; i < d; i++) out[i] = 0;
    for (int c = 0; c < n; c++) {
        const uint16_t *vc = (const uint16_t *)v + (size_t)slot[c] * stride;
        for (int i = 0; i < d; i++) out[i] += p[c] * half_to_float(vc[i]);
    }
    for (int i = 0; i < d; i++) out[i] *= scale;
}
