/* quant_k_encode.c - encoding of Q4_K, Q5_K and Q6_K by weighted least squares.  Each sub-block is fitted from several
 * starting scales; the super-block's scales follow; then the whole numbers that a file holds are searched around the
 * fit, with errors computed as a decoder will see them, and the super-block's scales are fitted to these in turn.
 * Weights say how much an error of a value matters; without them all do alike. */
#include <string.h>

#include "format/quant_impl.h"

enum {
    TRIES = 10,  /* starting scales on each side of the plain one, in tenths of a level */
    FITS = 2 * TRIES + 1,
    ROUNDS = 1,  /* fits of the super-block's scales */
    NEAR = 2,    /* whole scales tried on each side of the best one, */
    STEPS = 2    /* each with so many minima */
};

/* The weights of a super-block into out.  A small share of their mean is added to each: what never mattered in the
 * texts that weights were made from may matter in others. */
static void take_weights(const float *w, float out[256])
{
    double sum = 0;
    for (int i = 0; w && i < 256; i++) sum += w[i];
    float share = (float)(sum / 256 * 1e-3);
    bool use = share > 0 && isfinite(share);
    for (int i = 0; i < 256; i++) out[i] = use ? w[i] + share : 1;
}

/* ------------------------------------------------------------ Q4_K, Q5_K: w = d * scale * q - dmin * min */

/* Sums over a sub-block are kept in lanes: compilers may then use vectors, and few floats are added to each. */
enum { LANES = 8 };

static double sum_of(const float lane[LANES])
{
    double s = 0;
    for (int l = 0; l < LANES; l++) s += (double)lane[l];
    return s;
}

/* x cut off to a level 0..top, as a float; NaN gives 0. */
static inline float level_of(float x, float top)
{
    x = x > 0.0f ? x : 0.0f;
    x = x < top ? x : top;
    return (float)(int)x;
}

/* x ~ a * q - m over 32 values, q in 0..top, m >= 0: the best a and m for the levels that one starting scale gives.
 * Returns the squared error less a constant. */
static double fit_affine(const float *x, const float *w, float lo, float inv, float top, float *a, float *m)
{
    float su[LANES] = { 0 }, sq[LANES] = { 0 }, sqq[LANES] = { 0 }, sx[LANES] = { 0 }, sqx[LANES] = { 0 };
    for (int i = 0; i < 32; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = x[i + l], u = w[i + l], q = level_of((v - lo) * inv + 0.5f, top);
            su[l] += u;
            sq[l] += u * q;
            sqq[l] += u * q * q;
            sx[l] += u * v;
            sqx[l] += u * q * v;
        }
    double all = sum_of(su), q1 = sum_of(sq), qq = sum_of(sqq), x1 = sum_of(sx), qx = sum_of(sqx);
    double det = all * qq - q1 * q1, slope = 0, base = 0;
    if (det > 0) {
        slope = (all * qx - q1 * x1) / det;
        base = (qq * x1 - q1 * qx) / det;
    }
    if (!(base < 0) && qq > 0) { /* minima are stored without a sign */
        base = 0;
        slope = qx / qq;
    }
    *a = slope > 0 ? (float)slope : 0;
    *m = (float)-base;
    return slope * slope * qq + base * base * all + 2 * (slope * base * q1 - slope * qx - base * x1);
}

/* Levels of one sub-block under a scale and a minimum, and their error as a decoder sees it.  *pull: the weighed mean
 * of what is missing, by which a smaller minimum would be better for these levels. */
static float levels(const float *x, const float *w, float da, float dm, float top, float q[32], float *pull)
{
    float inv = da > 0 ? 1.0f / da : 0, e[LANES] = { 0 }, miss[LANES] = { 0 }, all[LANES] = { 0 };
    for (int i = 0; i < 32; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float level = level_of((x[i + l] + dm) * inv + 0.5f, top), off = x[i + l] - (da * level - dm);
            q[i + l] = level;
            e[l] += w[i + l] * off * off;
            miss[l] += w[i + l] * off;
            all[l] += w[i + l];
        }
    *pull = (float)(sum_of(miss) / sum_of(all));
    return (float)sum_of(e);
}

