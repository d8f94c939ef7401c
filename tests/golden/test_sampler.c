/* test_sampler.c - LLaDA's own sampler against runs of an independent implementation
 * (tests/golden/data/tiny-llada-*.json, `traces`), and the promise that text depends on the recipe alone: not on
 * instruction sets, threads, mapping, nor on how revision jobs are executed.
 *
 * Confidences of neighbouring positions are often equal but for rounding (each recorded step says by how much), so the
 * canvas of a recorded step is forced: what the network then says of the positions that were written must agree, and
 * the choice of position where it does not hang on rounding.  Argument "all": every step, prompt and instruction set.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record.h"

#define DATA LLADA_SOURCE_DIR "/tests/golden/data/"
#define MODEL LLADA_SOURCE_DIR "/tests/fixtures/tiny-llada-f32.gguf"

enum { MAX_IDS = 256, GEN = 128, BLOCK = 32, N_FILES = 3 };

static llada_model *model;
static bool all;

static int open_model(void **state)
{
    llada_err err;
    return llada_model_open(&model, MODEL, NULL, &err);
}

static int close_model(void **state)
{
    llada_model_close(&model);
    return 0;
}

/* Recipe by name and settings, "key=value key=value". */
static llada_recipe recipe(const char *name, const char *settings)
{
    llada_recipe r;
    llada_err err;
    char text[256], *rest = NULL;
    snprintf(text, sizeof text, "%s", settings);
    assert_int_equal(llada_recipe_named(&r, name, &err), LLADA_OK);
    for (char *kv = strtok_r(text, " ", &rest); kv; kv = strtok_r(NULL, " ", &rest)) {
        char *eq = strchr(kv, '=');
        *eq = 0;
        if (llada_recipe_set(&r, kv, eq + 1, &err)) fail_msg("%s", err.text);
    }
    return r;
}

static llada_session *open_session(const llada_model *m, const llada_recipe *r, const llada_session_opts *o)
{
    llada_session *s = NULL;
    llada_err err;
    if (llada_session_open(&s, m, r, o, &err)) fail_msg("%s", err.text);
    return s;
}

/* ---------------------------------------------------------------- recorded steps */

typedef struct {
    int n_prompt;
    int32_t prompt[MAX_IDS], canvas[GEN];
    llada_session *every, *pick; /* writes all masks of the block at once; writes by the recorded rule */
} forced;

typedef struct {
    int n, pos[GEN];
    int32_t token[GEN];
    double conf[GEN];
} written;

static bool note(const llada_event *ev, void *user)
{
    written *w = user;
    if (ev->kind != LLADA_EV_COMMIT) return true;
    w->pos[w->n] = ev->pos;
    w->token[w->n] = ev->token;
    w->conf[w->n++] = ev->confidence;
    return true;
}

/* One step from the canvas as it stood. */
static written step_from(const forced *f, llada_session *s)
{
    written w = {0};
    llada_err err;
    llada_request q;
    bool done;
    llada_request_defaults(&q);
    q.prompt = f->prompt;
    q.n_prompt = f->n_prompt;
    q.canvas = f->canvas;
    q.n_canvas = GEN;
    q.on_event = note;
    q.user = &w;
    if (llada_begin(s, &q, &err) || llada_step(s, &done, &err)) fail_msg("%s", err.text);
    return w;
}

static int find(const written *w, int pos)
{
    for (int i = 0; i < w->n; i++)
        if (w->pos[i] == pos) return i;
    return -1;
}

static void check_step(const forced *f, json_t *step, bool exact_set, const char *what)
{
    json_t *pos = json_object_get(step, "pos"), *tok = json_object_get(step, "tok");
    json_t *conf = json_object_get(step, "conf");
    written w = step_from(f, f->every);
    size_t n = json_array_size(pos);
    for (size_t i = 0; i < n; i++) {
        int p = (int)json_integer_value(json_array_get(pos, i)), at = find(&w, p);
        if (at < 0) fail_msg("%s: position %d is not in the block", what, p);
        double want = json_number_value(json_array_get(conf, i));
        if (w.token[at] != json_integer_value(json_array_get(tok, i)) || fabs(w.conf[at] - want) > 1e-4)
            fail_msg("%s: position %d is %d (%.6f), not %lld (%.6f)", what, p, w.token[at], w.conf[at],
                     (long long)json_integer_value(json_array_get(tok, i)), want);
    }
    if (!exact_set && json_number_value(json_object_get(step, "gap")) <= 1e-4) return;
    w = step_from(f, f->pick);
    if (w.n != (int)n) fail_msg("%s: %d positions written, not %zu", what, w.n, n);
    for (size_t i = 0; i < n; i++)
        if (find(&w, (int)json_integer_value(json_array_get(pos, i))) < 0)
            fail_msg("%s: position %lld was not chosen", what, (long long)json_integer_value(json_array_get(pos, i)));
}

