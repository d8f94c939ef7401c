/* test_score.c - rows of scores judged, against a plain transcription in double that sorts and masks copies. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "graph/score.h"

#define NEAR 1e-12

static const score_how plain = { .n_vocab = 1 << 30, .top_p = 1, .want_top = true };
static const score_ask nothing;

static bool close_to(double a, double b) { return fabs(a - b) <= NEAR * (1 + fabs(b)); }

/* ------------------------------------------------------------ the transcription */

typedef struct {
    int n;
    double *lg, *p; /* banned: minus infinity, 0 */
    int *order;     /* ids by falling score, ties by lower id */
    double max, sum;
} table;

static const double *sort_by; /* for by_score only */

static int by_score(const void *pa, const void *pb)
{
    int a = *(const int *)pa, b = *(const int *)pb;
    if (sort_by[a] != sort_by[b]) return sort_by[a] > sort_by[b] ? -1 : 1;
    return a - b;
}

static table table_of(const float *x, int n, const score_how *how)
{
    table t = { n,
                malloc((size_t)n * sizeof(double)),
                malloc((size_t)n * sizeof(double)),
                malloc((size_t)n * sizeof(int)),
                -INFINITY,
                0 };
    for (int i = 0; i < n; i++) t.lg[i] = i < how->n_vocab ? (double)x[i] : -INFINITY;
    for (int i = 0; i < how->n_ban; i++) {
        if (how->ban[i] < n) t.lg[how->ban[i]] = -INFINITY;
    }
    for (int i = 0; i < n; i++) t.max = t.lg[i] > t.max ? t.lg[i] : t.max;
    long double sum = 0; /* or the error of this sum would be what is measured */
    for (int i = 0; i < n; i++) sum += exp(t.lg[i] - t.max);
    t.sum = (double)sum;
    for (int i = 0; i < n; i++) t.p[i] = exp(t.lg[i] - t.max) / t.sum;
    for (int i = 0; i < n; i++) t.order[i] = i;
    sort_by = t.lg;
    qsort(t.order, (size_t)n, sizeof *t.order, by_score);
    return t;
}

static void table_free(table *t)
{
    free(t->lg);
    free(t->p);
    free(t->order);
}

static int sample(const table *t, const score_how *how, uint64_t seed)
{
    double *s = malloc((size_t)t->n * sizeof *s), total = 0, mass = 0, best = -INFINITY;
    for (int i = 0; i < t->n; i++) s[i] = (t->lg[i] - t->max) / how->temp;
    for (int i = 0; i < t->n; i++) total += exp(s[i]);
    for (int k = 0; k < t->n; k++) {
        bool in = (how->top_k == 0 || k < how->top_k) && (how->top_p >= 1 || k == 0 || mass < how->top_p * total);
        mass += exp(s[t->order[k]]);
        if (!in) s[t->order[k]] = -INFINITY;
    }
    rng r;
    rng_seed(&r, seed);
    int token = -1;
    for (int i = 0; i < t->n && i < how->n_vocab; i++) {
        double noisy = s[i] - log(-log(rng_unit(&r)));
        if (noisy > best) best = noisy, token = i;
    }
    free(s);
    return token;
}

static void same(const score *s, const float *x, int n, const score_how *how, const score_ask *ask)
{
    table t = table_of(x, n, how);
    int token = how->temp > 0 ? sample(&t, how, ask->seed) : t.order[0];
    long double entropy = 0;
    for (int i = 0; i < n; i++) entropy -= (long double)t.p[i] * log(t.p[i] > 1e-30 ? t.p[i] : 1e-30);

    assert_false(s->bad);
    assert_int_equal(s->token, token);
    assert_true(close_to(s->p, t.p[token]));
    assert_true(close_to(s->lse, t.max + log(t.sum)));
    for (int i = 0; how->want_top && i < SCORE_TOP; i++) {
        bool there = i < n && t.lg[t.order[i]] > -INFINITY;
        assert_int_equal(s->top[i], there ? t.order[i] : -1);
        assert_true(close_to(s->top_p[i], there ? t.p[t.order[i]] : 0));
    }
    if (how->want_top) assert_true(close_to(s->entropy, (double)entropy));
    for (int i = 0; i < ask->n_probe; i++) {
        int id = ask->probe[i];
        assert_true(close_to(s->probe_p[i], id >= 0 && id < n ? t.p[id] : 0));
    }
    table_free(&t);
}

/* ------------------------------------------------------------ random rows */

static int below(rng *r, int n) { return (int)rng_below(r, (uint64_t)n); }

static double normal(rng *r) { return sqrt(-2 * log(rng_unit(r))) * cos(6.283185307179586 * rng_unit(r)); }

