/* bench.c - `llada bench`: how long passes of so many rows take, and whole answers.  Times are medians of real runs on
 * this machine; nothing is modelled. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "latency.h"
#include "tools.h"
#include "tracelog.h"

enum { MAX_LIST = 64, DEFAULT_REPS = 5, DEFAULT_PROMPT = 64 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void say_json(json_t *line)
{
    char *s = json_dumps(line, JSON_SHORT_REALS);
    if (s) {
        out_text(s, strlen(s));
        out_write("\n", 1);
    }
    free(s);
    json_decref(line);
}

/* ---------------------------------------------------------------- forward */

/* Times passes of `rows` rows; false when one fails, with the sentence printed. */
static bool time_rows(llada_session *s, int rows, int reps, double *ms, double *least)
{
    double *t = app_new((size_t)reps, sizeof *t);
    llada_err err = {0};
    bool ok = !tools_forward(s, rows, &err); /* the first touches pages and caches, and is not counted */
    for (int i = 0; i < reps && ok; i++) {
        double began = app_seconds();
        ok = !tools_forward(s, rows, &err);
        t[i] = (app_seconds() - began) * 1e3;
    }
    if (ok) {
        *ms = median(t, reps);
        *least = t[0];
    } else {
        app_fail(&err);
    }
    free(t);
    return ok;
}

/* The machine, and what a pass of this model asks of it. */
typedef struct {
    tools_limits can;
    tools_work work;
} ceiling;

static int measure_machine(ceiling *c, const app_model *am, const options *o, int threads)
{
    llada_err err = {0};
    if (tools_machine(&c->can, threads, o->cpu_mask, 0.5, &err)) return app_fail(&err);
    tools_pass_work(am->m, &c->work);
    if (o->json)
        say_json(json_pack("{s:s, s:f, s:f, s:f, s:s, s:s, s:i}", "limits", "measured", "read_gbs", c->can.read_gbs,
                           "float_gflops", c->can.float_gflops, "integer_gops", c->can.integer_gops, "float_kernel",
                           c->can.float_kernel, "integer_kernel", c->can.integer_kernel, "threads", c->can.threads));
    else
        printf("this machine: reads %.1f GB/s; %s %.0f GFLOP/s, %s %.0f GOP/s in the first cache (%d threads)\n",
               c->can.read_gbs, c->can.float_kernel, c->can.float_gflops, c->can.integer_kernel, c->can.integer_gops,
               c->can.threads);
    return EXIT_FINE;
}

/* The least a pass of so many rows could take, in ms: reading the weights or the products, whichever is more. */
static double limit_ms(const ceiling *c, int rows)
{
    double read = c->work.bytes / c->can.read_gbs * 1e-6;
    double products = 2e-6 * rows * (c->work.floats / c->can.float_gflops + c->work.integers / c->can.integer_gops);
    return read > products ? read : products;
}

static void say_rows(const app_model *am, const options *o, const ceiling *c, int rows, double ms, double least, int reps,
                     int threads)
{
    double gflops = 2e-9 * (double)am->info.n_params * rows / (ms * 1e-3);
    if (o->json) {
        json_t *line = json_pack("{s:i, s:f, s:f, s:i, s:f, s:i}", "rows", rows, "ms", ms, "ms_min", least, "reps", reps,
                                 "gflops", gflops, "threads", threads);
        if (o->limits) {
            json_object_set_new(line, "limit_ms", json_real(limit_ms(c, rows)));
            json_object_set_new(line, "share", json_real(limit_ms(c, rows) / ms));
        }
        say_json(line);
        return;
    }
    printf("%5d rows  %10.3f ms  (least %.3f)  %8.1f rows/s  %7.1f GFLOP/s", rows, ms, least, rows / (ms * 1e-3), gflops);
    if (o->limits) printf("  limit %.3f ms, %.0f %% of it reached", limit_ms(c, rows), 100 * limit_ms(c, rows) / ms);
    printf("\n");
}

