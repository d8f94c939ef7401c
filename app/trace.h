/* trace.h - a trace file in memory, between its reader and the report. */
#ifndef APP_TRACE_H
#define APP_TRACE_H

#include "util.h"

#include <jansson.h>

typedef enum { MARK_COMMIT, MARK_DRAFT, MARK_OK, MARK_DROP, MARK_STABLE, MARK_EDIT, MARK_REMASK } trace_mark;

typedef struct {
    trace_mark mark;
    int32_t step, pos, token; /* token -1: a mask again */
    double confidence;
} trace_event;

typedef struct {
    int32_t step;
    bool known;             /* rows are known (traces of block recipes do not name them) */
    bool all;               /* the whole canvas was computed */
    int32_t *rows;          /* owned; sorted positions, when not all */
    int32_t n_rows, n_shadow, written;
} trace_pass;

typedef enum { RUN_PASS, RUN_SERIAL, RUN_ASYNC, RUN_FUSED } run_kind;

/* One run of the network.  A fused job has the times of the pass it rode in. */
typedef struct {
    run_kind kind;
    int32_t step, rows;  /* of a job: the step at which its results entered */
    double began, ended; /* seconds */
} trace_run;

typedef struct {
    json_t *header;      /* owned */
    int32_t gen, n_prompt, last_step;
    trace_event *events; /* owned; in the order they happened */
    trace_pass *passes;  /* owned */
    size_t n_events, n_passes, n_merges;
    trace_run *dense;    /* owned; when passes ran, rising; none: the trace does not tell */
    trace_run *jobs;     /* owned; when revision jobs ran, rising */
    size_t n_dense, n_jobs;
    double seconds;      /* of the whole generation; no run ends later */
} trace_file;

/* An exit code; the sentence printed names the line. */
int trace_load(trace_file *t, const char *path);
void trace_free(trace_file *t);
/* The text of a token; "" when the trace does not tell.  Borrowed from the trace. */
const char *trace_piece(const trace_file *t, int32_t token);
bool trace_is_end(const trace_file *t, int32_t token);

/* The whole page. */
void trace_html(const trace_file *t, text *out);

/* ---------------------------------------------------------------- its parts */

typedef enum { CELL_MASK, CELL_DRAFT, CELL_VISIBLE, CELL_STABLE } cell_state;

/* A position over the steps in which nothing happened to it. */
typedef struct {
    cell_state state;
    int32_t since, token;
    double confidence;
    bool edited, cleared; /* cleared: a mask again */
} trace_cell;

enum { TRACE_TILE = 32 }; /* rows; matrices are computed in tiles of so many */

int32_t trace_rows(const trace_file *t, const trace_pass *p); /* of a pass whose rows are known */
int trace_shade(double confidence);                           /* class c0 to c4: how sure the network was */
/* States of positions over steps; last: [gen] how each position ended. */
void trace_map(const trace_file *t, trace_cell *last, text *out);
/* When passes and jobs ran, on which of the two paths; nothing when the trace does not tell. */
void trace_timeline(const trace_file *t, text *out);

#endif
