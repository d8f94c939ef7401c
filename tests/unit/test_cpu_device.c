/* test_cpu_device.c - the CPU device on small synthetic networks, against loops in double, and its promises about bits:
 * cached or fresh, alone or among others, on any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "device/cpu/features.h"
#include "format/quant.h"
#include "small_net.h"

enum { ROWS = NET_ROWS };
static const uint64_t EVERY = ~(uint64_t)0;

/* what, heads, key heads, head width, width, feed-forward, vocabulary, ... */
static const net_shape shapes[] = {
    { "odd, pairs", 4, 2, 10, 37, 45, 53, .type = QT_F32 },
    { "odd, halves, bias, qk-norm", 4, 2, 14, 61, 77, 101, .qk_norm = true, .bias = true, .rope = ROPE_HALVES },
    { "one head a key head", 3, 3, 6, 33, 31, 47, .qk_norm = true, .rope = ROPE_HALVES },
    { "several blocks of k", 2, 1, 16, 1100, 40, 60, .bias = true },
    { "every operator on threads", 16, 2, 32, 448, 110, 70, .type = QT_F32 },
    { "causal, factors", 4, 2, 10, 37, 45, 53, .causal = true, .factors = true },
    { "experts", 2, 2, 10, 37, 19, 53, .qk_norm = true, .rope = ROPE_HALVES, .experts = 7, .used = 3 },
    { "f16", 4, 2, 16, 64, 96, 65, .bias = true, .type = QT_F16 },
    { "bf16", 4, 2, 16, 64, 96, 65, .bias = true, .type = QT_BF16 },
    { "q8_0", 4, 2, 16, 64, 96, 65, .bias = true, .type = QT_Q8_0 },
    { "q4_0", 4, 2, 16, 64, 96, 65, .qk_norm = true, .rope = ROPE_HALVES, .type = QT_Q4_0 },
    { "q4_1", 4, 2, 16, 64, 96, 33, .type = QT_Q4_1 },
    { "q5_1", 4, 2, 16, 64, 32, 33, .type = QT_Q5_1 },
    { "q8_0, several blocks of k", 2, 1, 16, 544, 32, 33, .type = QT_Q8_0 },
    { "q4_k", 4, 2, 64, 256, 256, 33, .type = QT_Q4_K },
    { "q6_k", 4, 2, 64, 256, 256, 33, .type = QT_Q6_K },
    { "q8_0, experts", 4, 2, 16, 64, 32, 65, .experts = 5, .used = 2, .type = QT_Q8_0 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, ODD = 0, BIAS = 1, CAUSAL = 5, HALF_WEIGHTS = 7 };

/* ------------------------------------------------------------ contexts and passes */

static device_limits limits(int threads, uint64_t mask)
{
    return (device_limits){
        .max_rows = ROWS, .max_want = ROWS, .slots = NET_SLOTS, .max_pos = NET_POS, .threads = threads, .cpu_mask = mask
    };
}

typedef struct {
    device_weights *w;
    device_ctx *c;
} opened;

static opened start(const net *m, device_limits lim)
{
    opened o = { 0 };
    llada_err err = { 0 };
    if (device_cpu.weights_open(&o.w, &m->g, &err) || device_cpu.open(&o.c, o.w, &lim, &err))
        fail_msg("%s: %s", m->s.what, err.text);
    return o;
}

static void stop(opened *o)
{
    device_cpu.close(&o->c);
    device_cpu.weights_close(&o->w);
    assert_null(o->c);
    assert_null(o->w);
}

/* Logits of a pass, [n_want][vocab]; owned by the caller. */
static float *run(const opened *o, const net *m, net_pass *q)
{
    llada_err err = { 0 };
    q->p.logits = calloc((size_t)ROWS * (size_t)m->s.vocab, sizeof(float));
    if (device_cpu.run(o->c, &q->p, &err)) fail_msg("%s: %s", m->s.what, err.text);
    return q->p.logits;
}

static float *run_all(const opened *o, const net *m)
{
    net_pass q;
    net_ask(&q, m, net_all, ROWS, ROWS);
    return run(o, m, &q);
}

static void assert_near(const net *m, const float *got, const double *want, int rows, double bound)
{
    for (int i = 0; i < rows * m->s.vocab; i++)
        if (!(fabs(got[i] - want[i]) <= bound))
            fail_msg("%s: row %d score %d is %.9g, should be %.9g", m->s.what, i / m->s.vocab, i % m->s.vocab, got[i],
                     want[i]);
}

static void assert_same(const net *m, const float *a, int row_a, const float *b, int row_b, int rows)
{
    const size_t v = (size_t)m->s.vocab;
    assert_memory_equal(a + (size_t)row_a * v, b + (size_t)row_b * v, (size_t)rows * v * sizeof(float));
}

/* Every set of CPU features: none, then one more each time. */
static uint64_t masks[8];
static int n_masks;

static int find_masks(void **state)
{
    size_t n;
    uint64_t found;
    cpu_features(&n, &found);
    for (size_t i = 0; i <= n; i++)
        if (i == 0 || (found >> (i - 1) & 1)) masks[n_masks++] = ((uint64_t)1 << i) - 1;
    return 0;
}

/* ------------------------------------------------------------ tests */

static void matches_reference(void **state)
{
    for (int i = 0; i < N_SHAPES; i++) {
        net *m = net_make(&shapes[i]);
        net_kv *e = net_kv_make(m);
        double *want = calloc((size_t)(ROWS * m->s.vocab), sizeof *want);
        net_pass q;
        net_ask(&q, m, net_all, ROWS, ROWS);
        net_exact(m, e, &q.p, want);
        for (int k = 0; k < n_masks; k++) {
            opened o = start(m, limits(2, masks[k]));
            float *got = run_all(&o, m);
            /* a value of x between two integers, or between two scales, may go to either: rarely in small networks, always somewhere
             * in wide ones */
            const quant_info *info = quant_get(shapes[i].type);
            assert_near(m, got, want, ROWS, !info->levels ? 2e-5 : shapes[i].d < 256 ? 4e-3 : 5e-2);
            free(got);
            stop(&o);
        }
        free(want);
        net_kv_free(e);
        net_free(m);
    }
}

/* A pass that is told to stop ends with that word; one that runs after it gives what it would have given. */
static void stops(void **state)
{
    net *m = net_make(&shapes[ODD]);
    opened o = start(m, limits(2, EVERY));
    float *want = run_all(&o, m);
    net_pass q;
    llada_err err = { .text = "" };
    atomic_bool flag;
    atomic_init(&flag, true);
    net_ask(&q, m, net_all, ROWS, ROWS);
    q.p.stop = &flag;
    assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_CANCELLED);
    assert_non_null(strstr(err.text, "stopped at operator 0 of"));
    atomic_store(&flag, false);
    float *got = run(&o, m, &q);
    assert_same(m, got, 0, want, 0, ROWS);
    free(got);
    free(want);
    stop(&o);
    net_free(m);
}

