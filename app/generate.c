/* generate.c - runs one request step by step, so that the canvas is drawn between passes and not inside them. */
#include "generate.h"

#include "interrupt.h"

#include <sys/random.h>

static bool on_event(const llada_event *ev, void *user)
{
    const generation *g = user;
    if (g->canvas) live_event(g->canvas, ev);
    if (g->trace) tracelog_event(g->trace, ev);
    return !interrupt_signal();
}

int generate(const generation *g, llada_request *q, llada_result *res)
{
    llada_err err = {0};
    bool done = false;
    q->on_event = on_event;
    q->user = (void *)g;
    res->size = sizeof *res;
    llada_status st = llada_begin(g->s, q, &err);
    if (!st && g->canvas) live_draw(g->canvas, true);
    while (!st && !done) {
        st = llada_step(g->s, &done, &err);
        if (!st && g->canvas) live_draw(g->canvas, done);
    }
    if (!st) st = llada_get_result(g->s, res, &err);
    if (g->canvas) live_clear(g->canvas);
    if (!st) return EXIT_FINE;
    if (st != LLADA_CANCELLED) return app_fail(&err);
    if (!g->o->quiet) app_note("stopped");
    return interrupt_exit_code();
}

uint64_t generate_seed(const options *o)
{
    if (o->seed >= 0) return (uint64_t)o->seed;
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)(app_seconds() * 1e9);
    seed >>= 1; /* so that --seed can take it again */
    if (!o->quiet) app_note("seed %llu", (unsigned long long)seed);
    return seed;
}

void generate_report(const llada_result *res)
{
    double rate = res->seconds > 0 ? res->n_tokens / res->seconds : 0;
    text t = {0};
    text_count(&t, res->n_tokens, "token", "tokens");
    text_str(&t, ", ");
    text_count(&t, res->passes, "pass", "passes");
    if (res->jobs) {
        text_str(&t, ", ");
        text_count(&t, res->jobs, "revision job (", "revision jobs (");
        text_count(&t, res->edits, "edit, ", "edits, ");
        text_count(&t, res->remasks, "re-mask)", "re-masks)");
    }
    app_note("%s, %.1f tokens a pass, %.2f s, %.1f tokens/s", t.p, res->tokens_per_pass, res->seconds, rate);
    text_free(&t);
}
