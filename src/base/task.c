/* task.c - the background worker: a thread, a mutex and two conditions. */
#include "base/task.h"

#include <pthread.h>
#include <signal.h>

#include "base/mem.h"

struct task {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    void (*fn)(void *); /* NULL: idle */
    void *user;
    bool quit;
};

static void *worker(void *arg)
{
    task *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->quit) {
        if (!t->fn) {
            pthread_cond_wait(&t->work, &t->lock);
            continue;
        }
        void (*fn)(void *) = t->fn;
        void *user = t->user;
        pthread_mutex_unlock(&t->lock);
        fn(user);
        pthread_mutex_lock(&t->lock);
        t->fn = NULL;
        pthread_cond_signal(&t->idle);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

llada_status task_open(task **out, llada_err *err)
{
    task *t = mem_new(sizeof *t);
    if (!t) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the background worker");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->idle, NULL);
    sigset_t all, old; /* signals belong to the program's own threads */
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* raised by the thread itself, where a mapped file was cut short */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int made = pthread_create(&t->thread, NULL, worker, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (made) {
        mem_free(t);
        return llada_fail(err, LLADA_NO_MEMORY, "the system gave no thread for the background worker");
    }
    *out = t;
    return LLADA_OK;
}

void task_start(task *t, void (*fn)(void *), void *user)
{
    pthread_mutex_lock(&t->lock);
    t->fn = fn;
    t->user = user;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

void task_wait(task *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->fn) pthread_cond_wait(&t->idle, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void task_close(task **tp)
{
    task *t = *tp;
    if (!t) return;
    task_wait(t);
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->idle);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
    *tp = NULL;
}
