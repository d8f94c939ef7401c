/* test_quant.c - block formats against fixtures of an independent implementation, and what holds for all of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "format/quant.h"

enum { N = 512 };

static const struct {
    uint32_t type;
    const char *name;
    int block, bytes;
    double exact; /* encoded blocks must equal the fixture's (0), or err at most this many times as much */
    bool encodes;
} types[] = {
    { QT_F16, "F16", 1, 2, 0, true },          { QT_BF16, "BF16", 1, 2, 0, true },
    { QT_Q4_0, "Q4_0", 32, 18, 0, true },      { QT_Q4_1, "Q4_1", 32, 20, 0, true },
    { QT_Q5_0, "Q5_0", 32, 22, 0, true },      { QT_Q5_1, "Q5_1", 32, 24, 0, true },
    { QT_Q8_0, "Q8_0", 32, 34, 0, true },      { QT_Q2_K, "Q2_K", 256, 84, 0, false },
    { QT_Q3_K, "Q3_K", 256, 110, 0, false },   { QT_Q4_K, "Q4_K", 256, 144, 1.0, true },
    { QT_Q5_K, "Q5_K", 256, 176, 1.0, true }, { QT_Q6_K, "Q6_K", 256, 210, 1.0, true },
    { QT_IQ4_NL, "IQ4_NL", 32, 18, 0, false }, { QT_IQ4_XS, "IQ4_XS", 256, 136, 0, false },
};
enum { N_TYPES = sizeof types / sizeof *types };

/* The fixture of one format; owned by the caller. */
static uint8_t *load(const char *name, size_t want)
{
    char path[64];
    snprintf(path, sizeof path, "tests/fixtures/quant/%s.bin", name);
    FILE *f = fopen(path, "rb");
    uint8_t *d = malloc(want + 1);
    assert_non_null(f);
    assert_non_null(d);
    assert_int_equal(fread(d, 1, want + 1, f), want);
    fclose(f);
    return d;
}

static size_t raw_bytes(size_t i) { return (size_t)N / (size_t)types[i].block * (size_t)types[i].bytes; }

static void table(void **state)
{
    size_t n = 0;
    for (uint32_t t = 0; t < 256; t++) n += quant_get(t) != NULL;
    assert_int_equal(n, N_TYPES + 1);
    assert_null(quant_get(UINT32_MAX));
    assert_string_equal(quant_get(QT_F32)->name, "F32");
    for (size_t i = 0; i < N_TYPES; i++) {
        const quant_info *q = quant_get(types[i].type);
        assert_string_equal(q->name, types[i].name);
        assert_int_equal(q->block, types[i].block);
        assert_int_equal(q->bytes, types[i].bytes);
        assert_non_null(q->decode);
        assert_int_equal(q->encode != NULL, types[i].encodes);
    }
}

static void rows(void **state)
{
    size_t b = 0;
    assert_true(quant_row_bytes(QT_F32, 7, &b) && b == 28);
    assert_true(quant_row_bytes(QT_Q4_0, 4096, &b) && b == 2304);
    assert_true(quant_row_bytes(QT_Q6_K, 4096, &b) && b == 3360);
    assert_true(quant_row_bytes(QT_Q8_0, 0, &b) && b == 0);
    assert_false(quant_row_bytes(QT_Q4_0, 33, &b));
    assert_false(quant_row_bytes(QT_Q4_K, 128, &b));
    assert_false(quant_row_bytes(4, 32, &b));
    assert_false(quant_row_bytes(QT_COUNT, 32, &b));
    assert_false(quant_row_bytes(QT_F32, 1ull << 62, &b));
    assert_false(quant_row_bytes(QT_F32, UINT64_MAX, &b));
}

/* Bit for bit, also from an address that is aligned to nothing. */
static void decodes(void **state)
{
    for (size_t i = 0; i < N_TYPES; i++) {
        size_t raw = raw_bytes(i);
        uint8_t *d = load(types[i].name, types[i].encodes ? 2 * raw + 8 * N : raw + 4 * N);
        uint8_t *odd = malloc(raw + 1);
        float out[N];
        assert_non_null(odd);
        memcpy(odd + 1, d, raw);
        quant_get(types[i].type)->decode(out, odd + 1, N);
        for (int k = 0; k < N; k++)
            if (memcmp(&out[k], d + raw + 4 * (size_t)k, 4)) fail_msg("%s: value %d is %a", types[i].name, k, out[k]);
        free(odd);
        free(d);
    }
}

static double squared_error(const quant_info *q, const void *blocks, const float *x)
{
    float y[N];
    double e = 0;
    q->decode(y, blocks, N);
    for (int k = 0; k < N; k++) e += ((double)x[k] - y[k]) * ((double)x[k] - y[k]);
    return e;
}

