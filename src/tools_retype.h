/* tools_retype.h - the common part of convert and quantise: a tensor's rows are decoded, encoded as another type and
 * written, in batches, with the rows of a batch dealt out to threads.  Memory: one batch and two rows a thread. */
#ifndef TOOLS_RETYPE_H
#define TOOLS_RETYPE_H

#include "base/pool.h"
#include "format/gguf.h"
#include "tools.h"

typedef struct {
    const char *name;            /* for sentences */
    const uint8_t *const *parts; /* the data: equal parts, one behind the other (experts); borrowed */
    size_t n_parts;
    uint64_t part_rows, cols;    /* rows of each part, values a row */
    uint32_t from, to;           /* quant_type */
    /* 0: rows in order.  Else the rows are those of so many heads, whose halves are interleaved: the rotation of the
     * published checkpoints pairs row i with row i + half, that of the written files neighbours. */
    uint64_t heads;
    /* How much errors matter; NULL: all alike.  The first weight_rows rows of the tensor take the first `cols`, the next
     * the next.  Not together with heads. */
    const float *weights;
    uint64_t weight_rows;
} retype_job;

typedef struct {
    double err2, sum2;             /* squares of differences, and of values, added up */
    double weighed_err2, weighed2; /* the same, each times its weight */
} retype_error;

typedef struct retype retype;

/* max_cols: the longest row of all jobs. */
llada_status retype_open(retype **out, int threads, uint64_t max_cols, llada_err *err);
void retype_close(retype **r);
/* Appends the job's data to w.  LLADA_BAD_MODEL: a value is not finite, or is not any more in the new type.  done:
 * bytes written before, for tick (see tools.h), which may stop the work. */
llada_status retype_run(retype *r, const retype_job *j, gguf_writer *w, retype_error *e, tools_tick tick, void *user,
                      uint64_t done, uint64_t total, llada_err *err);

#endif