/* Rows of every length and spread; one in three with many equal scores, one in three with impossible ids. */
static void random_row(rng *r, float *x, int n)
{
    double spread = (double[]){ 0.01, 1, 4, 30 }[below(r, 4)];
    int shape = below(r, 3);
    for (int i = 0; i < n; i++) {
        x[i] = (float)(normal(r) * spread - 3);
        if (shape == 1) x[i] = roundf(x[i]);
        if (shape == 2 && below(r, 4) == 0) x[i] = -INFINITY;
    }
    if (shape == 2) x[below(r, n)] = 1;
}

static void random_how(rng *r, score_how *how, int32_t *ban, int cap, int n)
{
    *how = plain;
    int32_t id = -1;
    for (int i = below(r, cap + 1); i > 0; i--) ban[how->n_ban++] = id += 1 + below(r, 2 + n / cap);
    how->ban = ban;
    if (below(r, 2)) how->n_vocab = n / 2 + 1 + below(r, n);
    how->want_top = below(r, 4) != 0;
    if (below(r, 2)) return;
    how->temp = 0.05 + 2 * rng_unit(r);
    if (below(r, 2)) how->top_p = rng_unit(r);
    if (below(r, 2)) how->top_k = 1 + below(r, 20);
}

static void random_rows_agree(void **state)
{
    enum { MAX_N = 700, BANS = 6 };
    static const int lengths[] = { 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 511, MAX_N };
    float x[MAX_N];
    int32_t ban[BANS];
    rng r;
    rng_seed(&r, 7);
    int judged = 0, sampled = 0, ties = 0;
    for (int k = 0; k < 3000; k++) {
        int n = lengths[(size_t)below(&r, (int)(sizeof lengths / sizeof *lengths))];
        score_how how;
        score_ask ask = { .seed = rng_next(&r), .n_probe = below(&r, SCORE_PROBES + 1) };
        score s;
        random_row(&r, x, n);
        random_how(&r, &how, ban, BANS, n);
        for (int i = 0; i < ask.n_probe; i++) ask.probe[i] = below(&r, n + 4) - 2;
        score_row(&s, x, n, &how, &ask);
        bool any = false;
        for (int i = 0; i < n && i < how.n_vocab; i++) {
            bool banned = false;
            for (int b = 0; b < how.n_ban; b++) banned |= ban[b] == i;
            any |= !banned && x[i] > -INFINITY;
        }
        assert_int_equal(s.bad, !any);
        if (!any) continue;
        same(&s, x, n, &how, &ask);
        judged++, sampled += how.temp > 0, ties += s.top[1] >= 0 && x[s.top[0]] == x[s.top[1]];
    }
    assert_true(judged > 2500 && sampled > 1000 && ties > 200); /* the cases this test is about did occur */
}

static void a_real_width(void **state)
{
    enum { N = 126464 };
    float *x = malloc(N * sizeof *x);
    rng r;
    rng_seed(&r, 8);
    const int32_t ban[] = { 0, 1, 126336, 126463, 126464, 2000000 };
    score_how how = plain;
    how.ban = ban;
    how.n_ban = 6;
    how.n_vocab = N - 115;
    score_ask ask = { .seed = 5, .n_probe = 3, .probe = { 126336, 77, N - 1 } };
    for (int spread = 0; spread < 6; spread += 2) {
        for (int i = 0; i < N; i++) x[i] = (float)(normal(&r) * spread + 100);
        x[126336] = 1000;
        for (int mode = 0; mode < 3; mode++) {
            score s;
            how.temp = mode ? 0.8 : 0;
            how.top_p = mode == 2 ? 0.95 : 1;
            score_row(&s, x, N, &how, &ask);
            same(&s, x, N, &how, &ask);
        }
    }
    free(x);
}

/* ------------------------------------------------------------ single cases */

static const float nan_f = (float)NAN, inf_f = (float)INFINITY;

static void bad_rows(void **state)
{
    const struct {
        const char *what;
        float value;
        int at, n_ban, n_vocab;
        bool bad;
    } rows[] = {
        { "NaN first", nan_f, 0, 0, 40, true },
        { "NaN in a vector", nan_f, 21, 0, 40, true },
        { "NaN last", nan_f, 39, 0, 40, true },
        { "infinity", inf_f, 17, 0, 40, true },
        { "infinity last", inf_f, 39, 0, 40, true },
        { "minus infinity", -inf_f, 17, 0, 40, false },
        { "largest float", FLT_MAX, 17, 0, 40, false },
        { "NaN under a ban", nan_f, 5, 1, 40, false },
        { "infinity under a ban", inf_f, 5, 1, 40, false },
        { "NaN in padding", nan_f, 39, 0, 39, false },
        { "no vocabulary", 0, 0, 0, 0, true },
        { "one id, banned", 0, 0, 2, 1, true },
    };
    const int32_t one[] = { 5 }, two[] = { 0, 5 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int temp = 0; temp < 2; temp++) {
            float x[40];
            for (int k = 0; k < 40; k++) x[k] = (float)k / 10;
            x[rows[i].at] = rows[i].value;
            score_how how = plain;
            how.n_vocab = rows[i].n_vocab;
            how.n_ban = rows[i].n_ban;
            how.ban = rows[i].n_ban == 2 ? two : one;
            how.temp = temp;
            score s;
            score_row(&s, x, 40, &how, &nothing);
            if (s.bad != rows[i].bad || (s.bad && (s.token != -1 || s.p != 0 || s.top[0] != -1)))
                fail_msg("%s: bad %d, token %d", rows[i].what, s.bad, s.token);
        }
    }
}

