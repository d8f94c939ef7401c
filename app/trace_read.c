/* trace_read.c - reads the JSON lines of run --trace.  A trace is a file like any other: every number is checked before
 * it is used as an index. */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 512 << 20, MOST_GEN = 1 << 20, MOST_STEPS = 1 << 17, MOST_SECONDS = 1000000000 };
static const double MOMENT = 2e-6; /* times are rounded to the microsecond */

typedef struct {
    trace_file *t;
    const char *path;
    size_t line;
} reader;

static int bad(const reader *r, const char *what)
{
    app_error("%s, line %zu: %s", r->path, r->line, what);
    return EXIT_WRONG_USE;
}

static bool whole(const json_t *j, int64_t lo, int64_t hi, int32_t *out)
{
    int64_t v = json_integer_value(j);
    if (!json_is_integer(j) || v < lo || v > hi) return false;
    *out = (int32_t)v;
    return true;
}

/* [name, position, token, confidence]; without the name in traces of block recipes. */
static int add_event(reader *r, const json_t *e, int32_t step, bool named)
{
    static const char *const names[] = {"commit", "draft", "ok", "drop", "stable", "edit", "remask"};
    trace_file *t = r->t;
    trace_event ev = {.mark = MARK_COMMIT, .step = step};
    size_t at = named;
    const char *name = named ? json_string_value(json_array_get(e, 0)) : "commit";
    int mark = 0;
    while (name && mark < 7 && strcmp(names[mark], name)) mark++;
    const json_t *confidence = json_array_get(e, at + 2);
    if (!name || mark == 7 || json_array_size(e) != at + 3 || !json_is_number(confidence) ||
        !whole(json_array_get(e, at), 0, t->gen - 1, &ev.pos) ||
        !whole(json_array_get(e, at + 1), -1, INT32_MAX, &ev.token))
        return bad(r, "an event is not [what, position, token, confidence]");
    ev.mark = (trace_mark)mark;
    ev.confidence = json_number_value(confidence);
    t->events = app_grow(t->events, t->n_events + 1, sizeof *t->events);
    t->events[t->n_events++] = ev;
    return EXIT_FINE;
}

static int add_events(reader *r, const json_t *list, int32_t step, bool named)
{
    size_t i;
    json_t *e;
    json_array_foreach(list, i, e) {
        int rc = add_event(r, e, step, named);
        if (rc) return rc;
    }
    return EXIT_FINE;
}

static trace_pass *add_pass(trace_file *t, int32_t step)
{
    t->passes = app_grow(t->passes, t->n_passes + 1, sizeof *t->passes);
    t->passes[t->n_passes] = (trace_pass){.step = step};
    return &t->passes[t->n_passes++];
}

static int read_rows(reader *r, trace_pass *p, const json_t *entry)
{
    const json_t *rows = json_object_get(entry, "rows");
    p->known = true;
    p->n_shadow = (int32_t)json_array_size(json_object_get(entry, "shadow"));
    p->all = json_is_string(rows);
    if (p->all) return EXIT_FINE;
    if (!json_is_array(rows)) return bad(r, "\"rows\" is neither a list nor \"all\"");
    p->rows = app_new(json_array_size(rows), sizeof *p->rows);
    size_t i;
    json_t *j;
    json_array_foreach(rows, i, j) {
        int32_t pos;
        /* rows of the prompt may be among them; they are counted, not drawn */
        if (!whole(j, -MOST_GEN, r->t->gen - 1, &pos)) return bad(r, "a row outside the canvas");
        p->rows[p->n_rows++] = pos;
    }
    return EXIT_FINE;
}

static int read_entry(reader *r, const json_t *entry)
{
    trace_file *t = r->t;
    size_t before = t->n_events;
    if (json_is_array(entry)) {
        trace_pass *p = add_pass(t, (int32_t)t->n_passes + 1);
        t->last_step = p->step;
        int rc = add_events(r, entry, p->step, false);
        p->written = (int32_t)(t->n_events - before);
        return rc;
    }
    int32_t step;
    if (!whole(json_object_get(entry, "step"), 1, MOST_STEPS, &step) || step < t->last_step)
        return bad(r, "an entry without a \"step\" that follows the one before");
    t->last_step = step;
    const json_t *merge = json_object_get(entry, "merge");
    if (merge) {
        t->n_merges++;
        return add_events(r, merge, step, true);
    }
    trace_pass *p = add_pass(t, step);
    int rc = read_rows(r, p, entry);
    if (!rc) rc = add_events(r, json_object_get(entry, "events"), step, true);
    for (size_t i = before; i < t->n_events; i++)
        p->written += t->events[i].mark == MARK_COMMIT || t->events[i].mark == MARK_DRAFT;
    return rc;
}

