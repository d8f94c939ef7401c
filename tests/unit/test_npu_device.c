/* test_npu_device.c - the NPU device in this process, on small synthetic networks: against loops in double, under a
 * budget of addresses that makes it swap, and beside the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/npu/npu.h"
#include "format/quant.h"
#include "npu_faulty.h"
#include "small_net.h"

/* what, heads, key heads, head width, width, feed-forward, vocabulary, ... */
static const net_shape shapes[] = {
    { "odd, pairs", 4, 2, 10, 37, 45, 53, .type = QT_F32 },
    { "odd, halves, bias, qk-norm", 4, 2, 14, 61, 77, 101, .qk_norm = true, .bias = true, .rope = ROPE_HALVES },
    { "more than 32 tiles of k", 2, 1, 16, 1100, 40, 60, .bias = true },
    { "wide heads", 3, 3, 64, 192, 110, 70, .type = QT_BF16 },
    { "causal, factors", 4, 2, 10, 37, 45, 53, .causal = true, .factors = true },
    { "f16", 4, 2, 16, 64, 96, 65, .bias = true, .type = QT_F16 },
    { "q8_0", 4, 2, 16, 64, 96, 65, .bias = true, .type = QT_Q8_0 },
    { "q4_0", 4, 2, 16, 64, 96, 65, .qk_norm = true, .rope = ROPE_HALVES, .type = QT_Q4_0 },
    { "experts", 4, 2, 16, 64, 96, 65, .experts = 7, .used = 3, .type = QT_F16 },
    { "experts, q8_0", 2, 2, 16, 96, 32, 53, .experts = 5, .used = 1, .qk_norm = true, .type = QT_Q8_0 },
    { "experts, q4_0", 2, 2, 16, 32, 64, 53, .experts = 5, .used = 5, .type = QT_Q4_0 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, BIAS = 1, F16 = 5, Q8 = 6, Q4 = 7, VTCM = 512 << 10 };

static device_limits limits(void)
{
    return (device_limits){ .max_rows = NET_ROWS,
                            .max_want = NET_ROWS,
                            .slots = NET_SLOTS,
                            .max_pos = NET_POS,
                            .threads = 1,
                            .cpu_mask = ~(uint64_t)0 };
}

typedef struct {
    device_weights *w;
    device_ctx *c;
} opened;

static opened start_on(const net *m, const npu_settings *s)
{
    opened o = { 0 };
    llada_err err = { 0 };
    device_limits lim = limits();
    if (npu_weights_open(&o.w, &m->g, s, &err) || device_npu.open(&o.c, o.w, &lim, &err))
        fail_msg("%s: %s", m->s.what, err.text);
    return o;
}

static opened start(const net *m, uint64_t budget)
{
    return start_on(m, &(npu_settings){ .transport = "inproc", .budget = budget, .vtcm = VTCM });
}

static void stop(opened *o)
{
    device_npu.close(&o->c);
    device_npu.weights_close(&o->w);
    assert_null(o->c);
    assert_null(o->w);
}

static void assert_serves(const opened *o)
{
    char note[256];
    npu_note(o->w, note, sizeof note);
    if (!npu_serves(o->w) || strncmp(note, "the NPU serves", 14)) fail_msg("%s", note);
}

/* Logits of a pass, [n_want][vocab]; owned by the caller. */
static float *run(const opened *o, const net *m, net_pass *q)
{
    llada_err err = { 0 };
    q->p.logits = calloc((size_t)NET_ROWS * (size_t)m->s.vocab, sizeof(float));
    if (device_npu.run(o->c, &q->p, &err)) fail_msg("%s: %s", m->s.what, err.text);
    return q->p.logits;
}

static float *run_all(const opened *o, const net *m)
{
    net_pass q;
    net_ask(&q, m, net_all, NET_ROWS, NET_ROWS);
    return run(o, m, &q);
}

/* share: of the largest score, that any may be off by. */
static void assert_within(const net *m, const float *got, const double *want, int rows, double share)
{
    double most = 0, worst = 0;
    for (int i = 0; i < rows * m->s.vocab; i++) {
        most = fmax(most, fabs(want[i]));
        worst = fmax(worst, fabs(got[i] - want[i]));
    }
    if (!(worst <= share * most)) fail_msg("%s: off by %g of %g", m->s.what, worst, most);
}

/* Half floats carry 11 bits; scores here are a few units large.  Where matrices are quantised the CPU's part (the
 * scores, or all of it) rounds their inputs to 8 bits. */
static void assert_near(const net *m, const float *got, const double *want, int rows)
{
    const bool rounds = m->s.type == QT_Q8_0 || m->s.type == QT_Q4_0;
    assert_within(m, got, want, rows, rounds ? 2e-2 : 4e-3);
}

static void matches_reference(void **state)
{
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        net *m = net_make(&shapes[i / 2]);
        if (i % 2) net_pack(m);
        net_kv *e = net_kv_make(m);
        double *want = calloc((size_t)(NET_ROWS * m->s.vocab), sizeof *want);
        net_pass q;
        net_ask(&q, m, net_all, NET_ROWS, NET_ROWS);
        net_exact(m, e, &q.p, want);
        opened o = start(m, 0);
        assert_serves(&o);
        float *got = run_all(&o, m);
        assert_serves(&o);
        assert_near(m, got, want, NET_ROWS);
        free(got);
        stop(&o);
        free(want);
        net_kv_free(e);
        net_free(m);
    }
}