static int forward(const app_model *am, const options *o)
{
    size_t n;
    char why[256];
    int32_t *rows = opt_ids("--rows", o->rows ? o->rows : "1,4,8,16,32,64,128", &n, why, sizeof why), most = 0;
    if (!rows || n > MAX_LIST) {
        app_error("%s", rows ? "--rows: too many counts" : why);
        free(rows);
        return EXIT_WRONG_USE;
    }
    for (size_t i = 0; i < n; i++) most = rows[i] > most ? rows[i] : most;
    llada_recipe r;
    llada_recipe_for(&r, am->m);
    r.gen = 1;
    llada_session *s = NULL;
    int rc = app_session_open(&s, am, &r, o, most ? most : 1);
    int reps = o->reps ? (int)o->reps : DEFAULT_REPS, kept = 0;
    llada_latency table[LLADA_MAX_LATENCY];
    ceiling c = {.work = {0}};
    if (!rc && o->limits) rc = measure_machine(&c, am, o, llada_session_threads(s));
    for (size_t i = 0; i < n && !rc; i++) {
        double ms = 0, least = 0;
        if (rows[i] < 1 || !time_rows(s, rows[i], reps, &ms, &least)) {
            if (rows[i] < 1) app_error("--rows: %d rows", (int)rows[i]);
            rc = rows[i] < 1 ? EXIT_WRONG_USE : EXIT_FAILED;
            break;
        }
        if (kept < LLADA_MAX_LATENCY && rows[i] > (kept ? table[kept - 1].rows : 0))
            table[kept++] = (llada_latency){rows[i], ms};
        say_rows(am, o, &c, rows[i], ms, least, reps, llada_session_threads(s));
    }
    char *path = NULL;
    if (!rc && o->save && !(rc = latency_save(am, o, table, kept, &path)) && !o->quiet) app_note("table kept in %s", path);
    free(path);
    app_session_close(&s);
    free(rows);
    return rc;
}

/* ---------------------------------------------------------------- generate */

/* Tokens written by each pass of a trace: entries are lists (block recipes), or objects with events. */
static int trace_counts(const char *path, int32_t **out, int *n)
{
    text t = {0};
    int rc = file_read(&t, path, (size_t)1 << 28);
    *out = NULL;
    *n = 0;
    char *save = NULL;
    for (char *line = rc || !t.p ? NULL : strtok_r(t.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *e = json_loads(line, JSON_REJECT_DUPLICATES, NULL), *events = json_object_get(e, "events");
        int32_t count = json_is_array(e) ? (int32_t)json_array_size(e) : 0;
        bool pass = json_is_array(e) || json_is_array(events);
        for (size_t i = 0; i < json_array_size(events); i++) {
            const char *kind = json_string_value(json_array_get(json_array_get(events, i), 0));
            count += kind && (!strcmp(kind, "commit") || !strcmp(kind, "draft"));
        }
        json_decref(e);
        if (!pass) continue;
        *out = app_grow(*out, (size_t)*n + 1, sizeof **out);
        (*out)[(*n)++] = count > 0 ? count : 1;
    }
    text_free(&t);
    if (!rc && *n == 0) {
        app_error("%s: there are no passes in this trace", path);
        rc = EXIT_WRONG_USE;
    }
    return rc;
}

typedef struct {
    int64_t most; /* dense passes; 0: all */
    int64_t seen;
    double *took; /* owned: seconds of each pass, of all runs */
    int n;
} pass_times;

static bool count_passes(const llada_event *ev, void *user)
{
    pass_times *l = user;
    if (ev->kind == LLADA_EV_PASS) {
        l->seen++;
        l->took = app_grow(l->took, (size_t)l->n + 1, sizeof *l->took);
        l->took[l->n++] = ev->took;
    }
    return !(l->most && l->seen >= l->most);
}

static int run_once(llada_session *s, const llada_request *ask, llada_result *res)
{
    llada_err err = {0};
    llada_status st = llada_generate(s, ask, res, &err);
    const pass_times *l = ask->user;
    if (st == LLADA_CANCELLED && l->most && l->seen >= l->most) st = llada_get_result(s, res, &err);
    return st ? app_fail(&err) : EXIT_FINE;
}

/* What a budget did, into a line of JSON. */
static void add_memory(json_t *line, const llada_memory *m)
{
    if (!m->budget) return;
    json_object_set_new(line, "memory",
                        json_pack("{s:I, s:I, s:I, s:I, s:i, s:I, s:b, s:I, s:f, s:f, s:f}", "budget",
                                  (json_int_t)m->budget, "total", (json_int_t)m->total, "held", (json_int_t)m->held,
                                  "streamed", (json_int_t)m->streamed, "slots", m->slots, "slot_bytes",
                                  (json_int_t)m->slot_bytes, "direct", m->direct, "bytes_read",
                                  (json_int_t)m->bytes_read, "transfer_seconds", m->transfer_seconds, "stall_seconds",
                                  m->stall_seconds, "overlap", m->overlap));
}

/* A number that two runs share when they wrote the same tokens. */
static uint64_t tokens_hash(const llada_result *res)
{
    return app_hash(APP_HASH_SEED, res->canvas, (size_t)res->n_canvas * sizeof *res->canvas);
}

static void report(const options *o, const app_model *am, const llada_recipe *r, const llada_result *res,
                   double seconds, double least, int reps, int prompt, double each)
{
    llada_memory m = {.size = sizeof m};
    llada_model_memory(am->m, &m);
    if (o->json) {
        json_t *line =
            json_pack("{s:s, s:i, s:i, s:f, s:f, s:i, s:i, s:i, s:i, s:I, s:i, s:I, s:b, s:f}", "recipe", r->name,
                      "prompt", prompt, "tokens", res->n_canvas, "seconds", seconds, "seconds_min", least, "reps", reps,
                      "passes", res->passes, "full", res->full, "sweeps", res->sweeps, "rows", (json_int_t)res->rows,
                      "jobs", res->jobs, "rev_rows", (json_int_t)res->rev_rows, "stopped_early",
                      o->most_passes && res->passes >= o->most_passes, "tokens_per_s", res->n_canvas / seconds);
        json_object_set_new(line, "pass_seconds", json_real(each));
        char hash[24];
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tokens_hash(res));
        json_object_set_new(line, "tokens_hash", json_string(hash));
        add_memory(line, &m);
        say_json(line);
        return;
    }
    printf("recipe %s: %d tokens after %d in %.3f s (least %.3f of %d), %.1f tokens/s; %d passes (%d refreshes), %lld rows, "
           "%d revision jobs of %lld rows\n",
           r->name, res->n_canvas, prompt, seconds, least, reps, res->n_canvas / seconds, res->passes, res->full,
           (long long)res->rows, res->jobs, (long long)res->rev_rows);
}