static void encodes(void **state)
{
    for (size_t i = 0; i < N_TYPES; i++) {
        const quant_info *q = quant_get(types[i].type);
        size_t raw = raw_bytes(i);
        if (!types[i].encodes) continue;
        uint8_t *d = load(types[i].name, 2 * raw + 8 * N), *out = malloc(raw + 1);
        float x[N];
        assert_non_null(out);
        memcpy(x, d + raw + 4 * N, sizeof x);
        const uint8_t *want = d + raw + 8 * N;
        q->encode(out + 1, x, N);
        if (types[i].exact == 0) {
            for (size_t k = 0; k < raw; k++)
                if (out[1 + k] != want[k]) fail_msg("%s: byte %zu is %d, not %d", q->name, k, out[1 + k], want[k]);
        } else {
            double ours = squared_error(q, out + 1, x), theirs = squared_error(q, want, x);
            assert_true(theirs > 0 && ours > 0);
            if (ours > theirs * types[i].exact) fail_msg("%s: %g, the fixture %g", q->name, ours, theirs);
        }
        free(out);
        free(d);
    }
}

static void f32_is_itself(void **state)
{
    static const float x[4] = { 1.5f, -0.0f, INFINITY, 1e-45f };
    uint8_t raw[17];
    float y[4];
    quant_get(QT_F32)->encode(raw + 1, x, 4);
    assert_memory_equal(raw + 1, x, 16); /* little-endian machines; the file is little-endian on all */
    quant_get(QT_F32)->decode(y, raw + 1, 4);
    assert_memory_equal(y, x, 16);
}

/* Encoding what was decoded changes little or nothing, whatever the scale. */
static void survives_a_round_trip(void **state)
{
    for (size_t i = 0; i < N_TYPES; i++) {
        const quant_info *q = quant_get(types[i].type);
        if (!types[i].encodes) continue;
        for (int e = -10; e <= 10; e += 5) {
            uint8_t raw[2 * N];
            float x[N], y[N], z[N];
            rng r;
            rng_seed(&r, (uint64_t)(e + 100));
            for (int k = 0; k < N; k++) x[k] = ldexpf((float)(rng_unit(&r) - 0.5), e);
            assert_true(raw_bytes(i) <= sizeof raw);
            q->encode(raw, x, N);
            q->decode(y, raw, N);
            q->encode(raw, y, N);
            q->decode(z, raw, N);
            double peak = ldexp(0.5, e);
            /* the coarsest, Q4_0, has no level for +peak beside -peak: it misses that by a whole step, peak / 8 */
            for (int k = 0; k < N; k++)
                if (!(fabs((double)y[k] - x[k]) <= peak / 6) || !(fabs((double)z[k] - y[k]) <= peak / 30))
                    fail_msg("%s at 2^%d: %g, %g, %g", q->name, e, x[k], y[k], z[k]);
        }
    }
}

/* Small weights make the scale of a super-block a half float of few bits; that must not cost more than elsewhere. */
static void small_weights(void **state)
{
    static const struct {
        uint32_t type;
        double most; /* root mean square of the error, against that of the values */
    } k[] = { { QT_Q4_K, 0.08 }, { QT_Q5_K, 0.04 }, { QT_Q6_K, 0.02 } };
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        for (int e = -13; e <= 0; e++) {
            const quant_info *q = quant_get(k[i].type);
            uint8_t raw[N];
            float x[N];
            double sum = 0;
            rng r;
            rng_seed(&r, 9);
            for (int j = 0; j < N; j++) {
                x[j] = ldexpf((float)(rng_unit(&r) + rng_unit(&r) + rng_unit(&r) - 1.5), e);
                sum += (double)x[j] * x[j];
            }
            q->encode(raw, x, N);
            double got = sqrt(squared_error(q, raw, x) / sum);
            if (!(got <= k[i].most)) fail_msg("%s at 2^%d: %g", q->name, e, got);
        }
}

/* The whole numbers of every sub-block of Q4_K are within 5 % (with uneven weights: 10 %) of the best of all 64 x 64,
 * for the scales that were stored, in squared errors. */