static void check_steps(const char *file, const char *trace, const char *rule, int stride)
{
    char path[512], what[96];
    snprintf(path, sizeof path, DATA "%s", file);
    json_t *doc = record_load(path), *t = json_object_get(json_object_get(doc, "traces"), trace);
    json_t *steps = json_object_get(t, "steps");
    bool by_threshold = json_is_number(json_object_get(t, "threshold"));
    llada_recipe every = recipe("parallel", "gen=128 block=32 cache=none early=false tau=0");
    llada_recipe pick = recipe("parallel", rule);
    forced f;
    f.n_prompt = ids_of(json_object_get(doc, "prompt_ids"), f.prompt, MAX_IDS);
    f.every = open_session(model, &every, NULL);
    f.pick = open_session(model, &pick, NULL);
    for (int i = 0; i < GEN; i++) f.canvas[i] = LLADA_HOLE;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        json_t *step = json_array_get(steps, i);
        json_t *pos = json_object_get(step, "pos"), *tok = json_object_get(step, "tok");
        snprintf(what, sizeof what, "%s, %s, step %zu", file, trace, i);
        if (all || i % (size_t)stride == 0) check_step(&f, step, by_threshold, what);
        for (size_t k = 0; k < json_array_size(pos); k++)
            f.canvas[json_integer_value(json_array_get(pos, k))] = (int32_t)json_integer_value(json_array_get(tok, k));
    }
    llada_session_close(&f.every);
    llada_session_close(&f.pick);
    json_decref(doc);
}

static void test_steps(void **state)
{
    for (int i = 0; i < N_FILES; i++) {
        char file[32];
        snprintf(file, sizeof file, "tiny-llada-%d.json", i);
        check_steps(file, "thr0.9", "gen=128 block=32 cache=none early=false", i == 2 ? 3 : 1);
        check_steps(file, "steps128", "gen=128 block=32 cache=none early=false rule=quota steps=128", 17);
    }
}

/* Left to itself the sampler ends with the same text. */
static void check_text(int number, const char *trace, const char *rule)
{
    char path[512];
    int32_t prompt[MAX_IDS], final[MAX_IDS];
    snprintf(path, sizeof path, DATA "tiny-llada-%d.json", number);
    json_t *doc = record_load(path), *t = json_object_get(json_object_get(doc, "traces"), trace);
    llada_recipe r = recipe("parallel", rule);
    llada_session *s = open_session(model, &r, NULL);
    llada_request q;
    llada_result res;
    llada_err err;
    llada_request_defaults(&q);
    q.prompt = prompt;
    q.n_prompt = ids_of(json_object_get(doc, "prompt_ids"), prompt, MAX_IDS);
    int n = ids_of(json_object_get(t, "final_ids"), final, MAX_IDS);
    if (llada_generate(s, &q, &res, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < res.n_tokens; i++)
        if (res.tokens[i] != final[i])
            fail_msg("%d, %s: token %d is %d, not %d", number, trace, i, res.tokens[i], final[i]);
    assert_true(res.n_tokens < n && res.canvas[res.n_tokens] == final[res.n_tokens]); /* the end token */
    if (!strstr(rule, "early=true")) assert_int_equal(res.passes, json_integer_value(json_object_get(t, "forwards")));
    llada_session_close(&s);
    json_decref(doc);
}

static void test_text(void **state)
{
    for (int i = 0; i < N_FILES; i++) check_text(i, "thr0.9", "gen=128 block=32 cache=none early=false");
    check_text(1, "steps128", "gen=128 block=32 cache=none rule=quota steps=128 early=true");
    if (!all) return;
    for (int i = 0; i < N_FILES; i++)
        check_text(i, "steps128", "gen=128 block=32 cache=none rule=quota steps=128 early=false");
}

/* ---------------------------------------------------------------- the same on every machine */

typedef struct {
    int n;
    int32_t canvas[GEN];
    double conf[GEN];
} answer;

static int prompt_of(int i, int32_t *ids)
{
    json_t *doc = record_load(DATA "recipes/dual-threshold.json");
    json_t *run = json_array_get(json_object_get(doc, "runs"), (size_t)i);
    int n = ids_of(json_object_get(run, "prompt_ids"), ids, MAX_IDS);
    json_decref(doc);
    return n;
}

static answer ask(const llada_model *m, const llada_recipe *r, const llada_session_opts *o, int prompt)
{
    int32_t ids[MAX_IDS];
    answer a;
    llada_request q;
    llada_result res;
    llada_err err;
    llada_session *s = open_session(m, r, o);
    llada_request_defaults(&q);
    q.prompt = ids;
    q.n_prompt = prompt_of(prompt, ids);
    if (llada_generate(s, &q, &res, &err)) fail_msg("%s", err.text);
    a.n = res.n_canvas;
    memcpy(a.canvas, res.canvas, (size_t)a.n * sizeof *a.canvas);
    memcpy(a.conf, res.confidence, (size_t)a.n * sizeof *a.conf);
    llada_session_close(&s);
    return a;
}

static void same_tokens(const answer *a, const answer *b, const char *what)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        if (a->canvas[i] != b->canvas[i])
            fail_msg("%s: position %d is %d, not %d", what, i, b->canvas[i], a->canvas[i]);
}

