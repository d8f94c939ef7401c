/* test_shift.c - models whose row i-1 scores position i: every recipe takes the same decisions as on a model whose row
 * i does, when positions are scored alike; passes keep the device's contract; a look behind a token sees a mask there.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "fake_device.h"

enum { N_PROMPT = 3, GEN = 41, MAX_EVENTS = 20000 };

/* ------------------------------------------------------------ the same scores, from another row */

typedef struct {
    uint64_t salt;
    bool shift;
} by_position;

/* Scores of the position that the row stands for: mostly sure, of another mind in some passes, and when looked behind.
 * */
static void script(void *user, int pass_no, int pos, bool alone, float *logits)
{
    const by_position *s = user;
    uint64_t h = fake_mix(s->salt, (uint64_t)(pos + s->shift));
    uint64_t now = fake_mix(h, (uint64_t)pass_no * 2 + alone);
    for (int i = 0; i < FAKE_ROWS; i++) logits[i] = (float)(fake_mix(h, (uint64_t)i) % 64) / 64;
    logits[h % FAKE_VOCAB] += (float)(now % 9);
    if ((now >> 8 & 3) == 0) logits[now >> 16 & 7] += 8;
}

typedef struct {
    llada_event_kind kind;
    int step, pos, token;
    double conf;
} seen;

typedef struct {
    seen *e; /* owned; [MAX_EVENTS] */
    int n;
} record;

static bool on_event(const llada_event *ev, void *user)
{
    record *r = user;
    assert_true(r->n < MAX_EVENTS);
    r->e[r->n++] = (seen){ ev->kind, ev->step, ev->pos, ev->token, ev->confidence };
    return true;
}

static const struct {
    const char *name;
    const char *set[20];
} recipes[] = {
    { "vanilla", { NULL } },
    { "vanilla", { "steps", "14", "block", "7", NULL } },
    { "prefix", { "block", "10", NULL } },
    { "dual", { "block", "8", "steps", "20", NULL } },
    { "dual", { "block", "8", "refresh", "never", "vicinity", "3", NULL } },
    { "parallel", { "block", "9", NULL } },
    { "parallel", { "block", "9", "rule", "klass", "tau", "0.6", NULL } },
    { "parallel", { "block", "9", "rule", "credit", "refresh", "every", "refresh_n", "2", NULL } },
    { "parallel", { "rule", "entropy", "fresh_eos", "true", "block", "12", NULL } },
    { "parallel", { "temp", "0.7", "top_k", "3", "block", "12", "ban_eos_conf", "true", NULL } },
    { "speculate", { "block", "8", "tau", "0.7", "tau_draft", "0.8", NULL } },
    { "speculate", { "block", "8", "tau", "0.7", "tau_draft", "0.6", "mbsd", "hold", NULL } },
    { "speculate", { "block", "8", "tau", "0.7", "tau_draft", "0.6", "verify", "false", NULL } },
    { "llada", { "block", "8", NULL } },
    { "llada-v1", { "block", "8", "lag", "2", NULL } },
    { "llada-v1", { "block", "8", "lag", "1", "vis", "0.6", "stable", "0.7", "n_stable", "1", "rev", "5", NULL } },
    { "llada-v1", { "block", "8", "exec", "fused", "lag", "3", "rev", "4", NULL } },
    { "llada-v1", { "block", "8", "lag", "2", "launch", "boundary", "vis", "0.5", "tau_draft", "0.5", NULL } },
    { "llada-v1", { "mbsd", "off", "lag", "2", "block", "16", "rev", "16", NULL } },
    { "dream", { NULL } },
    { "dream", { "alg", "origin", "steps", "9", "temp", "0.5", NULL } },
    { "dream", { "alg", "topk_margin", "alg_temp", "0.4", "steps", "11", "cache", "dual", NULL } },
};

enum { N_RECIPES = sizeof recipes / sizeof *recipes };

static void make_recipe(llada_recipe *r, size_t i)
{
    llada_err err = { 0 };
    if (llada_recipe_named(r, recipes[i].name, &err)) fail_msg("%s", err.text);
    for (const char *const *kv = recipes[i].set; *kv; kv += 2)
        if (llada_recipe_set(r, kv[0], kv[1], &err)) fail_msg("%s", err.text);
    r->bucket = 1; /* no rows to fill up: a shifted pass has a few more, and would look less far ahead */
}

/* One request; the canvas at its end in `canvas`.  Returns what the device found wrong, or "". */
static void run(device_weights *w, bool shift, size_t i, uint64_t seed, int n_prompt, record *rec, int32_t *canvas,
                llada_result *res)
{
    static const int32_t prompt[N_PROMPT] = { 7, 8, 9 };
    fake_model_parts f;
    fake_model(&f, shift, false);
    llada_recipe r;
    llada_err err = { 0 };
    decoder *d = NULL;
    make_recipe(&r, i);
    const decoder_limits lim = { .ctx = N_PROMPT + GEN, .threads = 1 };
    llada_request q = { .size = sizeof q, .prompt = prompt, .n_prompt = n_prompt, .max_tokens = GEN, .seed = seed };
    q.on_event = rec ? on_event : NULL;
    q.user = rec;
    llada_status st = decoder_open(&d, &f.m, &fake_device, w, &r, &lim, &err);
    if (st == LLADA_OK) st = decoder_begin(d, &q, &err);
    int steps = 0;
    for (bool done = false; st == LLADA_OK && !done; steps++) {
        assert_true(steps < 2000);
        st = decoder_step(d, &done, &err);
    }
    if (st == LLADA_OK) st = decoder_result(d, res, &err);
    if (st || w->wrong[0]) fail_msg("recipe %zu (%s), shift %d: %s, %s", i, recipes[i].name, shift, err.text, w->wrong);
    memcpy(canvas, res->canvas, (size_t)res->n_canvas * sizeof *canvas);
    decoder_close(&d);
}