/* Fits of one sub-block from all starting scales; the best one first. */
typedef struct {
    float a[FITS], m[FITS];
} fits;

static void fit_all(fits *f, const float *x, const float *w, int top)
{
    float lo = 0, hi = 0;
    double best = INFINITY;
    for (int i = 0; i < 32; i++) {
        if (x[i] < lo) lo = x[i];
        if (x[i] > hi) hi = x[i];
    }
    for (int k = 0; k < FITS; k++) {
        f->a[k] = 0;
        f->m[k] = -lo;
        if (!(hi > lo)) continue;
        float inv = ((float)top + 0.1f * (float)(k - TRIES)) / (hi - lo);
        double e = fit_affine(x, w, lo, inv, (float)top, &f->a[k], &f->m[k]);
        float a = f->a[k], m = f->m[k];
        if (!(e < best)) continue;
        best = e;
        f->a[k] = f->a[0];
        f->m[k] = f->m[0];
        f->a[0] = a;
        f->m[0] = m;
    }
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

/* A scale as a half float that is not smaller in size: small weights make it a subnormal with few bits, and the
 * sub-block scales, rounded against the stored one, can make up for that only downwards. */
static float stored_scale(float d)
{
    uint16_t h = half_from_float(d);
    if (fabsf(half_to_float(h)) < fabsf(d) && (h & 0x7fff) < 0x7bff) h++; /* never to infinity */
    return half_to_float(h);
}

/* The nearest half float that is finite. */
static float nearest_scale(double d)
{
    float h = half_to_float(half_from_float((float)d));
    return isfinite(h) ? h : 0;
}

/* A super-block as a file will hold it. */
typedef struct {
    float d, dmin; /* exact as half floats */
    uint8_t scale[8], min[8], q[256];
    double error;
} affine;

static int clamp63(int v) { return v < 0 ? 0 : v > 63 ? 63 : v; }

static int whole63(float v, float d) { return q_level(d > 0 ? v / d + 0.5f : 0, 63); }

/* One sub-block under whole numbers s and m: kept where it is better.  Returns the minimum to try next. */
static int try_affine(affine *b, int i, const float *x, const float *w, int s, int m, int top, float *best)
{
    float dm = b->dmin * (float)m, pull, q[32];
    float e = levels(x + 32 * i, w + 32 * i, b->d * (float)s, dm, (float)top, q, &pull);
    int next = whole63(dm - pull, b->dmin);
    if (!(e < *best)) return next;
    *best = e;
    b->scale[i] = (uint8_t)s;
    b->min[i] = (uint8_t)m;
    for (int j = 0; j < 32; j++) b->q[32 * i + j] = (uint8_t)q[j];
    return next;
}

/* The best whole numbers for each sub-block, d and dmin given: those of all fits (f, or NULL), then those along the
 * valley in which errors change slowly, then all around. */
static void search_affine(affine *b, const fits *f, const float *x, const float *w, int top)
{
    b->error = 0;
    for (int i = 0; i < 8; i++) {
        float best = INFINITY;
        int last = -1;
        for (int k = 0; f && k < FITS; k++) {
            int s = whole63(f[i].a[k], b->d), m = whole63(f[i].m[k], b->dmin);
            if (64 * s + m != last) try_affine(b, i, x, w, s, m, top, &best);
            last = 64 * s + m;
        }
        int s0 = b->scale[i], m0 = b->min[i];
        for (int s = clamp63(s0 - NEAR); s <= clamp63(s0 + NEAR); s++) {
            /* a larger scale goes with a larger minimum: the lowest level stays where it is */
            int m = s0 ? clamp63(m0 * s / s0) : m0;
            for (int k = 0; k < STEPS; k++) m = try_affine(b, i, x, w, s, m, top, &best);
        }
        s0 = b->scale[i];
        m0 = b->min[i];
        for (int k = 0; k < 9; k++)
            (void)try_affine(b, i, x, w, clamp63(s0 + k % 3 - 1), clamp63(m0 + k / 3 - 1), top, &best);
        if (best == INFINITY) memset(b->q + 32 * i, 0, 32); /* values that are not finite */
        b->error += best;
    }
}

/* d and dmin that fit best to the whole numbers as they are; false: nothing to be had. */
static bool refit_affine(affine *b, const float *x, const float *w)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < 256; i++) {
        double p = b->scale[i / 32] * b->q[i], m = b->min[i / 32], u = w[i];
        aa += u * p * p;
        ab += u * p * m;
        bb += u * m * m;
        ax += u * p * x[i];
        bx += u * m * x[i];
    }
    double det = aa * bb - ab * ab;
    float d = b->d, dmin = b->dmin;
    if (det > 1e-9 * aa * bb) {
        d = nearest_scale((ax * bb - bx * ab) / det);
        dmin = nearest_scale((ax * ab - bx * aa) / det);
    } else if (aa > 0) {
        d = nearest_scale((ax + (double)dmin * ab) / aa);
    }
    if (!(d > 0) || !(dmin >= 0) || (d == b->d && dmin == b->dmin)) return false;
    b->d = d;
    b->dmin = dmin;
    return true;
}