/* Rows computed again over the keys and values of the first pass: the same bits; HMX sums know no neighbours. */
static void cached_equals_fresh(void **state)
{
    static const int again[] = { 1, 5, 11 };
    for (int i = 0; i < N_SHAPES; i++) {
        net *m = net_make(&shapes[i]);
        opened o = start(m, 0);
        float *fresh = run_all(&o, m);
        net_pass q;
        net_ask(&q, m, again, 3, NET_ROWS);
        float *some = run(&o, m, &q);
        for (int r = 0; r < 3; r++)
            assert_memory_equal(some + r * m->s.vocab, fresh + again[r] * m->s.vocab, (size_t)m->s.vocab * 4);
        free(some);
        free(fresh);
        stop(&o);
        net_free(m);
    }
}

/* However many threads share the work: the same bits, for many rows and for one. */
static void any_number_of_threads(void **state)
{
    for (int i = 0; i < N_SHAPES; i++) {
        net *m = net_make(&shapes[i]);
        float *want[2] = { NULL, NULL };
        for (uint32_t contexts = 1; contexts <= 7; contexts++) {
            opened o = start_on(
                m, &(npu_settings){ .transport = "inproc", .vtcm = VTCM, .contexts = contexts, .few_rows = true });
            for (int k = 0; k < 2; k++) {
                const int n = k == 0 ? NET_ROWS : 1;
                net_pass q;
                net_ask(&q, m, net_all, n, NET_ROWS);
                float *got = run(&o, m, &q);
                assert_serves(&o);
                if (!want[k]) want[k] = got;
                if (memcmp(got, want[k], (size_t)(n * m->s.vocab) * sizeof *got))
                    fail_msg("%s: other bits of %d rows with %u vector contexts", m->s.what, n, contexts);
                if (got != want[k]) free(got);
            }
            stop(&o);
        }
        free(want[0]);
        free(want[1]);
        net_free(m);
    }
}

/* Where it is allowed, passes of one row and of two are made in integers with Q8_0 and Q4_0: near enough, in other bits.
 * All others stay as they are. */
static void few_rows_in_integers(void **state)
{
    static const int some[] = { 3, 8, 9, 11 };
    for (int i = F16; i <= Q4; i++) {
        net *m = net_make(&shapes[i]);
        net_kv *e = net_kv_make(m);
        double *want = calloc((size_t)(NET_ROWS * m->s.vocab), sizeof *want);
        opened o = start(m, 0);
        opened few = start_on(m, &(npu_settings){ .transport = "inproc", .vtcm = VTCM, .few_rows = true });
        for (int n = NET_ROWS; n > 0; n = n > 4 ? 4 : n - 1) {
            net_pass q;
            const size_t bytes = (size_t)(n * m->s.vocab) * sizeof(float);
            net_ask(&q, m, n == NET_ROWS ? net_all : some, n, NET_ROWS);
            net_exact(m, e, &q.p, want);
            float *halves = run(&o, m, &q), *got = run(&few, m, &q);
            assert_within(m, got, want, n, i == F16 ? 4e-3 : 4e-2); /* the answer's rows are rounded otherwise */
            assert_int_equal(memcmp(got, halves, bytes) != 0, i != F16 && n <= 2);
            free(halves);
            free(got);
        }
        assert_serves(&few);
        stop(&few);
        stop(&o);
        free(want);
        net_kv_free(e);
        net_free(m);
    }
}

/* ------------------------------------------------------------ fewer addresses than weights */

