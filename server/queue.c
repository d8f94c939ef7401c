/* queue.c - the line of jobs, and the worker (queue.h). */
#include "queue.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct queue {
    queue_opts o;
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t more, idle;
    /* under the lock */
    job *first, *running; /* a reference each */
    int n;
    bool closed, stop;    /* closed: nothing more is taken; stop: the worker ends */
    double seconds;       /* running average of what a job takes */
    /* the worker's own */
    llada_session *session;
    llada_recipe recipe;  /* of the session */
    int32_t ctx;          /* of the session */
};

/* ---------------------------------------------------------------- the session */

enum { CTX_STEP = 512 };

/* By the text of each key: bytes between fields say nothing. */
static bool same_recipe(const llada_recipe *a, const llada_recipe *b)
{
    size_t n;
    const llada_recipe_key *keys = llada_recipe_keys(&n);
    for (size_t i = 0; i < n; i++) {
        char x[64] = "", y[64] = "";
        llada_recipe_get(a, keys[i].key, x, sizeof x, NULL);
        llada_recipe_get(b, keys[i].key, y, sizeof y, NULL);
        if (strcmp(x, y) != 0) return false;
    }
    return true;
}

/* The session is kept while requests are alike; it grows in steps, so that memory follows use and not the limit. */
static llada_status open_session(queue *q, const generation *g, llada_err *err)
{
    int32_t need = g->n_prompt + (g->canvas ? g->n_canvas : g->n_cells);
    if (q->session && need <= q->ctx && same_recipe(&q->recipe, &g->recipe)) return LLADA_OK;
    llada_session_close(&q->session);
    llada_session_opts so = q->o.session;
    int32_t ctx = (need + CTX_STEP - 1) / CTX_STEP * CTX_STEP;
    so.ctx = ctx > so.ctx && need <= so.ctx ? so.ctx : ctx;
    llada_status st = llada_session_open(&q->session, q->o.model, &g->recipe, &so, err);
    q->recipe = g->recipe;
    q->ctx = so.ctx;
    return st;
}

/* ---------------------------------------------------------------- the worker */

static bool on_event(const llada_event *ev, void *user) { return job_event(user, ev); }

static llada_status generate(queue *q, job *j, llada_result *res, llada_err *err)
{
    llada_request r;
    bool done = false;
    llada_status st = open_session(q, &j->gen, err);
    if (st) return st;
    llada_request_defaults(&r);
    r.prompt = j->gen.prompt;
    r.n_prompt = j->gen.n_prompt;
    r.canvas = j->gen.canvas;
    r.n_canvas = j->gen.canvas ? j->gen.n_canvas : 0;
    r.max_tokens = j->gen.max_tokens;
    r.seed = j->gen.seed;
    r.on_event = on_event;
    r.user = j;
    st = llada_begin(q->session, &r, err);
    if (st) return st;
    pthread_mutex_lock(&j->lock);
    j->phase = JOB_RUNNING;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    while (!st && !done) {
        st = llada_step(q->session, &done, err);
        pthread_mutex_lock(&j->lock);
        pthread_cond_broadcast(&j->changed);
        pthread_mutex_unlock(&j->lock);
    }
    if (st == LLADA_OK || st == LLADA_CANCELLED) {
        res->size = sizeof *res;
        if (llada_get_result(q->session, res, NULL)) res->size = 0;
    }
    return st;
}

static void run(queue *q, job *j)
{
    llada_err err = {0};
    llada_result res = {0};
    double began = now_seconds();
    pthread_mutex_lock(&j->lock);
    job_look(j);
    bool unwanted = j->unwanted;
    j->begun_at = began;
    pthread_mutex_unlock(&j->lock);
    llada_status st = unwanted ? LLADA_CANCELLED : generate(q, j, &res, &err);
    job_finish(j, st, &err, &res);
    metrics_job(q->o.m, j, unwanted);
    double took = now_seconds() - began;
    pthread_mutex_lock(&q->lock);
    if (!unwanted) q->seconds = q->seconds > 0 ? 0.8 * q->seconds + 0.2 * took : took;
    pthread_mutex_unlock(&q->lock);
}