/* Rows computed again over the K,V of the first pass give its bits; so does any one alone. */
static void cached_equals_fresh(void **state)
{
    static const struct {
        int n, pos[ROWS];
    } sets[] = { { 1, { 0 } },
                 { 1, { 7 } },
                 { 2, { 3, 11 } },
                 { 3, { 1, 2, 5 } },
                 { 5, { 0, 4, 8, 9, 10 } },
                 { 6, { 6, 7, 8, 9, 10, 11 } } };
    for (int i = 0; i < N_SHAPES; i++)
        for (int k = 0; k < 2 * n_masks; k++) {
            net *m = net_make(&shapes[i]);
            device_limits lim = limits(1 + k % 3, masks[k / 2]);
            lim.kv_f16 = k % 2;
            opened o = start(m, lim);
            float *fresh = run_all(&o, m);
            for (size_t j = 0; j < sizeof sets / sizeof *sets; j++) {
                net_pass q;
                net_ask(&q, m, sets[j].pos, sets[j].n, ROWS);
                float *again = run(&o, m, &q);
                for (int r = 0; r < sets[j].n; r++) assert_same(m, again, r, fresh, sets[j].pos[r], 1);
                free(again);
            }
            free(fresh);
            stop(&o);
            net_free(m);
        }
}

static void same_bits_for_any_threads(void **state)
{
    for (int i = 0; i < N_SHAPES; i++)
        for (int k = 0; k < n_masks; k++) {
            net *m = net_make(&shapes[i]);
            opened one = start(m, limits(1, masks[k]));
            float *want = run_all(&one, m);
            for (int t = 2; t <= 8; t += i < 2 ? 1 : 3) {
                opened o = start(m, limits(t, masks[k]));
                assert_in_range(device_cpu.threads(o.c), 1, t);
                float *got = run_all(&o, m);
                assert_same(m, got, 0, want, 0, ROWS);
                free(got);
                stop(&o);
            }
            free(want);
            stop(&one);
            net_free(m);
        }
}

