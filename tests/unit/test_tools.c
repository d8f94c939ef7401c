/* test_tools.c - what tools.h promises beyond the program's own tests: the memory count against real sessions,
 * quantised files under failing allocations, and the work's end when its tick says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "decode/canvas.h"
#include "scratch.h"
#include "tools_info.h"

#define FIXTURES LLADA_SOURCE_DIR "/tests/fixtures/"

/* The count must be what the device takes, but for scratch that depends on threads. */
static void memory_is_counted(void **state)
{
    static const char *const recipes[] = { "vanilla", "dual", "parallel", "speculate", "llada" };
    enum { CTX = 2048 };
    gguf *g;
    model *m;
    device_weights *w;
    llada_err err = { .text = "" };
    assert_int_equal(gguf_open(&g, FIXTURES "tiny-llada-f32.gguf", true, NULL, 0, &err), LLADA_OK);
    assert_int_equal(model_open(&m, g, "x", NULL, &err), LLADA_OK);
    assert_int_equal(device_cpu.weights_open(&w, &m->g, &err), LLADA_OK);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        llada_recipe r;
        tools_memory need;
        decoder *d;
        decoder_limits lim = { .ctx = CTX, .threads = 1, .cpu_mask = 0 };
        assert_int_equal(llada_recipe_named(&r, recipes[i], &err), LLADA_OK);
        assert_int_equal(info_session_bytes(m, &r, CTX, false, &need, &err), LLADA_OK);
        if (decoder_open(&d, m, &device_cpu, w, &r, &lim, &err)) fail_msg("%s: %s", recipes[i], err.text);
        double real = (double)device_cpu.bytes(d->ctx), said = (double)(need.kv + need.work);
        if (said < 0.85 * real || said > 1.02 * real)
            fail_msg("%s: %.0f bytes, %.0f were counted", recipes[i], real, said);
        decoder_close(&d);
    }
    device_cpu.weights_close(&w);
    model_close(&m);
}

static bool stop_at_third(void *user, const char *name, uint64_t done, uint64_t total)
{
    int *n = user;
    assert_true(done <= total);
    return ++*n < 3;
}

static void quantise_stops_and_fails(void **state)
{
    scratch s;
    char out[128];
    int n = 0;
    llada_err err = { .text = "" };
    tools_quantize_opts o = { .type = "q8_0", .threads = 1, .tick = stop_at_third, .user = &n };
    assert_true(scratch_open(&s));
    snprintf(out, sizeof out, "%s/out.gguf", s.dir);
    assert_int_equal(tools_quantize(FIXTURES "net-llada.gguf", out, &o, &err), LLADA_CANCELLED);
    assert_int_equal(n, 3);
    struct stat st;
    assert_int_not_equal(stat(out, &st), 0);
    o = (tools_quantize_opts){ .type = "q8_0", .threads = 2 };
    for (uint64_t k = 1;; k++) {
        mem_fail_at(k);
        llada_status got = tools_quantize(FIXTURES "net-llada.gguf", out, &o, &err);
        mem_fail_at(0);
        assert_true(k < 1000);
        /* a pool that lacks memory for a thread has one less, and the work succeeds */
        if (got == LLADA_OK && k > 20) break;
        if (got == LLADA_OK) continue;
        assert_int_equal(got, LLADA_NO_MEMORY);
        assert_true(err.text[0] != 0);
        if (k <= 20) assert_int_not_equal(stat(out, &st), 0);
    }
    assert_int_equal(stat(out, &st), 0);
    scratch_close(&s);
}

static void types_by_name(void **state)
{
    assert_int_equal(tools_type("q8_0"), QT_Q8_0);
    assert_int_equal(tools_type("Q4_k"), QT_Q4_K);
    assert_int_equal(tools_type("bf16"), QT_BF16);
    assert_int_equal(tools_type("q2_k"), -1); /* there is no encoder */
    assert_int_equal(tools_type("q8"), -1);
    assert_int_equal(tools_type(""), -1);
    assert_string_equal(tools_type_name(QT_Q6_K), "Q6_K");
    assert_string_equal(tools_type_name(-1), "?");
}

/* What a pass asks for, by hand from the shapes of the small network; what the machine can do is only known to be
 * something. */
static void limits_are_measured(void **state)
{
    llada_model *m = NULL;
    llada_err err;
    tools_work work;
    tools_limits can = { 0 };

    assert_int_equal(llada_model_open(&m, FIXTURES "tiny-llada-f32.gguf", NULL, &err), LLADA_OK);
    llada_model_info info = { .size = sizeof info };
    llada_model_get_info(m, &info);
    tools_pass_work(m, &work);
    double d = info.n_embd, kv = d * info.n_head_kv / info.n_head;
    double values = info.n_layer * (2 * d * d + 2 * d * kv + 3 * d * info.n_ff);
    assert_true(work.integers == 0 && work.bytes == 4 * work.floats);
    /* besides the layers there is the head, whose rows are the vocabulary's or a few more */
    assert_true(work.floats >= values + d * info.n_vocab && work.floats < values + d * (info.n_vocab + 256));
    llada_model_close(&m);

    assert_int_equal(tools_machine(&can, 2, UINT64_MAX, 0, &err), LLADA_OK);
    assert_true(can.read_gbs > 0 && can.float_gflops > 0 && can.integer_gops > 0 && can.threads >= 1);
    assert_true(can.float_kernel[0] && can.integer_kernel[0]);
    for (uint64_t k = 1;; k++) {
        mem_fail_at(k);
        llada_status got = tools_machine(&can, 1, 0, 0, &err);
        mem_fail_at(0);
        if (got == LLADA_OK) break;
        assert_int_equal(got, LLADA_NO_MEMORY);
        assert_true(k < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(limits_are_measured), cmocka_unit_test(memory_is_counted), cmocka_unit_test(quantise_stops_and_fails),
                                        cmocka_unit_test(types_by_name) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
