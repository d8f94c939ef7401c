/* quant_k_encode.c - encoding of Q4_K, Q5_K and Q6_K.  Each sub-block is fitted by least squares from several starting
 * scales; the sub-block scales are then rounded to their few bits, and the values are rounded again with what a decoder
 * will really multiply by. */
#include <string.h>

#include "format/quant_impl.h"

/* Starting scales tried on each side of the plain one, in tenths of a level. */
enum { TRIES = 10 };

/* x ~ a * q - m over the n values, q in 0..top, m >= 0, from one starting scale.  Returns the sum of squared errors. */
static double fit_affine(const float *x, int n, float lo, float inv, int top, float *a, float *m)
{
    double sq = 0, sqq = 0, sx = 0, sqx = 0, sxx = 0;
    for (int i = 0; i < n; i++) {
        double q = q_level((x[i] - lo) * inv + 0.5f, top), v = x[i];
        sq += q;
        sqq += q * q;
        sx += v;
        sqx += q * v;
        sxx += v * v;
    }
    double det = n * sqq - sq * sq, slope = 0, base = 0;
    if (det > 0) {
        slope = (n * sqx - sq * sx) / det;
        base = (sqq * sx - sq * sqx) / det;
    }
    if (!(base < 0) && sqq > 0) { /* minima are stored without a sign */
        base = 0;
        slope = sqx / sqq;
    }
    *a = (float)slope;
    *m = (float)-base;
    return sxx - 2 * (slope * sqx + base * sx) + slope * slope * sqq + 2 * slope * base * sq + base * base * n;
}

static void best_affine(const float *x, int n, int top, float *a, float *m)
{
    float lo = 0, hi = 0;
    for (int i = 0; i < n; i++) {
        if (x[i] < lo) lo = x[i];
        if (x[i] > hi) hi = x[i];
    }
    *a = 0;
    *m = -lo;
    if (!(hi > lo)) return;
    double best = INFINITY;
    for (int k = -TRIES; k <= TRIES; k++) {
        float slope, min;
        double e = fit_affine(x, n, lo, ((float)top + 0.1f * (float)k) / (hi - lo), top, &slope, &min);
        if (!(e < best) || !(slope >= 0)) continue;
        best = e;
        *a = slope;
        *m = min;
    }
}

static float largest(const float *x, int n)
{
    float v = 0;
    for (int i = 0; i < n; i++)
        if (x[i] > v) v = x[i];
    return v;
}

/* The packing that quant_k.c's scale_min undoes. */
static void put_scale_min(uint8_t *s, int i, int scale, int min)
{
    if (i < 4) {
        s[i] |= (uint8_t)scale;
        s[i + 4] |= (uint8_t)min;
        return;
    }
    s[i + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
    s[i - 4] |= (uint8_t)(scale >> 4 << 6);
    s[i] |= (uint8_t)(min >> 4 << 6);
}

/* Stores a scale as a half float that is not smaller in size, and returns what it became: small weights make it a
 * subnormal with few bits, and the sub-block scales, rounded against the stored one, can make up for that only
 * downwards. */
static float put_scale(uint8_t *at, float d)
{
    uint16_t h = half_from_float(d);
    if (fabsf(half_to_float(h)) < fabsf(d) && (h & 0x7fff) < 0x7bff) h++; /* never to infinity */
    q_put16(at, h);
    return half_to_float(h);
}

/* What Q4_K and Q5_K share: the head of 16 bytes (d, dmin, scales and minima), and the values, each 0..top. */
static void encode_affine(uint8_t *head, uint8_t values[256], const float *x, int top)
{
    float a[8], m[8];
    for (int i = 0; i < 8; i++) best_affine(x + 32 * i, 32, top, &a[i], &m[i]);
    memset(head, 0, 16);
    float d = put_scale(head, largest(a, 8) / 63.0f), dmin = put_scale(head + 2, largest(m, 8) / 63.0f);
    float inv_d = d > 0 ? 1.0f / d : 0, inv_dmin = dmin > 0 ? 1.0f / dmin : 0;
    for (int i = 0; i < 8; i++) {
        int scale = q_level(a[i] * inv_d + 0.5f, 63), min = q_level(m[i] * inv_dmin + 0.5f, 63);
        float da = d * (float)scale, dm = dmin * (float)min;
        float inv = da > 0 ? 1.0f / da : 0;
        put_scale_min(head + 4, i, scale, min);
        for (int j = 0; j < 32; j++) values[32 * i + j] = (uint8_t)q_level((x[32 * i + j] + dm) * inv + 0.5f, top);
    }
}

void quant_encode_q4_k(void *dst, const float *src, size_t n)
{
    uint8_t *s = dst, q[256];
    for (; n; n -= 256, s += 144, src += 256) {
        encode_affine(s, q, src, 15);
        for (int i = 0; i < 128; i++) {
            int low = i / 32 * 64 + i % 32;
            s[16 + i] = (uint8_t)(q[low] | q[low + 32] << 4);
        }
    }
}

void quant_encode_q5_k(void *dst, const float *src, size_t n)
{
    uint8_t *s = dst, q[256];
    for (; n; n -= 256, s += 176, src += 256) {
        encode_affine(s, q, src, 31);
        memset(s + 16, 0, 32);
        for (int i = 0; i < 256; i++) s[16 + i % 32] |= (uint8_t)(q[i] >> 4 << (i / 32));
        for (int i = 0; i < 128; i++) {
            int low = i / 32 * 64 + i % 32;
            s[48 + i] = (uint8_t)((q[low] & 15) | (q[low + 32] & 15) << 4);
        }
    }
}

/* The scale of x ~ a * q, q in -32..31. */
static float best_linear(const float *x, int n)
{
    float peak = q_peak(x, n), a = 0;
    double best = -1;
    if (peak == 0.0f) return 0;
    for (int k = -TRIES; k <= TRIES; k++) {
        float inv = -(32.0f + 0.1f * (float)k) / peak;
        double sqq = 0, sqx = 0;
        for (int i = 0; i < n; i++) {
            double q = q_round(x[i] * inv, -32, 31);
            sqq += q * q;
            sqx += q * x[i];
        }
        /* the squared error is sum(x^2) - sqx^2 / sqq */
        if (!(sqq > 0) || !(sqx * sqx / sqq > best)) continue;
        best = sqx * sqx / sqq;
        a = (float)(sqx / sqq);
    }
    return a;
}

void quant_encode_q6_k(void *dst, const float *src, size_t n)
{
    uint8_t *s = dst;
    for (; n; n -= 256, s += 210, src += 256) {
        float a[16];
        for (int i = 0; i < 16; i++) a[i] = best_linear(src + 16 * i, 16);
        /* the largest scale takes the value that has one step more */
        memset(s, 0, 208);
        float d = put_scale(s + 208, q_peak(a, 16) / -128.0f), inv_d = d != 0.0f ? 1.0f / d : 0;
        for (int i = 0; i < 256; i++) {
            int scale = q_round(a[i / 16] * inv_d, -128, 127), half = i / 128, run = i % 128 / 32, l = i % 32;
            float da = d * (float)scale;
            int q = q_round(da != 0.0f ? src[i] / da : 0, -32, 31) + 32;
            s[192 + i / 16] = (uint8_t)scale;
            s[half * 64 + run % 2 * 32 + l] |= (uint8_t)((q & 15) << (run / 2 * 4));
            s[128 + half * 32 + l] |= (uint8_t)(q >> 4 << (run * 2));
        }
    }
}
