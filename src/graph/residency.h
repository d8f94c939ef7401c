/* residency.h - which parts of the weights stay in memory when not all can, and which are brought in anew each pass.
 *
 * A pass uses its parts in one fixed order, and passes follow each other: a cyclic scan.  What was used last is what
 * will be wanted last, so a cache that keeps recent things keeps the wrong ones; a fixed subset that stays, with the
 * rest streamed through a few staging slots ahead of the computation, reads the least.  Everything here is arithmetic:
 * no file is touched. */
#ifndef GRAPH_RESIDENCY_H
#define GRAPH_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* One part in the order of a pass: what is brought in at once, into one slot. */
typedef struct {
    size_t bytes;   /* memory it takes, held or in a slot */
    double read;    /* seconds a pass spends bringing it in, when it streams */
    double compute; /* seconds a pass computes with it, and with what comes between it and the part before */
} residency_part;

typedef struct {
    bool *held;          /* owned: per part */
    int n, n_held;
    int slots;           /* 0: nothing streams */
    size_t slot_bytes;   /* the largest part that streams */
    size_t held_bytes, stream_bytes;
    size_t bytes;        /* held_bytes + slots * slot_bytes: never above the budget */
    double seconds;      /* of a pass, in the steady state */
    double read, compute; /* of these, the transfers' and the computation's own */
} residency;

/* Seconds of a pass in the steady state.  One transfer runs at a time, in order; a slot is filled again when the part
 * in it has been used; a part is used when it is there and the one before has been used. */
double residency_seconds(const residency_part *p, int n, const bool *held, int slots);

/* The smallest budget that works: everything held, or a slot for the largest part at least. */
size_t residency_least(const residency_part *p, int n, int slots);

/* Chooses.  slots: how many staging slots there are when something streams, 2 or more.  LLADA_BAD_ARG names the
 * smallest budget when this one cannot work. */
llada_status residency_plan(residency *out, const residency_part *p, int n, size_t budget, int slots, llada_err *err);
/* The figures of another choice: r->held and r->n stand, all else is made anew. */
void residency_restate(residency *r, const residency_part *p, int slots);
void residency_free(residency *r);

#endif
