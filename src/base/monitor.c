/* monitor.c - see monitor.h. */
#include "base/monitor.h"

#include <pthread.h>

#include "base/mem.h"

struct monitor {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

llada_status monitor_open(monitor **out, llada_err *err)
{
    monitor *m = mem_new(sizeof *m);
    if (!m) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a lock");
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
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
void monitor_wake(monitor *m) { pthread_cond_broadcast(&m->changed); }
