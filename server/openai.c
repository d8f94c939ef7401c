/* openai.c - reads requests (openai.h).  Unknown fields are ignored, as clients send many; fields we know and can't
 * honour are refused by name; in the object `llada`, which is ours, unknown fields are refused too. */
#include "openai.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "texts.h"

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
    for (int i = 2; i >= 0; i--) field_integer(o, names[i], 1, TEXTS_MOST_TOKENS, &n, no);
    a->gen.max_tokens = (int32_t)n;
    field_integer(o, "seed", -1, INT64_MAX, &seed, no);
    a->gen.seed = (uint64_t)seed;
    if (seed < 0 && getrandom(&a->gen.seed, sizeof a->gen.seed, 0) != sizeof a->gen.seed)
        a->gen.seed = (uint64_t)(now_seconds() * 1e9);
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
    if (!no->status) texts_read(a, o, g, no);
    json_decref(o);
    return !no->status;
}

void openai_free(openai_ask *a) { generation_free(&a->gen); }