static void all_banned(void **state)
{
    const float x[] = { 1, 2, 3 };
    const int32_t ban[] = { 0, 1, 2 };
    score_how how = plain;
    how.ban = ban;
    for (how.n_ban = 0; how.n_ban <= 3; how.n_ban++) {
        score s;
        score_row(&s, x, 3, &how, &nothing);
        assert_int_equal(s.bad, how.n_ban == 3);
        assert_int_equal(s.token, how.n_ban == 3 ? -1 : 2);
    }
    const float none[] = { -inf_f, -inf_f };
    score s;
    score_row(&s, none, 2, &plain, &nothing);
    assert_true(s.bad);
}

/* A ban list may repeat itself or name ids that are not there; the rest of the row counts as if it said so once. */
static void odd_ban_lists(void **state)
{
    const float x[] = { 1, 5, 5, 4, 5 };
    const int32_t ban[] = { -7, -1, 1, 1, 1, 4, 4, 5, 9 };
    score_how how = plain;
    how.ban = ban;
    how.n_ban = 9;
    score_ask ask = { .n_probe = 3, .probe = { 1, 2, 5 } };
    score s;
    score_row(&s, x, 5, &how, &ask);
    double sum = 1 + exp(-1) + exp(-4);
    assert_int_equal(s.token, 2);
    assert_true(close_to(s.p, 1 / sum));
    assert_true(s.probe_p[0] == 0 && close_to(s.probe_p[1], 1 / sum) && s.probe_p[2] == 0);
    assert_int_equal(s.top[1], 3);
    assert_int_equal(s.top[3], -1);
}

static void ties_go_low(void **state)
{
    float x[100];
    for (int first = 0; first < 100; first++) {
        for (int i = 0; i < 100; i++) x[i] = i >= first ? 2.5f : -1;
        score s;
        score_row(&s, x, 100, &plain, &nothing);
        assert_int_equal(s.token, first);
        for (int i = 0; i < SCORE_TOP; i++) assert_int_equal(s.top[i], first + i < 100 ? first + i : first + i - 100);
    }
}

/* One certain id among many: the confidence is 1 and nothing is lost to NaN or a negative entropy. */
static void certain_rows(void **state)
{
    float x[300];
    for (int i = 0; i < 300; i++) x[i] = -inf_f;
    x[137] = -50;
    score s;
    score_row(&s, x, 300, &plain, &nothing);
    assert_true(s.token == 137 && s.p == 1 && s.entropy == 0 && s.lse == -50);
    for (int i = 0; i < 300; i++) x[i] = -FLT_MAX;
    x[137] = FLT_MAX;
    score_row(&s, x, 300, &plain, &nothing);
    assert_true(s.token == 137 && s.p == 1 && s.entropy == 0);
}

/* ------------------------------------------------------------ sampling */

enum { IDS = 24, DRAWS = 20000 };

/* Chi-square of DRAWS draws against the kept ids' tempered softmax; *df: its degrees of freedom. */
static double chi_square(const float *x, const score_how *how, int *df)
{
    int count[IDS] = { 0 };
    table t = table_of(x, IDS, how);
    double want[IDS], total = 0, mass = 0, chi = 0;
    for (int i = 0; i < IDS; i++) want[i] = exp((t.lg[i] - t.max) / how->temp), total += want[i];
    double all = total;
    for (int k = 0; k < IDS; k++) {
        double m = want[t.order[k]];
        if ((how->top_k && k >= how->top_k) || (how->top_p < 1 && k > 0 && mass >= how->top_p * all))
            want[t.order[k]] = 0, total -= m;
        mass += m;
    }
    for (uint64_t k = 0; k < DRAWS; k++) {
        score s;
        score_ask ask = { .seed = rng_mix(k) };
        score_row(&s, x, IDS, how, &ask);
        assert_true(close_to(s.p, t.p[s.token])); /* of the plain softmax, whatever the temperature */
        count[s.token]++;
    }
    *df = -1;
    for (int i = 0; i < IDS; i++) {
        double e = want[i] / total * DRAWS;
        if (want[i] == 0) assert_int_equal(count[i], 0);
        if (want[i] == 0) continue;
        chi += (count[i] - e) * (count[i] - e) / e;
        ++*df;
    }
    table_free(&t);
    return chi;
}

