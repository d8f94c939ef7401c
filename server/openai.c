/* openai.c - reads requests (openai.h).  Unknown fields are ignored, as clients send many; fields we know and can't
 * honour are refused by name; in the object `llada`, which is ours, unknown fields are refused too. */
#include "openai.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { MOST_TOKENS = 65536, MOST_MESSAGES = 4096 };

/* ---------------------------------------------------------------- what we can't do */

/* Refused unless they say what happens anyway. */
static const char *const unsupported[] = {
    "tools", "tool_choice", "functions", "function_call", "response_format", "json_schema", "grammar", "logit_bias",
    "presence_penalty", "frequency_penalty", "top_logprobs", "echo", "audio", "modalities", "prediction",
    "web_search_options", "input_extra", "image_data",
};

static bool says_text(const json_t *v) /* {"type": "text"} or ["text"] */
{
    const json_t *t = json_is_object(v) ? json_object_get(v, "type") : NULL;
    if (json_array_size(v) == 1) t = json_array_get(v, 0);
    return json_is_string(t) && !strcmp(json_string_value(t), "text");
}

static bool is_neutral(const json_t *v)
{
    if (json_is_string(v)) {
        const char *s = json_string_value(v);
        return !*s || !strcmp(s, "none") || !strcmp(s, "auto");
    }
    if (json_is_number(v)) return json_number_value(v) == 0;
    if (json_is_object(v)) return json_object_size(v) == 0 || says_text(v);
    if (json_is_array(v)) return json_array_size(v) == 0 || says_text(v);
    return !json_is_true(v);
}

static void check_unsupported(const json_t *o, refusal *no)
{
    int64_t one;
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        const json_t *v = json_object_get(o, unsupported[i]);
        if (v && !is_neutral(v))
            refuse(no, 400, "unsupported", unsupported[i], "'%s' is not supported by this server", unsupported[i]);
    }
    field_integer(o, "n", 1, 1, &one, no);
    field_integer(o, "best_of", 1, 1, &one, no);
}

/* ---------------------------------------------------------------- prompts */

static void too_long(refusal *no, const char *param, size_t n, size_t canvas, const openai_ground *g)
{
    refuse(no, 400, "context_length_exceeded", param,
           "the prompt has %zu tokens and the canvas %zu, together %zu positions; this server takes %d", n, canvas,
           n + canvas, (int)g->ctx);
}

bool openai_ids(const openai_ground *g, const char *s, size_t len, bool special, size_t most, int32_t **ids, size_t *n,
                refusal *no)
{
    llada_err err = {0};
    size_t cap = (len < most ? len : most) + 16; /* more than `most` are only counted */
    *ids = buf_new(cap, sizeof **ids);
    if (llada_tokenize(g->model, s, len, special, *ids, cap, n, &err) == LLADA_OK) {
        if (*n <= most) return true;
        too_long(no, NULL, *n, 0, g);
    } else {
        refuse(no, err.status == LLADA_NO_MEMORY ? 500 : 400, "bad_text", NULL, "%s", err.text);
    }
    free(*ids);
    *ids = NULL;
    return false;
}

/* Plain text; an autoregressive model's begins with its first token. */
static bool plain_prompt(openai_ask *a, const char *s, size_t len, const openai_ground *g, refusal *no)
{
    int32_t *ids;
    size_t n, bos = g->info.causal && g->info.bos_id >= 0;
    if (!openai_ids(g, s, len, false, (size_t)g->ctx, &ids, &n, no)) return false;
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
        plain_prompt(a, json_string_value(v), json_string_length(v), g, no);
    } else if (json_array_size(v) && json_is_integer(json_array_get(v, 0))) {
        size_t n;
        if (!field_ids(v, "prompt", g->info.n_vocab - 1, &a->gen.prompt, &n, no)) return;
        a->gen.n_prompt = n > (size_t)g->ctx ? 0 : (int32_t)n;
        if (n > (size_t)g->ctx) too_long(no, "prompt", n, 0, g);
    } else if (json_array_size(v) > 1) {
        refuse(no, 400, "unsupported", "prompt", "'prompt' holds %zu prompts; this server answers one a request",
               json_array_size(v));
    } else {
        refuse(no, 400, "bad_value", "prompt", "'prompt' must be text or token ids, and not empty");
    }
}

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
    else if (n > most) too_long(no, "messages", n, 0, g);
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

