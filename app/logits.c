/* logits.c - `llada logits`: the scores of one forward pass, for comparing engines. */
#include "commands.h"
#include "interrupt.h"
#include "prompt.h"

#include <stdlib.h>

static int check_ids(const app_model *am, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < am->info.n_vocab) continue;
        app_error("--tokens: id %d is outside the vocabulary of %d", (int)ids[i], (int)am->info.n_vocab);
        return EXIT_WRONG_USE;
    }
    if (n <= (size_t)INT32_MAX / 2) return EXIT_FINE;
    app_error("--tokens: %zu ids are too many", n);
    return EXIT_WRONG_USE;
}

/* Rows of n_vocab float32 in the byte order of this machine, one for every position. */
static int write_rows(const app_model *am, const options *o, const int32_t *ids, size_t n)
{
    llada_session *s = NULL;
    llada_recipe r;
    llada_err err = {0};
    llada_recipe_for(&r, am->m);
    r.gen = 1;
    int rc = app_session_open(&s, am, &r, o, (int64_t)n);
    if (rc) return rc;
    size_t row = (size_t)am->info.n_vocab;
    float *out = app_grow(NULL, n * row, sizeof *out);
    llada_status st = llada_logits(s, ids, (int32_t)n, out, &err);
    if (st == LLADA_CANCELLED) rc = interrupt_exit_code();
    else rc = st ? app_fail(&err) : file_write(o->out, out, n * row * sizeof *out);
    if (!rc && !o->quiet) app_note("%zu rows of %zu float32 in %s", n, row, o->out);
    free(out);
    app_session_close(&s);
    return rc;
}

int cmd_logits(const options *o)
{
    app_model am;
    char why[256];
    size_t n;
    if (!o->tokens || !o->out) {
        app_error("logits needs --tokens 1,2,3 and --out FILE");
        return EXIT_WRONG_USE;
    }
    int32_t *ids = opt_ids("--tokens", o->tokens, &n, why, sizeof why);
    if (!ids) {
        app_error("%s", why);
        return EXIT_WRONG_USE;
    }
    int rc = file_check(o->out); /* before the work, not after it */
    if (rc) {
        free(ids);
        return rc;
    }
    rc = app_model_open(&am, o, false);
    if (!rc) rc = check_ids(&am, ids, n);
    if (!rc) rc = write_rows(&am, o, ids, n);
    app_model_close(&am);
    free(ids);
    return rc;
}
