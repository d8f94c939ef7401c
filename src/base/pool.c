/* pool.c - worker threads with one round of work at a time.
 *
 * A round is announced by a new value of `round` and is over when `left` is 0.  Both sides first spin for a moment: the
 * gaps between operators of a pass are microseconds, a sleep and wake-up costs tens of them.  Then they sleep on a
 * condition.  Sleepers re-check under the mutex, and who changes a value signals under it, so no wake-up is lost.
 * `fn` and `user` are plain: written before `round` is stored (release), read after it is seen (acquire). */
#include "base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/os.h"

enum { MAX_THREADS = 256, SPINS = 2000, STACK_BYTES = 512 * 1024 };

typedef struct {
    pool *p; /* borrowed, until pool_close */
    pthread_t id;
    int part;
} worker;

struct pool {
    int n;     /* threads, the caller included */
    int spins; /* 0 when there are more threads than cores: spinning would keep others from working */
    pool_fn fn;
    void *user; /* borrowed, until the round is over */
    atomic_uint round;
    atomic_int left; /* workers that have not finished the round */
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t begin, end;
    worker workers[]; /* n - 1 */
};

/* Waits until a round after `seen` begins; returns its number. */
static unsigned wait_round(pool *p, unsigned seen)
{
    unsigned now;
    for (int i = 0; i < p->spins; i++) {
        if ((now = atomic_load_explicit(&p->round, memory_order_acquire)) != seen)
            return now;
        CPU_RELAX();
    }
    pthread_mutex_lock(&p->mutex);
    while ((now = atomic_load_explicit(&p->round, memory_order_acquire)) == seen)
        pthread_cond_wait(&p->begin, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
    return now;
}

static void wait_end(pool *p)
{
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(&p->left, memory_order_acquire) == 0)
            return;
        CPU_RELAX();
    }
    pthread_mutex_lock(&p->mutex);
    while (atomic_load_explicit(&p->left, memory_order_acquire) != 0)
        pthread_cond_wait(&p->end, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
}

static void *work(void *arg)
{
    worker *w = arg;
    pool *p = w->p;
    unsigned seen = 0;
    for (;;) {
        seen = wait_round(p, seen);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return NULL;
        p->fn(p->user, w->part, p->n);
        if (atomic_fetch_sub_explicit(&p->left, 1, memory_order_acq_rel) != 1)
            continue;
        /* the caller may be gone already, but the pool is not: pool_close joins this thread first */
        pthread_mutex_lock(&p->mutex);
        pthread_cond_signal(&p->end);
        pthread_mutex_unlock(&p->mutex);
    }
}

static void announce(pool *p)
{
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add_explicit(&p->round, 1, memory_order_release);
    pthread_cond_broadcast(&p->begin);
    pthread_mutex_unlock(&p->mutex);
}

/* Starts up to `want` workers and counts those that run.  They are born with every signal blocked: signals belong to
 * the program's own threads. */
static void start_workers(pool *p, int want)
{
    pthread_attr_t attr;
    sigset_t all, before;
    if (want == 0 || pthread_attr_init(&attr) != 0)
        return;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* raised by the thread itself, where a mapped file was cut short */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < want; i++) {
        p->workers[i].p = p;
        p->workers[i].part = i + 1;
        if (pthread_create(&p->workers[i].id, &attr, work, &p->workers[i]) != 0)
            break;
        p->n++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

/* Mutex and conditions; on failure none is left. */
static bool init_sync(pool *p)
{
    if (pthread_mutex_init(&p->mutex, NULL) != 0)
        return false;
    if (pthread_cond_init(&p->begin, NULL) == 0) {
        if (pthread_cond_init(&p->end, NULL) == 0)
            return true;
        pthread_cond_destroy(&p->begin);
    }
    pthread_mutex_destroy(&p->mutex);
    return false;
}

llada_status pool_open(pool **out, int threads, llada_err *err)
{
    if (threads <= 0)
        return llada_fail(err, LLADA_BAD_ARG, "a pool of %d threads was asked for, it needs at least 1", threads);
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    pool *p = mem_new(sizeof *p + (size_t)(threads - 1) * sizeof p->workers[0]);
    if (!p)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for a pool of %d threads", threads);
    if (!init_sync(p)) {
        mem_free(p);
        return llada_fail(err, LLADA_NO_MEMORY, "the system has no locks left for a pool of %d threads", threads);
    }
    atomic_init(&p->round, 0);
    atomic_init(&p->left, 0);
    atomic_init(&p->stop, false);
    p->spins = threads <= os_cores() ? SPINS : 0; /* before the workers, who read it at once */
    p->n = 1;
    start_workers(p, threads - 1);
    *out = p;
    return LLADA_OK;
}

int pool_threads(const pool *p)
{
    return p->n;
}

void pool_run(pool *p, pool_fn fn, void *user)
{
    if (p->n > 1) {
        p->fn = fn;
        p->user = user;
        atomic_store_explicit(&p->left, p->n - 1, memory_order_relaxed);
        announce(p);
    }
    fn(user, 0, p->n);
    if (p->n > 1)
        wait_end(p);
}

void pool_close(pool **pp)
{
    pool *p = pp ? *pp : NULL;
    if (!p)
        return;
    atomic_store_explicit(&p->stop, true, memory_order_relaxed);
    announce(p);
    for (int i = 0; i < p->n - 1; i++)
        pthread_join(p->workers[i].id, NULL);
    pthread_cond_destroy(&p->end);
    pthread_cond_destroy(&p->begin);
    pthread_mutex_destroy(&p->mutex);
    mem_free(p);
    *pp = NULL;
}