static void same_decisions(void **state)
{
    record a, b;
    a.e = malloc(MAX_EVENTS * sizeof *a.e);
    b.e = malloc(MAX_EVENTS * sizeof *b.e);
    assert_true(a.e && b.e);
    int edits = 0, remasks = 0, drops = 0;
    for (size_t i = 0; i < N_RECIPES; i++) {
        for (uint64_t seed = 1; seed <= 8; seed++) {
            by_position plain = { seed, false }, shifted = { seed, true };
            device_weights wa = { .script = script, .user = &plain }, wb = { .script = script, .user = &shifted };
            int32_t ca[GEN], cb[GEN];
            llada_result ra, rb;
            a.n = b.n = 0;
            run(&wa, false, i, seed, N_PROMPT, &a, ca, &ra);
            run(&wb, true, i, seed, N_PROMPT, &b, cb, &rb);
            for (int k = 0; k < a.n && k < b.n; k++)
                if (memcmp(&a.e[k], &b.e[k], offsetof(seen, conf)) != 0 || a.e[k].conf != b.e[k].conf)
                    fail_msg("recipe %zu (%s), seed %d: event %d is %d at %d (%d), not %d at %d (%d)", i,
                             recipes[i].name, (int)seed, k, b.e[k].kind, b.e[k].pos, b.e[k].token, a.e[k].kind,
                             a.e[k].pos, a.e[k].token);
            assert_int_equal(a.n, b.n);
            assert_memory_equal(ca, cb, sizeof ca);
            assert_int_equal(ra.passes, rb.passes);
            assert_int_equal(ra.jobs, rb.jobs);
            assert_true(rb.rows >= ra.rows);
            assert_true(ra.jobs == 0 || rb.rev_rows > ra.rev_rows);
            edits += ra.edits;
            remasks += ra.remasks;
            for (int k = 0; k < a.n; k++) drops += a.e[k].kind == LLADA_EV_DROP;
        }
    }
    if (edits < 20 || remasks < 20 || drops < 5) /* the comparison says little */
        fail_msg("only %d edits, %d re-masks, %d drops", edits, remasks, drops);
    free(a.e);
    free(b.e);
}

/* Scores made of what rows see: the contract holds, with and without a prompt, and every position gets a token. */
static void passes_keep_the_contract(void **state)
{
    for (size_t i = 0; i < N_RECIPES; i++) {
        for (uint64_t seed = 1; seed <= 6; seed++) {
            device_weights w = { .salt = seed, .noise = (int)(seed % 5), .ends = 8 };
            int32_t canvas[GEN];
            llada_result res;
            run(&w, true, i, seed, seed % 2 ? N_PROMPT : 0, NULL, canvas, &res);
            for (int k = 0; k < GEN; k++) assert_true(canvas[k] >= 0 && canvas[k] != FAKE_MASK);
        }
    }
}

/* How a run is executed does not change it. */
static void execution_does_not_matter(void **state)
{
    static const char *const exec[] = { "serial", "async", "fused" };
    for (uint64_t seed = 1; seed <= 6; seed++) {
        int32_t canvas[3][GEN];
        for (int k = 0; k < 3; k++) {
            fake_model_parts f;
            fake_model(&f, true, false);
            llada_recipe r;
            llada_err err = { 0 };
            llada_result res;
            decoder *d = NULL;
            device_weights w = { .salt = seed, .noise = 2 };
            make_recipe(&r, 13);
            assert_int_equal(llada_recipe_set(&r, "exec", exec[k], &err), LLADA_OK);
            const decoder_limits lim = { .ctx = N_PROMPT + GEN, .threads = 2 };
            const int32_t prompt[] = { 7, 8 };
            llada_request q = { .size = sizeof q, .prompt = prompt, .n_prompt = 2, .max_tokens = GEN, .seed = seed };
            llada_status st = decoder_open(&d, &f.m, &fake_device, &w, &r, &lim, &err);
            if (st == LLADA_OK) st = decoder_begin(d, &q, &err);
            for (bool done = false; st == LLADA_OK && !done;) st = decoder_step(d, &done, &err);
            if (st == LLADA_OK) st = decoder_result(d, &res, &err);
            if (st || w.wrong[0]) fail_msg("%s: %s, %s", exec[k], err.text, w.wrong);
            memcpy(canvas[k], res.canvas, sizeof canvas[k]);
            decoder_close(&d);
        }
        assert_memory_equal(canvas[0], canvas[1], sizeof canvas[0]);
        assert_memory_equal(canvas[0], canvas[2], sizeof canvas[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_decisions),
        cmocka_unit_test(passes_keep_the_contract),
        cmocka_unit_test(execution_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
