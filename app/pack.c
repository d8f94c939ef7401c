/* pack.c - `llada pack`: a GGUF file with its matrices in the layout that the engines compute with. */
#include "commands.h"
#include "rewrite.h"
#include "util.h"

static int check(const options *o)
{
    if (!o->model || !o->out) {
        app_error("pack needs two files: llada pack -m IN.gguf -o OUT.gguf");
        return EXIT_WRONG_USE;
    }
    return rewrite_not_same(o->model, o->out);
}

int cmd_pack(const options *o)
{
    llada_err err = {0};
    rewrite w;
    int rc = check(o);
    if (rc) return rc;
    rewrite_begin(&w, o, "pack", o->out);
    tools_pack_opts p = {.threads = rewrite_threads(o), .tick = rewrite_tick, .user = &w};
    llada_status st = tools_pack(o->model, o->out, &p, &err);
    return rewrite_end(&w, st, &err);
}
