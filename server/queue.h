/* queue.h - the worker: one thread that owns the session and runs one job at a time; the others wait in line. */
#ifndef SERVER_QUEUE_H
#define SERVER_QUEUE_H

#include "job.h"
#include "metrics.h"

typedef struct queue queue;

typedef struct {
    const llada_model *model; /* borrowed, until queue_close */
    int waiting;              /* most jobs in line */
    llada_session_opts session; /* ctx: the most positions a session may get */
    metrics *m;               /* borrowed */
} queue_opts;

queue *queue_open(const queue_opts *o); /* NULL: no thread could be started */
/* False: the line is full, even without the jobs whose clients have gone.  Else the worker has a reference of its
 * own. */
bool queue_add(queue *q, job *j);
bool queue_has_room(queue *q); /* what queue_add would say now */
void queue_count(queue *q, int *running, int *waiting);
double queue_seconds(queue *q); /* how long a job took of late */
/* Takes no more; waits for what is there, and stops it after so long. */
void queue_drain(queue *q, double seconds);
void queue_close(queue **q);

#endif
