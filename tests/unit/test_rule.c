/* test_rule.c - the commit rules: each against picks worked out by hand, ties, NaN, nothing and one to choose from; the
 * quota's sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "decode/rule.h"

enum { MAX = 8 };

/* What a case changes of the recipe's defaults. */
typedef struct {
    const char *what;
    llada_rule rule;
    int quota;
    double bound; /* tau, factor, gamma, margin, or `high` with low */
    double low;   /* or `ahead` */
    int n;
    double key[MAX];
    int pos[MAX];     /* all 0: neighbours */
    double extra[MAX]; /* entropy, or margin */
    int late;         /* bit i: candidate i comes last */
    const char *want; /* picked indices in order */
} rule_case;

static llada_recipe recipe_of(const rule_case *c)
{
    llada_recipe r;
    llada_recipe_named(&r, "parallel", NULL);
    r.rule = c->rule;
    r.tau = r.factor = r.gamma = r.margin = r.high = c->bound;
    r.low = c->low;
    if (c->rule == LLADA_RULE_THRESHOLD) r.ahead = c->low;
    return r;
}

/* Runs a rule on a case; the picks as text. */
static int pick(const llada_recipe *r, const rule_case *c, rule_memory *mem, char *text)
{
    cand cands[MAX];
    score s[MAX];
    rule_memory *at[MAX];
    int order[MAX], picks[MAX + 1];
    double value[MAX];
    for (int i = 0; i < c->n; i++) {
        s[i] = (score){.token = i, .p = c->key[i], .entropy = c->extra[i], .top_p = {0.9, 0.9 - c->extra[i]}};
        int pos = c->pos[c->n > 1 ? 1 : 0] ? c->pos[i] : i;
        cands[i] = (cand){.pos = pos, .token = i, .key = c->key[i], .p = c->key[i], .s = &s[i]};
        cands[i].late = c->late >> i & 1;
        at[i] = &mem[i];
    }
    picks[c->n] = -77;
    int k = rule_pick(r, c->bound, c->quota, cands, c->n, at, order, value, picks);
    assert_int_equal(picks[c->n], -77);
    assert_true(k >= (c->n > 0) && k <= c->n);
    for (int i = 0; i < k; i++) text[i] = (char)('0' + picks[i]);
    text[k] = 0;
    return k;
}

