/* tracelog.c - collects events into trace entries.
 *
 * Entries are kept as text until the run has ended (or was stopped): the header names the text of every token that
 * occurs, so that a trace can be read without its model.  Times stand in the header too, all under one key: so the
 * entries of two runs are equal when the runs did the same. */
#include "tracelog.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tracelog {
    const app_model *am;    /* borrowed */
    const llada_recipe *r;  /* borrowed */
    bool window;            /* entries of the window engine; else lists of the block recipes */
    bool merging;           /* the open entry is a merge */
    json_t *entry, *events; /* owned, the entry in the making; events borrowed from it */
    json_t *pieces;         /* owned: id -> text */
    json_t *passes, *jobs;  /* owned: when each ran */
    double seconds;         /* of the last event */
    text lines;
};

/* ---------------------------------------------------------------- JSON of our values */

json_t *text_json(const char *p, size_t n)
{
    text t = {0};
    text_utf8(&t, p, n);
    json_t *s = json_stringn(t.n ? t.p : "", t.n);
    text_free(&t);
    return s;
}

static json_t *value_json(const char *s)
{
    if (!strcmp(s, "true") || !strcmp(s, "false")) return json_boolean(s[0] == 't');
    char *end;
    long long whole = strtoll(s, &end, 10);
    if (end != s && !*end) return json_integer(whole);
    double v = strtod(s, &end);
    if (end != s && !*end && (isdigit((unsigned char)s[0]) || s[0] == '-' || s[0] == '.')) return json_real(v);
    return json_string(s);
}

json_t *recipe_json(const llada_recipe *r)
{
    size_t n;
    const llada_recipe_key *keys = llada_recipe_keys(&n);
    json_t *o = json_object();
    for (size_t i = 0; i < n; i++) {
        char value[64];
        if (llada_recipe_get(r, keys[i].key, value, sizeof value, NULL)) continue;
        json_object_set_new(o, keys[i].key, value_json(value));
    }
    return o;
}

/* ---------------------------------------------------------------- entries */

tracelog *tracelog_new(const app_model *am, const llada_recipe *r)
{
    tracelog *t = app_new(1, sizeof *t);
    t->am = am;
    t->r = r;
    t->window = r->mbsd != LLADA_MBSD_OFF || r->dppr;
    t->pieces = json_object();
    t->passes = json_array();
    t->jobs = json_array();
    return t;
}

void tracelog_free(tracelog **t)
{
    if (!*t) return;
    json_decref((*t)->entry);
    json_decref((*t)->pieces);
    json_decref((*t)->passes);
    json_decref((*t)->jobs);
    text_free(&(*t)->lines);
    free(*t);
    *t = NULL;
}

static void add_line(text *t, const json_t *j, size_t flags)
{
    char *s = json_dumps(j, JSON_COMPACT | flags);
    if (s) text_str(t, s);
    text_str(t, "\n");
    free(s);
}

static void close_entry(tracelog *t)
{
    if (t->entry && (!t->merging || json_array_size(t->events) > 0)) add_line(&t->lines, t->entry, 0);
    json_decref(t->entry);
    t->entry = t->events = NULL;
    t->merging = false;
}

static json_t *positions(const int32_t *p, int32_t n)
{
    json_t *a = json_array();
    for (int32_t i = 0; i < n; i++) json_array_append_new(a, json_integer(p[i]));
    return a;
}

/* Seconds, to the microsecond. */
static json_t *moment(double seconds) { return json_real(round(seconds * 1e6) / 1e6); }

/* [step, rows, began, took]; of a job also how it ran. */
static void note_time(json_t *list, const llada_event *ev)
{
    static const char *const names[] = {[LLADA_EXEC_AUTO] = "auto", [LLADA_EXEC_SERIAL] = "serial",
                                        [LLADA_EXEC_ASYNC] = "async", [LLADA_EXEC_FUSED] = "fused"};
    json_t *e = json_array();
    json_array_append_new(e, json_integer(ev->step));
    json_array_append_new(e, json_integer(ev->rows));
    json_array_append_new(e, moment(ev->began));
    json_array_append_new(e, moment(ev->took));
    if (ev->kind == LLADA_EV_MERGE) json_array_append_new(e, json_string(names[ev->ran]));
    json_array_append_new(list, e);
}

