/* monitor.c - see monitor.h. */
#include "base/monitor.h"

#include <pthread.h>
#include <time.h>

#include "base/mem.h"

enum { SECOND = 1000 * 1000 * 1000, LOOK_NS = SECOND / 100 };

struct monitor {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

llada_status monitor_open(monitor **out, llada_err *err)
{
    monitor *m = mem_new(sizeof *m);
    if (!m) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a lock");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, &clock);
    pthread_condattr_destroy(&clock);
    *out = m;
    return LLADA_OK;
}

void monitor_close(monitor **mp)
{
    monitor *m = *mp;
    if (!m) return;
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
    *mp = NULL;
}

void monitor_enter(monitor *m) { pthread_mutex_lock(&m->lock); }
void monitor_leave(monitor *m) { pthread_mutex_unlock(&m->lock); }
void monitor_wait(monitor *m) { pthread_cond_wait(&m->changed, &m->lock); }

bool monitor_wait_unless(monitor *m, const atomic_bool *stop)
{
    struct timespec until;
    if (!stop) {
        monitor_wait(m);
        return true;
    }
    if (atomic_load_explicit(stop, memory_order_relaxed)) return false;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= SECOND) {
        until.tv_sec++;
        until.tv_nsec -= SECOND;
    }
    pthread_cond_timedwait(&m->changed, &m->lock, &until);
    return true;
}

void monitor_wake(monitor *m) { pthread_cond_broadcast(&m->changed); }
