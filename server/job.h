/* job.h - one generation, from the request that asks for it to its last number.  Two threads share a job: the worker,
 * who runs it, and the connection's, who shows it.  Both hold the lock where they touch what is under "shared". */
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include <pthread.h>

#include "answer.h"
#include "llada.h"

/* What is asked for; nothing of it changes once the job is queued. */
typedef struct {
    llada_recipe recipe;
    int32_t *prompt, n_prompt; /* owned */
    int32_t *canvas, n_canvas; /* owned; NULL: all holes */
    int32_t n_cells;           /* positions that are shown, from the first: all of them, or the hole before a suffix */
    bool whole;                /* what is given of the canvas is part of the text */
    int32_t max_tokens;        /* most tokens of the model's own */
    uint64_t seed;
    char *stop[ANSWER_MAX_STOPS]; /* owned */
    int n_stop;
} generation;

typedef enum { CELL_MASK, CELL_DRAFT, CELL_VISIBLE, CELL_SETTLED } cell_state;

typedef struct {
    int32_t token; /* -1: a mask */
    float confidence;
    uint8_t state; /* a cell_state */
    uint8_t changes; /* how often another token, or a mask, came in its place; stops at 255 */
    bool dirty;    /* changed since an events stream last looked */
} cell;

typedef enum { JOB_WAITING, JOB_RUNNING, JOB_DONE } job_phase;

typedef struct job job;
struct job {
    generation gen;             /* owned */
    const llada_model *model;   /* borrowed */
    int32_t ends[2];            /* tokens that end a text; -1: none */
    job *next;                  /* in the queue; the queue's lock */

    pthread_mutex_t lock;
    pthread_cond_t changed;     /* the phase, or a step is over */
    /* shared */
    int refs;
    job_phase phase;
    int fd;                     /* the client's socket; -1: not to be looked at any more */
    bool gone;                  /* the client closed, reset, or closed its side for writing */
    bool unwanted;              /* that, or the server ends: stop within a pass */
    cell *cells;                /* [n_cells] owned */
    int32_t next_cell;          /* cells before it are in the text */
    bool filled;                /* the text of the hole that next_cell is in has ended */
    bool ended;                 /* the text before next_cell is all there is */
    answer text;                /* owned */
    int32_t n_tokens;           /* tokens given to the text */
    int32_t *tokens;            /* [max_tokens] owned: those; */
    size_t *starts;             /* [max_tokens] owned: where each begins in the text; */
    float *confidence;          /* [max_tokens] owned: and its probability when it settled */
    int32_t step, rows;         /* of the last pass */
    bool refresh;
    double seconds;             /* of the run so far */
    double queued_at, begun_at; /* now_seconds() */
    double first_text, first_block; /* seconds until text could be shown, until block 1 was settled; < 0: not yet */
    llada_status status;        /* when done; a client's leaving is LLADA_CANCELLED */
    llada_err err;
    llada_result result;        /* when done: the numbers; its pointers are NULL */
};

/* Takes g's arrays.  One reference. */
job *job_new(generation *g, const llada_model *m, int fd);
void job_free(job *j); /* drops a reference */
void generation_free(generation *g);

/* For the worker. */
bool job_event(job *j, const llada_event *ev); /* false: stop */
void job_finish(job *j, llada_status st, const llada_err *err, const llada_result *res);

bool job_look(job *j); /* whether the client has gone; lock held */

/* For the connection.  Waits at most so long for a change; false: the client has gone (the job is then unwanted). */
bool job_wait(job *j, double seconds);
void job_leave(job *j);   /* the connection ends: whatever still runs is unwanted; drops the reference */

/* Tokens of the answer: those that begin before its end.  Lock held. */
int32_t job_count(const job *j);
const char *job_finish_reason(const job *j); /* of a job that is done: "stop" or "length" */
bool job_given(const job *j, int32_t pos); /* the cell is of the template: nothing the model writes */
/* The canvas as text: masks as U+2591, nothing behind a hole's first end token nor, without a template, behind the last
 * token.  Lock held. */
void job_draft(const job *j, buf *out);
/* A token's bytes, appended; false: a special token, which has none. */
bool job_bytes(const job *j, int32_t token, buf *out);

#endif
