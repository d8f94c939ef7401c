/* monitor.h - a lock and the condition everyone who holds it may wait on: what two threads that hand work to each other
 * need.  Who waits looks again at what it waits for after every wake. */
#ifndef BASE_MONITOR_H
#define BASE_MONITOR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"

typedef struct monitor monitor;

llada_status monitor_open(monitor **out, llada_err *err);
void monitor_close(monitor **m); /* NULL-safe; nobody may be in it */
void monitor_enter(monitor *m);
void monitor_leave(monitor *m);
void monitor_wait(monitor *m); /* leaves, sleeps until a wake, enters again */
/* The same, for who may be told to give up: looks at *stop every few milliseconds, so that it may be set where nobody can
 * wake (in a signal handler).  False, and at once, when it is set.  NULL: monitor_wait. */
bool monitor_wait_unless(monitor *m, const atomic_bool *stop);
void monitor_wake(monitor *m); /* all who wait */

#endif