/* What Q4_K and Q5_K share: the head of 16 bytes (d, dmin, scales and minima), and the values, each 0..top. */
static void encode_affine(uint8_t *head, uint8_t values[256], const float *x, const float *given, int top)
{
    fits f[8];
    float w[256], a = 0, m = 0;
    affine best = { .error = 0 };
    take_weights(given, w);
    for (int i = 0; i < 8; i++) {
        fit_all(&f[i], x + 32 * i, w + 32 * i, top);
        if (f[i].a[0] > a) a = f[i].a[0];
        if (f[i].m[0] > m) m = f[i].m[0];
    }
    best.d = stored_scale(a / 63.0f);
    best.dmin = stored_scale(m / 63.0f);
    search_affine(&best, f, x, w, top);
    affine next = best;
    for (int k = 0; k < ROUNDS && refit_affine(&next, x, w); k++) {
        search_affine(&next, NULL, x, w, top);
        if (!(next.error < best.error)) break;
        best = next;
    }
    memset(head, 0, 16);
    q_put16(head, half_from_float(best.d));
    q_put16(head + 2, half_from_float(best.dmin));
    for (int i = 0; i < 8; i++) put_scale_min(head + 4, i, best.scale[i], best.min[i]);
    memcpy(values, best.q, 256);
}

void quant_weigh_q4_k(void *dst, const float *src, const float *w, size_t n)
{
    uint8_t *s = dst, q[256];
    for (; n; n -= 256, s += 144, src += 256, w = w ? w + 256 : NULL) {
        encode_affine(s, q, src, w, 15);
        for (int i = 0; i < 128; i++) {
            int low = i / 32 * 64 + i % 32;
            s[16 + i] = (uint8_t)(q[low] | q[low + 32] << 4);
        }
    }
}

void quant_weigh_q5_k(void *dst, const float *src, const float *w, size_t n)
{
    uint8_t *s = dst, q[256];
    for (; n; n -= 256, s += 176, src += 256, w = w ? w + 256 : NULL) {
        encode_affine(s, q, src, w, 31);
        memset(s + 16, 0, 32);
        for (int i = 0; i < 256; i++) s[16 + i % 32] |= (uint8_t)(q[i] >> 4 << (i / 32));
        for (int i = 0; i < 128; i++) {
            int low = i / 32 * 64 + i % 32;
            s[48 + i] = (uint8_t)((q[low] & 15) | (q[low + 32] & 15) << 4);
        }
    }
}

/* ------------------------------------------------------------ Q6_K: w = d * scale * q */

