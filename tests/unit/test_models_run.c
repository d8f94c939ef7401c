/* test_models_run.c - sessions on models of each architecture: the model's own recipe, what is refused and in which
 * words, how an autoregressive run streams and ends, likelihoods from the scores that define them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llada.h"

#define FIXTURES LLADA_SOURCE_DIR "/tests/fixtures/"
#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { CTX = 64 };

static llada_model *open_model(const char *file)
{
    char path[512];
    llada_model *m = NULL;
    llada_err err = { 0 };
    snprintf(path, sizeof path, FIXTURES "%s", file);
    if (llada_model_open(&m, path, NULL, &err)) fail_msg("%s", err.text);
    return m;
}

/* set: key, value, ..., NULL */
static llada_status open_session(llada_session **s, const llada_model *m, const char *recipe, const char *const *set,
                                 llada_err *err)
{
    llada_recipe r;
    llada_session_opts so;
    if (llada_recipe_named(&r, recipe, err)) fail_msg("%s", err->text);
    for (; set && *set; set += 2)
        if (llada_recipe_set(&r, set[0], set[1], err)) fail_msg("%s", err->text);
    llada_session_opts_defaults(&so);
    so.ctx = CTX;
    so.threads = 1;
    *s = NULL;
    return llada_session_open(s, m, &r, &so, err);
}

static const struct {
    const char *file, *arch, *recipe;
    bool causal, shift;
    int n_expert;
} models[] = {
    { "net-llada.gguf", "llada", "llada", false, false, 0 },
    { "net-dream.gguf", "dream", "dream", false, true, 0 },
    { "net-llada-moe.gguf", "llada-moe", "llada", false, false, 6 },
    { "net-llama.gguf", "llama", "ar", true, true, 0 },
};

static void own_recipes(void **state)
{
    for (size_t i = 0; i < COUNT(models); i++) {
        llada_model *m = open_model(models[i].file);
        llada_model_info info = { .size = sizeof info };
        llada_recipe r;
        llada_session *s = NULL;
        llada_request q;
        llada_result res = { .size = sizeof res };
        llada_err err = { 0 };
        const int32_t prompt[] = { 1, 2, 3 };
        llada_model_get_info(m, &info);
        assert_string_equal(info.arch, models[i].arch);
        assert_int_equal(info.causal, models[i].causal);
        assert_int_equal(info.shift_logits, models[i].shift);
        assert_int_equal(info.n_expert, models[i].n_expert);
        assert_int_equal(info.mask_id >= 0, !models[i].causal);
        llada_recipe_for(&r, m);
        assert_string_equal(r.name, models[i].recipe);
        llada_request_defaults(&q);
        q.prompt = prompt;
        q.n_prompt = 3;
        q.max_tokens = 9;
        if (llada_session_open(&s, m, NULL, NULL, &err) || llada_generate(s, &q, &res, &err)) fail_msg("%s", err.text);
        assert_int_equal(res.n_canvas, 9);
        for (int k = 0; k < 9; k++) assert_true(res.canvas[k] >= 0 && res.canvas[k] != info.mask_id);
        llada_session_close(&s);
        llada_model_close(&m);
    }
}

