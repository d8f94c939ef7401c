/* generate.h - one answer: the loop over passes that run and chat share. */
#ifndef APP_GENERATE_H
#define APP_GENERATE_H

#include "canvas.h"
#include "tracelog.h"

typedef struct {
    const app_model *am;    /* all borrowed */
    const llada_recipe *r;
    const options *o;
    llada_session *s;
    live *canvas;         /* NULL: nothing is drawn */
    tracelog *trace;        /* NULL: nothing is kept */
} generation;

/* Runs q; leaves the result, borrowed until the session's next call.  A canvas is drawn on the way and taken away at
 * the end.  An exit code, with the sentence printed; an interrupt gives 130. */
int generate(const generation *g, llada_request *q, llada_result *res);

/* The seed of the options; -1 draws one and says it. */
uint64_t generate_seed(const options *o);

/* "42 tokens, 6 passes, 7.0 tokens a pass, 0.52 s, 81 tokens/s" on stderr. */
void generate_report(const llada_result *res);

#endif