static void frequencies_match(void **state)
{
    const struct {
        double temp, top_p;
        int top_k, n_ban;
    } rows[] = { { 1, 1, 0, 0 },   { 0.5, 1, 0, 0 }, { 2, 1, 0, 0 },    { 1, 1, 0, 2 },
                 { 1, 0.8, 0, 0 }, { 1, 1, 5, 0 },   { 0.7, 0.9, 6, 2 } };
    const int32_t ban[] = { 0, 13 };
    float x[IDS];
    for (int i = 0; i < IDS; i++) x[i] = (float)((i * 7 % IDS) * 0.1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        score_how how = { .ban = ban,
                          .n_ban = rows[i].n_ban,
                          .n_vocab = IDS,
                          .temp = rows[i].temp,
                          .top_p = rows[i].top_p,
                          .top_k = rows[i].top_k };
        int df;
        double chi = chi_square(x, &how, &df);
        /* Wilson and Hilferty: the cube root of chi/df is about normal; 3.1 deviations are 1 in 1000 */
        double z = (cbrt(chi / df) - (1 - 2.0 / (9 * df))) / sqrt(2.0 / (9 * df));
        if (!(fabs(z) < 3.1)) fail_msg("row %zu: chi-square %g with %d degrees of freedom", i, chi, df);
    }
}

static void cold_is_arg_max(void **state)
{
    const double temps[] = { 1e-3, 1e-9, 1e-300, 5e-324 };
    float x[50];
    for (int i = 0; i < 50; i++) x[i] = (float)(i * 29 % 50);
    for (size_t i = 0; i < sizeof temps / sizeof *temps; i++) {
        for (uint64_t seed = 0; seed < 100; seed++) {
            score_how how = plain;
            how.temp = temps[i];
            how.top_p = seed % 2 ? 0.5 : 1;
            score_ask ask = { .seed = seed };
            score s;
            score_row(&s, x, 50, &how, &ask);
            assert_true(x[s.token] == 49);
        }
    }
}

/* Banning what was not drawn changes nothing: every id has its own number of the stream. */
static void bans_leave_the_stream(void **state)
{
    float x[60];
    for (int i = 0; i < 60; i++) x[i] = (float)(i % 7);
    for (uint64_t seed = 0; seed < 200; seed++) {
        score_how how = plain;
        how.temp = 1.5;
        score_ask ask = { .seed = seed };
        score a, b;
        score_row(&a, x, 60, &how, &ask);
        int32_t ban[2] = { a.token == 3 ? 4 : 3, 0 };
        ban[1] = a.token == 30 ? 31 : 30;
        how.ban = ban;
        how.n_ban = 2;
        score_row(&b, x, 60, &how, &ask);
        assert_int_equal(a.token, b.token);
    }
}

/* Cuts through equal scores keep the lower ids; odd settings still leave the first. */
static void nucleus_edges(void **state)
{
    const struct {
        double top_p;
        int top_k, kept;
    } rows[] = { { 0.5, 0, 5 }, { 0.41, 0, 5 }, { 0.1, 0, 1 },         { 0, 0, 1 },   { -1, 0, 1 },
                 { 1, 3, 3 },   { 1, 1, 1 },    { 0.5, 3, 3 },         { 0.3, 8, 3 }, { 1, 100, 10 },
                 { 2, 0, 10 },  { 1, -4, 10 },  { (double)NAN, 0, 10 } };
    float x[11];
    for (int i = 0; i < 11; i++) x[i] = i % 2 ? 0.0f : -0.0f; /* both zeros are one score */
    x[10] = -200;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t high = -1;
        bool seen[11] = { false };
        for (uint64_t seed = 0; seed < 300; seed++) {
            score_how how = plain;
            how.temp = 1;
            how.top_p = rows[i].top_p;
            how.top_k = rows[i].top_k;
            score_ask ask = { .seed = seed };
            score s;
            score_row(&s, x, 11, &how, &ask);
            high = s.token > high ? s.token : high;
            seen[s.token] = true;
        }
        for (int k = 0; k <= high; k++) assert_true(seen[k]);
        if (high + 1 != rows[i].kept)
            fail_msg("top_p %g, top_k %d: %d ids kept", rows[i].top_p, rows[i].top_k, high + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_rows_agree), cmocka_unit_test(a_real_width),          cmocka_unit_test(bad_rows),
        cmocka_unit_test(all_banned),        cmocka_unit_test(odd_ban_lists),         cmocka_unit_test(ties_go_low),
        cmocka_unit_test(certain_rows),      cmocka_unit_test(frequencies_match),     cmocka_unit_test(cold_is_arg_max),
        cmocka_unit_test(nucleus_edges),     cmocka_unit_test(bans_leave_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
