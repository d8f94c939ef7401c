/* test_async.c - revision beside the dense passes, with a device that dawdles: both paths sleep at random before and
 * after each pass, so that the worker is now early, now late.  The trace must be that of fused execution every time.  A
 * few runs; the argument is another number of them (100 under a thread sanitizer). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "decode/decode.h"

#define MODEL LLADA_SOURCE_DIR "/tests/fixtures/net-llada.gguf"

enum { N_PROMPT = 6, GEN = 24, N_LAGS = 2 };

static int n_runs = 6;

/* ---------------------------------------------------------------- a device that sleeps */

/* Random numbers without a lock: each thread hashes its own counter.  Reset by each run. */
static _Thread_local uint64_t naps;
static uint64_t nap_seed; /* written while no worker runs */
static bool dawdling;     /* the same */

static void nap(void)
{
    if (!dawdling) return;
    uint64_t r = rng_mix(nap_seed ^ (naps++ << 32) ^ (uint64_t)(uintptr_t)&naps);
    if (r & 1) return; /* half the time not at all */
    struct timespec t = {.tv_nsec = (long)(r >> 8 & 0x3ff) * 600}; /* up to 0.6 ms; a pass takes about 0.2 */
    nanosleep(&t, NULL);
}

static llada_status slow_run(device_ctx *c, const pass *p, llada_err *err)
{
    nap();
    llada_status st = device_cpu.run(c, p, err);
    nap();
    return st;
}

static device slow_device(void)
{
    device d = device_cpu;
    d.run = slow_run;
    return d;
}

/* ---------------------------------------------------------------- traces */

typedef struct {
    uint64_t hash;
    int events, kinds;
    int32_t canvas[GEN];
} story;

static bool note(const llada_event *ev, void *user)
{
    story *s = user;
    uint64_t conf;
    memcpy(&conf, &ev->confidence, sizeof conf);
    s->hash = rng_mix(s->hash ^ (uint64_t)ev->kind << 48 ^ (uint64_t)(uint32_t)ev->pos << 16 ^ (uint64_t)ev->step);
    s->hash = rng_mix(s->hash ^ conf ^ (uint64_t)(uint32_t)ev->token);
    s->events++;
    s->kinds |= 1 << ev->kind;
    return true;
}

typedef struct {
    model *m;
    device dev;
    device_weights *w;
} network;

static int open_network(void **state)
{
    static network n;
    gguf *file = NULL;
    llada_err err;
    if (gguf_open(&file, MODEL, true, NULL, 0, &err)) return -1;
    if (model_open(&n.m, file, "net", NULL, &err)) return -1;
    n.dev = slow_device();
    *state = &n;
    return n.dev.weights_open(&n.w, &n.m->g, &err);
}

static int close_network(void **state)
{
    network *n = *state;
    n->dev.weights_close(&n->w);
    model_close(&n->m);
    return 0;
}

static decoder *open_decoder(const network *n, llada_exec exec, int lag, llada_launch launch)
{
    llada_recipe r;
    llada_err err;
    decoder *d = NULL;
    llada_recipe_named(&r, "llada", NULL);
    r.block = 6; /* thresholds at which random weights write, draft, change and take back */
    r.vis = 0.03;
    r.stable = 0.06;
    r.remask = 0.015;
    r.tau_draft = 0.04;
    r.rev = 5;
    r.n_stable = 2;
    r.lag = lag;
    r.exec = exec;
    r.launch = launch;
    decoder_limits lim = {.ctx = N_PROMPT + GEN, .threads = 2, .cpu_mask = UINT64_MAX};
    if (decoder_open(&d, n->m, &n->dev, n->w, &r, &lim, &err)) fail_msg("%s", err.text);
    return d;
}

