/* test_runs.c - whole runs of decoding against tests/golden/data/networks (tests/ref/decode.py): Dream's sampler, block
 * decoding with shifted scores, autoregression.  Each pass fills the same positions with the same tokens; confidences
 * agree to 1e-4. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llada.h"

#define DATA     LLADA_SOURCE_DIR "/tests/golden/data/networks/"
#define FIXTURES LLADA_SOURCE_DIR "/tests/fixtures/"

enum { MAX_GEN = 64, MAX_PROMPT = 16 };

/* What the passes of a run did: per pass the positions filled, in any order. */
typedef struct {
    const json_t *passes; /* as they should be */
    const char *where;
    size_t pass;   /* so far */
    size_t filled; /* in this pass */
    int settled;   /* SETTLE events before the text ended */
    bool tail;
} follower;

static void end_pass(const follower *f)
{
    if (f->pass == 0) return;
    size_t want = json_array_size(json_array_get(f->passes, f->pass - 1));
    if (f->filled != want)
        fail_msg("%s, pass %zu: %zu positions were filled, not %zu", f->where, f->pass, f->filled, want);
}

static void check_commit(const follower *f, const llada_event *ev)
{
    const json_t *picks = json_array_get(f->passes, f->pass - 1), *p;
    size_t i;
    json_array_foreach(picks, i, p)
    {
        if (json_integer_value(json_array_get(p, 0)) != ev->pos) continue;
        int token = (int)json_integer_value(json_array_get(p, 1));
        double conf = json_number_value(json_array_get(p, 2));
        if (token != ev->token || fabs(conf - ev->confidence) > 1e-4)
            fail_msg("%s, pass %zu: position %d shows %d (%g), not %d (%g)", f->where, f->pass, ev->pos, ev->token,
                     ev->confidence, token, conf);
        return;
    }
    fail_msg("%s, pass %zu: position %d is filled too early", f->where, f->pass, ev->pos);
}

static bool follow(const llada_event *ev, void *user)
{
    follower *f = user;
    if (ev->kind == LLADA_EV_PASS) {
        end_pass(f);
        f->pass++;
        f->filled = 0;
        if (f->pass > json_array_size(f->passes)) fail_msg("%s: a pass more than %zu", f->where, f->pass - 1);
    }
    if (ev->kind == LLADA_EV_COMMIT) {
        check_commit(f, ev);
        f->filled++;
    }
    f->tail |= ev->kind == LLADA_EV_TAIL;
    f->settled += ev->kind == LLADA_EV_SETTLE && !f->tail;
    return true;
}

static void set_all(llada_recipe *r, const json_t *settings)
{
    const char *key;
    json_t *v;
    llada_err err = { 0 };
    json_object_foreach((json_t *)settings, key, v)
    {
        char text[64];
        if (json_is_string(v))
            snprintf(text, sizeof text, "%s", json_string_value(v));
        else if (json_is_boolean(v))
            snprintf(text, sizeof text, "%s", json_is_true(v) ? "true" : "false");
        else
            snprintf(text, sizeof text, "%.17g", json_number_value(v));
        if (llada_recipe_set(r, key, text, &err)) fail_msg("%s", err.text);
    }
}

static int ids_of(const json_t *a, int32_t *out, int most)
{
    int n = (int)json_array_size(a);
    assert_in_range(n, 0, most);
    for (int i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(a, (size_t)i));
    return n;
}

static void check_run(const llada_model *m, const llada_recipe *base, const json_t *run, int threads, const char *where)
{
    int32_t prompt[MAX_PROMPT], text[MAX_GEN];
    llada_recipe r = *base;
    llada_session_opts so;
    llada_session *s = NULL;
    llada_request q;
    llada_result res = { .size = sizeof res };
    llada_err err = { 0 };
    follower f = { .passes = json_object_get(run, "passes"), .where = where };
    set_all(&r, json_object_get(run, "settings"));
    llada_session_opts_defaults(&so);
    so.threads = threads;
    so.ctx = MAX_PROMPT + MAX_GEN;
    llada_request_defaults(&q);
    q.prompt = prompt;
    q.n_prompt = ids_of(json_object_get(run, "prompt"), prompt, MAX_PROMPT);
    q.max_tokens = (int32_t)json_integer_value(json_object_get(run, "gen"));
    q.seed = (uint64_t)json_integer_value(json_object_get(run, "seed"));
    q.on_event = follow;
    q.user = &f;
    if (llada_session_open(&s, m, &r, &so, &err) || llada_generate(s, &q, &res, &err))
        fail_msg("%s: %s", where, err.text);
    end_pass(&f);
    assert_int_equal(f.pass, json_array_size(f.passes));
    assert_int_equal(res.passes, f.pass);
    int n = ids_of(json_object_get(run, "text"), text, MAX_GEN), filled = 0;
    for (size_t i = 0; i < f.pass; i++) filled += (int)json_array_size(json_array_get(f.passes, i));
    assert_int_equal(f.settled, filled); /* what is written here is final */
    if (res.n_tokens != n || memcmp(res.tokens, text, (size_t)n * sizeof *text) != 0)
        fail_msg("%s: the text differs (%d tokens, not %d)", where, res.n_tokens, n);
    assert_int_equal(res.finish, n < q.max_tokens ? LLADA_FINISH_STOP : LLADA_FINISH_LENGTH);
    llada_session_close(&s);
}

/* All runs of a file, from the recipe `base`. */
static void check_file(const char *name, const char *base, size_t at_least)
{
    char path[512];
    json_error_t e;
    llada_err err = { 0 };
    llada_model *m = NULL;
    llada_recipe r;
    snprintf(path, sizeof path, DATA "%s", name);
    json_t *file = json_load_file(path, 0, &e), *run;
    if (!file) fail_msg("%s: %s", path, e.text);
    snprintf(path, sizeof path, FIXTURES "%s", json_string_value(json_object_get(file, "model")));
    if (llada_model_open(&m, path, NULL, &err) || llada_recipe_named(&r, base, &err)) fail_msg("%s", err.text);
    size_t i;
    assert_true(json_array_size(json_object_get(file, "runs")) >= at_least);
    json_array_foreach(json_object_get(file, "runs"), i, run)
    {
        char where[64];
        snprintf(where, sizeof where, "%s, run %zu", name, i);
        check_run(m, &r, run, 1 + (int)(i % 2), where);
    }
    llada_model_close(&m);
    json_decref(file);
}

static void dreams_sampler(void **state) { check_file("dream.json", "dream", 36); }
static void shifted_blocks(void **state) { check_file("shifted.json", "vanilla", 12); }
static void autoregression(void **state) { check_file("ar.json", "ar", 7); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dreams_sampler),
        cmocka_unit_test(shifted_blocks),
        cmocka_unit_test(autoregression),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