/* The layout of the weights changes no bit, whatever their type. */
static void packed_equals_rows(void **state)
{
    static const net_shape others[] = {
        /* types that are not among the shapes */
        { "q5_0", 4, 2, 16, 64, 96, 33, .type = QT_Q5_0 },   { "iq4_nl", 4, 2, 16, 64, 96, 33, .type = QT_IQ4_NL },
        { "q2_k", 4, 1, 64, 256, 256, 33, .type = QT_Q2_K }, { "q3_k", 4, 1, 64, 256, 256, 33, .type = QT_Q3_K },
        { "q5_k", 4, 1, 64, 256, 256, 33, .type = QT_Q5_K }, { "iq4_xs", 4, 1, 64, 256, 256, 33, .type = QT_IQ4_XS },
    };
    for (int i = 0; i < N_SHAPES + (int)(sizeof others / sizeof *others); i++) {
        net_shape s = i < N_SHAPES ? shapes[i] : others[i - N_SHAPES];
        float *want[sizeof masks / sizeof *masks];
        net *m = net_make(&s);
        for (int k = 0; k < n_masks; k++) {
            opened o = start(m, limits(1, masks[k]));
            want[k] = run_all(&o, m);
            stop(&o);
        }
        net_pack(m);
        for (int k = 0; k < n_masks; k++) {
            opened o = start(m, limits(1 + k % 2, masks[k]));
            float *got = run_all(&o, m);
            assert_same(m, got, 0, want[k], 0, ROWS);
            stop(&o);
            free(got);
            free(want[k]);
        }
        net_free(m);
    }
}

/* A shadow row at a committed position sees what an ordinary mask there would see, and nobody sees it. */
static void shadow_rows(void **state)
{
    const int at[2] = { 3, 5 }, mask = 1;
    net *m = net_make(&shapes[BIAS]);
    opened o = start(m, limits(2, EVERY));
    float *fresh = run_all(&o, m);
    net_pass q, shadow;

    net_ask(&shadow, m, at, 2, ROWS); /* row 0: shadow of position 3 in slot 15; row 1: an ordinary row */
    shadow.slot[0] = 15;
    shadow.token[0] = mask;
    float *with = run(&o, m, &shadow);
    assert_same(m, with, 1, fresh, 5, 1);

    net_kv *e = net_kv_make(m);
    double *want = calloc((size_t)(ROWS * m->s.vocab), sizeof *want);
    net_ask(&q, m, net_all, ROWS, ROWS);
    net_exact(m, e, &q.p, want);
    net_exact(m, e, &shadow.p, want);
    assert_near(m, with, want, 2, 2e-5);

    net_ask(&q, m, at, 1, ROWS); /* the mask put there for real */
    q.token[0] = mask;
    float *real = run(&o, m, &q);
    assert_same(m, real, 0, with, 0, 1);
    free(real), free(with), free(fresh), free(want);
    net_kv_free(e);
    stop(&o);
    net_free(m);
}

/* A row that names another sees that one's slot at its position, before and behind itself, and not where its list has
 * no such column. */
static void rows_that_stand_in(void **state)
{
    static const int pos[5] = { 3, 2, 5, 3, 11 }; /* row 0: shadow of position 3; row 3: position 3 itself */
    static const int which[] = { ODD, BIAS, CAUSAL };
    static const int32_t without_2[4] = { 0, 1, 3, 6 };
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        net *m = net_make(&shapes[which[i]]);
        opened o = start(m, limits(2, EVERY));
        net_kv *e = net_kv_make(m);
        double *want = calloc((size_t)(ROWS * m->s.vocab), sizeof *want);
        net_pass q;
        net_ask(&q, m, net_all, ROWS, ROWS);
        free(run(&o, m, &q));
        net_exact(m, e, &q.p, want);
        net_ask(&q, m, pos, 5, 11); /* the list ends before position 11 */
        q.slot[0] = 15;
        q.token[0] = 1;
        q.instead[1] = q.instead[2] = q.instead[3] = 0; /* row 3 is at that position itself: its own slot wins */
        q.instead[0] = 4;
        q.group[1] = 1; /* its own position is not in the list */
        q.p.cols[1] = (pass_cols){ without_2, without_2, 4 };
        net_exact(m, e, &q.p, want);
        float *got = run(&o, m, &q);
        assert_near(m, got, want, 5, 2e-5);
        free(got), free(want);
        net_kv_free(e);
        stop(&o);
        net_free(m);
    }
}

