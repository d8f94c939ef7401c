/* stream.c - server-sent events (stream.h).  docs/server.md describes each kind of stream. */
#include "stream.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_SECONDS 0.05 /* drafts and events: at most 20 a second */
#define LOOK_SECONDS 0.05  /* between looks at whether the client is still there */
#define ALIVE_SECONDS 5.0  /* a comment when nothing else was sent, for proxies */

struct stream {
    job *j;              /* a reference */
    reply_name name;
    show_kind show;
    bool usage, logprobs;
    buf out;             /* events not yet taken */
    size_t at;           /* how far they are */
    bool began, over;
    size_t sent;         /* bytes of the text */
    int32_t sent_tokens;
    double last;         /* when something was sent */
    buf draft;           /* the last one sent */
    int32_t step;        /* of the last events */
};

stream *stream_new(job *j, const openai_ask *a, const reply_name *name)
{
    stream *s = buf_new(1, sizeof *s);
    s->j = j;
    s->name = *name;
    s->show = a->show;
    s->usage = a->usage;
    s->logprobs = a->logprobs;
    return s;
}

void stream_free(stream *s)
{
    job_leave(s->j);
    buf_free(&s->out);
    buf_free(&s->draft);
    free(s);
}

/* name NULL: an event without one. */
static void event(stream *s, const char *name, json_t *data)
{
    if (name) buf_fmt(&s->out, "event: %s\n", name);
    buf_str(&s->out, "data: ");
    reply_write(data, &s->out);
    buf_str(&s->out, "\n\n");
}

static void chunk(stream *s, const char *text, size_t n, const char *finish, json_t *probs)
{
    event(s, NULL, reply_chunk(&s->name, text, n, finish, probs));
}

/* ---------------------------------------------------------------- settled text */

static void deltas(stream *s)
{
    job *j = s->j;
    bool done = j->phase == JOB_DONE;
    size_t shown = j->text.shown;
    int32_t to = s->sent_tokens, n = job_count(j);
    while (to < n && (done || j->starts[to] < shown)) to++;
    if (shown > s->sent || to > s->sent_tokens) {
        json_t *probs = s->logprobs ? reply_logprobs(&s->name, j, s->sent_tokens, to) : NULL;
        if (shown > s->sent || probs) chunk(s, j->text.text.p + s->sent, shown - s->sent, NULL, probs);
    }
    s->sent = shown;
    s->sent_tokens = to;
    if (done) chunk(s, NULL, 0, job_finish_reason(j), NULL);
}

/* ---------------------------------------------------------------- drafts */

static void drafts(stream *s)
{
    job *j = s->j;
    bool done = j->phase == JOB_DONE;
    buf d = {0};
    buf_str(&d, "");
    if (done) buf_add(&d, j->text.text.p ? j->text.text.p : "", j->text.text.n);
    else job_draft(j, &d);
    bool same = s->draft.p && s->draft.n == d.n && !memcmp(s->draft.p, d.p, d.n);
    if (done || !same) {
        json_t *probs = done && s->logprobs ? reply_logprobs(&s->name, j, 0, job_count(j)) : NULL;
        chunk(s, d.p, d.n, done ? job_finish_reason(j) : NULL, probs);
    }
    buf_free(&s->draft);
    s->draft = d;
}

/* ---------------------------------------------------------------- cells */

/* [position, text, confidence, state, changes], and the bytes where they alone are no text. */
static json_t *cell_json(const job *j, int32_t pos)
{
    static const char *const states[] = {"mask", "draft", "visible", "settled"};
    const cell *c = &j->cells[pos];
    bool end = c->token >= 0 && (c->token == j->ends[0] || c->token == j->ends[1]);
    json_t *o = json_array();
    buf bytes = {0};
    buf_str(&bytes, "");
    if (c->token >= 0) job_bytes(j, c->token, &bytes);
    json_t *whole = json_stringn(bytes.p, bytes.n); /* NULL: no UTF-8 */
    json_array_append_new(o, json_integer(pos));
    json_array_append_new(o, whole ? json_incref(whole) : reply_text(bytes.p, bytes.n));
    json_array_append_new(o, json_real(c->confidence));
    json_array_append_new(o, json_string(job_given(j, pos) ? "given" : end ? "end" : states[c->state]));
    json_array_append_new(o, json_integer(c->changes));
    if (!whole) {
        json_t *list = json_array();
        for (size_t i = 0; i < bytes.n; i++) json_array_append_new(list, json_integer((unsigned char)bytes.p[i]));
        json_array_append_new(o, list);
    }
    json_decref(whole);
    buf_free(&bytes);
    return o;
}

