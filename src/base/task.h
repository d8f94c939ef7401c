/* task.h - one background worker that runs one function at a time: the second path of dual-path revision. */
#ifndef BASE_TASK_H
#define BASE_TASK_H

#include "base/err.h"

typedef struct task task;

llada_status task_open(task **out, llada_err *err); /* LLADA_NO_MEMORY also when no thread can be made */
void task_start(task *t, void (*fn)(void *), void *user); /* the worker must be idle (task_wait after each start) */
void task_wait(task *t);                                  /* until it is idle */
void task_close(task **t);                                /* waits, then ends the worker; NULL-safe */

#endif
