/* test_score_rank.c - Dream's measures of sureness against their definitions, on sorted copies of small rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "graph/score.h"

enum { N = 60, VOCAB = 55 };

typedef struct {
    int id;
    double p;
} entry;

static int by_score(const void *pa, const void *pb)
{
    const entry *a = pa, *b = pb;
    if (a->p != b->p) return a->p < b->p ? 1 : -1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* The distribution after temperature, top-p and top-k, best first; returns how many ids are left. */
static int distribution(entry *e, const float *x, const score_how *how)
{
    double temp = how->temp > 0 ? how->temp : 1, sum = 0, mass = 0;
    int n = 0, kept = 0;
    for (int i = 0; i < VOCAB; i++) {
        bool banned = false;
        for (int k = 0; k < how->n_ban; k++) banned |= how->ban[k] == i;
        if (!banned) e[n++] = (entry){ i, exp(x[i] / temp) };
    }
    for (int i = 0; i < n; i++) sum += e[i].p;
    qsort(e, (size_t)n, sizeof *e, by_score);
    while (kept < n && mass < how->top_p * sum * (1 - 1e-12) && (how->top_k == 0 || kept < how->top_k))
        mass += e[kept++].p;
    for (int i = 0; i < kept; i++) e[i].p /= mass;
    return kept;
}

static double definition(score_rank rank, const entry *e, int n, int token)
{
    double v = 0;
    if (rank == RANK_MARGIN) return e[0].p - (n > 1 ? e[1].p : 0);
    for (int i = 0; i < n; i++) {
        if (rank == RANK_P && e[i].id == token) v = e[i].p;
        if (rank == RANK_ENTROPY) v += e[i].p * log(e[i].p + 1e-10);
    }
    return v;
}

static const struct {
    double temp, top_p;
    int top_k;
} hows[] = { { 0, 1, 0 },       { 0, 0.5, 0 },  { 0, 1, 7 },     { 0.3, 1, 0 },     { 1.7, 0.9, 0 }, { 0.8, 1, 5 },
             { 0.8, 0.95, 20 }, { 2, 1e-9, 0 }, { 0, 0.999, 1 }, { 1, 1, N + 100 }, { 0, 0, 0 } };

static void measures(void **state)
{
    static const int32_t ban[] = { 0, 17, 54, 90 };
    rng r;
    rng_seed(&r, 11);
    for (int t = 0; t < 400; t++) {
        size_t h = (size_t)t % (sizeof hows / sizeof *hows);
        float x[N];
        entry e[VOCAB];
        score s;
        for (int i = 0; i < N; i++) x[i] = (float)(8 * rng_unit(&r) - 4);
        if (t % 5 == 0) x[30] = x[31] = 5; /* two that are best */
        for (int rank = RANK_P; rank <= RANK_ENTROPY; rank++) {
            const score_how how = { .ban = ban,
                                    .n_ban = 4,
                                    .n_vocab = VOCAB,
                                    .temp = hows[h].temp,
                                    .top_p = hows[h].top_p,
                                    .top_k = hows[h].top_k,
                                    .rank = rank };
            const score_ask ask = { .seed = (uint64_t)t };
            score_row(&s, x, N, &how, &ask);
            int n = distribution(e, x, &how);
            if (n == 0) n = 1, e[0].p = 1; /* top-p 0: the best alone */
            double want = definition(rank, e, n, s.token);
            if (s.bad || !(fabs(s.rank - want) < 1e-9))
                fail_msg("row %d, how %zu, measure %d: %.12g, not %.12g", t, h, rank, s.rank, want);
            const score_how plain = { .ban = ban,
                                      .n_ban = 4,
                                      .n_vocab = VOCAB,
                                      .temp = hows[h].temp,
                                      .top_p = hows[h].top_p,
                                      .top_k = hows[h].top_k };
            score same;
            score_row(&same, x, N, &plain, &ask); /* asking changes nothing else */
            assert_int_equal(same.token, s.token);
            assert_true(same.p == s.p && same.rank == 0);
        }
    }
}

/* One id far above the others, and rows with infinities below. */
static void extremes(void **state)
{
    float x[4] = { 300, 0, -INFINITY, -300 };
    score s;
    for (int rank = RANK_P; rank <= RANK_ENTROPY; rank++) {
        const score_how how = { .n_vocab = 4, .top_p = 1, .rank = rank };
        const score_ask ask = { 0 };
        score_row(&s, x, 4, &how, &ask);
        assert_false(s.bad);
        assert_true(fabs(s.rank - (rank == RANK_ENTROPY ? 0 : 1)) < 1e-9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(measures), cmocka_unit_test(extremes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