static const rule_case cases[] = {
    {"quota: none to choose from", LLADA_RULE_QUOTA, 3, 0, 0, 0, {0}, {0}, {0}, 0, ""},
    {"quota: the two best", LLADA_RULE_QUOTA, 2, 0, 0, 4, {.2, .9, .5, .8}, {0}, {0}, 0, "13"},
    {"quota: ties go to the lower position", LLADA_RULE_QUOTA, 2, 0, 0, 4, {.5, .9, .5, .9}, {0}, {0}, 0, "13"},
    {"quota: all equal", LLADA_RULE_QUOTA, 3, 0, 0, 5, {.5, .5, .5, .5, .5}, {0}, {0}, 0, "012"},
    {"quota: more than there are", LLADA_RULE_QUOTA, 9, 0, 0, 3, {.1, .3, .2}, {0}, {0}, 0, "120"},
    {"quota: 0 still takes one", LLADA_RULE_QUOTA, 0, 0, 0, 3, {.1, .3, .2}, {0}, {0}, 0, "1"},
    {"quota: NaN comes last", LLADA_RULE_QUOTA, 3, 0, 0, 4, {NAN, .3, NAN, .4}, {0}, {0}, 0, "310"},
    {"quota: nothing but NaN", LLADA_RULE_QUOTA, 2, 0, 0, 3, {NAN, NAN, NAN}, {0}, {0}, 0, "01"},

    {"threshold: at it counts", LLADA_RULE_THRESHOLD, 0, .9, 0, 4, {.9, .89, 1, .95}, {0}, {0}, 0, "230"},
    {"threshold: none over it", LLADA_RULE_THRESHOLD, 0, .9, 0, 3, {.1, .5, .5}, {0}, {0}, 0, "1"},
    {"threshold 0: all", LLADA_RULE_THRESHOLD, 0, 0, 0, 3, {0, .5, 0}, {0}, {0}, 0, "102"},
    {"threshold 1", LLADA_RULE_THRESHOLD, 0, 1, 0, 3, {.999, 1, 1}, {0}, {0}, 0, "12"},
    {"threshold 2: one", LLADA_RULE_THRESHOLD, 0, 2, 0, 3, {1, 1, 1}, {0}, {0}, 0, "0"},
    {"threshold NaN: one", LLADA_RULE_THRESHOLD, 0, NAN, 0, 3, {.5, 1, 1}, {0}, {0}, 0, "1"},
    {"threshold: NaN keys don't hide others", LLADA_RULE_THRESHOLD, 0, .5, 0, 4, {NAN, .6, NAN, .7}, {0}, {0}, 0, "31"},
    {"threshold: one NaN", LLADA_RULE_THRESHOLD, 0, .5, 0, 1, {NAN}, {0}, {0}, 0, "0"},
    {"ahead: before a gap as usual", LLADA_RULE_THRESHOLD, 0, .8, .95, 5, {.85, .9, .5, .9, .99}, {0}, {0}, 0, "410"},
    {"ahead: no gap", LLADA_RULE_THRESHOLD, 0, .8, .95, 3, {.85, .9, .8}, {0}, {0}, 0, "102"},
    {"ahead: a refused one is a gap too", LLADA_RULE_THRESHOLD, 0, .8, .95, 4, {.5, .94, .95, .99}, {0}, {0}, 0, "32"},
    {"ahead below tau asks no less", LLADA_RULE_THRESHOLD, 0, .8, .1, 3, {.5, .7, .9}, {0}, {0}, 0, "2"},
    {"ahead: nothing is enough", LLADA_RULE_THRESHOLD, 0, .8, .95, 3, {.5, .9, .9}, {0}, {0}, 0, "1"},
    {"ahead NaN", LLADA_RULE_THRESHOLD, 0, .8, NAN, 3, {.5, .9, .9}, {0}, {0}, 0, "12"},
    {"threshold: one", LLADA_RULE_THRESHOLD, 0, .5, 0, 1, {.1}, {0}, {0}, 0, "0"},

    /* (n + 1)(1 - c_n) < f: for .9 2*.1 = .2, .8 3*.2 = .6, .75 4*.25 = 1 */
    {"factor 1", LLADA_RULE_FACTOR, 0, 1, 0, 3, {.75, .9, .8}, {0}, {0}, 0, "12"},
    {"factor just over the third", LLADA_RULE_FACTOR, 0, 1.01, 0, 3, {.75, .9, .8}, {0}, {0}, 0, "120"},
    {"factor .6 is not less", LLADA_RULE_FACTOR, 0, .6, 0, 3, {.75, .9, .8125}, {0}, {0}, 0, "12"},
    {"factor 0: one", LLADA_RULE_FACTOR, 0, 0, 0, 3, {.75, 1, .8}, {0}, {0}, 0, "1"},
    {"factor: certainty passes at once", LLADA_RULE_FACTOR, 0, .1, 0, 3, {1, 1, .5}, {0}, {0}, 0, "01"},
    {"factor NaN: one", LLADA_RULE_FACTOR, 0, NAN, 0, 2, {.2, .3}, {0}, {0}, 0, "1"},

    /* rising entropy; the sum of all but the last within the bound */
    {"entropy: the first is free", LLADA_RULE_ENTROPY, 0, 0, 0, 3, {.1, .2, .3}, {0}, {3, 2, 1}, 0, "2"},
    {"entropy: sum of those before", LLADA_RULE_ENTROPY, 0, .25, 0, 4, {0}, {0}, {.125, 2, .0625, .1875}, 0, "203"},
    {"entropy: at the bound", LLADA_RULE_ENTROPY, 0, .375, 0, 4, {0}, {0}, {.125, 2, .0625, .1875}, 0, "2031"},
    {"entropy: ties", LLADA_RULE_ENTROPY, 0, .5, 0, 4, {0}, {0}, {.25, .25, .25, .25}, 0, "012"},
    {"entropy: zeros go together", LLADA_RULE_ENTROPY, 0, 0, 0, 4, {0}, {0}, {0, 0, 1, 0}, 0, "0132"},
    {"entropy NaN bound: one", LLADA_RULE_ENTROPY, 0, NAN, 0, 2, {0}, {0}, {0, 0}, 0, "0"},
    {"entropy: late ones wait", LLADA_RULE_ENTROPY, 0, 5, 0, 3, {0}, {0}, {0, .5, .25}, 1, "21"},
    {"entropy: only late ones", LLADA_RULE_ENTROPY, 0, 5, 0, 2, {0}, {0}, {1, .5}, 3, "0"},

    {"margin: by margin, not by key", LLADA_RULE_MARGIN, 0, .5, 0, 3, {.9, .6, .8}, {0}, {.25, .75, .5}, 0, "12"},
    {"margin: none over it, the widest", LLADA_RULE_MARGIN, 0, .8, 0, 3, {.9, .6, .8}, {0}, {.25, .75, .5}, 0, "1"},
    {"margin: ties", LLADA_RULE_MARGIN, 0, .25, 0, 3, {.9, .6, .8}, {0}, {.25, .5, .5}, 0, "120"},
    {"margin: late ones wait", LLADA_RULE_MARGIN, 0, 0, 0, 3, {0}, {0}, {.9, .25, .5}, 1, "21"},

    {"hierarchical: all over high", LLADA_RULE_HIERARCHICAL, 0, .9, .5, 4, {.95, .1, .9, .8}, {0}, {0}, 0, "02"},
    {"hierarchical: the best over low", LLADA_RULE_HIERARCHICAL, 0, .9, .5, 4, {.6, .1, .7, .8}, {0}, {0}, 0, "3"},
    {"hierarchical: nothing over low, one", LLADA_RULE_HIERARCHICAL, 0, .9, .5, 4, {.2, .1, .4, .4}, {0}, {0}, 0, "2"},
    {"hierarchical: each run its best", LLADA_RULE_HIERARCHICAL, 0, .9, .5, 6, {.6, .7, .55, .95, .92, .3},
     {3, 4, 6, 8, 9, 12}, {0}, 0, "3412"},
    {"hierarchical: ties", LLADA_RULE_HIERARCHICAL, 0, .9, .5, 4, {.6, .6, .6, .6}, {3, 4, 8, 9}, {0}, 0, "02"},
    {"hierarchical: NaN", LLADA_RULE_HIERARCHICAL, 0, .9, .5, 4, {NAN, .6, .7, NAN}, {3, 4, 8, 9}, {0}, 0, "21"},
    {"hierarchical: NaN bounds", LLADA_RULE_HIERARCHICAL, 0, NAN, NAN, 2, {.5, .6}, {0}, {0}, 0, "1"},
    {"hierarchical: one", LLADA_RULE_HIERARCHICAL, 0, .9, .5, 1, {.1}, {0}, {0}, 0, "0"},

    {"klass: nothing is known yet, one", LLADA_RULE_KLASS, 0, .5, 0, 3, {.9, .95, .99}, {0}, {0}, 0, "2"},
    {"klass: none", LLADA_RULE_KLASS, 0, .5, 0, 0, {0}, {0}, {0}, 0, ""},
    {"credit: none yet, the key", LLADA_RULE_CREDIT, 0, .9, 0, 3, {.91, .5, .95}, {0}, {0}, 0, "20"},
    {"credit: a key of 1", LLADA_RULE_CREDIT, 0, 1, 0, 3, {1, 0, .5}, {0}, {0}, 0, "0"},
};

