/* test_recipes.c - every run of tests/golden/data/recipes reproduced exactly on the F32 model: which rows each pass
 * computed, which position got which token at which step, every draft, edit, re-mask and settlement.  The first
 * difference is named with file, run and step.  Confidences of block recipes agree to 1e-4; those of the window engine
 * are multiples of 1/4096 and agree exactly, except that in runs in which one came within 0.01/4096 of a rounding edge
 * (the file's `edge`) they may stand one step of the grid apart; the decisions must be the same even there. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llada.h"

#define DATA LLADA_SOURCE_DIR "/tests/golden/data/recipes/"

/* The trace as it grows, in the golden files' form. */
typedef struct {
    json_t *entries;  /* owned */
    json_t *list;     /* borrowed: where events of the current entry go */
    bool windowed, merging;
} recorder;

static json_t *row_list(const int32_t *pos, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(a, json_integer(pos[i]));
    return a;
}

static void record_pass(recorder *r, const llada_event *ev)
{
    r->merging = false;
    r->list = json_array();
    if (!r->windowed) {
        json_array_append_new(r->entries, r->list);
        return;
    }
    json_t *rows = ev->refresh ? json_string("all") : row_list(ev->row_pos, ev->n_row_pos);
    json_array_append_new(r->entries, json_pack("{s:i, s:o, s:o, s:o}", "step", ev->step, "rows", rows, "shadow",
                                                row_list(ev->shadow_pos, ev->n_shadow_pos), "events", r->list));
}

static void drop_empty_merge(recorder *r)
{
    size_t n = json_array_size(r->entries);
    if (r->merging && json_array_size(r->list) == 0) json_array_remove(r->entries, n - 1);
    r->merging = false;
}

static bool record(const llada_event *ev, void *user)
{
    recorder *r = user;
    const char *name = NULL;
    switch (ev->kind) {
    case LLADA_EV_PASS: drop_empty_merge(r); record_pass(r, ev); return true;
    case LLADA_EV_MERGE:
        drop_empty_merge(r);
        r->merging = true;
        r->list = json_array();
        json_array_append_new(r->entries, json_pack("{s:i, s:o}", "step", ev->step, "merge", r->list));
        return true;
    case LLADA_EV_COMMIT: name = "commit"; break;
    case LLADA_EV_DRAFT: name = "draft"; break;
    case LLADA_EV_CONFIRM: name = "ok"; break;
    case LLADA_EV_DROP: name = "drop"; break;
    case LLADA_EV_EDIT: name = "edit"; break;
    case LLADA_EV_REMASK: name = "remask"; break;
    case LLADA_EV_SETTLE: name = r->merging ? "stable" : NULL; break;
    case LLADA_EV_TAIL: drop_empty_merge(r); return true;
    default: return true;
    }
    if (!name) return true;
    if (r->windowed)
        json_array_append_new(r->list, json_pack("[s, i, i, f]", name, ev->pos, ev->token, ev->confidence));
    else
        json_array_append_new(r->list, json_pack("[i, i, f]", ev->pos, ev->token, ev->confidence));
    return true;
}

/* Equal, reals within `tol`. */
static bool same(const json_t *a, const json_t *b, double tol)
{
    if (json_is_real(a) || json_is_real(b)) return fabs(json_number_value(a) - json_number_value(b)) <= tol;
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!same(json_array_get(a, i), json_array_get(b, i), tol)) return false;
        return true;
    }
    if (json_is_object(a)) {
        const char *key;
        json_t *v;
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach((json_t *)a, key, v)
            if (!json_object_get(b, key) || !same(v, json_object_get(b, key), tol)) return false;
        return true;
    }
    return json_equal(a, b);
}

