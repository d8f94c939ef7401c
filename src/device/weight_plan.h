/* weight_plan.h - the weights of a graph cut into parts that can stay or stream, and the choice between the two.  Only
 * the file's table of contents is looked at, so that a plan can be told before anything is loaded. */
#ifndef DEVICE_WEIGHT_PLAN_H
#define DEVICE_WEIGHT_PLAN_H

#include "device/device.h"
#include "graph/residency.h"

/* Some rows of a matrix: a multiple of 32, or of one expert's, so that kernels and packed tiles never see the cut. */
typedef struct {
    tensor_id id;
    int64_t first, rows;
    uint32_t file;
    uint64_t at;  /* offset in that file */
    size_t bytes; /* on disk */
    size_t room;  /* in memory: whole aligned pieces of the file */
} weight_part;

typedef struct {
    weight_part *part; /* owned; in the order of a pass */
    int n;
    int again, end;    /* the parts of the head, read once for every 32 scored rows */
    residency r;
    tensor_id table;   /* token embedding that is no head: rows are read as they are needed; -1: none such */
    bool table_held;   /* ... unless there was room for all of it */
    weight_part whole_table;
    size_t part_bytes; /* parts are at most so large, where their units allow */
    size_t fixed;      /* bytes beside contexts, held parts and slots: vectors, rows of the table, vocabulary */
    size_t contexts, total; /* total: everything, never above the budget */
    int table_rows;    /* rows of the table that are remembered */
} weight_plan;

/* contexts: bytes that open sessions take.  part_bytes 0: the size is chosen.  LLADA_BAD_ARG names the smallest budget
 * when this one cannot work. */
llada_status weight_plan_make(weight_plan *out, const graph *g, const device_memory *mem, size_t contexts,
                              size_t part_bytes, llada_err *err);
void weight_plan_free(weight_plan *p);

#endif
