/* metrics.h - counters of the server's life, and their text for Prometheus. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "job.h"

enum { METRICS_BUCKETS = 8 };

typedef struct {
    pthread_mutex_t lock;
    /* under the lock */
    uint64_t answers[6];          /* by hundreds of the status: [2] is 2xx */
    uint64_t full;                /* refused because the line was full */
    uint64_t done, failed, left;  /* jobs; left: the client went away */
    uint64_t dropped;             /* of these, before they ran */
    uint64_t prompt_tokens, tokens, passes, sweeps, rows, rev_rows, revisions;
    uint64_t bucket[METRICS_BUCKETS + 1]; /* jobs by seconds */
    double seconds, waited;       /* sums over jobs */
} metrics;

typedef struct {
    int running, waiting, connections;
    double up;
} metrics_now;

void metrics_open(metrics *m);
void metrics_close(metrics *m);
void metrics_answer(metrics *m, int status);
void metrics_full(metrics *m);
void metrics_job(metrics *m, job *j, bool dropped); /* a job that is done */
void metrics_text(metrics *m, const metrics_now *now, buf *out);

#endif
