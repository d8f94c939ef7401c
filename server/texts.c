/* texts.c - prompts, conversations, and canvases of which parts are given (texts.h). */
#include "texts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 4096 };

/* ---------------------------------------------------------------- lengths */

static void text_too_long(refusal *no, const char *name, size_t n, const openai_ground *g)
{
    refuse(no, 400, "context_length_exceeded", name, "'%s' has %zu tokens; this server takes %d positions", name, n,
           (int)g->ctx);
}

bool texts_ids(const openai_ground *g, const char *name, const char *s, size_t len, bool special, size_t most,
               int32_t **ids, size_t *n, refusal *no)
{
    llada_err err = {0};
    size_t cap = (len < most ? len : most) + 16; /* more than `most` are only counted */
    *ids = buf_new(cap, sizeof **ids);
    if (llada_tokenize(g->model, s, len, special, *ids, cap, n, &err) == LLADA_OK) {
        if (*n <= most) return true;
        text_too_long(no, name, *n, g);
    } else {
        refuse(no, err.status == LLADA_NO_MEMORY ? 500 : 400, "bad_text", name, "%s", err.text);
    }
    free(*ids);
    *ids = NULL;
    return false;
}

/* Prompt and canvas together; where the canvas ends is known by now. */
static void check_size(openai_ask *a, const openai_ground *g, refusal *no)
{
    static const char *const fields[] = {[API_CHAT] = "messages", [API_TEXT] = "prompt", [API_INFILL] = "input_prefix"};
    generation *q = &a->gen;
    int32_t canvas = q->canvas ? q->n_canvas : q->recipe.gen > 0 ? q->recipe.gen : q->max_tokens;
    if (!q->canvas) q->n_cells = canvas;
    if (q->max_tokens > q->n_cells) q->max_tokens = q->n_cells;
    if ((int64_t)q->n_prompt + canvas <= g->ctx) return;
    refuse(no, 400, "context_length_exceeded", fields[a->api],
           "the prompt ('%s') has %d tokens and the canvas %d, together %lld positions; this server takes %d",
           fields[a->api], (int)q->n_prompt, (int)canvas, (long long)q->n_prompt + canvas, (int)g->ctx);
}

/* ---------------------------------------------------------------- prompts */

/* Plain text; an autoregressive model's begins with its first token. */
static bool plain_prompt(openai_ask *a, const char *name, const char *s, size_t len, const openai_ground *g,
                         refusal *no)
{
    int32_t *ids;
    size_t n, bos = g->info.causal && g->info.bos_id >= 0;
    if (!texts_ids(g, name, s, len, false, (size_t)g->ctx, &ids, &n, no)) return false;
    a->gen.prompt = buf_new(n + bos, sizeof *ids);
    if (bos) a->gen.prompt[0] = g->info.bos_id;
    if (n) memcpy(a->gen.prompt + bos, ids, n * sizeof *ids);
    a->gen.n_prompt = (int32_t)(n + bos);
    free(ids);
    return true;
}

/* "text", ["text"], [1, 2, 3] or [[1, 2, 3]]. */
static void read_prompt(openai_ask *a, const json_t *o, const openai_ground *g, refusal *no)
{
    const json_t *v = json_object_get(o, "prompt");
    if (json_array_size(v) == 1 && !json_is_integer(json_array_get(v, 0))) v = json_array_get(v, 0);
    if (json_is_string(v) && json_string_length(v)) {
        plain_prompt(a, "prompt", json_string_value(v), json_string_length(v), g, no);
    } else if (json_array_size(v) && json_is_integer(json_array_get(v, 0))) {
        size_t n;
        if (!field_ids(v, "prompt", g->info.n_vocab - 1, &a->gen.prompt, &n, no)) return;
        a->gen.n_prompt = n > (size_t)g->ctx ? 0 : (int32_t)n;
        if (n > (size_t)g->ctx) text_too_long(no, "prompt", n, g);
    } else if (json_array_size(v) > 1) {
        refuse(no, 400, "unsupported", "prompt", "'prompt' holds %zu prompts; this server answers one a request",
               json_array_size(v));
    } else {
        refuse(no, 400, "bad_value", "prompt", "'prompt' must be text or token ids, and not empty");
    }
}

/* ---------------------------------------------------------------- conversations */

