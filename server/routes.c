/* routes.c - which request is answered by what (routes.h). */
#include "routes.h"

#include "about.h"
#include "guard.h"
#include "page.h"
#include "tokens.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts from this size on are read by one thread at a time: tokenizers at work on many would take memory and cores. */
enum { LARGE_BODY = 64 << 10 };

struct routes {
    const server_opts *o;  /* borrowed */
    metrics m;
    queue *q;              /* set before `ready` */
    openai_ground ground;  /* the same */
    atomic_bool ready, draining;
    atomic_int connections;
    pthread_mutex_t large;
    double began;
};

/* ---------------------------------------------------------------- life */

routes *routes_open(const server_opts *o)
{
    routes *r = buf_new(1, sizeof *r);
    r->o = o;
    metrics_open(&r->m);
    pthread_mutex_init(&r->large, NULL);
    r->began = now_seconds();
    return r;
}

void routes_model(routes *r, const llada_model *m, const llada_recipe *recipe)
{
    openai_ground *g = &r->ground;
    *g = (openai_ground){.model = m, .recipe = *recipe, .max_tokens = r->o->max_tokens, .seed = r->o->seed};
    g->info.size = sizeof g->info;
    llada_model_get_info(m, &g->info);
    g->ctx = r->o->ctx ? r->o->ctx : g->info.n_ctx > 0 ? g->info.n_ctx : 4096;
    queue_opts q = {.model = m, .waiting = r->o->waiting, .m = &r->m};
    llada_session_opts_defaults(&q.session);
    q.session.ctx = g->ctx;
    q.session.threads = r->o->threads;
    q.session.kv_f16 = r->o->kv_f16;
    q.session.cpu_mask = r->o->cpu_mask;
    r->q = queue_open(&q);
    atomic_store(&r->ready, r->q != NULL);
}

void routes_connections(routes *r, int n) { atomic_store(&r->connections, n); }

void routes_drain(routes *r, double seconds)
{
    atomic_store(&r->draining, true);
    if (atomic_load(&r->ready)) queue_drain(r->q, seconds);
}

void routes_close(routes **rp)
{
    routes *r = *rp;
    if (!r) return;
    if (r->q) queue_close(&r->q);
    metrics_close(&r->m);
    pthread_mutex_destroy(&r->large);
    free(r);
    *rp = NULL;
}

void routes_free(route_answer *a)
{
    buf_free(&a->body);
    if (a->stream) stream_free(a->stream);
    *a = (route_answer){0};
}

void routes_answered(routes *r, int status) { metrics_answer(&r->m, status); }

/* ---------------------------------------------------------------- answers */

static void answer_json(route_answer *a, int status, json_t *o)
{
    a->status = status;
    a->type = "application/json";
    reply_write(o, &a->body);
}

static void answer_refusal(route_answer *a, const refusal *no) { answer_json(a, no->status, reply_error(no)); }

void routes_refuse(routes *r, route_answer *a, int status, const char *code, const char *message)
{
    refusal no = {0};
    refuse(&no, status, code, NULL, "%s", message);
    answer_refusal(a, &no);
    if (status == 503) a->retry_after = 1;
}

static bool needs_model(routes *r, route_answer *a)
{
    if (atomic_load(&r->draining)) {
        routes_refuse(r, a, 503, "shutting_down", "the server is shutting down");
        return false;
    }
    if (atomic_load(&r->ready)) return true;
    routes_refuse(r, a, 503, "loading", "the model is being loaded");
    return false;
}

static void line_is_full(routes *r, route_answer *a)
{
    int running, waiting;
    queue_count(r->q, &running, &waiting);
    char why[160];
    snprintf(why, sizeof why, "%d running and %d waiting: the line is full", running, waiting);
    metrics_full(&r->m);
    routes_refuse(r, a, 503, "overloaded", why);
    double seconds = queue_seconds(r->q) * (waiting + running) / 2;
    a->retry_after = seconds < 1 ? 1 : seconds > 60 ? 60 : (int)seconds;
}

