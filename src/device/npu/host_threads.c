/* host_threads.c - see host_threads.h. */
#include "device/npu/host_threads.h"

#include "base/os.h"

static bool start(void *user, uint32_t number, void (*run)(void *), void *arg)
{
    host_threads *h = user;
    llada_err err;
    if (task_open(&h->thread[number], &err)) return false;
    task_start(h->thread[number], run, arg);
    return true;
}

static void join(void *user, uint32_t number) { task_close(&((host_threads *)user)->thread[number]); }

static void sleep_on(void *user, _Atomic uint32_t *word, uint32_t value) { os_sleep_on(word, value); }

static void wake(void *user, _Atomic uint32_t *word) { os_wake(word); }

static uintptr_t self(void *user)
{
    static _Thread_local char own;
    return (uintptr_t)&own;
}

emulate_threads host_threads_of(host_threads *h) { return (emulate_threads){ h, start, join, sleep_on, wake, self }; }
