/* test_npu_loopback.c - the DSP's program in the emulator: the bits of the same code in this process, in few addresses;
 * and a DSP that dies, hangs or is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/npu/npu.h"
#include "format/quant.h"
#include "npu_faulty.h"
#include "small_net.h"

/* Every type of weights, both rotations, biases, norms of heads, causal. */
static const net_shape shapes[] = {
    { "f16", 4, 2, 16, 64, 96, 65, .bias = true, .type = QT_F16 },
    { "q8_0", 4, 2, 16, 64, 96, 65, .causal = true, .type = QT_Q8_0 },
    { "q4_0", 4, 2, 16, 64, 96, 65, .qk_norm = true, .rope = ROPE_HALVES, .type = QT_Q4_0 },
    { "experts", 2, 2, 16, 64, 32, 65, .experts = 5, .used = 2, .type = QT_Q8_0 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, VTCM = 256 << 10 };

typedef struct {
    device_weights *w;
    device_ctx *c;
} opened;

static opened start(const net *m, const npu_settings *s, npu_transport *t)
{
    const device_limits lim = {
        .max_rows = NET_ROWS, .max_want = NET_ROWS, .slots = NET_SLOTS, .max_pos = NET_POS, .threads = 1
    };
    opened o = { 0 };
    llada_err err = { 0 };
    if (t ? npu_weights_open_on(&o.w, &m->g, &t, "", &err) : npu_weights_open(&o.w, &m->g, s, &err))
        fail_msg("%s", err.text);
    if (device_npu.open(&o.c, o.w, &lim, &err)) fail_msg("%s", err.text);
    return o;
}

static void stop(opened *o)
{
    device_npu.close(&o->c);
    device_npu.weights_close(&o->w);
}

static void run_rows(const opened *o, const net *m, int n, float *logits)
{
    net_pass q;
    llada_err err = { 0 };
    net_ask(&q, m, net_all, n, NET_ROWS);
    q.p.logits = logits;
    if (device_npu.run(o->c, &q.p, &err)) fail_msg("%s", err.text);
}

static void run(const opened *o, const net *m, float *logits) { run_rows(o, m, NET_ROWS, logits); }

static void assert_note(const opened *o, const char *words)
{
    char note[256];
    npu_note(o->w, note, sizeof note);
    if (!strstr(note, words)) fail_msg("'%s' where '%s' is wanted", note, words);
}

static npu_settings settings(uint64_t budget)
{
    return (npu_settings){ .transport = "loopback:" DSP_PROGRAM, .budget = budget, .vtcm = VTCM };
}

static void same_bits_as_here(void **state)
{
    for (int i = 0; i < N_SHAPES; i++) {
        net *m = net_make(&shapes[i]);
        const size_t bytes = (size_t)(NET_ROWS * m->s.vocab) * sizeof(float);
        float *want = malloc(bytes), *got = malloc(bytes);
        opened here = start(m, &(npu_settings){ .transport = "inproc", .vtcm = VTCM, .few_rows = true }, NULL);
        npu_settings s = settings(1 << 20); /* in MiB, the least there is */
        s.contexts = 1 + 3 * (uint32_t)i;   /* threads of each size of team */
        s.few_rows = true;
        opened there = start(m, &s, NULL);
        for (int n = NET_ROWS; n > 0; n = n > 2 ? 2 : n - 1) { /* HMX; then the vector unit in integers */
            run_rows(&here, m, n, want);
            run_rows(&there, m, n, got);
            assert_note(&there, "the NPU serves (loopback");
            assert_memory_equal(got, want, (size_t)(n * m->s.vocab) * sizeof(float));
        }
        stop(&there);
        stop(&here);
        free(want);
        free(got);
        net_free(m);
    }
}

/* No answer, or none and half-written memory; and a patience that is too short: the CPU computes what was asked, and a
 * sentence says why.  The program is ended each time. */
static void a_dsp_that_does_not_answer(void **state)
{
    net *m = net_make(&shapes[0]);
    float *logits = calloc((size_t)(NET_ROWS * m->s.vocab), sizeof *logits);
    const npu_settings s = settings(0);
    for (int kind = FAULT_TIMEOUT; kind <= FAULT_DEATH; kind++) {
        npu_transport *inner = NULL, *t;
        llada_err err;
        if (npu_transport_open(&inner, &s, &err)) fail_msg("%s", err.text);
        t = npu_faulty(inner, FAULT_NONE, 0);
        opened o = start(m, NULL, t);
        npu_faulty_set(t, (fault_kind)kind, 2);
        run(&o, m, logits);
        assert_note(&o, "the NPU serves");
        run(&o, m, logits);
        assert_note(&o, "the NPU failed");
        run(&o, m, logits); /* and goes on */
        stop(&o);
    }
    npu_settings hasty = s;
    hasty.patience = 1e-6;
    opened o = start(m, &hasty, NULL);
    assert_note(&o, "did not answer");
    run(&o, m, logits);
    stop(&o);
    free(logits);
    net_free(m);
}

static void a_dsp_that_is_not_there(void **state)
{
    net *m = net_make(&shapes[0]);
    float *logits = calloc((size_t)(NET_ROWS * m->s.vocab), sizeof *logits);
    npu_settings s = settings(0);
    s.transport = "loopback:/nowhere/npu.elf";
    opened o = start(m, &s, NULL);
    assert_note(&o, "/nowhere/npu.elf");
    run(&o, m, logits);
    stop(&o);
    s.transport = "loopback:" LLADA_SOURCE_DIR "/README.md"; /* starts, and ends at once */
    o = start(m, &s, NULL);
    assert_note(&o, "the CPU serves");
    run(&o, m, logits);
    stop(&o);
    free(logits);
    net_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_here),
        cmocka_unit_test(a_dsp_that_does_not_answer),
        cmocka_unit_test(a_dsp_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