static bool health(routes *r, const route_request *q, route_answer *a)
{
    bool good = atomic_load(&r->ready) && !atomic_load(&r->draining);
    const char *what = good ? "ok" : atomic_load(&r->draining) ? "shutting down" : "loading";
    json_t *o = json_object();
    json_object_set_new(o, "status", json_string(what));
    answer_json(a, good ? 200 : 503, o);
    if (!good) a->retry_after = 1;
    return true;
}

static bool page(routes *r, const route_request *q, route_answer *a)
{
    const page_file *f = page_find(q->path);
    a->status = 200;
    a->type = f->type;
    a->bytes = f->begin;
    a->n_bytes = (size_t)(f->end - f->begin);
    a->page = true;
    return true;
}

static bool models(routes *r, const route_request *q, route_answer *a)
{
    answer_json(a, 200, about_models(&r->ground));
    return true;
}

static bool props(routes *r, const route_request *q, route_answer *a)
{
    int running, waiting;
    queue_count(r->q, &running, &waiting);
    json_t *o = about_server(&r->ground);
    json_object_set_new(o, "running", json_integer(running));
    json_object_set_new(o, "waiting", json_integer(waiting));
    json_object_set_new(o, "most_waiting", json_integer(r->o->waiting));
    answer_json(a, 200, o);
    return true;
}

static bool show_metrics(routes *r, const route_request *q, route_answer *a)
{
    metrics_now now = {.connections = atomic_load(&r->connections), .up = now_seconds() - r->began};
    if (atomic_load(&r->ready)) queue_count(r->q, &now.running, &now.waiting);
    a->status = 200;
    a->type = "text/plain; version=0.0.4";
    metrics_text(&r->m, &now, &a->body);
    return true;
}

static void lock_large(routes *r, const route_request *q)
{
    if (q->n_body >= LARGE_BODY) pthread_mutex_lock(&r->large);
}

static void unlock_large(routes *r, const route_request *q)
{
    if (q->n_body >= LARGE_BODY) pthread_mutex_unlock(&r->large);
}

/* o NULL: `no` says why. */
static bool answer_either(route_answer *a, json_t *o, const refusal *no)
{
    if (o) answer_json(a, 200, o);
    else answer_refusal(a, no);
    return true;
}

static bool tokenize(routes *r, const route_request *q, route_answer *a)
{
    refusal no = {0};
    lock_large(r, q);
    json_t *o = tokens_of_text(&r->ground, q->body, q->n_body, &no);
    unlock_large(r, q);
    return answer_either(a, o, &no);
}

static bool detokenize(routes *r, const route_request *q, route_answer *a)
{
    refusal no = {0};
    lock_large(r, q);
    json_t *o = tokens_to_text(&r->ground, q->body, q->n_body, &no);
    unlock_large(r, q);
    return answer_either(a, o, &no);
}

/* ---------------------------------------------------------------- generations */

enum { LOOKS_PER_SECOND = 20 };

/* Waits until the job runs (streamed) or is done; false: the client has gone. */
static bool wait_for(job *j, bool streamed)
{
    while (true) {
        pthread_mutex_lock(&j->lock);
        bool there = j->phase == JOB_DONE || (streamed && j->phase == JOB_RUNNING);
        pthread_mutex_unlock(&j->lock);
        if (there) return true;
        if (!job_wait(j, 1.0 / LOOKS_PER_SECOND)) return false;
    }
}

static void answer_whole(job *j, const openai_ask *ask, const reply_name *name, route_answer *a)
{
    refusal no = {0};
    pthread_mutex_lock(&j->lock);
    if (j->status) reply_failure(j, &no);
    else answer_json(a, 200, reply_whole(name, j, ask->logprobs));
    pthread_mutex_unlock(&j->lock);
    if (!no.status) return;
    answer_refusal(a, &no);
    if (no.status == 503) a->retry_after = 1;
}