static void near_brute_force(void **state)
{
    const quant_info *q = quant_get(QT_Q4_K);
    for (int round = 0; round < 6; round++) {
        uint8_t raw[144];
        float x[256], w[256], y[256], d, dmin;
        rng r;
        rng_seed(&r, (uint64_t)round);
        for (int i = 0; i < 256; i++) {
            x[i] = (float)(rng_unit(&r) + rng_unit(&r) + rng_unit(&r) - 1.5) * (i % 37 ? 1 : 6);
            w[i] = round % 2 ? (float)(rng_unit(&r) * rng_unit(&r)) + 0.01f : 1;
        }
        if (round % 2) q->weigh(raw, x, w, 256);
        else q->encode(raw, x, 256);
        q->decode(y, raw, 256);
        quant_get(QT_F16)->decode(&d, raw, 1);
        quant_get(QT_F16)->decode(&dmin, raw + 2, 1);
        double all = 0, least = 0;
        for (int i = 0; i < 8; i++) {
            double best = INFINITY;
            for (int k = 0; k < 64 * 64; k++) {
                double a = (double)d * (k % 64), m = (double)dmin * (k / 64), e = 0;
                for (int j = 32 * i; j < 32 * i + 32; j++) {
                    double level = a > 0 ? floor((x[j] + m) / a + 0.5) : 0;
                    level = level < 0 ? 0 : level > 15 ? 15 : level;
                    double off = x[j] - (a * level - m);
                    e += w[j] * off * off;
                }
                if (e < best) best = e;
            }
            least += best;
            for (int j = 32 * i; j < 32 * i + 32; j++) all += w[j] * ((double)x[j] - y[j]) * ((double)x[j] - y[j]);
        }
        if (!(all <= (round % 2 ? 1.1 : 1.05) * least)) fail_msg("round %d: %g, the least is %g", round, all, least);
    }
}

/* Errors where weights are large become smaller, at the cost of those where they are small. */
static void weights_count(void **state)
{
    for (size_t t = 0; t < N_TYPES; t++) {
        const quant_info *q = quant_get(types[t].type);
        uint8_t plain[2 * N], weighed[2 * N];
        float x[N], w[N], y[N], z[N];
        double before = 0, after = 0;
        rng r;
        if (!q->weigh) continue;
        rng_seed(&r, 4);
        for (int i = 0; i < N; i++) {
            x[i] = (float)(rng_unit(&r) - 0.5);
            w[i] = rng_below(&r, 8) ? 0 : 1; /* most do not matter at all */
        }
        q->encode(plain, x, N);
        q->weigh(weighed, x, w, N);
        q->decode(y, plain, N);
        q->decode(z, weighed, N);
        for (int i = 0; i < N; i++) {
            before += w[i] * ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
            after += w[i] * ((double)z[i] - x[i]) * ((double)z[i] - x[i]);
            if (!(fabs((double)z[i]) < 2)) fail_msg("%s: %g became %g", q->name, x[i], z[i]);
        }
        if (!(after < 0.9 * before)) fail_msg("%s: %g, without weights %g", q->name, after, before);
        for (int i = 0; i < N; i++) w[i] = 0;
        q->weigh(weighed, x, w, N); /* nothing matters: as without weights, or nearly */
        q->decode(z, weighed, N);
        assert_true(squared_error(q, weighed, x) <= 1.001 * squared_error(q, plain, x));
    }
}

/* NaN, infinity and values too large for a half float: anything may come out, but nothing undefined may happen (the
 * sanitizer builds watch), and all zeros stay zeros. */
static void odd_values(void **state)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f, 1e-38f, 70000.0f };
    for (size_t i = 0; i < N_TYPES; i++) {
        const quant_info *q = quant_get(types[i].type);
        if (!types[i].encodes) continue;
        uint8_t raw[2 * N];
        float x[N] = { 0 }, y[N];
        q->encode(raw, x, N);
        q->decode(y, raw, N);
        for (int k = 0; k < N; k++) assert_true(y[k] == 0.0f);
        for (size_t o = 0; o < sizeof odd / sizeof *odd; o++)
            for (int every = 1; every <= 64; every *= 4) {
                for (int k = 0; k < N; k++) x[k] = k % every ? 0.01f * (float)(k % 7 - 3) : odd[o];
                q->encode(raw, x, N);
                q->decode(y, raw, N);
            }
    }
}

/* Every byte pattern decodes without undefined behaviour. */
static void any_bytes_decode(void **state)
{
    rng r;
    rng_seed(&r, 5);
    for (size_t i = 0; i < N_TYPES; i++)
        for (int round = 0; round < 50; round++) {
            uint8_t raw[2 * N];
            float y[N];
            for (size_t k = 0; k < sizeof raw; k++) raw[k] = round ? (uint8_t)rng_below(&r, 256) : 0xff;
            quant_get(types[i].type)->decode(y, raw, N);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),      cmocka_unit_test(rows),          cmocka_unit_test(decodes),
        cmocka_unit_test(encodes),    cmocka_unit_test(f32_is_itself), cmocka_unit_test(survives_a_round_trip),
        cmocka_unit_test(odd_values), cmocka_unit_test(small_weights), cmocka_unit_test(any_bytes_decode),
        cmocka_unit_test(near_brute_force), cmocka_unit_test(weights_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
