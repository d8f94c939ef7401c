/* test_recipes.c - every run of tests/golden/data/recipes reproduced exactly on the F32 model: which rows each pass
 * computed, which position got which token at which step, every draft, edit, re-mask and settlement.  The first
 * difference is named with file, run and step.  Confidences of block recipes agree to 1e-4; those of the window engine
 * are multiples of 1/4096 and agree exactly, except that in runs in which one came within 0.01/4096 of a rounding edge
 * (the file's `edge`) they may stand one step of the grid apart; the decisions must be the same even there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record.h"

#define DATA LLADA_SOURCE_DIR "/tests/golden/data/recipes/"
#define MODEL LLADA_SOURCE_DIR "/tests/fixtures/tiny-llada-f32.gguf"

static void check_run(const llada_model *m, const llada_recipe *r, const json_t *run, const char *what)
{
    static int32_t ids[4096];
    json_t *final = json_object_get(run, "final_ids");
    int n = ids_of(json_object_get(run, "prompt_ids"), ids, 4096);
    llada_err err;
    llada_session *s = NULL;
    llada_session_opts so;
    llada_session_opts_defaults(&so);
    so.ctx = n + r->gen;
    if (llada_session_open(&s, m, r, &so, &err)) fail_msg("%s: %s", what, err.text);
    recorder rec;
    record_begin(&rec, r);
    llada_request q;
    llada_request_defaults(&q);
    q.prompt = ids;
    q.n_prompt = n;
    q.on_event = record;
    q.user = &rec;
    llada_result res;
    if (llada_generate(s, &q, &res, &err)) fail_msg("%s: %s", what, err.text);
    double grid = json_number_value(json_object_get(run, "edge")) < 0.01 ? 1.0 / 4096 : 0;
    check_trace(rec.entries, json_object_get(run, "trace"), rec.windowed ? grid : 1e-4, what);
    check_counts(&res, json_object_get(run, "stats"), what);
    for (int i = 0; i < res.n_tokens; i++)
        if (res.tokens[i] != json_integer_value(json_array_get(final, (size_t)i)))
            fail_msg("%s: token %d is %d, %lld expected", what, i, res.tokens[i],
                     (long long)json_integer_value(json_array_get(final, (size_t)i)));
    record_end(&rec);
    llada_session_close(&s);
}

/* One golden file, all its runs; `exec` and `lag` stay as the file says. */
static void check_file(void **state)
{
    const char *name = *state;
    char path[512], what[128];
    snprintf(path, sizeof path, DATA "%s.json", name);
    json_t *file = record_load(path);
    llada_err err;
    llada_model *m = NULL;
    if (llada_model_open(&m, MODEL, NULL, &err)) fail_msg("%s", err.text);
    llada_recipe r;
    assert_int_equal(llada_recipe_named(&r, "parallel", &err), LLADA_OK);
    json_t *runs = json_object_get(file, "runs");
    record_settings(&r, json_object_get(file, "settings"));
    assert_true(json_array_size(runs) >= 5);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        snprintf(what, sizeof what, "%s, run %zu", name, i);
        check_run(m, &r, json_array_get(runs, i), what);
    }
    llada_model_close(&m);
    json_decref(file);
}

int main(void)
{
    static const char *const names[] = {"dual-entropy", "dual-factor",  "dual-threshold", "prefix-threshold", "llada",
                                        "llada-block16", "llada-lag2",  "llada-never",    "llada-odd",
                                        "llada-small",
                                        "revise",        "speculate",   "speculate-unverified"};
    enum { N = sizeof names / sizeof *names };
    struct CMUnitTest tests[N];
    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){.name = names[i], .test_func = check_file, .initial_state = (void *)names[i]};
    return _cmocka_run_group_tests("recipes", tests, N, NULL, NULL);
}