static bool generate(routes *r, const route_request *q, route_answer *a, api_kind api)
{
    openai_ask ask;
    reply_name name;
    refusal no = {0};
    lock_large(r, q);
    bool good = openai_read(&ask, api, q->body, q->n_body, &r->ground, &no);
    unlock_large(r, q);
    if (!good) {
        answer_refusal(a, &no);
        openai_free(&ask);
        return true;
    }
    job *j = job_new(&ask.gen, r->ground.model, q->fd);
    if (!queue_add(r->q, j)) {
        job_leave(j);
        if (needs_model(r, a)) line_is_full(r, a);
        return true;
    }
    reply_begin(&name, api, r->ground.info.name);
    bool streamed = ask.show != SHOW_WHOLE, here = wait_for(j, streamed);
    pthread_mutex_lock(&j->lock);
    bool failed = j->phase == JOB_DONE && j->status;
    pthread_mutex_unlock(&j->lock);
    if (here && streamed && !failed) {
        a->status = 200;
        a->type = "text/event-stream";
        a->stream = stream_new(j, &ask, &name);
        return true;
    }
    if (here) answer_whole(j, &ask, &name, a);
    job_leave(j);
    return here;
}

static bool chat(routes *r, const route_request *q, route_answer *a) { return generate(r, q, a, API_CHAT); }
static bool complete(routes *r, const route_request *q, route_answer *a) { return generate(r, q, a, API_TEXT); }
static bool infill(routes *r, const route_request *q, route_answer *a) { return generate(r, q, a, API_INFILL); }

/* ---------------------------------------------------------------- the table */

typedef struct {
    const char *path;
    bool post, open, early; /* open: no key; early: also while the model is being loaded */
    bool line;              /* a generation: it may have to wait in line */
    bool (*handle)(routes *r, const route_request *q, route_answer *a);
} route;

static const route table[] = {
    {"/health", false, true, true, false, health},
    {"/", false, true, true, false, page},
    {"/page.css", false, true, true, false, page},
    {"/page.js", false, true, true, false, page},
    {"/v1/models", false, false, false, false, models},
    {"/props", false, false, false, false, props},
    {"/metrics", false, false, true, false, show_metrics},
    {"/v1/chat/completions", true, false, false, true, chat},
    {"/v1/completions", true, false, false, true, complete},
    {"/infill", true, false, false, true, infill},
    {"/tokenize", true, false, false, false, tokenize},
    {"/detokenize", true, false, false, false, detokenize},
};

static const route *find(const routes *r, const char *path)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (!strcmp(table[i].path, path)) return table[i].handle == show_metrics && !r->o->metrics ? NULL : &table[i];
    return NULL;
}

bool routes_check(routes *r, const route_request *q, route_answer *a)
{
    const server_opts *o = r->o;
    const route *w = find(r, q->path);
    a->cors = guard_listed(q->origin, o->origins, o->n_origins);
    bool get = !strcmp(q->method, "GET") || !strcmp(q->method, "HEAD"), post = !strcmp(q->method, "POST");
    if (!guard_host(q->host, o->host, o->hosts, o->n_hosts))
        routes_refuse(r, a, 403, "bad_host",
                      "the Host header names a host this server does not answer for (--allow-host)");
    else if (!a->cors && !guard_origin(q->origin, q->host))
        routes_refuse(r, a, 403, "bad_origin", "pages of other sites may not use this server");
    else if (!w)
        routes_refuse(r, a, 404, "not_found", "there is nothing at this path");
    else if (a->cors && !strcmp(q->method, "OPTIONS")) {
        a->status = 204;
        a->preflight = true;
    } else if (w->post ? !post : !get) {
        routes_refuse(r, a, 405, "bad_method", w->post ? "this path takes POST" : "this path takes GET");
        a->allow = w->post ? "POST" : "GET, HEAD";
    } else if (!w->open && o->key && !guard_key(q->authorization, o->key))
        routes_refuse(r, a, 401, "invalid_api_key", "an API key is needed, as in 'Authorization: Bearer KEY'");
    else if (w->post && !guard_json(q->type))
        routes_refuse(r, a, 415, "bad_content_type", "the Content-Type must be application/json");
    else if (w->early || !needs_model(r, a))
        return w->early;
    else if (w->line && !queue_has_room(r->q)) /* known before the text is read, which takes time */
        line_is_full(r, a);
    else
        return true;
    return false;
}

bool routes_handle(routes *r, const route_request *q, route_answer *a)
{
    return find(r, q->path)->handle(r, q, a);
}
