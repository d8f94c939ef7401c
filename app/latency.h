/* latency.h - the table of what a pass costs by rows, measured once per machine, model and thread count by
 * `llada bench forward --save` and kept in the user's cache folder; recipes with bucket=auto fill passes by it. */
#ifndef APP_LATENCY_H
#define APP_LATENCY_H

#include "model.h"

/* Entries read into t (room for LLADA_MAX_LATENCY); 0 when none was saved. */
int latency_load(const app_model *am, const options *o, llada_latency *t);
/* An exit code, with the sentence printed.  *path (owned by the caller): where it was put. */
int latency_save(const app_model *am, const options *o, const llada_latency *t, int n, char **path);

#endif
