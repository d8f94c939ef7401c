/* canvas.h - the decoder's inside, shared by the files of this folder: what is known of every position, the pass being
 * put together, the revision jobs in flight.  Positions here count from the start of the prompt; events and results
 * subtract n_prompt.
 *
 *   loop.c     begin, the step, ends, results        window.c  which rows a pass computes
 *   pass.c     puts rows together and runs them      commit.c  which results change the text
 *   revise.c   revision jobs: launch, run, merge     kv.c      which slot holds which position
 *   dream.c    Dream's schedule                      ar.c      autoregressive passes */
#ifndef DECODE_CANVAS_H
#define DECODE_CANVAS_H

#include <stdatomic.h>

#include "base/rng.h"
#include "base/task.h"
#include "decode/decode.h"
#include "decode/kv.h"
#include "decode/rule.h"

typedef enum {
    POS_FIXED,     /* prompt or template: never changes */
    POS_INVISIBLE, /* a mask */
    POS_VISIBLE,   /* shows a token that revision may still change, or an unconfirmed draft */
    POS_STABLE
} pos_state;

/* Rows in spare slots, seen by no other row: a mask at the position of a token; with shifted scores also the row
 * before, which sees that mask in place of the token and scores it. */
typedef enum { ROW_PLAIN, ROW_SHADOW, ROW_BEFORE } row_kind;

/* Rows of one pass, being put together. */
typedef struct {
    int n, n_want, cap;
    int32_t *pos, *token, *slot;
    uint8_t *group;   /* 0: dense; 1: a revision job riding along */
    uint8_t *kind;    /* row_kind */
    int32_t *instead; /* ROW_BEFORE: its shadow row; else -1 */
    int32_t *want;    /* row numbers; [n_want] this and the next three */
    int32_t *scored;  /* the position that the row's scores are of: its own, or with shifted scores the next */
    score_ask *ask;
    score *out;
} row_list;

/* When something was computed, on os_seconds' clock. */
typedef struct {
    double began, took;
} span;

/* A revision job: `n` visible tokens, each with a token row (fresh K,V) and shadow rows (confidence, best token). */
typedef struct {
    int due;          /* merged at the start of the first step whose number reaches this */
    int n;
    bool ran;
    llada_exec exec;  /* how, once it was started: serial, async or fused */
    span time;        /* of its run; written by the thread that runs it, read when it ran */
    int version;      /* of the canvas at launch */
    int32_t *pos, *token; /* [rev] as they stood at launch */
    int32_t *before;      /* [rev] shifted scores: the tokens before them */
    int32_t *slot;        /* [3 rev] token rows, then shadow rows; after the run only token rows' are held */
    int32_t *cols;        /* [ctx] the columns its rows see: the snapshot, with its own token rows in place */
    score *out;           /* [rev] of the tokens looked behind */
} job;

enum { MAX_JOBS = RECIPE_MAX_LAG + 1 };

struct decoder {
    const model *m;         /* borrowed, until decoder_close */
    const device *dev;
    device_ctx *ctx, *side; /* owned; side: the revision worker's own, for exec async */
    task *worker;           /* owned; exec async */
    job *side_job;          /* what the worker is at; NULL: idle */
    llada_status side_status;
    llada_err side_err;
    llada_recipe r;
    llada_exec exec;        /* what `auto` became */
    bool windowed;          /* recipe_windowed(&r) */
    bool shift;             /* the scores of position i stand in row i-1 (position 0: in its own) */
    int per_look;           /* shadow rows a look takes: 1, or 2 with shifted scores */
    int cap;                /* positions at most */
    int uncond_slot;        /* first slot of the unconditional pass's K,V (cfg) */

    /* the request */
    int n_prompt, n_gen, n_all; /* positions: prompt, canvas, both */
    int n_holes;
    int max_tokens;
    rng random;
    llada_event_fn on_event;
    void *user;
    atomic_bool cancelled;
    bool running, stopped;  /* between begin and the last step; the callback said stop */
    double started;         /* when it began; times of events count from here */

    /* per position */
    int32_t *token;
    uint8_t *state;         /* pos_state */
    uint8_t *draft;         /* unconfirmed draft */
    uint8_t *fresh;         /* its K,V were computed from the token it now shows */
    uint8_t *busy;          /* in a job in flight */
    int32_t *hole;          /* number of the hole it lies in, from 0; -1: fixed */
    uint8_t *closed;        /* behind the settled end of its hole: nothing is to be done here */
    uint8_t *chosen;        /* scratch of window_plan */
    double *conf;
    uint16_t *hits, *looks, *n_rev, *n_drop;
    rule_memory *mem;
    int32_t *held;          /* hold mode: a draft kept apart; -1: none */
    int32_t *all_pos;       /* 0, 1, 2, ... */

    llada_latency latency[LLADA_MAX_LATENCY];
    int n_latency;
    int32_t *schedule;      /* owned; tokens a pass, in place of real scores; NULL: none */
    int n_schedule;