static int generate_bench(const app_model *am, const options *o)
{
    llada_recipe r;
    int32_t *counts = NULL, max_tokens;
    int n_counts = 0, rc = app_recipe(o, NULL, &r);
    if (!rc) rc = app_recipe_fit(o, am, &r);
    if (!rc && o->trace) rc = trace_counts(o->trace, &counts, &n_counts);
    if (rc) return rc;
    int32_t k = (int32_t)o->per_pass, gen = app_canvas_size(o, &r, &max_tokens);
    int prompt = o->prompt_tokens >= 0 ? (int)o->prompt_tokens : DEFAULT_PROMPT;
    int32_t *ids = app_new((size_t)prompt + 1, sizeof *ids);
    for (int i = 0; i < prompt; i++) ids[i] = (i * 7 + 11) % (am->info.n_vocab < 1000 ? am->info.n_vocab : 1000);
    llada_session *s = NULL;
    llada_err err = {0};
    rc = app_session_open(&s, am, &r, o, (int64_t)prompt + gen);
    if (!rc && (k || counts) && tools_schedule(s, counts ? counts : &k, counts ? n_counts : 1, &err)) rc = app_fail(&err);
    int reps = o->reps ? (int)o->reps : 1;
    double *t = app_new((size_t)reps, sizeof *t);
    pass_times times = {.most = o->most_passes};
    llada_result res = {.size = sizeof res};
    for (int i = 0; i < reps && !rc; i++) {
        llada_request q;
        llada_request_defaults(&q);
        q.prompt = ids;
        q.n_prompt = prompt;
        q.max_tokens = max_tokens;
        q.on_event = count_passes;
        q.user = &times;
        times.seen = 0;
        rc = run_once(s, &q, &res);
        t[i] = res.seconds;
    }
    if (!rc) {
        double mid = median(t, reps);
        report(o, am, &r, &res, mid, t[0], reps, prompt, times.n ? median(times.took, times.n) : 0);
        app_memory_note(am, o);
    }
    free(t);
    free(times.took);
    app_session_close(&s);
    free(ids);
    free(counts);
    return rc;
}

int cmd_bench(const options *o)
{
    app_model am;
    bool is_forward = o->arg && !strcmp(o->arg, "forward"), is_generate = o->arg && !strcmp(o->arg, "generate");
    if (!is_forward && !is_generate) {
        app_error("bench needs to know what to time: forward or generate");
        return EXIT_WRONG_USE;
    }
    int rc = app_model_open(&am, o, false);
    if (!rc) rc = is_forward ? forward(&am, o) : generate_bench(&am, o);
    if (!out_check() && !rc) rc = EXIT_FAILED;
    app_model_close(&am);
    return rc;
}