/* Whatever the budget: the same bits, or the CPU serves because a session does not fit. */
static void any_budget(void **state)
{
    net *m = net_make(&shapes[Q8]);
    opened all = start(m, 0);
    float *want = run_all(&all, m);
    int refused = 0, swapped = 0, ample = 0;
    for (uint64_t budget = 64 << 10; budget < 256 << 10; budget += 8 << 10) {
        opened o = start(m, budget);
        for (int i = 0; i < 3; i++) {
            float *got = run_all(&o, m);
            char note[256];
            npu_note(o.w, note, sizeof note);
            if (!strncmp(note, "the NPU serves", 14))
                assert_memory_equal(got, want, (size_t)(NET_ROWS * m->s.vocab) * sizeof *got);
            else if (!strstr(note, "bytes") && !strstr(note, "address"))
                fail_msg("budget %llu: %s", (unsigned long long)budget, note);
            free(got);
        }
        const npu_counts n = npu_counted(o.w);
        refused += n.maps <= 1; /* the self-test's own */
        swapped += n.unmaps > 3;
        ample += n.maps > 1 && n.unmaps == 1;
        stop(&o);
    }
    if (!refused || !swapped || !ample) fail_msg("%d refused, %d swapped, %d ample", refused, swapped, ample);
    free(want);
    stop(&all);
    net_free(m);
}

/* Two sessions on one NPU that holds one of them at a time. */
static void sessions_take_turns(void **state)
{
    net *m = net_make(&shapes[Q8]);
    opened all = start(m, 0);
    float *want = run_all(&all, m);
    bool took_turns = false;
    for (uint64_t budget = 64 << 10; budget < 256 << 10; budget += 8 << 10) {
        opened one = start(m, budget), two = one;
        device_limits lim = limits();
        llada_err err;
        assert_int_equal(device_npu.open(&two.c, one.w, &lim, &err), LLADA_OK);
        for (int i = 0; i < 4; i++) {
            float *got = run_all(i % 2 ? &two : &one, m);
            char note[256];
            npu_note(one.w, note, sizeof note);
            if (!strncmp(note, "the NPU serves", 14))
                assert_memory_equal(got, want, (size_t)(NET_ROWS * m->s.vocab) * sizeof *got);
            free(got);
        }
        took_turns |= npu_serves(one.w) && npu_counted(one.w).unmaps > 4;
        device_npu.close(&two.c);
        stop(&one);
    }
    assert_true(took_turns);
    free(want);
    stop(&all);
    net_free(m);
}

/* ------------------------------------------------------------ beside the CPU */

/* A second context on the same store, as a revision job has it: each reads what the other wrote. */
static void shares_its_store(void **state)
{
    static const int first[] = { 0, 1, 2, 3, 4, 5 }, then[] = { 6, 7, 8 }, last[] = { 9, 10, 11 };
    net *m = net_make(&shapes[BIAS]);
    net_kv *e = net_kv_make(m);
    double *want = calloc((size_t)(NET_ROWS * m->s.vocab), sizeof *want);
    opened o = start(m, 0), side = o;
    device_limits lim = limits();
    llada_err err;
    lim.kv_of = o.c;
    assert_int_equal(device_npu.open(&side.c, o.w, &lim, &err), LLADA_OK);
    const struct {
        const int *pos;
        int n, seen;
        const opened *by;
    } steps[] = { { first, 6, 6, &o }, { then, 3, 9, &side }, { last, 3, 12, &o } };
    for (int i = 0; i < 3; i++) {
        net_pass q;
        net_ask(&q, m, steps[i].pos, steps[i].n, steps[i].seen);
        net_exact(m, e, &q.p, want);
        float *got = run(steps[i].by, m, &q);
        assert_near(m, got, want, steps[i].n);
        free(got);
    }
    assert_serves(&o);
    device_npu.close(&side.c);
    stop(&o);
    free(want);
    net_kv_free(e);
    net_free(m);
}

/* ------------------------------------------------------------ faults */

static opened start_faulty(const net *m, npu_transport **t, fault_kind kind, int at)
{
    npu_transport *inner = NULL;
    opened o = { 0 };
    llada_err err = { 0 };
    device_limits lim = limits();
    if (npu_inproc_open(&inner, &(npu_settings){ .vtcm = VTCM }, &err)) fail_msg("%s", err.text);
    npu_transport *mine = npu_faulty(inner, kind, at);
    *t = mine;
    if (npu_weights_open_on(&o.w, &m->g, &mine, "", &err) || device_npu.open(&o.c, o.w, &lim, &err))
        fail_msg("%s: %s", fault_words[kind], err.text);
    return o;
}

