/* tracelog.h - what each pass did, as JSON lines: run --trace writes them, llada trace and bench read them.
 * The format is described in docs/cli.md. */
#ifndef APP_TRACELOG_H
#define APP_TRACELOG_H

#include "model.h"

#include <jansson.h>

/* Prints 0.9 as 0.9; entries of traces keep all 17 digits instead. */
#define JSON_SHORT_REALS JSON_REAL_PRECISION(15)

typedef struct tracelog tracelog;

tracelog *tracelog_new(const app_model *am, const llada_recipe *r);
void tracelog_event(tracelog *t, const llada_event *ev);
/* Writes header and entries; q: the request that was run.  An exit code, with the sentence printed. */
int tracelog_write(tracelog *t, const char *path, const llada_request *q, int32_t gen);
void tracelog_free(tracelog **t);

/* Every key of a recipe as a JSON object: numbers as numbers, on and off as true and false.  New reference. */
json_t *recipe_json(const llada_recipe *r);
/* Text of the model as a JSON string: what is not UTF-8 becomes U+FFFD.  New reference. */
json_t *text_json(const char *p, size_t n);

#endif