/* [step, rows, began, took]; of a job also how it ran. */
static bool read_run(const json_t *e, bool is_job, trace_run *run)
{
    static const char *const names[] = {[RUN_SERIAL] = "serial", [RUN_ASYNC] = "async", [RUN_FUSED] = "fused"};
    const json_t *began = json_array_get(e, 2), *took = json_array_get(e, 3);
    const char *name = json_string_value(json_array_get(e, 4));
    int kind = is_job ? RUN_SERIAL : RUN_PASS;
    while (is_job && name && kind <= RUN_FUSED && strcmp(names[kind], name)) kind++;
    if (json_array_size(e) != 4 + (size_t)is_job || (is_job && !name) || kind > RUN_FUSED) return false;
    if (!json_is_number(began) || !json_is_number(took)) return false;
    run->kind = (run_kind)kind;
    run->began = json_number_value(began);
    run->ended = run->began + json_number_value(took);
    return whole(json_array_get(e, 0), 1, MOST_STEPS, &run->step) &&
           whole(json_array_get(e, 1), 0, INT32_MAX, &run->rows) && run->began >= 0 && run->ended >= run->began;
}

/* New runs; NULL when the list is none, or its times do not rise up to `last`. */
static trace_run *read_runs(const json_t *list, bool is_job, double last, size_t *n)
{
    size_t i;
    json_t *e;
    if (!json_is_array(list)) return NULL;
    trace_run *runs = app_new(json_array_size(list), sizeof *runs);
    json_array_foreach(list, i, e) {
        bool fine = read_run(e, is_job, &runs[i]) && runs[i].ended <= last + MOMENT;
        if (fine && (i == 0 || runs[i].began >= runs[i - 1].began)) continue;
        free(runs);
        return NULL;
    }
    *n = json_array_size(list);
    return runs;
}

/* Traces of before there were times have none. */
static int read_times(reader *r, const json_t *times)
{
    trace_file *t = r->t;
    const json_t *seconds = json_object_get(times, "seconds");
    if (!times) return EXIT_FINE;
    t->seconds = json_number_value(seconds);
    t->dense = read_runs(json_object_get(times, "passes"), false, t->seconds, &t->n_dense);
    t->jobs = read_runs(json_object_get(times, "jobs"), true, t->seconds, &t->n_jobs);
    if (!json_is_number(seconds) || t->seconds > MOST_SECONDS || !t->dense || !t->jobs)
        return bad(r, "\"times\" is not {seconds, passes, jobs} with times that rise");
    return EXIT_FINE;
}

static int read_header(reader *r, json_t *h)
{
    trace_file *t = r->t;
    if (!whole(json_object_get(h, "gen"), 0, MOST_GEN, &t->gen) ||
        !whole(json_object_get(h, "n_prompt"), 0, INT32_MAX / 2, &t->n_prompt))
        return bad(r, "this is no trace: its first line has no \"gen\" and \"n_prompt\" (run --trace writes them)");
    t->header = json_incref(h);
    return read_times(r, json_object_get(h, "times"));
}

static int read_lines(reader *r, const text *file)
{
    int rc = EXIT_FINE;
    for (size_t i = 0; i < file->n && !rc;) {
        const char *nl = memchr(file->p + i, '\n', file->n - i);
        size_t len = nl ? (size_t)(nl - file->p) - i : file->n - i;
        json_error_t at;
        r->line++;
        json_t *j = json_loadb(file->p + i, len, 0, &at);
        if (!j) rc = bad(r, at.text);
        else rc = r->t->header ? read_entry(r, j) : read_header(r, j);
        json_decref(j);
        i += len + 1;
    }
    if (!rc && !r->t->header) rc = bad(r, "the file is empty");
    return rc;
}

int trace_load(trace_file *t, const char *path)
{
    text file = {0};
    reader r = {.t = t, .path = path};
    *t = (trace_file){0};
    int rc = file_read(&file, path, MOST_BYTES);
    if (!rc) rc = read_lines(&r, &file);
    text_free(&file);
    return rc;
}

void trace_free(trace_file *t)
{
    for (size_t i = 0; i < t->n_passes; i++) free(t->passes[i].rows);
    free(t->passes);
    free(t->events);
    free(t->dense);
    free(t->jobs);
    json_decref(t->header);
    *t = (trace_file){0};
}

const char *trace_piece(const trace_file *t, int32_t token)
{
    char key[16];
    snprintf(key, sizeof key, "%d", (int)token);
    const char *s = json_string_value(json_object_get(json_object_get(t->header, "pieces"), key));
    return s ? s : "";
}

bool trace_is_end(const trace_file *t, int32_t token)
{
    size_t i;
    json_t *j;
    json_array_foreach(json_object_get(t->header, "ends"), i, j) {
        if (json_integer_value(j) == token) return true;
    }
    return false;
}