static void test_cases(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rule_memory mem[MAX];
        char got[MAX + 1];
        llada_recipe r = recipe_of(&cases[i]);
        for (int j = 0; j < MAX; j++) rule_forget(&mem[j]);
        pick(&r, &cases[i], mem, got);
        if (strcmp(got, cases[i].want)) fail_msg("%s: picked %s, %s expected", cases[i].what, got, cases[i].want);
    }
}

/* In the window engine values a rounding error apart are equal. */
static void test_grid(void **state)
{
    rule_case c = {"", LLADA_RULE_ENTROPY, 0, 0, 0, 3, {0}, {0}, {.50001, .50000, .7}, 0, ""};
    rule_memory mem[MAX];
    char got[MAX + 1];
    llada_recipe r = recipe_of(&c);
    pick(&r, &c, mem, got);
    assert_string_equal(got, "1");
    r.dppr = true;
    pick(&r, &c, mem, got);
    assert_string_equal(got, "0");
    r.rule = LLADA_RULE_MARGIN;
    r.margin = 1;
    pick(&r, &c, mem, got);
    assert_string_equal(got, "2");
    c.extra[2] = .5;
    pick(&r, &c, mem, got);
    assert_string_equal(got, "0");
    assert_true(rule_grid(0.5 / 4096) == 0 && rule_grid(1.5 / 4096) == 2.0 / 4096); /* half to even */
    assert_true(rule_grid(1) == 1 && rule_grid(0.25) == 0.25);
}

/* ---------------------------------------------------------------- rules with a memory */