static void *work(void *user)
{
    queue *q = user;
    pthread_mutex_lock(&q->lock);
    while (true) {
        while (!q->first && !q->stop) {
            pthread_cond_broadcast(&q->idle);
            pthread_cond_wait(&q->more, &q->lock);
        }
        if (!q->first) break;
        job *j = q->running = q->first;
        q->first = j->next;
        q->n--;
        pthread_mutex_unlock(&q->lock);
        run(q, j);
        pthread_mutex_lock(&q->lock);
        q->running = NULL;
        job_free(j);
    }
    pthread_cond_broadcast(&q->idle);
    pthread_mutex_unlock(&q->lock);
    llada_session_close(&q->session);
    return NULL;
}

/* ---------------------------------------------------------------- the line */

queue *queue_open(const queue_opts *o)
{
    queue *q = buf_new(1, sizeof *q);
    q->o = *o;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&q->more, &clock);
    pthread_cond_init(&q->idle, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&q->worker, NULL, work, q) == 0) return q;
    free(q);
    return NULL;
}

/* Takes jobs out of the line whose clients have gone.  Their own threads tell them the end. */
static void drop_dead(queue *q)
{
    for (job **at = &q->first; *at;) {
        job *j = *at;
        pthread_mutex_lock(&j->lock);
        bool dead = job_look(j) || j->unwanted;
        pthread_mutex_unlock(&j->lock);
        if (!dead) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        q->n--;
        llada_err none = {0};
        llada_result no_result = {0};
        job_finish(j, LLADA_CANCELLED, &none, &no_result);
        metrics_job(q->o.m, j, true);
        job_free(j);
    }
}

static bool has_room(queue *q)
{
    drop_dead(q);
    int most = q->o.waiting + (q->running ? 0 : 1); /* the worker will take one at once */
    return !q->closed && q->n < most;
}

bool queue_has_room(queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool room = has_room(q);
    pthread_mutex_unlock(&q->lock);
    return room;
}

bool queue_add(queue *q, job *j)
{
    pthread_mutex_lock(&q->lock);
    bool room = has_room(q);
    if (room) {
        pthread_mutex_lock(&j->lock);
        j->refs++;
        pthread_mutex_unlock(&j->lock);
        j->next = NULL;
        job **at = &q->first;
        while (*at) at = &(*at)->next;
        *at = j;
        q->n++;
        pthread_cond_signal(&q->more);
    }
    pthread_mutex_unlock(&q->lock);
    return room;
}

void queue_count(queue *q, int *running, int *waiting)
{
    pthread_mutex_lock(&q->lock);
    *running = q->running != NULL;
    *waiting = q->n;
    pthread_mutex_unlock(&q->lock);
}

double queue_seconds(queue *q)
{
    pthread_mutex_lock(&q->lock);
    double s = q->seconds;
    pthread_mutex_unlock(&q->lock);
    return s;
}

static void give_up(job *j)
{
    pthread_mutex_lock(&j->lock);
    j->unwanted = true;
    pthread_mutex_unlock(&j->lock);
}

void queue_drain(queue *q, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    while ((q->running || q->first) && pthread_cond_timedwait(&q->idle, &q->lock, &until) == 0) {}
    for (job *j = q->first; j; j = j->next) give_up(j);
    if (q->running) give_up(q->running);
    while (q->running || q->first) pthread_cond_wait(&q->idle, &q->lock); /* at most one pass */
    pthread_mutex_unlock(&q->lock);
}

void queue_close(queue **qp)
{
    queue *q = *qp;
    if (!q) return;
    queue_drain(q, 0);
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->worker, NULL);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->more);
    pthread_cond_destroy(&q->idle);
    free(q);
    *qp = NULL;
}