float quant_best_linear(const float *x, const float *w, int n, int half)
{
    float peak = q_peak(x, n), a = 0;
    double best = -1;
    if (peak == 0.0f) return 0;
    for (int k = -TRIES; k <= TRIES; k++) {
        float inv = -((float)half + 0.1f * (float)k) / peak;
        double sqq = 0, sqx = 0;
        for (int i = 0; i < n; i++) {
            double q = q_round(x[i] * inv, -half, half - 1);
            sqq += w[i] * q * q;
            sqx += w[i] * q * x[i];
        }
        /* the squared error is sum(w x^2) - sqx^2 / sqq */
        if (!(sqq > 0) || !(sqx * sqx / sqq > best)) continue;
        best = sqx * sqx / sqq;
        a = (float)(sqx / sqq);
    }
    return a;
}

typedef struct {
    float d;
    int scale[16];
    int8_t q[256];
    double error;
} linear;

static void search_linear(linear *b, const float *x, const float *w)
{
    b->error = 0;
    for (int i = 0; i < 16; i++) {
        int s0 = b->scale[i];
        double best = INFINITY;
        for (int s = s0 > -128 ? s0 - 1 : s0; s <= s0 + 1 && s <= 127; s++) {
            float da = b->d * (float)s;
            int8_t q[16];
            double e = 0;
            for (int j = 0; j < 16; j++) {
                float v = x[16 * i + j];
                q[j] = (int8_t)q_round(da != 0.0f ? v / da : 0, -32, 31);
                double off = (double)v - (double)da * q[j];
                e += w[16 * i + j] * off * off;
            }
            if (!(e < best)) continue;
            best = e;
            b->scale[i] = s;
            memcpy(b->q + 16 * i, q, 16);
        }
        if (best == INFINITY) memset(b->q + 16 * i, 0, 16);
        b->error += best;
    }
}

static bool refit_linear(linear *b, const float *x, const float *w)
{
    double pp = 0, px = 0;
    for (int i = 0; i < 256; i++) {
        double p = b->scale[i / 16] * b->q[i];
        pp += w[i] * p * p;
        px += w[i] * p * x[i];
    }
    float d = pp > 0 ? nearest_scale(px / pp) : 0;
    if (d == 0.0f || d == b->d) return false;
    b->d = d;
    return true;
}

void quant_weigh_q6_k(void *dst, const float *src, const float *given, size_t n)
{
    uint8_t *s = dst;
    for (; n; n -= 256, s += 210, src += 256, given = given ? given + 256 : NULL) {
        float a[16], w[256];
        take_weights(given, w);
        linear best = { .error = 0 };
        for (int i = 0; i < 16; i++) a[i] = quant_best_linear(src + 16 * i, w + 16 * i, 16, 32);
        /* the largest scale takes the value that has one step more */
        best.d = stored_scale(q_peak(a, 16) / -128.0f);
        for (int i = 0; i < 16; i++) best.scale[i] = best.d != 0.0f ? q_round(a[i] / best.d, -128, 127) : 0;
        search_linear(&best, src, w);
        linear next = best;
        for (int k = 0; k < ROUNDS && refit_linear(&next, src, w); k++) {
            search_linear(&next, src, w);
            if (!(next.error < best.error)) break;
            best = next;
        }
        memset(s, 0, 208);
        q_put16(s + 208, half_from_float(best.d));
        for (int i = 0; i < 256; i++) {
            int half = i / 128, run = i % 128 / 32, l = i % 32, q = best.q[i] + 32;
            s[192 + i / 16] = (uint8_t)best.scale[i / 16];
            s[half * 64 + run % 2 * 32 + l] |= (uint8_t)((q & 15) << (run / 2 * 4));
            s[128 + half * 32 + l] |= (uint8_t)(q >> 4 << (run * 2));
        }
    }
}

void quant_encode_q4_k(void *dst, const float *src, size_t n) { quant_weigh_q4_k(dst, src, NULL, n); }

void quant_encode_q5_k(void *dst, const float *src, size_t n) { quant_weigh_q5_k(dst, src, NULL, n); }

void quant_encode_q6_k(void *dst, const float *src, size_t n) { quant_weigh_q6_k(dst, src, NULL, n); }