static story tell(decoder *d, int prompt)
{
    story s = {0};
    int32_t ids[N_PROMPT];
    llada_request q;
    llada_result res;
    llada_err err;
    bool done = false;
    for (int i = 0; i < N_PROMPT; i++) ids[i] = 20 + (prompt * 31 + i * 7) % 200;
    llada_request_defaults(&q);
    q.prompt = ids;
    q.n_prompt = N_PROMPT;
    q.max_tokens = GEN;
    q.on_event = note;
    q.user = &s;
    if (decoder_begin(d, &q, &err)) fail_msg("%s", err.text);
    while (!done)
        if (decoder_step(d, &done, &err)) fail_msg("%s", err.text);
    if (decoder_result(d, &res, &err)) fail_msg("%s", err.text);
    memcpy(s.canvas, res.canvas, sizeof s.canvas);
    return s;
}

static void same(const story *a, const story *b, int lag, int i)
{
    if (a->hash != b->hash || a->events != b->events || memcmp(a->canvas, b->canvas, sizeof a->canvas))
        fail_msg("lag %d, run %d: %d events, not %d, or others", lag, i, b->events, a->events);
}

static void test_delays(void **state)
{
    const network *n = *state;
    int kinds = 0;
    for (int lag = 2; lag < 2 + N_LAGS; lag++) {
        for (int launch = LLADA_LAUNCH_PASS; launch <= LLADA_LAUNCH_BOUNDARY; launch++) {
            decoder *fused = open_decoder(n, LLADA_EXEC_FUSED, lag, (llada_launch)launch);
            decoder *async = open_decoder(n, LLADA_EXEC_ASYNC, lag, (llada_launch)launch);
            for (int i = 0; i < n_runs; i++) {
                dawdling = false;
                story want = tell(fused, i % 3);
                dawdling = true;
                nap_seed = (uint64_t)(lag * 1000 + i);
                story got = tell(async, i % 3);
                same(&want, &got, lag, i);
                kinds |= want.kinds;
            }
            decoder_close(&fused);
            decoder_close(&async);
        }
    }
    const llada_event_kind must[] = {LLADA_EV_COMMIT, LLADA_EV_DRAFT, LLADA_EV_MERGE, LLADA_EV_SETTLE, LLADA_EV_EDIT};
    for (size_t i = 0; i < sizeof must / sizeof *must; i++)
        assert_true(kinds & 1 << must[i]); /* it was worth running */
}

static bool stop_at_5(const llada_event *ev, void *user) { return ++*(int *)user < 5; }

/* A request given up while the worker is at a job: the next one, and closing, wait for it. */
static void test_given_up(void **state)
{
    const network *n = *state;
    decoder *d = open_decoder(n, LLADA_EXEC_ASYNC, 3, LLADA_LAUNCH_PASS);
    story want = tell(d, 1);
    dawdling = true;
    for (int i = 0; i < n_runs; i++) {
        int32_t ids[2] = {30, 40};
        llada_request q;
        llada_err err;
        bool done;
        int seen = 0;
        llada_request_defaults(&q);
        q.prompt = ids;
        q.n_prompt = 2;
        q.max_tokens = GEN;
        q.on_event = i % 2 ? stop_at_5 : NULL;
        q.user = &seen;
        assert_int_equal(decoder_begin(d, &q, &err), LLADA_OK);
        llada_status st = LLADA_OK;
        for (int k = 0; k < 1 + i % 3 && st == LLADA_OK; k++) st = decoder_step(d, &done, &err);
        story got = tell(d, 1);
        same(&want, &got, 3, i);
    }
    llada_err err;
    float *logits = malloc((size_t)n->m->n_vocab * 3 * sizeof *logits);
    int32_t ids[3] = {4, 5, 6};
    assert_int_equal(decoder_logits(d, ids, 3, logits, &err), LLADA_OK);
    free(logits);
    decoder_close(&d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_delays), cmocka_unit_test(test_given_up)};
    if (argc > 1) n_runs = atoi(argv[1]) > 0 ? atoi(argv[1]) : n_runs;
    return cmocka_run_group_tests(tests, open_network, close_network);
}