/* The text of a message: a string, or parts of type "text".  Owned by the caller; NULL: refused. */
static char *message_text(const json_t *content, size_t index, refusal *no)
{
    buf t = {0};
    char name[64];
    snprintf(name, sizeof name, "messages[%zu].content", index);
    buf_str(&t, "");
    bool good = json_is_string(content) || json_is_array(content);
    if (json_is_string(content)) buf_add(&t, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(content) && good; i++) {
        const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");
        const json_t *type = json_object_get(part, "type");
        good = json_is_string(type) && !strcmp(json_string_value(type), "text") && json_is_string(text);
        if (good) buf_add(&t, json_string_value(text), json_string_length(text));
    }
    if (!good) refuse(no, 400, "unsupported", name, "'%s' must be text or parts of type \"text\"", name);
    else if (memchr(t.p, 0, t.n)) refuse(no, 400, "bad_value", name, "'%s' holds a NUL character", name);
    else return t.p;
    buf_free(&t);
    return NULL;
}

static const char *message_role(const json_t *m, size_t index, refusal *no)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const json_t *v = json_object_get(m, "role");
    const char *given = json_is_string(v) ? json_string_value(v) : "";
    if (!strcmp(given, "developer")) given = "system";
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(given, roles[i])) return roles[i];
    char name[64];
    snprintf(name, sizeof name, "messages[%zu].role", index);
    refuse(no, 400, "bad_value", name, "'%s' must be system, developer, user or assistant", name);
    return NULL;
}

static void lay_out_chat(openai_ask *a, const llada_message *m, size_t n_messages, size_t bytes, const openai_ground *g,
                         refusal *no)
{
    llada_err err = {0};
    size_t n = 0, most = (size_t)g->ctx, cap = bytes + n_messages * 16 + 64;
    if (cap > most) cap = most;
    a->gen.prompt = buf_new(cap, sizeof *a->gen.prompt);
    llada_status st = llada_chat(g->model, m, n_messages, a->gen.prompt, cap, &n, &err);
    if (!st && n > cap && n <= most) {
        a->gen.prompt = buf_grow(a->gen.prompt, n, sizeof *a->gen.prompt);
        st = llada_chat(g->model, m, n_messages, a->gen.prompt, n, &n, &err);
    }
    if (st) refuse(no, st == LLADA_NO_MEMORY ? 500 : 400, "bad_messages", "messages", "%s", err.text);
    else if (n > most) text_too_long(no, "messages", n, g);
    else a->gen.n_prompt = (int32_t)n;
}

static void read_messages(openai_ask *a, const json_t *o, const openai_ground *g, refusal *no)
{
    const json_t *list = json_object_get(o, "messages");
    size_t n = json_array_size(list), bytes = 0, done = 0;
    if (n == 0 || n > MOST_MESSAGES) {
        refuse(no, 400, "bad_value", "messages", "'messages' must be an array of 1..%d messages", MOST_MESSAGES);
        return;
    }
    llada_message *m = buf_new(n, sizeof *m);
    char **texts = buf_new(n, sizeof *texts);
    for (; done < n; done++) {
        const json_t *one = json_array_get(list, done);
        m[done].role = message_role(one, done, no);
        if (m[done].role) texts[done] = message_text(json_object_get(one, "content"), done, no);
        if (!texts[done]) break;
        m[done].text = texts[done];
        bytes += strlen(texts[done]);
    }
    if (done == n) lay_out_chat(a, m, n, bytes, g, no);
    for (size_t i = 0; i < done; i++) free(texts[i]);
    free(texts);
    free(m);
}

/* ---------------------------------------------------------------- canvases of which parts are given */

static void add_given(generation *q, const int32_t *ids, size_t n)
{
    q->canvas = buf_grow(q->canvas, (size_t)q->n_canvas + n, sizeof *q->canvas);
    if (n) memcpy(q->canvas + q->n_canvas, ids, n * sizeof *ids);
    q->n_canvas += (int32_t)n;
}

static void add_hole(generation *q, int32_t n)
{
    q->canvas = buf_grow(q->canvas, (size_t)(q->n_canvas + n), sizeof *q->canvas);
    for (int32_t i = 0; i < n; i++) q->canvas[q->n_canvas++] = LLADA_HOLE;
}

static void add_text(openai_ask *a, const char *name, const char *s, size_t len, const openai_ground *g, refusal *no)
{
    int32_t *ids;
    size_t n;
    if (!len || !texts_ids(g, name, s, len, false, (size_t)g->ctx, &ids, &n, no)) return;
    if ((size_t)a->gen.n_canvas + n > (size_t)g->ctx) text_too_long(no, name, (size_t)a->gen.n_canvas + n, g);
    else add_given(&a->gen, ids, n);
    free(ids);
}