static void setting(llada_recipe *r, const char *key, const json_t *v)
{
    char text[64];
    llada_err err;
    if (json_is_string(v))
        snprintf(text, sizeof text, "%s", json_string_value(v));
    else if (json_is_boolean(v))
        snprintf(text, sizeof text, "%s", json_is_true(v) ? "true" : "false");
    else
        snprintf(text, sizeof text, "%.17g", json_number_value(v));
    if (llada_recipe_set(r, key, text, &err)) fail_msg("%s", err.text);
}

static void check_trace(const json_t *got, const json_t *want, double tol, const char *what)
{
    size_t n = json_array_size(want);
    for (size_t i = 0; i < n && i < json_array_size(got); i++) {
        if (same(json_array_get(got, i), json_array_get(want, i), tol)) continue;
        char *g = json_dumps(json_array_get(got, i), JSON_COMPACT), *w = json_dumps(json_array_get(want, i), JSON_COMPACT);
        print_error("%s: entry %zu differs\n  got  %s\n  want %s\n", what, i, g, w);
        free(g);
        free(w);
        fail();
    }
    if (json_array_size(got) != n) fail_msg("%s: %zu entries, %zu expected", what, json_array_size(got), n);
}

static void check_counts(const llada_result *res, const json_t *stats, const char *what)
{
    struct {
        const char *key;
        int64_t got;
    } counts[] = {{"passes", res->passes}, {"full", res->full},   {"rows", res->rows},     {"rev_rows", res->rev_rows},
                  {"edits", res->edits},   {"remasks", res->remasks}, {"drafts", res->drafts}, {"draft_ok", res->draft_ok},
                  {"jobs", res->jobs}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_t *v = json_object_get(stats, counts[i].key);
        if (v && json_integer_value(v) != counts[i].got)
            fail_msg("%s: %s is %lld, %lld expected", what, counts[i].key, (long long)counts[i].got,
                     (long long)json_integer_value(v));
    }
}

static void check_run(const llada_model *m, const llada_recipe *r, const json_t *run, const char *what)
{
    static int32_t ids[4096];
    json_t *prompt = json_object_get(run, "prompt_ids"), *final = json_object_get(run, "final_ids");
    int n = (int)json_array_size(prompt);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(prompt, (size_t)i));
    llada_err err;
    llada_session *s = NULL;
    llada_session_opts so;
    llada_session_opts_defaults(&so);
    so.ctx = n + r->gen;
    if (llada_session_open(&s, m, r, &so, &err)) fail_msg("%s: %s", what, err.text);
    recorder rec = {.entries = json_array(), .windowed = r->mbsd != LLADA_MBSD_OFF || r->dppr};
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
    json_decref(rec.entries);
    llada_session_close(&s);
}

/* One golden file, all its runs; `exec` and `lag` stay as the file says. */
static void check_file(void **state)
{
    const char *name = *state;
    char path[512], what[128];
    snprintf(path, sizeof path, DATA "%s.json", name);
    json_error_t bad;
    json_t *file = json_load_file(path, 0, &bad);
    if (!file) fail_msg("%s: %s", path, bad.text);
    llada_err err;
    llada_model *m = NULL;
    if (llada_model_open(&m, LLADA_SOURCE_DIR "/tests/fixtures/tiny-llada-f32.gguf", NULL, &err)) fail_msg("%s", err.text);
    llada_recipe r;
    assert_int_equal(llada_recipe_named(&r, "parallel", &err), LLADA_OK);
    const char *key;
    json_t *v, *runs = json_object_get(file, "runs");
    json_object_foreach(json_object_get(file, "settings"), key, v) setting(&r, key, v);
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
                                        "llada-block16", "llada-lag2",  "llada-never",    "llada-odd",        "llada-small",
                                        "revise",        "speculate",   "speculate-unverified"};
    enum { N = sizeof names / sizeof *names };
    struct CMUnitTest tests[N];
    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){.name = names[i], .test_func = check_file, .initial_state = (void *)names[i]};
    return _cmocka_run_group_tests("recipes", tests, N, NULL, NULL);
}