static const struct {
    const char *name, *settings, *quick; /* quick: for code without vectors */
} recipes[] = {
    {"vanilla", "gen=48 block=16", "steps=12"},
    {"parallel", "gen=48 block=16", ""},
    {"llada", "gen=48 block=16", ""},
};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* Instruction sets: none, then one more at a time.  Confidences differ in the last digits, tokens don't. */
static void test_masks(void **state)
{
    size_t n;
    uint64_t found;
    llada_cpu_features(&n, &found);
    for (int i = 0; i < N_RECIPES; i++) {
        for (int p = 2; p < (all ? 5 : 4); p++) {
            llada_recipe r = recipe(recipes[i].name, recipes[i].settings);
            llada_recipe quick = recipe(recipes[i].name, recipes[i].quick);
            quick.gen = r.gen;
            quick.block = r.block;
            llada_session_opts o;
            llada_session_opts_defaults(&o);
            answer whole = ask(model, &r, &o, p), sparing = ask(model, &quick, &o, p);
            for (size_t k = 0; k <= n; k++) {
                char what[96];
                o.cpu_mask = ((uint64_t)1 << k) - 1;
                if (k > 0 && !(found >> (k - 1) & 1)) break;
                if (k == 0 && p > 2 && !all) continue;
                snprintf(what, sizeof what, "%s, prompt %d, instruction sets %#llx", recipes[i].name, p,
                         (unsigned long long)o.cpu_mask);
                answer a = ask(model, k || all ? &r : &quick, &o, p);
                same_tokens(k || all ? &whole : &sparing, &a, what);
            }
        }
    }
}

/* Threads and mapping change not even a bit. */
static void test_threads(void **state)
{
    static const int threads[] = {2, 3, 8};
    llada_model *read = NULL;
    llada_model_opts mo;
    llada_err err;
    llada_model_opts_defaults(&mo);
    mo.use_mmap = false;
    if (llada_model_open(&read, MODEL, &mo, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < N_RECIPES; i++) {
        llada_recipe r = recipe(recipes[i].name, recipes[i].settings);
        if (!all && recipes[i].quick[0]) r.steps = 12;
        llada_session_opts o;
        llada_session_opts_defaults(&o);
        o.threads = 1;
        answer one = ask(model, &r, &o, 2), other = ask(read, &r, &o, 2);
        assert_memory_equal(one.canvas, other.canvas, (size_t)one.n * sizeof *one.canvas);
        assert_memory_equal(one.conf, other.conf, (size_t)one.n * sizeof *one.conf);
        for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
            o.threads = threads[k];
            other = ask(model, &r, &o, 2);
            assert_memory_equal(one.canvas, other.canvas, (size_t)one.n * sizeof *one.canvas);
            assert_memory_equal(one.conf, other.conf, (size_t)one.n * sizeof *one.conf);
        }
    }
    llada_model_close(&read);
}

/* A revision job alone, beside a dense pass or inside one: the same trace, event by event, bit by bit. */
static void test_exec(void **state)
{
    static const char *const exec[] = {"serial", "async", "fused"};
    for (int lag = 2; lag <= 3; lag++) {
        for (int p = 0; p < (all ? 5 : 3); p++) {
            json_t *first = NULL;
            for (int e = 0; e < 3; e++) {
                char settings[64], what[96];
                int32_t ids[MAX_IDS];
                snprintf(settings, sizeof settings, "gen=64 block=16 lag=%d exec=%s", lag, exec[e]);
                snprintf(what, sizeof what, "%s, prompt %d", settings, p);
                llada_recipe r = recipe("llada", settings);
                llada_session *s = open_session(model, &r, NULL);
                recorder rec;
                llada_request q;
                llada_result res;
                llada_err err;
                record_begin(&rec, &r);
                llada_request_defaults(&q);
                q.prompt = ids;
                q.n_prompt = prompt_of(p, ids);
                q.on_event = record;
                q.user = &rec;
                if (llada_generate(s, &q, &res, &err)) fail_msg("%s", err.text);
                for (int i = 0; i < res.n_canvas; i++) json_array_append_new(rec.entries, json_integer(res.canvas[i]));
                if (first) check_trace(rec.entries, first, 0, what);
                if (!first) first = json_incref(rec.entries);
                record_end(&rec);
                llada_session_close(&s);
            }
            json_decref(first);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),   cmocka_unit_test(test_text), cmocka_unit_test(test_masks),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_exec),
    };
    all = argc > 1 && !strcmp(argv[1], "all");
    return cmocka_run_group_tests(tests, open_model, close_model);
}