/* Three passes, each on what the one before left, computed by whoever serves. */
static void run_three(const opened *o, const net *m)
{
    static const int parts[3][4] = { { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9, 10, 11 } };
    net_kv *e = net_kv_make(m);
    double *want = calloc((size_t)(NET_ROWS * m->s.vocab), sizeof *want);
    for (int i = 0; i < 3; i++) {
        net_pass q;
        net_ask(&q, m, parts[i], 4, 4 * (i + 1));
        net_exact(m, e, &q.p, want);
        float *got = run(o, m, &q);
        assert_near(m, got, want, 4);
        free(got);
    }
    free(want);
    net_kv_free(e);
}

/* Every fault at every message: each pass is right, and afterwards a sentence says what happened. */
static void faults_in_passes(void **state)
{
    net *m = net_make(&shapes[BIAS]);
    for (int kind = FAULT_MAP; kind < FAULT_MANY_ROWS; kind++)
        for (int k = 1; k <= 4; k++) {
            npu_transport *t;
            char note[256];
            opened o = start_faulty(m, &t, FAULT_NONE, 0);
            npu_faulty_set(t, (fault_kind)kind, k);
            run_three(&o, m);
            npu_note(o.w, note, sizeof note);
            if (npu_serves(o.w) != (k > 3)) fail_msg("%s at message %d: %s", fault_words[kind], k, note);
            if (k <= 3 && !strstr(note, "the NPU failed")) fail_msg("%s: '%s'", fault_words[kind], note);
            stop(&o);
        }
    net_free(m);
}

/* In the self-test: the CPU serves from the beginning, and its bits are the CPU device's own over half floats. */
static void faults_in_the_self_test(void **state)
{
    net *m = net_make(&shapes[BIAS]);
    opened cpu = { 0 };
    device_limits lim = limits();
    llada_err err;
    lim.kv_f16 = true;
    assert_int_equal(device_cpu.weights_open(&cpu.w, &m->g, &err), LLADA_OK);
    assert_int_equal(device_cpu.open(&cpu.c, cpu.w, &lim, &err), LLADA_OK);
    net_pass q;
    net_ask(&q, m, net_all, NET_ROWS, NET_ROWS);
    float *want = q.p.logits = calloc((size_t)(NET_ROWS * m->s.vocab), sizeof *want);
    assert_int_equal(device_cpu.run(cpu.c, &q.p, &err), LLADA_OK);
    for (int kind = FAULT_MAP; kind < FAULT_COUNT; kind++)
        for (int k = 1; k < 55; k += 26) {
            npu_transport *t;
            char note[256];
            opened o = start_faulty(m, &t, (fault_kind)kind, k);
            npu_note(o.w, note, sizeof note);
            if (npu_serves(o.w) || !strstr(note, "self-test")) fail_msg("%s at %d: %s", fault_words[kind], k, note);
            float *got = run_all(&o, m);
            assert_memory_equal(got, want, (size_t)(NET_ROWS * m->s.vocab) * sizeof *got);
            free(got);
            stop(&o);
        }
    free(want);
    device_cpu.close(&cpu.c);
    device_cpu.weights_close(&cpu.w);
    net_free(m);
}

static void buffers_refused(void **state)
{
    net *m = net_make(&shapes[Q8]);
    for (int k = 1; k <= 7; k++) { /* self-test, vectors, two groups, keys and values, work; and none */
        npu_transport *t;
        char note[256];
        opened o = start_faulty(m, &t, FAULT_NO_BUFFER, k);
        run_three(&o, m);
        npu_note(o.w, note, sizeof note);
        if ((k < 7) != (strstr(note, "a planted refusal") != NULL)) fail_msg("buffer %d: %s", k, note);
        stop(&o);
    }
    net_free(m);
}

static void networks_it_does_not_know(void **state)
{
    static const net_shape experts = { "experts", 2, 2, 10, 37, 19, 53, .experts = 7, .used = 3 };
    net *m = net_make(&experts);
    opened o = start(m, 0);
    char note[256];
    npu_note(o.w, note, sizeof note);
    assert_non_null(strstr(note, "experts"));
    free(run_all(&o, m));
    stop(&o);
    net_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(cached_equals_fresh),
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(few_rows_in_integers),
        cmocka_unit_test(any_budget),
        cmocka_unit_test(sessions_take_turns),
        cmocka_unit_test(shares_its_store),
        cmocka_unit_test(faults_in_passes),
        cmocka_unit_test(faults_in_the_self_test),
        cmocka_unit_test(buffers_refused),
        cmocka_unit_test(networks_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