static void combinations(void **state)
{
    static const struct {
        const char *file, *recipe, *set[6];
        const char *says; /* NULL: opens */
    } rows[] = {
        { "net-llama.gguf",
          "llada",
          { NULL },
          "llama models are autoregressive: they write one token after the other (recipe ar)" },
        { "net-llama.gguf", "dual", { NULL }, "can't be decoded with recipe dual" },
        { "net-llama.gguf", "dream", { NULL }, "can't be decoded with recipe dream" },
        { "net-llama.gguf", "ar", { NULL }, NULL },
        { "net-llama.gguf", "ar", { "temp", "0.7", "top_p", "0.9", "top_k", "40" }, NULL },
        { "net-llama.gguf", "ar", { "cfg", "1", NULL }, "rule ar works without cfg" },
        { "net-llama.gguf", "ar", { "mbsd", "show", NULL }, "rule ar has no blocks" },
        { "net-llama.gguf", "ar", { "dppr", "on", NULL }, "mbsd off and dppr off only" },
        { "net-llada.gguf", "ar", { NULL }, "rule ar is for autoregressive models, llada is a diffusion model" },
        { "net-dream.gguf", "ar", { NULL }, "dream is a diffusion model" },
        { "net-dream.gguf", "dream", { "mbsd", "show", NULL }, "rule dream has no blocks" },
        { "net-dream.gguf", "dream", { "cfg", "1.5", "cache", "prefix", NULL }, NULL },
        { "net-llada.gguf", "dream", { NULL }, NULL },
        { "net-dream.gguf", "vanilla", { "cfg", "0.5", NULL }, NULL },
        { "net-dream.gguf", "llada", { NULL }, NULL },
        { "net-llada-moe.gguf", "speculate", { NULL }, NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        llada_model *m = open_model(rows[i].file);
        llada_session *s;
        llada_err err = { 0 };
        const char *set[7] = { NULL };
        memcpy(set, rows[i].set, sizeof rows[i].set);
        llada_status st = open_session(&s, m, rows[i].recipe, set, &err);
        if ((st == LLADA_OK) != !rows[i].says || (rows[i].says && !strstr(err.text, rows[i].says)))
            fail_msg("row %zu: status %d, \"%s\"", i, st, err.text);
        if (s) {
            const int32_t prompt[] = { 5, 6 };
            llada_request q;
            llada_result res = { .size = sizeof res };
            llada_request_defaults(&q);
            q.prompt = prompt;
            q.n_prompt = 2;
            q.max_tokens = 11;
            if (llada_generate(s, &q, &res, &err)) fail_msg("row %zu: %s", i, err.text);
            assert_int_equal(res.n_canvas, 11);
        }
        llada_session_close(&s);
        llada_model_close(&m);
    }
}

/* ------------------------------------------------------------ autoregression */

typedef struct {
    llada_event_kind kind[256];
    int pos[256], n, rows, stop_after; /* stop_after: events; 0: never */
} stream;

static bool on_event(const llada_event *ev, void *user)
{
    stream *s = user;
    assert_in_range(s->n, 0, 255);
    s->kind[s->n] = ev->kind;
    s->pos[s->n++] = ev->pos;
    if (ev->kind == LLADA_EV_PASS) {
        s->rows += ev->rows;
        assert_int_equal(ev->refresh, ev->step == 1);
    }
    return s->n != s->stop_after;
}

static void ar_streams(void **state)
{
    llada_model *m = open_model("net-llama.gguf");
    llada_session *s;
    llada_err err = { 0 };
    llada_request q;
    llada_result res = { .size = sizeof res };
    const int32_t prompt[] = { 10, 20, 30, 40, 50 };
    static const char *const on[] = { "early", "false", NULL };
    assert_int_equal(open_session(&s, m, "ar", on, &err), LLADA_OK);
    stream f = { .n = 0 };
    llada_request_defaults(&q);
    q.prompt = prompt;
    q.n_prompt = 5;
    q.max_tokens = 12;
    q.on_event = on_event;
    q.user = &f;
    for (int again = 0; again < 2; again++) { /* a session's second run is its first */
        f.n = f.rows = 0;
        if (llada_generate(s, &q, &res, &err)) fail_msg("%s", err.text);
        assert_int_equal(res.passes, 12);
        assert_int_equal(res.rows, 5 + 11);
        assert_int_equal(f.rows, 5 + 11);
        int at = 0;
        for (int k = 0; k < f.n; k++) {
            if (f.kind[k] != LLADA_EV_PASS) continue;
            assert_int_equal(f.kind[k + 1], LLADA_EV_COMMIT);
            assert_int_equal(f.pos[k + 1], at);
            assert_int_equal(f.kind[k + 2], LLADA_EV_SETTLE);
            assert_int_equal(f.pos[k + 2], at);
            at++;
        }
        assert_int_equal(at, 12);
        assert_int_equal(f.kind[f.n - 1], LLADA_EV_DONE);
    }
    f = (stream){ .stop_after = 7 };
    assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_CANCELLED);
    assert_int_equal(f.n, 7);
    q.on_event = NULL;
    q.max_tokens = 0;
    assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_OK);
    assert_int_equal(res.n_tokens, 0);
    assert_int_equal(res.passes, 0);
    llada_session_close(&s);
    llada_model_close(&m);
}

static void ar_refuses(void **state)
{
    llada_model *m = open_model("net-llama.gguf");
    llada_session *s;
    llada_err err = { 0 };
    llada_request q;
    llada_result res = { .size = sizeof res };
    const int32_t prompt[] = { 10, 288 }, canvas[] = { LLADA_HOLE, 3 };
    assert_int_equal(open_session(&s, m, "ar", NULL, &err), LLADA_OK);
    llada_request_defaults(&q);
    q.max_tokens = 4;
    assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_BAD_ARG);
    assert_non_null(strstr(err.text, "needs a prompt"));
    q.prompt = prompt;
    q.n_prompt = 2;
    assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_BAD_ARG);
    assert_non_null(strstr(err.text, "288"));
    q.n_prompt = 1;
    q.canvas = canvas;
    q.n_canvas = 2;
    assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "template"));
    q.canvas = NULL;
    q.max_tokens = CTX;
    assert_int_equal(llada_generate(s, &q, &res, &err), LLADA_TOO_LONG);
    q.max_tokens = CTX - 1; /* the whole context */
    if (llada_generate(s, &q, &res, &err)) fail_msg("%s", err.text);
    llada_session_close(&s);
    llada_model_close(&m);
}

