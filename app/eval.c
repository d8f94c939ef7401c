/* eval.c - `llada eval`: recipes over question sets. */
#include "eval.h"

#include "commands.h"
#include "interrupt.h"
#include "progress.h"
#include "tracelog.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- one answer */

typedef struct {
    const evaluation *e;
    eval_recipe *r;
    llada_session *s;     /* opened when the first answer is not in the store */
    eval_store *store;
    uint64_t model_key;
    int32_t gen, max_tokens;
} runner;

static int64_t member(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

/* An answer of the store: the text is judged anew, so that another rule needs no new run. */
static void recall(const json_t *o, const question *q, eval_answer *a)
{
    const json_t *said = json_object_get(o, "text");
    *a = (eval_answer){
        .end = json_is_true(json_object_get(o, "end")), .tokens = (int32_t)member(o, "n_tokens"),
        .passes = (int32_t)member(o, "passes"), .jobs = (int32_t)member(o, "jobs"),
        .sweeps = (int32_t)member(o, "sweeps"), .edits = (int32_t)member(o, "edits"),
        .remasks = (int32_t)member(o, "remasks"), .rows = member(o, "rows"), .rev_rows = member(o, "rev_rows"),
        .seconds = json_number_value(json_object_get(o, "seconds")),
    };
    if (!json_is_string(said)) return;
    a->correct = extract_correct(q->rule, q->prompt, q->answer, json_string_value(said), json_string_length(said));
}

static json_t *record(const runner *u, const question_set *s, size_t i, uint64_t seed, const eval_answer *a,
                      const text *said)
{
    json_t *o = json_object();
    json_object_set_new(o, "recipe", json_string(u->r->name));
    json_object_set_new(o, "set", json_string(s->name));
    json_object_set_new(o, "index", json_integer((json_int_t)i));
    json_object_set_new(o, "seed", json_integer((json_int_t)seed));
    json_object_set_new(o, "text", text_json(said->p, said->n));
    json_object_set_new(o, "end", json_boolean(a->end));
    json_object_set_new(o, "correct", json_boolean(a->correct));
    json_object_set_new(o, "n_tokens", json_integer(a->tokens));
    json_object_set_new(o, "passes", json_integer(a->passes));
    json_object_set_new(o, "rows", json_integer(a->rows));
    json_object_set_new(o, "rev_rows", json_integer(a->rev_rows));
    json_object_set_new(o, "jobs", json_integer(a->jobs));
    json_object_set_new(o, "sweeps", json_integer(a->sweeps));
    json_object_set_new(o, "edits", json_integer(a->edits));
    json_object_set_new(o, "remasks", json_integer(a->remasks));
    json_object_set_new(o, "seconds", json_real(a->seconds));
    return o;
}

/* One session serves all sets: the longest prompt decides. */
static int open_session(runner *u)
{
    size_t longest = 0;
    const evaluation *e = u->e;
    if (u->s) return EXIT_FINE;
    for (size_t k = 0; k < e->n_sets; k++)
        for (size_t i = 0; i < e->sets[k].n; i++)
            if (e->sets[k].q[i].n_ids > longest) longest = e->sets[k].q[i].n_ids;
    return app_session_open(&u->s, &e->am, &u->r->r, e->o, (int64_t)longest + u->gen);
}

static int ask(runner *u, const question *q, uint64_t seed, llada_result *res)
{
    llada_request rq;
    llada_err err = {0};
    int rc = open_session(u);
    if (rc) return rc;
    llada_request_defaults(&rq);
    rq.prompt = q->ids;
    rq.n_prompt = (int32_t)q->n_ids;
    rq.max_tokens = u->max_tokens;
    rq.seed = seed;
    res->size = sizeof *res;
    llada_status st = llada_generate(u->s, &rq, res, &err);
    if (st == LLADA_CANCELLED) return interrupt_exit_code();
    return st ? app_fail(&err) : EXIT_FINE;
}

static int answer(runner *u, const question_set *s, size_t i, uint64_t seed, eval_answer *a)
{
    const question *q = &s->q[i];
    char key[20];
    llada_result res;
    text said = {0};
    store_key(u->model_key, &u->r->r, q, u->gen, seed, key);
    const json_t *known = store_find(u->store, key);
    if (known) {
        recall(known, q, a);
        return EXIT_FINE;
    }
    int rc = ask(u, q, seed, &res);
    if (!rc) rc = app_detokenize(&u->e->am, res.tokens, (size_t)res.n_tokens, false, &said);
    if (!rc) {
        *a = (eval_answer){
            .end = res.finish == LLADA_FINISH_STOP, .tokens = res.n_tokens, .passes = res.passes, .jobs = res.jobs,
            .sweeps = res.sweeps, .edits = res.edits, .remasks = res.remasks, .rows = res.rows,
            .rev_rows = res.rev_rows, .seconds = res.seconds,
        };
        a->correct = extract_correct(q->rule, q->prompt, q->answer, said.n ? said.p : "", said.n);
        rc = store_add(u->store, key, record(u, s, i, seed, a, &said));
    }
    text_free(&said);
    return rc ? rc : interrupt_signal() ? interrupt_exit_code() : EXIT_FINE;
}

/* ---------------------------------------------------------------- all answers */

static int run_set(runner *u, size_t set, eval_answer *answers)
{
    const evaluation *e = u->e;
    const question_set *s = &e->sets[set];
    size_t seeds = (size_t)e->o->seeds;
    eval_sum *sum = &u->r->sums[set];
    progress p;
    char title[64], note[64];
    snprintf(title, sizeof title, "%.30s %.30s", u->r->name, s->name);
    progress_begin(&p, !e->o->quiet, title, s->n * seeds);
    int rc = EXIT_FINE;
    for (size_t i = 0; i < s->n * seeds && !rc; i++) {
        rc = answer(u, s, i / seeds, (uint64_t)e->o->seed + i % seeds, &answers[i]);
        if (rc) break;
        eval_add(sum, &answers[i]);
        snprintf(note, sizeof note, "%.1f %% right, %.1f passes", 100 * eval_accuracy(sum),
                 (double)sum->passes / (double)sum->n);
        progress_step(&p, i + 1, note);
    }
    progress_end(&p);
    return rc;
}

/* The pooled sum, and the differences to the first recipe. */
static void compare(evaluation *e, eval_recipe *r)
{
    size_t at = 0, seeds = (size_t)e->o->seeds;
    const eval_answer *first = e->recipes[0].answers;
    eval_sum *all = &r->sums[e->n_sets];
    for (size_t k = 0; k < e->n_sets; k++) {
        size_t n = e->sets[k].n * seeds;
        eval_paired(r->answers + at, first + at, n, &r->sums[k].difference, &r->sums[k].difference_se);
        at += n;
    }
    for (size_t i = 0; i < e->n_answers; i++) eval_add(all, &r->answers[i]);
    eval_paired(r->answers, first, e->n_answers, &all->difference, &all->difference_se);
}

static void print_objects(const evaluation *e, size_t recipe)
{
    size_t n = e->n_sets + (e->n_sets > 1); /* several sets: also one for all of them */
    for (size_t k = 0; k < n; k++) {
        json_t *o = report_json(e, recipe, k);
        char *s = json_dumps(o, JSON_SHORT_REALS);
        if (s) out_write(s, strlen(s));
        out_write("\n", 1);
        free(s);
        json_decref(o);
    }
}

static int run_recipe(evaluation *e, size_t index, eval_store *store, uint64_t model_key)
{
    runner u = {.e = e, .r = &e->recipes[index], .store = store, .model_key = model_key};
    u.gen = app_canvas_size(e->o, &u.r->r, &u.max_tokens);
    size_t at = 0;
    int rc = EXIT_FINE;
    for (size_t k = 0; k < e->n_sets && !rc; k++) {
        rc = run_set(&u, k, u.r->answers + at);
        at += e->sets[k].n * (size_t)e->o->seeds;
    }
    app_session_close(&u.s);
    if (rc) return rc;
    compare(e, u.r);
    if (e->o->json) print_objects(e, index);
    return e->o->json && !out_check() ? EXIT_FAILED : EXIT_FINE;
}

static int run_all(evaluation *e)
{
    eval_store store;
    int rc = store_open(&store, e->o->resume);
    uint64_t key = store_model_key(&e->am, e->o);
    for (size_t i = 0; i < e->n_recipes && !rc; i++) rc = run_recipe(e, i, &store, key);
    int closed = store_close(&store);
    if (rc > 128 && !e->o->quiet)
        app_note("stopped; %s", e->o->resume ? "the same command goes on" : "--resume FILE would have kept it");
    return rc ? rc : closed;
}

static int write_reports(const evaluation *e)
{
    text t = {0};
    int rc = EXIT_FINE;
    report_markdown(e, &t);
    if (!e->o->json) out_write(t.p, t.n);
    if (e->o->markdown) rc = file_write(e->o->markdown, t.p, t.n);
    text_cut(&t, 0);
    if (e->o->svg && !rc) {
        report_svg(e, &t);
        rc = file_write(e->o->svg, t.p, t.n);
    }
    text_free(&t);
    return rc;
}

/* ---------------------------------------------------------------- the command */

static int make_recipes(evaluation *e)
{
    const options *o = e->o;
    e->n_recipes = o->recipes.n ? o->recipes.n : 1;
    e->recipes = app_new(e->n_recipes, sizeof *e->recipes);
    for (size_t i = 0; i < e->n_recipes; i++) {
        eval_recipe *r = &e->recipes[i];
        const char *spec = o->recipes.n ? o->recipes.p[i] : NULL;
        int rc = app_recipe(o, spec, &r->r);
        if (rc) return rc;
        r->name = spec ? spec : r->r.name;
    }
    return EXIT_FINE;
}

static int load_sets(evaluation *e)
{
    const options *o = e->o;
    e->sets = app_new(o->sets.n, sizeof *e->sets);
    for (size_t i = 0; i < o->sets.n; i++) {
        e->n_sets = i + 1;
        int rc = set_load(&e->sets[i], &e->am, o, o->sets.p[i]);
        if (rc) return rc;
        e->n_answers += e->sets[i].n * (size_t)o->seeds;
    }
    for (size_t i = 0; i < e->n_recipes; i++) {
        e->recipes[i].sums = app_new(e->n_sets + 1, sizeof *e->recipes[i].sums);
        e->recipes[i].answers = app_new(e->n_answers, sizeof *e->recipes[i].answers);
    }
    return EXIT_FINE;
}

static void free_all(evaluation *e)
{
    for (size_t i = 0; i < e->n_sets; i++) set_free(&e->sets[i]);
    for (size_t i = 0; i < e->n_recipes; i++) {
        free(e->recipes[i].sums);
        free(e->recipes[i].answers);
    }
    free(e->sets);
    free(e->recipes);
    app_model_close(&e->am);
}

int cmd_eval(const options *o)
{
    evaluation e = {.o = o};
    if (!o->sets.n) {
        app_error("eval needs --set FILE.jsonl");
        return EXIT_WRONG_USE;
    }
    if (o->seed < 0) {
        app_error("--seed: eval needs a fixed seed, not %lld", (long long)o->seed);
        return EXIT_WRONG_USE;
    }
    int rc = make_recipes(&e);
    if (!rc && o->markdown) rc = file_check(o->markdown); /* before the work, not after it */
    if (!rc && o->svg) rc = file_check(o->svg);
    if (!rc) rc = app_model_open(&e.am, o, false);
    if (!rc && !o->recipes.n) rc = app_recipe_fit(o, &e.am, &e.recipes[0].r);
    if (!rc) rc = load_sets(&e);
    if (!rc) rc = run_all(&e);
    if (!rc) rc = write_reports(&e);
    free_all(&e);
    return rc;
}