static void start_event(stream *s)
{
    const job *j = s->j;
    json_t *o = json_object();
    json_object_set_new(o, "id", json_string(s->name.id));
    json_object_set_new(o, "model", reply_text(s->name.model, strlen(s->name.model)));
    json_object_set_new(o, "recipe", json_string(j->gen.recipe.name));
    json_object_set_new(o, "positions", json_integer(j->gen.n_cells));
    json_object_set_new(o, "block", json_integer(j->gen.recipe.block));
    json_object_set_new(o, "max_tokens", json_integer(j->gen.max_tokens));
    json_object_set_new(o, "prompt_tokens", json_integer(j->gen.n_prompt));
    event(s, "start", o);
}

static void canvas_event(stream *s)
{
    job *j = s->j;
    json_t *cells = json_array(), *o;
    for (int32_t i = 0; i < j->gen.n_cells; i++) {
        if (!j->cells[i].dirty) continue;
        j->cells[i].dirty = false;
        json_array_append_new(cells, cell_json(j, i));
    }
    if (json_array_size(cells) == 0 && j->step == s->step) {
        json_decref(cells);
        return;
    }
    s->step = j->step;
    o = json_object();
    json_object_set_new(o, "pass", json_integer(j->step));
    json_object_set_new(o, "rows", json_integer(j->rows));
    json_object_set_new(o, "refresh", json_boolean(j->refresh));
    json_object_set_new(o, "seconds", json_real(j->seconds));
    json_object_set_new(o, "cells", cells);
    event(s, "canvas", o);
}

static void events(stream *s)
{
    job *j = s->j;
    canvas_event(s);
    if (j->phase != JOB_DONE) return;
    json_t *o = json_object();
    json_object_set_new(o, "text", json_stringn(j->text.text.p ? j->text.text.p : "", j->text.text.n));
    json_object_set_new(o, "finish_reason", json_string(job_finish_reason(j)));
    json_object_set_new(o, "usage", reply_usage(j));
    event(s, "done", o);
}

/* ---------------------------------------------------------------- all */

static void begin(stream *s)
{
    s->began = true;
    if (s->show == SHOW_EVENTS) {
        start_event(s);
    } else if (s->name.api == API_CHAT) {
        json_t *o = reply_chunk(&s->name, "", 0, NULL, NULL);
        json_t *delta = json_object_get(json_array_get(json_object_get(o, "choices"), 0), "delta");
        json_object_set_new(delta, "role", json_string("assistant"));
        event(s, NULL, o);
    }
}

static void finish(stream *s)
{
    s->over = true;
    if (s->show == SHOW_EVENTS) return;
    if (s->usage || s->name.api == API_INFILL) event(s, NULL, reply_chunk_usage(&s->name, s->j));
    buf_str(&s->out, "data: [DONE]\n\n");
}

static void fail(stream *s)
{
    refusal no = {0};
    reply_failure(s->j, &no);
    event(s, s->show == SHOW_EVENTS ? "error" : NULL, reply_error(&no));
    s->over = true;
}

/* Makes the events that are due. */
static void fill(stream *s)
{
    job *j = s->j;
    pthread_mutex_lock(&j->lock);
    bool done = j->phase == JOB_DONE;
    bool early = s->show != SHOW_DELTAS && s->began && now_seconds() - s->last < FRAME_SECONDS;
    if (!s->began && j->phase != JOB_WAITING) begin(s);
    if (done && j->status) {
        fail(s);
    } else if (s->began && (done || !early)) {
        if (s->show == SHOW_DELTAS) deltas(s);
        else if (s->show == SHOW_DRAFTS) drafts(s);
        else events(s);
        if (done) finish(s);
    }
    pthread_mutex_unlock(&j->lock);
    if (!s->out.n && now_seconds() - s->last > ALIVE_SECONDS) buf_str(&s->out, ": alive\n\n");
    if (s->out.n) s->last = now_seconds();
}

long stream_read(stream *s, char *p, size_t most)
{
    while (s->at == s->out.n) {
        if (s->over) return 0;
        s->at = s->out.n = 0;
        fill(s);
        if (s->out.n) break;
        if (!job_wait(s->j, LOOK_SECONDS)) return -1;
    }
    size_t n = s->out.n - s->at < most ? s->out.n - s->at : most;
    memcpy(p, s->out.p + s->at, n);
    s->at += n;
    return (long)n;
}