    kv_map kv;
    row_list rows;
    row_list job_rows;      /* a job's own pass, when it does not ride along */
    job jobs[MAX_JOBS];     /* ring: the first n_jobs from first_job on are in flight */
    int first_job, n_jobs;
    score_how how;
    int32_t ban[MODEL_MAX_BAN];
    float *cond, *uncond;   /* cfg: [cap][n_vocab_rows] scores of the two passes; NULL without */

    /* the step */
    int step, block_step;   /* passes so far (window: merge steps too); passes in this block */
    int block, block_masks; /* the current block's number, -1 before the first; its masks when it began */
    int since_refresh;
    bool need_refresh;
    bool full;              /* this pass computes the whole canvas */
    int n_seen;             /* positions whose K,V rows of this pass see */
    span pass_time;         /* of the last dense pass */
    int dream_step, quota;  /* dream: steps of the schedule so far; positions that this pass commits */
    int n_checks;           /* shadow rows of drafts in this pass */
    int blocks_done;        /* BLOCK events given */
    int version;            /* of the canvas: grows with every change of a token */
    cand *cands;
    rule_memory **cand_mem;
    int *order, *pick;
    double *value;
    int32_t *row_list_out, *shadow_list_out; /* for the PASS event */

    /* the result */
    int32_t *final_tokens, *final_canvas;
    llada_result res;
};

/* loop.c */
bool canvas_emit(decoder *d, llada_event_kind kind, int pos, int32_t token, double conf);
void canvas_tell(decoder *d, llada_event *ev); /* gives ev its step and seconds, and calls back unless told to stop */
int canvas_block_start(const decoder *d, int block);
int canvas_block_end(const decoder *d, int block);
static inline int canvas_block(const decoder *d, int pos) { return (pos - d->n_prompt) / d->r.block; }

/* commit.c */
void canvas_write(decoder *d, int pos, int32_t token, double conf); /* a mask becomes a token */
void canvas_unwrite(decoder *d, int pos);                           /* back to a mask */
/* A mask becomes a draft; one that nobody verifies is as good as committed. */
void canvas_draft(decoder *d, int pos, int32_t token, double conf);
void canvas_drop(decoder *d, int pos, double conf);                 /* a draft was not confirmed */

/* pass.c */
llada_status rows_open(row_list *l, int cap, llada_err *err);
void rows_free(row_list *l);
void rows_clear(row_list *l);
/* Adds a row; returns its number, or -1 when the list is full (a defect). */
int rows_add(row_list *l, int32_t pos, int32_t token, int32_t slot, int group, row_kind kind);
/* Adds the rows that look behind the token at pos (slots: d->per_look of them, or NULL) and asks for its scores,
 * without noise, as they judge a token that was chosen before; `before`: the token before it.  NULL when the list is
 * full. */
score_ask *rows_look(const decoder *d, row_list *l, int32_t pos, int32_t before, const int32_t *slots, int group);
/* Asks for the row's scores, which are of position pos. */
score_ask *rows_want(row_list *l, int row, int32_t pos);
llada_status pass_run(decoder *d, llada_err *err);      /* d->rows, with a riding job if there is one */
llada_status pass_run_job(decoder *d, job *j, device_ctx *ctx, llada_err *err);

/* schedule.c: replaces the scores of l's wanted rows. */
void schedule_scores(const decoder *d, const row_list *l, score *out);

/* window.c: chooses the rows of the next pass into d->rows; sets block, full, n_checks. */
llada_status window_plan(decoder *d, llada_err *err);

/* Asks for the scores of the mask at pos from the row that has them (window.c). */
void want_mask(decoder *d, int row, int pos);

/* Lets the pass's scores change the text (commit.c). */
llada_status commit_scores(decoder *d, llada_err *err);

/* dream.c: how many masks the next step of Dream's schedule that fills any will fill; origin marks them in
 * d->chosen. */
void dream_plan(decoder *d);
double dream_key(decoder *d, const score *s); /* what it ranks by */

/* ar.c: the rows of an autoregressive pass; begin's check that the request is one of continuing a prompt. */
void ar_plan(decoder *d);
llada_status ar_check(const llada_request *q, llada_err *err);

/* revise.c */
/* A job on the least confident visible tokens; text_only: none behind the first end token written in its hole.
 * False: there is none to look at. */
bool revise_launch(decoder *d, bool text_only);
job *revise_waiting(decoder *d);                        /* launched, not yet run; NULL: none */
void revise_ran(decoder *d, job *j, bool beside);       /* frees what only the run needed; counts */
/* Runs the waiting job: at once, or (beside: a dense pass may follow) by the worker or within that pass. */
llada_status revise_start(decoder *d, bool beside, llada_err *err);
/* Waits for the worker; beside: a dense pass ran meanwhile. */
llada_status revise_settle(decoder *d, bool beside, llada_err *err);
llada_status revise_merge(decoder *d, llada_err *err);  /* the jobs that are due */

#endif
