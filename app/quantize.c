/* quantize.c - `llada quantize`: a GGUF file with its matrices in another type. */
#include "commands.h"
#include "rewrite.h"
#include "util.h"

#include <string.h>

typedef struct {
    rewrite w;      /* first: the tick's user is the rewrite */
    bool table;
    double err2, sum2; /* weighed by values */
} run;

static void report(void *user, const tools_quantized *t)
{
    run *r = user;
    text line = {0};
    r->err2 += t->error * t->error * (double)t->values;
    r->sum2 += (double)t->values;
    if (t->why && !r->w.quiet && !r->table && strstr(t->why, "rows")) {
        progress_end(&r->w.bar);
        app_note("note: %s is stored as %s: %s", t->name, t->to, t->why);
    }
    if (!r->table) return;
    progress_end(&r->w.bar);
    text_fmt(&line, "%-40s %6s -> %-6s %12llu values  error %.3e", t->name, t->from, t->to,
             (unsigned long long)t->values, t->error);
    if (t->weighed >= 0) text_fmt(&line, "  weighed %.3e", t->weighed);
    text_fmt(&line, "%s%s\n", t->why ? "  " : "", t->why ? t->why : "");
    out_write(line.p, line.n);
    text_free(&line);
}

static int check(const options *o)
{
    if (!o->arg || !o->arg2 || !o->type) {
        app_error("quantize needs two files and a type: llada quantize IN.gguf OUT.gguf --type q4_k_m; types are %s",
                  tools_recipes());
        return EXIT_WRONG_USE;
    }
    int rc = rewrite_not_same(o->arg, o->arg2);
    return rc || !o->imatrix ? rc : rewrite_not_same(o->imatrix, o->arg2);
}

int cmd_quantize(const options *o)
{
    llada_err err = {0};
    run r = {.table = o->report};
    int rc = check(o);
    if (rc) return rc;
    rewrite_begin(&r.w, o, "quantize", o->arg2);
    tools_quantize_opts q = {.type = o->type, .imatrix = o->imatrix,
                             .allow_requantize = o->allow_requantize, .threads = rewrite_threads(o),
                             .tick = rewrite_tick, .report = report, .user = &r};
    llada_status st = tools_quantize(o->arg, o->arg2, &q, &err);
    return rewrite_end(&r.w, st, &err);
}
