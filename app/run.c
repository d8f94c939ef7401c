/* run.c - `llada run`: one prompt, one answer. */
#include "commands.h"
#include "generate.h"
#include "prompt.h"
#include "template.h"

#include <stdlib.h>
#include <string.h>

/* Writes the object that scripts read; docs/cli.md promises its fields. */
static void print_json(const app_model *am, const llada_recipe *r, const llada_request *q, const llada_result *res,
                       const text *answer)
{
    json_t *tokens = json_array();
    for (int32_t i = 0; i < res->n_tokens; i++) json_array_append_new(tokens, json_integer(res->tokens[i]));
    json_t *o = json_object();
    json_object_set_new(o, "text", text_json(answer->p, answer->n));
    json_object_set_new(o, "tokens", tokens);
    json_object_set_new(o, "n_tokens", json_integer(res->n_tokens));
    json_object_set_new(o, "n_prompt", json_integer(q->n_prompt));
    json_object_set_new(o, "canvas", json_integer(res->n_canvas));
    json_object_set_new(o, "finish_reason", json_string(res->finish == LLADA_FINISH_STOP ? "stop" : "length"));
    json_object_set_new(o, "recipe", json_string(r->name));
    json_object_set_new(o, "seed", json_integer((json_int_t)q->seed));
    json_object_set_new(o, "passes", json_integer(res->passes));
    json_object_set_new(o, "full", json_integer(res->full));
    json_object_set_new(o, "rows", json_integer(res->rows));
    json_object_set_new(o, "sweeps", json_integer(res->sweeps));
    json_object_set_new(o, "jobs", json_integer(res->jobs));
    json_object_set_new(o, "rev_rows", json_integer(res->rev_rows));
    json_object_set_new(o, "edits", json_integer(res->edits));
    json_object_set_new(o, "remasks", json_integer(res->remasks));
    json_object_set_new(o, "drafts", json_integer(res->drafts));
    json_object_set_new(o, "draft_ok", json_integer(res->draft_ok));
    json_object_set_new(o, "tokens_per_pass", json_real(res->tokens_per_pass));
    json_object_set_new(o, "seconds", json_real(res->seconds));
    json_object_set_new(o, "settings", recipe_json(r));
    const char *name = am->info.name ? am->info.name : "";
    json_object_set_new(o, "model", text_json(name, strlen(name)));
    char *s = json_dumps(o, JSON_SHORT_REALS);
    out_write(s ? s : "{}", s ? strlen(s) : 2);
    out_write("\n", 1);
    free(s);
    json_decref(o);
}

static int answer(generation *g, llada_request *q, const app_template *t)
{
    llada_result res;
    text said = {0};
    int rc = generate(g, q, &res);
    if (!rc && t->canvas) rc = template_text(t, g->am, &res, &said);
    if (!rc && !t->canvas) rc = app_detokenize(g->am, res.tokens, (size_t)res.n_tokens, false, &said);
    if (!rc && g->o->json) {
        print_json(g->am, g->r, q, &res, &said);
    } else if (!rc) {
        out_text(said.p, said.n);
        out_write("\n", 1);
    }
    text_free(&said);
    if (!rc && !g->o->json && !g->o->quiet && out_check()) generate_report(&res);
    if (!rc && !g->o->json && out_check()) app_memory_note(g->am, g->o);
    return rc;
}

/* The prompt is known: session, canvas, trace, answer. */
static int run_request(const options *o, const app_model *am, const llada_recipe *r, const int32_t *ids, size_t n)
{
    llada_request q;
    int32_t max_tokens;
    app_template t;
    llada_request_defaults(&q);
    int32_t gen = app_canvas_size(o, r, &max_tokens);
    int rc = template_read(o, am, gen, &t);
    if (!rc && t.canvas) {
        q.canvas = t.canvas;
        q.n_canvas = gen = t.n;
        max_tokens = -1;
    }
    q.prompt = ids;
    q.n_prompt = (int32_t)n;
    q.max_tokens = max_tokens;
    q.seed = generate_seed(o);
    app_note_context(am, o, (int64_t)n + gen);
    generation g = {.am = am, .r = r, .o = o};
    if (!rc) rc = app_session_open(&g.s, am, r, o, (int64_t)n + gen);
    if (rc) {
        template_free(&t);
        return rc;
    }
    if (live_wanted(o)) g.canvas = live_new(am, gen);
    if (o->trace) g.trace = tracelog_new(am, r);
    rc = answer(&g, &q, &t);
    if (g.trace) {
        int written = tracelog_write(g.trace, o->trace, &q, gen);
        rc = rc ? rc : written;
    }
    tracelog_free(&g.trace);
    live_free(&g.canvas);
    app_session_close(&g.s);
    template_free(&t);
    return rc;
}

int cmd_run(const options *o)
{
    llada_recipe r;
    app_model am = {0};
    text prompt = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    bool none = false;
    int rc = app_recipe(o, NULL, &r);
    if (!rc && o->trace) rc = file_check(o->trace); /* before the work, not after it */
    if (!rc) rc = prompt_read(o, false, &none, &prompt);
    if (!rc && !none && !prompt_check(o, &prompt)) rc = EXIT_WRONG_USE;
    if (!rc) rc = app_model_open(&am, o, true);
    if (!rc) rc = app_recipe_fit(o, &am, &r);
    if (!rc && none) {
        text_str(&prompt, prompt_default);
        if (!o->quiet) app_note("No prompt given (-p TEXT): using \"%s\"", prompt_default);
    }
    if (!rc) rc = prompt_request(&am, o, &prompt, &ids, &n);
    if (!rc && n > INT32_MAX / 2) {
        app_error("the prompt has %zu tokens; at most %d can be handled", n, INT32_MAX / 2);
        rc = EXIT_WRONG_USE;
    }
    if (!rc) rc = run_request(o, &am, &r, ids, n);
    free(ids);
    text_free(&prompt);
    app_model_close(&am);
    return rc;
}
