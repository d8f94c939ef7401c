/* reply.c - answers in the shapes of the OpenAI API (reply.h). */
#include "reply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void reply_begin(reply_name *r, api_kind api, const char *model)
{
    uint64_t random[2] = {0};
    static const char *const kinds[] = {"chatcmpl", "cmpl", "infill"};
    if (getrandom(random, sizeof random, 0) != sizeof random) random[0] = (uint64_t)(now_seconds() * 1e9);
    *r = (reply_name){.api = api, .created = (int64_t)time(NULL), .model = model};
    snprintf(r->id, sizeof r->id, "%s-%016llx%08x", kinds[api], (unsigned long long)random[0], (unsigned)random[1]);
}

void reply_write(json_t *o, buf *out)
{
    char *s = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    buf_str(out, s ? s : "{}");
    free(s);
    json_decref(o);
}

json_t *reply_text(const char *p, size_t n)
{
    answer a = {0};
    buf_str(&a.text, "");
    if (n) answer_add(&a, p, n);
    answer_end(&a);
    json_t *v = json_stringn(a.text.p, a.text.n);
    answer_free(&a);
    return v;
}

/* ---------------------------------------------------------------- numbers */

json_t *reply_usage(const job *j)
{
    const llada_result *r = &j->result;
    int32_t n = job_count(j);
    json_t *ours = json_object(), *o = json_object();
    json_object_set_new(ours, "recipe", json_string(j->gen.recipe.name));
    json_object_set_new(ours, "steps", json_integer(j->step));
    json_object_set_new(ours, "passes", json_integer(r->passes));
    json_object_set_new(ours, "full", json_integer(r->full));
    json_object_set_new(ours, "jobs", json_integer(r->jobs));
    json_object_set_new(ours, "sweeps", json_integer(r->sweeps));
    json_object_set_new(ours, "rows", json_integer(r->rows));
    json_object_set_new(ours, "rev_rows", json_integer(r->rev_rows));
    json_object_set_new(ours, "edits", json_integer(r->edits));
    json_object_set_new(ours, "remasks", json_integer(r->remasks));
    json_object_set_new(ours, "revisions", json_integer(r->edits + r->remasks));
    json_object_set_new(ours, "drafts", json_integer(r->drafts));
    json_object_set_new(ours, "draft_ok", json_integer(r->draft_ok));
    json_object_set_new(ours, "tokens_per_pass", json_real(r->tokens_per_pass));
    json_object_set_new(ours, "seconds", json_real(r->seconds));
    json_object_set_new(ours, "first_text_seconds", json_real(j->first_text));
    json_object_set_new(ours, "first_block_seconds", json_real(j->first_block));
    json_object_set_new(ours, "queued_seconds", json_real(j->begun_at - j->queued_at));
    json_object_set_new(o, "prompt_tokens", json_integer(j->gen.n_prompt));
    json_object_set_new(o, "completion_tokens", json_integer(n));
    json_object_set_new(o, "total_tokens", json_integer(j->gen.n_prompt + n));
    json_object_set_new(o, "llada", ours);
    return o;
}

/* ---------------------------------------------------------------- probabilities of tokens */

static double log_of(float p) { return p > 0 ? log((double)p) : -9999; }

static json_t *chat_logprob(const job *j, int32_t i)
{
    buf bytes = {0};
    json_t *o = json_object(), *list = json_array();
    job_bytes(j, j->tokens[i], &bytes);
    for (size_t k = 0; k < bytes.n; k++) json_array_append_new(list, json_integer((unsigned char)bytes.p[k]));
    json_object_set_new(o, "token", reply_text(bytes.p, bytes.n));
    json_object_set_new(o, "logprob", json_real(log_of(j->confidence[i])));
    json_object_set_new(o, "bytes", list);
    json_object_set_new(o, "top_logprobs", json_array());
    buf_free(&bytes);
    return o;
}

static size_t characters(const char *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)p[i] & 0xC0) != 0x80;
    return count;
}

json_t *reply_logprobs(const reply_name *r, const job *j, int32_t from, int32_t to)
{
    json_t *o = json_object(), *list = json_array();
    if (r->api == API_CHAT) {
        for (int32_t i = from; i < to; i++) json_array_append_new(list, chat_logprob(j, i));
        json_object_set_new(o, "content", list);
        json_object_set_new(o, "refusal", json_null());
        return o;
    }
    json_t *logs = json_array(), *offsets = json_array();
    for (int32_t i = from; i < to; i++) {
        buf bytes = {0};
        job_bytes(j, j->tokens[i], &bytes);
        json_array_append_new(list, reply_text(bytes.p, bytes.n));
        json_array_append_new(logs, json_real(log_of(j->confidence[i])));
        json_array_append_new(offsets, json_integer((json_int_t)characters(j->text.text.p, j->starts[i])));
        buf_free(&bytes);
    }
    json_object_set_new(o, "tokens", list);
    json_object_set_new(o, "token_logprobs", logs);
    json_object_set_new(o, "top_logprobs", json_null());
    json_object_set_new(o, "text_offset", offsets);
    return o;
}

