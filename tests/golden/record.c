/* record.c - golden traces: recorded and compared. */
#include "record.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void record_begin(recorder *r, const llada_recipe *recipe)
{
    *r = (recorder){.entries = json_array(), .windowed = recipe->mbsd != LLADA_MBSD_OFF || recipe->dppr};
}

void record_end(recorder *r)
{
    json_decref(r->entries);
    *r = (recorder){.entries = NULL};
}

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

bool record(const llada_event *ev, void *user)
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

static void set_one(llada_recipe *r, const char *key, const json_t *v)
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

void check_trace(const json_t *got, const json_t *want, double tol, const char *what)
{
    size_t n = json_array_size(want);
    for (size_t i = 0; i < n && i < json_array_size(got); i++) {
        if (same(json_array_get(got, i), json_array_get(want, i), tol)) continue;
        char *g = json_dumps(json_array_get(got, i), JSON_COMPACT);
        char *w = json_dumps(json_array_get(want, i), JSON_COMPACT);
        print_error("%s: entry %zu differs\n  got  %s\n  want %s\n", what, i, g, w);
        free(g);
        free(w);
        fail();
    }
    if (json_array_size(got) != n) fail_msg("%s: %zu entries, %zu expected", what, json_array_size(got), n);
}

void check_counts(const llada_result *res, json_t *stats, const char *what)
{
    struct {
        const char *key;
        int64_t got;
    } counts[] = {{"passes", res->passes}, {"full", res->full},   {"rows", res->rows},     {"rev_rows", res->rev_rows},
                  {"edits", res->edits},   {"remasks", res->remasks}, {"drafts", res->drafts},
                  {"draft_ok", res->draft_ok},
                  {"jobs", res->jobs}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_t *v = json_object_get(stats, counts[i].key);
        if (v && json_integer_value(v) != counts[i].got)
            fail_msg("%s: %s is %lld, %lld expected", what, counts[i].key, (long long)counts[i].got,
                     (long long)json_integer_value(v));
    }
}

int ids_of(json_t *array, int32_t *ids, int cap)
{
    int n = (int)json_array_size(array);
    assert_true(n <= cap);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    return n;
}

void record_settings(llada_recipe *r, json_t *settings)
{
    const char *key;
    json_t *v;
    json_object_foreach(settings, key, v) set_one(r, key, v);
}

json_t *record_load(const char *path)
{
    json_error_t bad;
    json_t *file = json_load_file(path, 0, &bad);
    if (!file) fail_msg("%s: %s", path, bad.text);
    return file;
}
