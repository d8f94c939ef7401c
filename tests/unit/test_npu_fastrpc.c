/* test_npu_fastrpc.c - the way to a device, against a stand-in for the vendor's library: what opens, what is refused,
 * whether messages go by the queue or by calls, and that every refusal leaves the CPU serving with a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/npu/npu.h"
#include "format/quant.h"
#include "small_net.h"

static const net_shape shape = { "f16", 4, 2, 16, 64, 96, 65, .bias = true, .type = QT_F16 };

static const struct {
    const char *transport, *fault, *says;
} cases[] = {
    { "fastrpc:" FAKE_CDSPRPC, "", "the NPU serves (fastrpc, Hexagon v75 by queue)" },
    { "fastrpc:" FAKE_CDSPRPC, "arch=0x79", "Hexagon v79" },
    { "fastrpc:" FAKE_CDSPRPC_OLD, "", "the NPU serves (fastrpc, Hexagon v75 by calls, the library has no queue)" },
    { "fastrpc:/nowhere/libcdsprpc.so", "", "is not found" },
    { "fastrpc:libm.so.6", "", "lacks the function remote_session_control" },
    { "fastrpc:" FAKE_CDSPRPC, "info=0x80000414", "does not say what it is (0x80000414)" },
    { "fastrpc:" FAKE_CDSPRPC, "arch=0x68", "is a Hexagon v68" },
    { "fastrpc:" FAKE_CDSPRPC, "unsigned=0x80000414", "no code without a signature (0x80000414)" },
    { "fastrpc:" FAKE_CDSPRPC, "open=0x80000406", "did not open libllada_npu-v75.so (0x80000406)" },
    { "fastrpc:" FAKE_CDSPRPC, "open=0x72", "(0x72)" },
    { "fastrpc:" FAKE_CDSPRPC, "alloc=1", "gave no buffer" },
    { "fastrpc:" FAKE_CDSPRPC, "mmap=0x80000402", "did not register a buffer" },
    { "fastrpc:" FAKE_CDSPRPC_OLD, "call=1:0x8000040d", "the NPU failed its self-test: the call to the NPU failed" },
    { "fastrpc:" FAKE_CDSPRPC_OLD, "call=30:39", "the NPU failed its self-test: the call to the NPU failed (0x27)" },
    { "fastrpc:" FAKE_CDSPRPC_OLD, "call=100:39",
      "the NPU failed: the call to the NPU failed (0x27)" }, /* the first pass */
    { "fastrpc:" FAKE_CDSPRPC_OLD, "call=101:39", "the NPU failed: the call to the NPU failed (0x27)" },
    /* the queue is refused: calls */
    { "fastrpc:" FAKE_CDSPRPC, "create=0x80000414",
      "the NPU serves (fastrpc, Hexagon v75 by calls, it made no queue (" },
    { "fastrpc:" FAKE_CDSPRPC, "export=0x27", "by calls, it exported no queue (0x27)" },
    { "fastrpc:" FAKE_CDSPRPC, "import=0x8000040e", "by calls, the DSP refused the queue (0x8000040e)" },
    { "fastrpc:" FAKE_CDSPRPC, "start=0x14", "by calls, the DSP refused the queue (0x14)" }, /* has no such method */
    { "fastrpc:" FAKE_CDSPRPC, "start=0x14 call=30:39", "the call to the NPU failed (0x27)" },
    { "fastrpc:" FAKE_CDSPRPC, "call=30:39", "by queue" }, /* the 30th message was no call */
    { "fastrpc:" FAKE_CDSPRPC, "longest=100", "the NPU serves" },
    { "fastrpc:" FAKE_CDSPRPC, "longest=100 call=1:39", "its self-test: the call to the NPU failed (0x27)" },
    { "fastrpc:" FAKE_CDSPRPC, "longest=1500 call=30:39", "by queue" },
    { "fastrpc:" FAKE_CDSPRPC, "longest=1500 call=101:39", "the NPU failed: the call to the NPU failed (0x27)" },
    /* it fails later: the CPU */
    { "fastrpc:" FAKE_CDSPRPC, "hang=1", "its self-test: the NPU did not answer for 10 seconds" },
    { "fastrpc:" FAKE_CDSPRPC, "hang=100 patience=7000000", "failed: the NPU did not answer for 7 seconds" },
    { "fastrpc:" FAKE_CDSPRPC, "hang=101 kill=0x14", "failed: the NPU did not answer for 10 seconds" },
    { "fastrpc:" FAKE_CDSPRPC, "hang=101 patience=4000000000", "failed: the NPU did not answer for 4000 seconds" },
    { "fastrpc:" FAKE_CDSPRPC, "write=1:0x8000040c", "its self-test: the NPU did not answer" }, /* the queue is full */
    { "fastrpc:" FAKE_CDSPRPC, "write=100:0x27", "the NPU failed: the queue to the NPU failed (0x27)" },
    { "fastrpc:" FAKE_CDSPRPC, "read=100:0x27", "the NPU failed: the queue to the NPU failed (0x27)" },
    { "fastrpc:" FAKE_CDSPRPC, "read=101:0x27 kill=0x14", "the NPU failed: the queue to the NPU failed (0x27)" },
    { "fastrpc:" FAKE_CDSPRPC, "short=100", "the NPU failed: the NPU's reply has 56 bytes, not 64" },
    { "fastrpc:" FAKE_CDSPRPC, "wrong=100", "the NPU failed: the NPU answered message 100 with a reply to 100" },
    { "fastrpc:" FAKE_CDSPRPC, "stale=1", "its self-test: the NPU answered message 1 with a reply to 0" },
    { "fastrpc:" FAKE_CDSPRPC, "stale=101", "the NPU failed: the NPU answered message 101 with a reply to 100" },
};