/* Rows of two groups see their own lists; positions outside a list are put in at their place. */
static void groups_and_places(void **state)
{
    static const int pos[6] = { 0, 2, 4, 6, 8, 9 };
    static const int32_t slot1[3] = { 17, 2, 5 }, pos1[3] = { 2, 4, 7 };
    for (int k = 0; k < n_masks; k++) {
        net *m = net_make(&shapes[ODD]);
        opened o = start(m, limits(2, masks[k]));
        net_kv *e = net_kv_make(m);
        double *want = calloc((size_t)(ROWS * m->s.vocab), sizeof *want);
        net_pass q;
        free(run_all(&o, m));
        net_ask(&q, m, net_all, ROWS, ROWS);
        net_exact(m, e, &q.p, want);
        net_ask(&q, m, pos, 6, 7);                      /* group 0: columns 0..6, so 8 and 9 come behind */
        for (int i = 0; i < 6; i++) q.slot[i] = 12 + i; /* 17: also a column of group 1, written by this pass */
        q.group[0] = q.group[2] = q.group[3] = q.group[4] = 1;
        q.p.cols[1] = (pass_cols){ slot1, pos1, 3 };
        net_exact(m, e, &q.p, want);
        float *got = run(&o, m, &q);
        assert_near(m, got, want, 6, 2e-5);
        free(got);
        q.p.cols[0].n = q.p.cols[1].n = 0; /* nothing but itself */
        net_exact(m, e, &q.p, want);
        got = run(&o, m, &q);
        assert_near(m, got, want, 6, 2e-5);
        free(got), free(want);
        net_kv_free(e);
        stop(&o);
        net_free(m);
    }
}

static void half_kv_is_close(void **state)
{
    net *m = net_make(&shapes[BIAS]);
    device_limits lim = limits(2, EVERY);
    opened full = start(m, lim);
    lim.kv_f16 = true;
    opened half = start(m, lim);
    float *a = run_all(&full, m), *b = run_all(&half, m);
    double worst = 0;
    for (int i = 0; i < ROWS * m->s.vocab; i++) worst = fmax(worst, fabs(a[i] - b[i]));
    assert_true(worst > 0 && worst < 5e-3);
    assert_true(device_cpu.bytes(half.c) < device_cpu.bytes(full.c));
    free(a), free(b);
    stop(&full), stop(&half);
    net_free(m);
}

/* A context on another's K,V store reads what that wrote and writes what that reads. */
static void shared_kv(void **state)
{
    const int at[3] = { 2, 5, 9 };
    net *m = net_make(&shapes[ODD]);
    opened a = start(m, limits(2, EVERY));
    device_limits lim = limits(1, EVERY);
    device_ctx *b = NULL;
    llada_err err = { 0 };
    net_pass q;

    lim.max_rows = lim.max_want = 3;
    lim.kv_of = a.c;
    assert_int_equal(device_cpu.open(&b, a.w, &lim, &err), LLADA_OK);
    assert_true(device_cpu.bytes(b) < device_cpu.bytes(a.c));
    opened other = { a.w, b };
    float *fresh = run_all(&a, m);
    net_ask(&q, m, at, 3, ROWS);
    float *got = run(&other, m, &q);
    for (int i = 0; i < 3; i++) assert_same(m, got, i, fresh, at[i], 1);
    free(got);
    net_ask(&q, m, at, 3, ROWS);
    q.token[1] = 1;
    free(run(&other, m, &q));
    net_ask(&q, m, at, 1, ROWS);
    got = run(&a, m, &q); /* position 5 is another token now */
    assert_memory_not_equal(got, fresh + 2 * m->s.vocab, (size_t)m->s.vocab * sizeof(float));
    device_cpu.close(&b);
    lim.kv_f16 = true;
    assert_int_equal(device_cpu.open(&b, a.w, &lim, &err), LLADA_BAD_ARG);
    lim.kv_f16 = false;
    lim.slots--;
    assert_int_equal(device_cpu.open(&b, a.w, &lim, &err), LLADA_BAD_ARG);
    free(got), free(fresh);
    stop(&a);
    net_free(m);
}