/* One position whose three most probable ids have p; the rest lies elsewhere. */
static bool klass_step(rule_memory *m, double kappa, double key, const double *p, int n, bool *alone)
{
    llada_recipe r;
    llada_recipe_named(&r, "parallel", NULL);
    r.rule = LLADA_RULE_KLASS;
    r.kappa = kappa;
    score s[2] = {{.token = 0}, {.token = 9}};
    for (int i = 0; i < SCORE_TOP; i++) s[0].top[i] = s[1].top[i] = -1;
    for (int i = 0; i < n; i++) {
        s[0].top[i] = i;
        s[0].top_p[i] = p[i];
        for (int j = 0; j < SCORE_TOP; j++)
            if (m->top[j] == i) s[0].probe_p[j] = p[i];
    }
    s[1].top[0] = 9;
    s[1].top_p[0] = 1;
    rule_memory other;
    rule_forget(&other); /* a second candidate, more confident, so that the fall-back takes that one */
    cand c[2] = {{.pos = 3, .token = 0, .key = key, .s = &s[0]}, {.pos = 9, .token = 9, .key = 1, .s = &s[1]}};
    rule_memory *mem[2] = {m, &other};
    int order[2], picks[2];
    double value[2];
    int k = rule_pick(&r, 0.5, 0, c, 2, mem, order, value, picks);
    *alone = k == 1;
    for (int i = 0; i < k; i++)
        if (picks[i] == 0) return true;
    return false;
}

static void test_klass(void **state)
{
    const double a[3] = {.6, .3, .05}, b[3] = {.61, .29, .05}, far[3] = {.9, .05, .01};
    bool alone;
    rule_memory m;
    rule_forget(&m);
    assert_false(klass_step(&m, .01, .9, a, 3, &alone)); /* nothing before */
    assert_false(klass_step(&m, .01, .9, b, 3, &alone)); /* near, once */
    assert_true(klass_step(&m, .01, .9, a, 3, &alone));  /* twice */
    assert_true(alone);
    assert_false(klass_step(&m, .01, .4, a, 3, &alone)); /* three times, but not confident */
    assert_false(klass_step(&m, .01, .9, far, 3, &alone)); /* begins again */
    assert_int_equal(m.hits, 0);
    assert_false(klass_step(&m, .01, .9, far, 3, &alone));
    assert_true(klass_step(&m, .01, .9, far, 3, &alone));
    rule_forget(&m);
    assert_false(klass_step(&m, .01, .9, far, 3, &alone));
    assert_int_equal(m.hits, 0);

    /* KL(now || before) = .5 ln(.5/.9) + .3 ln(.3/.05) + .2 ln(.2/.05) = .5209...; the other way round .3778 */
    const double old[2] = {.9, .05}, now[2] = {.5, .3};
    double kl = .5 * log(.5 / .9) + .3 * log(.3 / .05) + .2 * log(.2 / .05);
    rule_forget(&m);
    klass_step(&m, kl * .999, .9, old, 2, &alone);
    klass_step(&m, kl * .999, .9, now, 2, &alone);
    assert_int_equal(m.hits, 0);
    rule_forget(&m);
    klass_step(&m, kl * 1.001, .9, old, 2, &alone);
    klass_step(&m, kl * 1.001, .9, now, 2, &alone);
    assert_int_equal(m.hits, 1);
}

/* The credited confidence p e^a / (p e^a + 1 - p), a the average of the passes before of the same token. */
static void test_credit(void **state)
{
    llada_recipe r;
    llada_recipe_named(&r, "parallel", NULL);
    r.rule = LLADA_RULE_CREDIT;
    r.credit = .5;
    score s = {.token = 4};
    cand c = {.pos = 0, .token = 4, .key = .8, .s = &s};
    rule_memory m, *mem = &m;
    int order, picks;
    double value;
    rule_forget(&m);
    double a = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rule_pick(&r, 2, 0, &c, 1, &mem, &order, &value, &picks), 1);
        assert_true(fabs(value - .8 * exp(a) / (.8 * exp(a) + .2)) < 1e-12);
        a = .5 * a + .5 * .8;
        assert_true(fabs(m.credit - a) < 1e-12);
    }
    c.token = 5; /* another token has no past */
    rule_pick(&r, 2, 0, &c, 1, &mem, &order, &value, &picks);
    assert_true(fabs(value - .8) < 1e-12);
    assert_int_equal(m.token, 5);
    c.key = NAN;
    assert_int_equal(rule_pick(&r, .5, 0, &c, 1, &mem, &order, &value, &picks), 1);
}

/* ---------------------------------------------------------------- quotas */

static void test_quota(void **state)
{
    for (int m = 0; m <= 70; m++) {
        for (int s = 0; s <= 70; s++) {
            int sum = 0, last = m + 1;
            for (int i = 0; i < s; i++) {
                int q = rule_quota(m, s, i);
                assert_true(q >= m / s && q <= m / s + 1 && q <= last); /* the larger ones come first */
                last = q;
                sum += q;
            }
            if (s > 0) assert_int_equal(sum, m);
            assert_int_equal(rule_quota(m, s, s), m); /* past the steps: whatever is left */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),  cmocka_unit_test(test_grid),  cmocka_unit_test(test_klass),
        cmocka_unit_test(test_credit), cmocka_unit_test(test_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