/* ---------------------------------------------------------------- answers */

static json_t *envelope(const reply_name *r, bool chunk, json_t *choice)
{
    json_t *o = json_object(), *choices = json_array();
    const char *kind = r->api != API_CHAT ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    if (choice) json_array_append_new(choices, choice);
    json_object_set_new(o, "id", json_string(r->id));
    json_object_set_new(o, "object", json_string(kind));
    json_object_set_new(o, "created", json_integer(r->created));
    json_object_set_new(o, "model", reply_text(r->model, strlen(r->model)));
    json_object_set_new(o, "system_fingerprint", json_string("llada-" LLADA_VERSION));
    json_object_set_new(o, "choices", choices);
    return o;
}

static json_t *or_null(json_t *v) { return v ? v : json_null(); }

static json_t *infill(const reply_name *r, const char *text, size_t n, const char *finish)
{
    json_t *o = json_object();
    json_object_set_new(o, "id", json_string(r->id));
    json_object_set_new(o, "model", reply_text(r->model, strlen(r->model)));
    json_object_set_new(o, "content", json_stringn(text ? text : "", n));
    json_object_set_new(o, "stop", json_boolean(finish));
    json_object_set_new(o, "finish_reason", finish ? json_string(finish) : json_null());
    return o;
}

json_t *reply_whole(const reply_name *r, const job *j, bool logprobs)
{
    const char *text = j->text.text.p ? j->text.text.p : "";
    size_t n = j->text.text.n;
    json_t *o, *choice = json_object(), *probs = logprobs ? reply_logprobs(r, j, 0, job_count(j)) : NULL;
    if (r->api == API_INFILL) {
        json_decref(choice);
        json_decref(probs);
        o = infill(r, text, n, job_finish_reason(j));
    } else {
        json_object_set_new(choice, "index", json_integer(0));
        if (r->api == API_CHAT) {
            json_t *m = json_object();
            json_object_set_new(m, "role", json_string("assistant"));
            json_object_set_new(m, "content", json_stringn(text, n));
            json_object_set_new(m, "refusal", json_null());
            json_object_set_new(choice, "message", m);
        } else {
            json_object_set_new(choice, "text", json_stringn(text, n));
        }
        json_object_set_new(choice, "logprobs", or_null(probs));
        json_object_set_new(choice, "finish_reason", json_string(job_finish_reason(j)));
        o = envelope(r, false, choice);
    }
    json_object_set_new(o, "usage", reply_usage(j));
    return o;
}

json_t *reply_chunk(const reply_name *r, const char *text, size_t n, const char *finish, json_t *logprobs)
{
    if (r->api == API_INFILL) {
        json_decref(logprobs);
        return infill(r, text, n, finish);
    }
    json_t *choice = json_object();
    json_object_set_new(choice, "index", json_integer(0));
    if (r->api == API_CHAT) {
        json_t *delta = json_object();
        if (text) json_object_set_new(delta, "content", json_stringn(text, n));
        json_object_set_new(choice, "delta", delta);
    } else {
        json_object_set_new(choice, "text", json_stringn(text ? text : "", n));
    }
    json_object_set_new(choice, "logprobs", or_null(logprobs));
    json_object_set_new(choice, "finish_reason", finish ? json_string(finish) : json_null());
    return envelope(r, true, choice);
}

json_t *reply_chunk_usage(const reply_name *r, const job *j)
{
    json_t *o = r->api == API_INFILL ? infill(r, "", 0, job_finish_reason(j)) : envelope(r, true, NULL);
    json_object_set_new(o, "usage", reply_usage(j));
    return o;
}

json_t *reply_error(const refusal *no)
{
    json_t *e = json_object(), *o = json_object();
    json_object_set_new(e, "message", reply_text(no->message, strlen(no->message)));
    json_object_set_new(e, "type", json_string(no->type));
    json_object_set_new(e, "param", no->param[0] ? reply_text(no->param, strlen(no->param)) : json_null());
    json_object_set_new(e, "code", no->code ? json_string(no->code) : json_null());
    json_object_set_new(o, "error", e);
    return o;
}

void reply_failure(const job *j, refusal *no)
{
    const char *text = j->err.text[0] ? j->err.text : "the generation was stopped";
    switch (j->status) {
    case LLADA_CANCELLED: refuse(no, 503, "shutting_down", NULL, "the server is shutting down"); break;
    case LLADA_BAD_ARG:
    case LLADA_UNSUPPORTED: refuse(no, 400, "bad_value", NULL, "%s", text); break;
    case LLADA_TOO_LONG: refuse(no, 400, "context_length_exceeded", NULL, "%s", text); break;
    default: refuse(no, 500, "generation_failed", NULL, "%s", text); break;
    }
}