/* Scores with and without logits are those of score_row; neither is needed; and a pass allocates nothing. */
static void scores_and_logits(void **state)
{
    net *m = net_make(&shapes[ODD]);
    opened o = start(m, limits(3, EVERY));
    score_how how = { .n_vocab = 50, .want_top = true };
    score_ask ask[ROWS] = { 0 };
    score a[ROWS], b[ROWS];
    llada_err err;
    net_pass q;

    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    net_ask(&q, m, net_all, ROWS, ROWS);
    q.p.n_want = 3;
    q.want[0] = 11, q.want[1] = 0, q.want[2] = 11;
    q.p.how = &how;
    q.p.ask = ask;
    q.p.out = a;
    float *logits = run(&o, m, &q);
    assert_same(m, logits, 0, logits, 2, 1);
    q.p.out = b;
    q.p.logits = NULL;
    uint64_t before = mem_count();
    assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_OK);
    assert_int_equal(mem_count(), before);
    for (int i = 0; i < 3; i++) {
        score s;
        score_row(&s, logits + i * m->s.vocab, m->s.vocab, &how, &ask[i]);
        assert_int_equal(a[i].token, s.token);
        assert_true(a[i].p == s.p && a[i].lse == s.lse && b[i].token == s.token && b[i].p == s.p && b[i].lse == s.lse);
    }
    q.p.out = NULL;
    assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_OK);
    q.p.n_want = 0;
    assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_OK);
    free(logits);
    stop(&o);
    net_free(m);
}

static void refuses(void **state)
{
    static const struct {
        const char *says;
        int which, value;
    } bad[] = {
        { "position 40 of 40", 'p', 40 },    { "position -1", 'p', -1 },   { "token 53 of 53", 't', 53 },
        { "token -1 of", 't', -1 },          { "slot 20 of 20", 's', 20 }, { "slot -1", 's', -1 },
        { "two rows write slot 1", 's', 1 }, { "group 2 of 2", 'g', 2 },   { "13 rows", 'n', 13 },
        { "a pass of 0 rows", 'n', 0 },      { "row 12 of 12", 'w', 12 },  { "13 scored rows", 'W', 13 },
        { "-1 scored rows", 'W', -1 },       { "slot 20 of 20", 'c', 20 }, { "slot -1 of 20", 'c', -1 },
        { "position 3, behind 3", 'P', 3 },  { "21 columns", 'C', 21 },    { "not how", 'h', 0 },
        { "see row 12 of 12", 'i', 12 },     { "see row -2 of", 'i', -2 },
    };
    net *m = net_make(&shapes[ODD]);
    opened o = start(m, limits(1, EVERY));
    float *want = run_all(&o, m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        net_pass q;
        score out[ROWS];
        int32_t col[NET_SLOTS], pos[NET_SLOTS];
        llada_err err = { 0 };
        net_ask(&q, m, net_all, ROWS, ROWS);
        memcpy(col, q.col, sizeof col);
        memcpy(pos, q.col, sizeof pos);
        q.p.cols[1] = (pass_cols){ col, pos, ROWS };
        switch (bad[i].which) {
        case 'p': q.pos[2] = bad[i].value; break;
        case 't': q.token[2] = bad[i].value; break;
        case 's': q.slot[2] = bad[i].value; break;
        case 'g': q.group[2] = (uint8_t)bad[i].value; break;
        case 'n': q.p.n = bad[i].value; break;
        case 'w': q.want[2] = bad[i].value; break;
        case 'W': q.p.n_want = bad[i].value; break;
        case 'c': col[2] = bad[i].value; break;
        case 'P': pos[4] = bad[i].value; break;
        case 'C': q.p.cols[1].n = bad[i].value; break;
        case 'h': q.p.out = out; break;
        case 'i': q.instead[2] = bad[i].value; break;
        default: fail();
        }
        assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_BAD_ARG);
        if (!strstr(err.text, bad[i].says)) fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i].says);
    }
    float *again = run_all(&o, m); /* and the context is as good as before */
    assert_same(m, again, 0, want, 0, ROWS);
    free(want), free(again);
    stop(&o);

    static const device_limits worse[] = {
        { .max_rows = 0, .max_want = 1, .slots = 1, .max_pos = 1, .threads = 1 },
        { .max_rows = 1, .max_want = -1, .slots = 1, .max_pos = 1, .threads = 1 },
        { .max_rows = 1, .max_want = 1, .slots = 0, .max_pos = 1, .threads = 1 },
        { .max_rows = 1, .max_want = 1, .slots = 1, .max_pos = 0, .threads = 1 },
        { .max_rows = 1, .max_want = 1, .slots = 1, .max_pos = 1, .threads = 0 },
        { .max_rows = 1, .max_want = 1, .slots = 1, .max_pos = 1, .threads = 100000 },
    };
    device_weights *w;
    llada_err err;
    assert_int_equal(device_cpu.weights_open(&w, &m->g, &err), LLADA_OK);
    for (size_t i = 0; i < sizeof worse / sizeof *worse; i++)
        assert_int_equal(device_cpu.open(&o.c, w, &worse[i], &err), LLADA_BAD_ARG);
    device_cpu.weights_close(&w);
    net_free(m);
}

