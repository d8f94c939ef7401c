/* team.c - see team.h.  A helper sleeps on its count of jobs asked for, whoever gave it one on the count of those done;
 * what a job needs is written before it is asked for.  Each helper that was given a job is waited for, so none ever
 * takes a part of the wrong one. */
#include "device/npu/dsp/team.h"

enum { MATRIX = MAX_WORKERS }; /* number of the HMX thread */

static void serve(void *arg)
{
    helper *h = arg;
    for (uint32_t seen = 0;;) {
        uint32_t asked;
        while ((asked = atomic_load_explicit(&h->asked, memory_order_acquire)) == seen)
            port_sleep(h->t->m, &h->asked, seen);
        seen = asked;
        if (h->t->ends) return;
        h->work(h);
        atomic_store_explicit(&h->done, seen, memory_order_release);
        port_wake(h->t->m, &h->done);
    }
}

static void give(helper *h)
{
    atomic_fetch_add_explicit(&h->asked, 1, memory_order_release);
    port_wake(h->t->m, &h->asked);
}

static void wait_for(helper *h)
{
    const uint32_t asked = atomic_load_explicit(&h->asked, memory_order_relaxed);
    uint32_t done;
    while ((done = atomic_load_explicit(&h->done, memory_order_acquire)) != asked) port_sleep(h->t->m, &h->done, done);
}

/* ------------------------------------------------------------ jobs */

static void take_parts(team *t, uint32_t thread)
{
    uint32_t part;
    while ((part = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < t->parts)
        t->part(t->arg, part, thread);
}

static void work(helper *h) { take_parts(h->t, (uint32_t)(h - h->t->worker) + 1); }

void team_run(team *t, uint32_t workers, uint32_t parts, team_part part, void *arg)
{
    uint32_t n = workers < t->workers ? workers : t->workers;
    if (parts <= n) n = parts ? parts - 1 : 0;
    t->part = part;
    t->arg = arg;
    t->parts = parts;
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) give(&t->worker[i]);
    take_parts(t, 0);
    for (uint32_t i = 0; i < n; i++) wait_for(&t->worker[i]);
}

static void matrix_work(helper *h) { h->t->matrix_job(h->t->matrix_arg); }

void team_matrix_start(team *t, void (*job)(void *arg), void *arg)
{
    t->matrix_job = job;
    t->matrix_arg = arg;
    give(&t->matrix);
}

void team_matrix_wait(team *t) { wait_for(&t->matrix); }

/* ------------------------------------------------------------ opening */

static bool begin(team *t, helper *h, uint32_t number, void (*work_on)(helper *h))
{
    h->t = t;
    h->work = work_on;
    atomic_init(&h->asked, 0);
    atomic_init(&h->done, 0);
    return port_thread(t->m, number, number != MATRIX, serve, h);
}

bool team_open(team *t, port *m, uint32_t workers)
{
    t->m = m;
    t->workers = 0;
    t->ends = false;
    atomic_init(&t->next, 0);
    if (!begin(t, &t->matrix, MATRIX, matrix_work)) return false;
    while (t->workers < MAX_WORKERS && t->workers < workers && begin(t, &t->worker[t->workers], t->workers, work))
        t->workers++;
    return true;
}

void team_close(team *t)
{
    t->ends = true;
    give(&t->matrix);
    port_join(t->m, MATRIX);
    for (uint32_t i = 0; i < t->workers; i++) {
        give(&t->worker[i]);
        port_join(t->m, i);
    }
}
