/* row_ref.c - operations on one row in plain C: norm, rotation, gate, softmax.  Exponentials in double, rounded
 * once. */
#include <math.h>

#include "base/half.h"
#include "device/cpu/kern.h"

void norm_ref(float *out, const float *x, const float *w, int n, float eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * x[i];
    float scale = (float)(1.0 / sqrt(sum / n + eps));
    for (int i = 0; i < n; i++) out[i] = x[i] * scale * w[i];
}

void rope_pairs_ref(float *x, const float *cs, int half)
{
    const float *sn = cs + half;
    for (int i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cs[i] - b * sn[i];
        x[2 * i + 1] = b * cs[i] + a * sn[i];
    }
}

void rope_halves_ref(float *x, const float *cs, int half)
{
    const float *sn = cs + half;
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cs[i] - b * sn[i];
        x[i + half] = b * cs[i] + a * sn[i];
    }
}

void swiglu_ref(float *out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (float)(a[i] / (1.0 + exp(-(double)a[i]))) * b[i];
}

float softmax_ref(float *s, int n)
{
    float max = s[0];
    double sum = 0;
    for (int i = 1; i < n; i++) max = s[i] > max ? s[i] : max;
    for (int i = 0; i < n; i++) {
        s[i] = (float)exp((double)s[i] - max);
        sum += s[i];
    }
    return (float)sum;
}

void half_ref(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = half_from_float(src[i]);
}