/* The holes, then the ids of the text behind them. */
static void lay_out_infill(openai_ask *a, const char *suffix, size_t len, const openai_ground *g, refusal *no)
{
    int32_t *ids;
    size_t n;
    if (!openai_ids(g, suffix, len, false, (size_t)g->ctx, &ids, &n, no)) return;
    size_t holes = (size_t)a->gen.max_tokens;
    a->gen.canvas = buf_new(holes + n, sizeof *ids);
    for (size_t i = 0; i < holes; i++) a->gen.canvas[i] = LLADA_HOLE;
    memcpy(a->gen.canvas + holes, ids, n * sizeof *ids);
    a->gen.n_canvas = (int32_t)(holes + n);
    free(ids);
}

static void read_text(openai_ask *a, const json_t *o, const openai_ground *g, refusal *no)
{
    const char *prefix = "", *suffix = "";
    size_t n_prefix = 0, n_suffix = 0;
    if (a->api == API_INFILL) {
        if (!json_object_get(o, "input_prefix") && !json_object_get(o, "input_suffix"))
            refuse(no, 400, "bad_value", "input_prefix", "'input_prefix', 'input_suffix' or both must be there");
        field_text(o, "input_prefix", true, &prefix, &n_prefix, no);
        field_text(o, "input_suffix", true, &suffix, &n_suffix, no);
        if (!no->status && n_prefix + n_suffix == 0)
            refuse(no, 400, "bad_value", "input_prefix", "'input_prefix' and 'input_suffix' are both empty");
        if (!no->status) plain_prompt(a, prefix, n_prefix, g, no);
    } else {
        field_text(o, "suffix", true, &suffix, &n_suffix, no);
        if (!no->status) read_prompt(a, o, g, no);
    }
    if (!no->status && n_suffix) lay_out_infill(a, suffix, n_suffix, g, no);
}

/* ---------------------------------------------------------------- stop strings */

static void add_stop(openai_ask *a, const json_t *v, refusal *no)
{
    size_t n = json_string_length(v);
    if (!json_is_string(v) || n == 0 || n > ANSWER_MAX_STOP_BYTES || memchr(json_string_value(v), 0, n)) {
        refuse(no, 400, "bad_value", "stop", "'stop' must hold strings of 1..%d bytes without NUL",
               ANSWER_MAX_STOP_BYTES);
        return;
    }
    a->gen.stop[a->gen.n_stop++] = buf_copy(json_string_value(v), n);
}

static void read_stop(openai_ask *a, const json_t *o, refusal *no)
{
    const json_t *v = json_object_get(o, "stop");
    if (!v || json_is_null(v)) return;
    if (json_is_array(v) && json_array_size(v) > ANSWER_MAX_STOPS) {
        refuse(no, 400, "bad_value", "stop", "'stop' holds %zu strings; at most %d are taken", json_array_size(v),
               ANSWER_MAX_STOPS);
        return;
    }
    if (!json_is_array(v)) add_stop(a, v, no);
    for (size_t i = 0; i < json_array_size(v) && !no->status; i++) add_stop(a, json_array_get(v, i), no);
}

/* ---------------------------------------------------------------- the recipe */

static void set_key(openai_ask *a, const char *param, const char *key, const char *value, refusal *no)
{
    llada_err err = {0};
    if (llada_recipe_set(&a->gen.recipe, key, value, &err)) refuse(no, 400, "bad_value", param, "%s", err.text);
}

