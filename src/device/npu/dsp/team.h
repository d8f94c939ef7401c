/* team.h - the threads of a session: workers, each with a vector context, and one thread for the HMX unit, which must
 * not hold one.  The thread that messages come on works along. */
#ifndef DSP_TEAM_H
#define DSP_TEAM_H

#include "device/npu/dsp/port.h"

enum { MAX_WORKERS = MAX_THREADS - 1 };

/* Part `part` of a job, by thread 0 (the caller) to MAX_WORKERS.  Any thread may do any part, in any order. */
typedef void (*team_part)(void *arg, uint32_t part, uint32_t thread);

typedef struct helper {
    struct team *t;
    void (*work)(struct helper *h);
    _Atomic uint32_t asked, done; /* jobs given to it, and finished by it */
} helper;

typedef struct team {
    port *m; /* borrowed */
    helper matrix, worker[MAX_WORKERS];
    uint32_t workers; /* that there are */
    bool ends;
    /* the job of workers and caller */
    team_part part;
    void *arg; /* borrowed, until the job is done */
    uint32_t parts;
    _Atomic uint32_t next; /* part that nobody has taken */
    /* the job of the HMX thread */
    void (*matrix_job)(void *arg);
    void *matrix_arg;
} team;

/* As many workers as can be had, `workers` at most.  False: there is no thread for HMX. */
bool team_open(team *t, port *m, uint32_t workers);
void team_close(team *t);

/* All parts of a job, by the caller and up to so many workers.  Returns when they are done. */
void team_run(team *t, uint32_t workers, uint32_t parts, team_part part, void *arg);

/* A job for the HMX thread, which is idle; and until it is done. */
void team_matrix_start(team *t, void (*job)(void *arg), void *arg);
void team_matrix_wait(team *t);

#endif