/* One hole, and the text behind it, which is not part of the answer. */
static void lay_out_suffix(openai_ask *a, const char *name, const char *s, size_t len, const openai_ground *g,
                           refusal *no)
{
    if (a->gen.max_tokens > g->ctx) return; /* check_size says so */
    add_hole(&a->gen, a->gen.max_tokens);
    a->gen.n_cells = a->gen.max_tokens;
    add_text(a, name, s, len, g, no);
}

/* "{{12}}" at the beginning of s: its length, and the number; 0: it is none. */
static size_t hole_mark(const char *s, size_t len, int64_t *n)
{
    size_t i = 2;
    *n = 0;
    if (len < 5 || s[0] != '{' || s[1] != '{') return 0;
    for (; i < len && isdigit((unsigned char)s[i]); i++)
        if (*n <= TEXTS_MOST_TOKENS) *n = *n * 10 + (s[i] - '0');
    return i > 2 && i + 2 <= len && s[i] == '}' && s[i + 1] == '}' ? i + 2 : 0;
}

/* Holes anywhere; the answer is the whole text. */
static void lay_out_template(openai_ask *a, const char *s, size_t len, const openai_ground *g, refusal *no)
{
    static const char name[] = "input_template";
    int64_t holes = 0, n = 0;
    for (size_t at = 0; at < len && !no->status;) {
        size_t plain = 0, mark = 0;
        while (at + plain < len && !(mark = hole_mark(s + at + plain, len - at - plain, &n))) plain++;
        add_text(a, name, s + at, plain, g, no);
        at += plain + mark;
        if (!mark || no->status) continue;
        if (n < 1 || n > g->ctx - a->gen.n_canvas) {
            refuse(no, 400, n < 1 ? "bad_value" : "context_length_exceeded", name,
                   "'%s' has a hole of %lld tokens behind %d positions; this server takes %d", name, (long long)n,
                   (int)a->gen.n_canvas, (int)g->ctx);
            return;
        }
        add_hole(&a->gen, (int32_t)n);
        holes += n;
    }
    if (!holes)
        refuse(no, 400, "bad_value", name, "'%s' has no hole; write {{N}} where N tokens are to be filled in", name);
    a->gen.whole = true;
    a->gen.n_cells = a->gen.n_canvas;
    a->gen.max_tokens = (int32_t)holes;
}

/* ---------------------------------------------------------------- what each path takes */

static void read_completion(openai_ask *a, const json_t *o, const openai_ground *g, refusal *no)
{
    const char *suffix;
    size_t n = 0;
    field_text(o, "suffix", true, &suffix, &n, no);
    if (!no->status) read_prompt(a, o, g, no);
    if (!no->status && n) lay_out_suffix(a, "suffix", suffix, n, g, no);
}

static void refuse_beside_template(const json_t *o, refusal *no)
{
    static const char *const names[] = {"input_suffix", "max_tokens", "max_completion_tokens", "n_predict"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *v = json_object_get(o, names[i]);
        if (v && !json_is_null(v))
            refuse(no, 400, "bad_value", names[i], "'%s' can't stand beside 'input_template', which says what to fill",
                   names[i]);
    }
}

static void read_infill(openai_ask *a, const json_t *o, const openai_ground *g, refusal *no)
{
    const char *prefix = "", *suffix = "", *template = "";
    size_t n_prefix = 0, n_suffix = 0, n_template = 0;
    field_text(o, "input_prefix", true, &prefix, &n_prefix, no);
    field_text(o, "input_suffix", true, &suffix, &n_suffix, no);
    bool marked = field_text(o, "input_template", true, &template, &n_template, no);
    if (marked) refuse_beside_template(o, no);
    else if (n_prefix + n_suffix == 0)
        refuse(no, 400, "bad_value", "input_prefix",
               "a text must be there: 'input_prefix', 'input_suffix' or both; or 'input_template'");
    if (!no->status) plain_prompt(a, "input_prefix", prefix, n_prefix, g, no);
    if (no->status) return;
    if (marked) lay_out_template(a, template, n_template, g, no);
    else if (n_suffix) lay_out_suffix(a, "input_suffix", suffix, n_suffix, g, no);
}

void texts_read(openai_ask *a, const json_t *o, const openai_ground *g, refusal *no)
{
    switch (a->api) {
    case API_CHAT: read_messages(a, o, g, no); break;
    case API_TEXT: read_completion(a, o, g, no); break;
    case API_INFILL: read_infill(a, o, g, no); break;
    }
    if (!no->status) check_size(a, g, no);
}