static void read_llada_key(openai_ask *a, const char *key, const json_t *v, refusal *no)
{
    char value[128], param[64];
    snprintf(param, sizeof param, "llada.%.50s", key);
    switch (json_typeof(v)) {
    case JSON_TRUE: snprintf(value, sizeof value, "true"); break;
    case JSON_FALSE: snprintf(value, sizeof value, "false"); break;
    case JSON_INTEGER: snprintf(value, sizeof value, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: snprintf(value, sizeof value, "%.17g", json_real_value(v)); break;
    case JSON_STRING: snprintf(value, sizeof value, "%.100s", json_string_value(v)); break;
    default: refuse(no, 400, "bad_value", param, "'%s' is neither a number, a word, true nor false", param); return;
    }
    set_key(a, param, key, value, no);
}

static void read_recipe(openai_ask *a, const json_t *o, bool *events, bool *drafts, refusal *no)
{
    const json_t *ours = json_object_get(o, "llada"), *name = json_object_get(ours, "recipe"), *v;
    double number;
    int64_t k;
    const char *key;
    char text[64];
    if (ours && !json_is_null(ours) && !json_is_object(ours))
        refuse(no, 400, "bad_value", "llada", "'llada' must be an object");
    if (name) {
        llada_err err = {0};
        const char *s = json_is_string(name) ? json_string_value(name) : "";
        if (llada_recipe_named(&a->gen.recipe, s, &err)) refuse(no, 400, "bad_value", "llada.recipe", "%s", err.text);
    }
    if (field_number(o, "temperature", 0, 100, &number, no)) {
        snprintf(text, sizeof text, "%.17g", number);
        set_key(a, "temperature", "temp", text, no);
    }
    if (field_number(o, "top_p", 0, 1, &number, no)) {
        snprintf(text, sizeof text, "%.17g", number);
        set_key(a, "top_p", "top_p", text, no);
    }
    if (field_integer(o, "top_k", 0, 1 << 24, &k, no)) {
        snprintf(text, sizeof text, "%lld", (long long)k);
        set_key(a, "top_k", "top_k", text, no);
    }
    json_object_foreach((json_t *)ours, key, v) {
        if (no->status) return;
        if (!strcmp(key, "recipe")) continue;
        if (!strcmp(key, "events")) field_bool(ours, "events", events, no);
        else if (!strcmp(key, "diffusing")) field_bool(ours, "diffusing", drafts, no);
        else read_llada_key(a, key, v, no);
    }
}

/* ---------------------------------------------------------------- the rest */

static void read_show(openai_ask *a, const json_t *o, bool events, bool drafts, refusal *no)
{
    bool stream = false, usage = false;
    const json_t *more = json_object_get(o, "stream_options");
    field_bool(o, "stream", &stream, no);
    field_bool(o, "diffusing", &drafts, no);
    if (more && !json_is_null(more) && !json_is_object(more))
        refuse(no, 400, "bad_value", "stream_options", "'stream_options' must be an object");
    field_bool(more, "include_usage", &usage, no);
    a->usage = usage;
    a->show = !stream ? SHOW_WHOLE : events ? SHOW_EVENTS : drafts ? SHOW_DRAFTS : SHOW_DELTAS;
}

static void read_logprobs(openai_ask *a, const json_t *o, refusal *no)
{
    int64_t n;
    if (a->api == API_CHAT) field_bool(o, "logprobs", &a->logprobs, no);
    else a->logprobs = field_integer(o, "logprobs", 0, 1, &n, no);
}

static void read_lengths(openai_ask *a, const json_t *o, const openai_ground *g, refusal *no)
{
    static const char *const names[] = {"max_completion_tokens", "max_tokens", "n_predict"};
    int64_t n = a->gen.recipe.gen > 0 ? a->gen.recipe.gen : g->max_tokens, seed = g->seed;
    for (int i = 2; i >= 0; i--) field_integer(o, names[i], 1, MOST_TOKENS, &n, no);
    a->gen.max_tokens = (int32_t)n;
    field_integer(o, "seed", -1, INT64_MAX, &seed, no);
    a->gen.seed = (uint64_t)seed;
    if (seed < 0 && getrandom(&a->gen.seed, sizeof a->gen.seed, 0) != sizeof a->gen.seed)
        a->gen.seed = (uint64_t)(now_seconds() * 1e9);
}

static void check_size(openai_ask *a, const openai_ground *g, refusal *no)
{
    int32_t canvas = a->gen.recipe.gen > 0 ? a->gen.recipe.gen : a->gen.max_tokens;
    a->gen.n_holes = a->gen.canvas ? a->gen.max_tokens : canvas;
    if (a->gen.canvas) canvas = a->gen.n_canvas;
    if ((int64_t)a->gen.n_prompt + canvas > g->ctx)
        too_long(no, a->api == API_CHAT ? "messages" : a->api == API_TEXT ? "prompt" : "input_prefix",
                 (size_t)a->gen.n_prompt, (size_t)canvas, g);
    if (a->gen.max_tokens > a->gen.n_holes) a->gen.max_tokens = a->gen.n_holes;
}

bool openai_read(openai_ask *a, api_kind api, const char *body, size_t n, const openai_ground *g, refusal *no)
{
    bool events = false, drafts = false;
    *a = (openai_ask){.api = api};
    a->gen.recipe = g->recipe;
    json_t *o = fields_parse(body, n, no);
    if (!o) return false;
    check_unsupported(o, no);
    read_recipe(a, o, &events, &drafts, no);
    read_show(a, o, events, drafts, no);
    read_logprobs(a, o, no);
    read_lengths(a, o, g, no);
    read_stop(a, o, no);
    if (!no->status && api == API_CHAT) read_messages(a, o, g, no);
    if (!no->status && api != API_CHAT) read_text(a, o, g, no);
    if (!no->status) check_size(a, g, no);
    json_decref(o);
    return !no->status;
}

void openai_free(openai_ask *a) { generation_free(&a->gen); }