/* Seconds: what the library must be asked with says what to set; 0: the default. */
static double patience_of(const char *fault)
{
    const char *at = strstr(fault, "patience=");
    const double s = at ? strtod(at + 9, NULL) / 1e6 : 0;
    return s < 4000 ? s : 9999; /* more than the library can count is cut */
}

static void opens_or_says_why(void **state)
{
    const device_limits lim = {
        .max_rows = NET_ROWS, .max_want = NET_ROWS, .slots = NET_SLOTS, .max_pos = NET_POS, .threads = 1
    };
    net *m = net_make(&shape);
    net_pass q;
    const size_t bytes = (size_t)(NET_ROWS * m->s.vocab) * sizeof(float);
    float *first = malloc(bytes);
    net_ask(&q, m, net_all, NET_ROWS, NET_ROWS);
    q.p.logits = malloc(bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        device_weights *w = NULL;
        device_ctx *c = NULL;
        llada_err err = { 0 };
        char note[256];
        setenv("FAKE_CDSPRPC", cases[i].fault, 1);
        const npu_settings s = { .transport = cases[i].transport, .patience = patience_of(cases[i].fault) };
        if (npu_weights_open(&w, &m->g, &s, &err) || device_npu.open(&c, w, &lim, &err)) fail_msg("%s", err.text);
        for (int k = 0; k < 2; k++)
            if (device_npu.run(c, &q.p, &err)) fail_msg("%s: %s", cases[i].fault, err.text);
        npu_note(w, note, sizeof note);
        if (!strstr(note, cases[i].says)) fail_msg("%s: '%s', not '%s'", cases[i].fault, note, cases[i].says);
        if (i == 0) memcpy(first, q.p.logits, bytes);
        for (size_t v = 0; v < bytes / sizeof(float); v++) /* half floats on one side only */
            if (!(first[v] - q.p.logits[v] < 0.05f && q.p.logits[v] - first[v] < 0.05f))
                fail_msg("%s: score %zu is %g, not %g", cases[i].fault, v, q.p.logits[v], first[v]);
        device_npu.close(&c);
        device_npu.weights_close(&w);
    }
    free(q.p.logits);
    free(first);
    net_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(opens_or_says_why) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