static void open_pass(tracelog *t, const llada_event *ev)
{
    close_entry(t);
    note_time(t->passes, ev);
    if (!t->window) {
        t->entry = t->events = json_array();
        return;
    }
    t->entry = json_object();
    t->events = json_array();
    json_object_set_new(t->entry, "step", json_integer(ev->step));
    json_object_set_new(t->entry, "rows", ev->row_pos ? positions(ev->row_pos, ev->n_row_pos) : json_string("all"));
    json_object_set_new(t->entry, "shadow", positions(ev->shadow_pos, ev->n_shadow_pos));
    json_object_set_new(t->entry, "events", t->events);
}

static void open_merge(tracelog *t, const llada_event *ev)
{
    close_entry(t);
    note_time(t->jobs, ev);
    t->merging = true;
    t->entry = json_object();
    t->events = json_array();
    json_object_set_new(t->entry, "step", json_integer(ev->step));
    json_object_set_new(t->entry, "merge", t->events);
}

static void note_piece(tracelog *t, int32_t id)
{
    char key[16], buf[256];
    size_t n = 0;
    if (id < 0) return;
    snprintf(key, sizeof key, "%d", (int)id);
    if (json_object_get(t->pieces, key)) return;
    if (llada_detokenize(t->am->m, &id, 1, true, buf, sizeof buf, &n, NULL)) return;
    json_object_set_new(t->pieces, key, text_json(buf, n < sizeof buf ? n : sizeof buf));
}

static void add_event(tracelog *t, const char *name, const llada_event *ev)
{
    if (!t->entry) return;
    note_piece(t, ev->token);
    json_t *e = json_array();
    if (t->window) json_array_append_new(e, json_string(name));
    json_array_append_new(e, json_integer(ev->pos));
    json_array_append_new(e, json_integer(ev->token));
    json_array_append_new(e, json_real(ev->confidence));
    json_array_append_new(t->events, e);
}

void tracelog_event(tracelog *t, const llada_event *ev)
{
    t->seconds = ev->seconds;
    switch (ev->kind) {
    case LLADA_EV_PASS: open_pass(t, ev); break;
    case LLADA_EV_MERGE: open_merge(t, ev); break;
    case LLADA_EV_COMMIT: add_event(t, "commit", ev); break;
    case LLADA_EV_DRAFT: add_event(t, "draft", ev); break;
    case LLADA_EV_CONFIRM: add_event(t, "ok", ev); break;
    case LLADA_EV_DROP: add_event(t, "drop", ev); break;
    case LLADA_EV_EDIT: add_event(t, "edit", ev); break;
    case LLADA_EV_REMASK: add_event(t, "remask", ev); break;
    case LLADA_EV_SETTLE:
        if (t->merging) add_event(t, "stable", ev);
        break;
    case LLADA_EV_BLOCK: break;
    case LLADA_EV_TAIL:
    case LLADA_EV_DONE: close_entry(t); break;
    }
}

int tracelog_write(tracelog *t, const char *path, const llada_request *q, int32_t gen)
{
    file_out f;
    close_entry(t);
    int rc = file_begin(&f, path);
    if (rc) return rc;
    json_t *h = json_object();
    const char *name = t->am->info.name ? t->am->info.name : "";
    json_object_set_new(h, "model", text_json(name, strlen(name)));
    json_object_set_new(h, "recipe", json_string(t->r->name));
    json_object_set_new(h, "settings", recipe_json(t->r));
    json_object_set_new(h, "n_prompt", json_integer(q->n_prompt));
    json_object_set_new(h, "gen", json_integer(gen));
    json_object_set_new(h, "max_tokens", json_integer(q->max_tokens));
    json_object_set_new(h, "seed", json_integer((json_int_t)q->seed));
    json_object_set_new(h, "prompt_ids", positions(q->prompt, q->n_prompt));
    const int32_t ends[2] = {t->am->info.eos_id, t->am->info.eot_id};
    json_object_set_new(h, "ends", positions(ends, 2));
    json_object_set(h, "pieces", t->pieces);
    json_t *times = json_object();
    json_object_set_new(times, "seconds", moment(t->seconds));
    json_object_set(times, "passes", t->passes);
    json_object_set(times, "jobs", t->jobs);
    json_object_set_new(h, "times", times);
    text line = {0};
    add_line(&line, h, JSON_SHORT_REALS);
    json_decref(h);
    fwrite(line.p, 1, line.n, f.f);
    if (t->lines.n) fwrite(t->lines.p, 1, t->lines.n, f.f);
    text_free(&line);
    return file_commit(&f);
}