/* Each greedy token is the best of the row before it in a pass over everything written so far. */
static void ar_is_recomputation(void **state)
{
    llada_model *m = open_model("net-llama.gguf");
    llada_model_info info = { .size = sizeof info };
    llada_session *s;
    llada_err err = { 0 };
    llada_request q;
    llada_result res = { .size = sizeof res };
    int32_t ids[CTX] = { 99, 7, 200 };
    static const char *const on[] = { "early", "false", NULL };
    llada_model_get_info(m, &info);
    size_t row = (size_t)info.n_vocab;
    float *x = malloc(CTX * row * sizeof *x);
    assert_non_null(x);
    assert_int_equal(open_session(&s, m, "ar", on, &err), LLADA_OK);
    llada_request_defaults(&q);
    q.prompt = ids;
    q.n_prompt = 3;
    q.max_tokens = 20;
    if (llada_generate(s, &q, &res, &err)) fail_msg("%s", err.text);
    double conf[20];
    memcpy(ids + 3, res.canvas, 20 * sizeof *ids);
    memcpy(conf, res.confidence, sizeof conf);
    if (llada_logits(s, ids, 23, x, &err)) fail_msg("%s", err.text);
    for (int i = 3; i < 23; i++) {
        const float *v = x + (size_t)(i - 1) * row;
        double sum = 0;
        int best = 0;
        for (int k = 0; k < info.n_vocab; k++) {
            sum += exp(v[k]);
            if (v[k] > v[best]) best = k;
        }
        assert_int_equal(ids[i], best);
        assert_true(fabs(conf[i - 3] - exp(v[best]) / sum) < 1e-9);
    }
    free(x);
    llada_session_close(&s);
    llada_model_close(&m);
}

/* ------------------------------------------------------------ likelihoods */

static double log_p(const float *row, int n, int id)
{
    double sum = 0;
    for (int k = 0; k < n; k++) sum += exp(row[k]);
    return row[id] - log(sum);
}

/* One answer token, one masking: the score of its position, wherever that stands; autoregressive: each token after
 * those before it. */
static void likelihoods(void **state)
{
    for (size_t i = 0; i < COUNT(models); i++) {
        llada_model *m = open_model(models[i].file);
        llada_model_info info = { .size = sizeof info };
        llada_session *s;
        llada_err err = { 0 };
        const int32_t prompt[] = { 3, 141, 59 }, answer[] = { 26, 53, 58 };
        llada_model_get_info(m, &info);
        size_t row = (size_t)info.n_vocab;
        float *x = malloc(6 * row * sizeof *x);
        int n = models[i].causal ? 3 : 1;
        int32_t all[6] = { 3, 141, 59, 26, 53, 58 };
        double got, want = 0;
        assert_non_null(x);
        if (!models[i].causal) all[3] = info.mask_id;
        if (open_session(&s, m, models[i].recipe, NULL, &err) || llada_logits(s, all, 3 + n, x, &err))
            fail_msg("%s", err.text);
        for (int k = 0; k < n; k++) want += log_p(x + (size_t)(3 + k - models[i].shift) * row, info.n_vocab, answer[k]);
        if (llada_likelihood(s, prompt, 3, answer, n, 1, 0, 1, &got, &err)) fail_msg("%s", err.text);
        if (fabs(got - want) > 1e-6) fail_msg("%s: %g, not %g", models[i].arch, got, want);
        if (models[i].causal) {
            assert_int_equal(llada_likelihood(s, NULL, 0, answer, n, 1, 0, 1, &got, &err), LLADA_UNSUPPORTED);
            assert_int_equal(llada_likelihood(s, prompt, 3, answer, n, 1, 1, 1, &got, &err), LLADA_UNSUPPORTED);
        }
        free(x);
        llada_session_close(&s);
        llada_model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_recipes), cmocka_unit_test(combinations),        cmocka_unit_test(ar_streams),
        cmocka_unit_test(ar_refuses),  cmocka_unit_test(ar_is_recomputation), cmocka_unit_test(likelihoods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
