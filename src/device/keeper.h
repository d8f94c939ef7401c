/* keeper.h - a model's weights within a budget: some parts stay in memory, the others come through the slots of a
 * transfer thread, pass after pass; the mapping of the file is never touched.  One keeper per model, shared by its
 * contexts: each opening or closing makes a new plan.  When parts stream, passes of several contexts take turns, as two
 * streams of one file would only halve each other. */
#ifndef DEVICE_KEEPER_H
#define DEVICE_KEEPER_H

#include "device/weight_plan.h"

typedef struct keeper keeper;

llada_status keeper_open(keeper **out, const graph *g, const device_memory *mem, llada_err *err);
void keeper_close(keeper **s); /* NULL-safe; no context may be left */

/* A context of so many bytes comes or goes.  Refused with the smallest budget that would do; the others go on. */
llada_status keeper_join(keeper *s, size_t bytes, llada_err *err);
void keeper_leave(keeper *s, size_t bytes); /* of a context that had joined */

/* Around each pass; rounds: how often it goes through the head.  keeper_end only after a keeper_begin that succeeded.
 * *stop (may be NULL, until keeper_end) ends waits for other passes and for the storage with LLADA_CANCELLED. */
llada_status keeper_begin(keeper *s, int rounds, const atomic_bool *stop, llada_err *err);
void keeper_end(keeper *s);

/* The parts of a tensor that operators go through: *first and how many. */
int keeper_parts(const keeper *s, tensor_id id, int *first);
/* Within a pass, parts in their order: rows [*first, *first + out->n_rows) of a tensor, as a tensor of their own, until
 * keeper_give. */
llada_status keeper_take(keeper *s, int part, const atomic_bool *stop, tensor *out, int64_t *first, llada_err *err);
void keeper_give(keeper *s, int part);

/* One row of the token embedding, until the next call; within a pass. */
llada_status keeper_row(keeper *s, tensor_id id, int64_t row, const void **data, llada_err *err);
/* All of a small tensor (a vector) into memory of the caller's. */
llada_status keeper_read(keeper *s, tensor_id id, void *to, llada_err *err);

void keeper_get_use(keeper *s, device_memory_use *out);

#endif