/* NaN or infinity in one weight is an error that names the layer. */
static void names_the_layer(void **state)
{
    net *m = net_make(&shapes[BIAS]);
    const struct {
        int id;
        float value;
        const char *says;
    } bad[] = { { m->embed, NAN, "token embedding" },
                { m->l[0].k, NAN, "layer 0" },
                { m->l[1].down, NAN, "layer 1" },
                { m->l[1].norm2, INFINITY, "layer 1" },
                { m->l[0].bv, -INFINITY, "layer 0" },
                { m->l[0].q, INFINITY, "layer 0" },
                { m->norm, NAN, "norm behind the last layer" } };
    for (int k = 0; k < n_masks; k++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            float *at = (float *)m->data[bad[i].id] + 2, old = *at;
            llada_err err = { 0 };
            net_pass q;
            if (bad[i].id == m->embed) at += net_token(m, 4) * m->s.d, old = *at;
            *at = bad[i].value;
            opened o = start(m, limits(2, masks[k]));
            net_ask(&q, m, net_all, ROWS, ROWS);
            assert_int_equal(device_cpu.run(o.c, &q.p, &err), LLADA_NUMERIC);
            if (!strstr(err.text, bad[i].says))
                fail_msg("mask %d: \"%s\" does not say \"%s\"", (int)masks[k], err.text, bad[i].says);
            stop(&o);
            *at = old;
        }
    net_free(m);
}

/* Every allocation fails once: a status, nothing left behind (the sanitizer sees to that), and the next try works. */
static void failing_allocations(void **state)
{
    net *m = net_make(&shapes[HALF_WEIGHTS]); /* norms and biases as halves: they are decoded */
    int failures = 0;
    for (uint64_t k = 1;; k++) {
        opened o = { 0 };
        llada_err err = { 0 };
        device_limits lim = limits(2, EVERY);
        mem_fail_at(k);
        llada_status st = device_cpu.weights_open(&o.w, &m->g, &err);
        if (st == LLADA_OK) st = device_cpu.open(&o.c, o.w, &lim, &err);
        mem_fail_at(0);
        if (st == LLADA_OK) {
            stop(&o);
            break;
        }
        assert_int_equal(st, LLADA_NO_MEMORY);
        assert_true(strlen(err.text) > 0);
        assert_null(o.c);
        stop(&o);
        failures++;
    }
    assert_true(failures > 12);
    net_free(m);
}

/* Types that can't be decoded, rows of the wrong size. */
static void refuses_weights(void **state)
{
    net *m = net_make(&shapes[HALF_WEIGHTS]);
    tensor *t = &m->g.t[m->l[1].up];
    tensor keep = *t;
    device_weights *w = NULL;
    llada_err err = { 0 };

    t->type = 999;
    assert_int_equal(device_cpu.weights_open(&w, &m->g, &err), LLADA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "up"));
    *t = keep;
    t->row_bytes++;
    assert_int_equal(device_cpu.weights_open(&w, &m->g, &err), LLADA_BAD_MODEL);
    *t = keep;
    assert_null(w);
    net_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(cached_equals_fresh),
        cmocka_unit_test(same_bits_for_any_threads),
        cmocka_unit_test(packed_equals_rows),
        cmocka_unit_test(shadow_rows),
        cmocka_unit_test(rows_that_stand_in),
        cmocka_unit_test(groups_and_places),
        cmocka_unit_test(half_kv_is_close),
        cmocka_unit_test(shared_kv),
        cmocka_unit_test(scores_and_logits),
        cmocka_unit_test(refuses),
        cmocka_unit_test(names_the_layer),
        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(refuses_weights),
        cmocka_unit_test(stops),
    };
    return cmocka_run_group_tests(tests, find_masks, NULL);
}
