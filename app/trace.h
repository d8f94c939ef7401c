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

typedef struct {
    json_t *header;      /* owned */
    int32_t gen, n_prompt, last_step;
    trace_event *events; /* owned; in the order they happened */
    trace_pass *passes;  /* owned */
    size_t n_events, n_passes, n_merges;
} trace_file;

/* An exit code; the sentence printed names the line. */
int trace_load(trace_file *t, const char *path);
void trace_free(trace_file *t);
/* The text of a token; "" when the trace does not tell.  Borrowed from the trace. */
const char *trace_piece(const trace_file *t, int32_t token);
bool trace_is_end(const trace_file *t, int32_t token);

/* The whole page. */
void trace_html(const trace_file *t, text *out);

#endif
