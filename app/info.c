/* info.c - `llada info`: what a model file holds, and what running it takes on this machine. */
#include "commands.h"
#include "latency.h"
#include "model.h"
#include "profile.h"
#include "tools.h"
#include "tracelog.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of keys and values for one position. */
static double kv_bytes(const llada_model_info *i, bool f16)
{
    double head = i->n_head ? (double)i->n_embd / i->n_head : 0;
    return 2.0 * i->n_layer * i->n_head_kv * head * (f16 ? 2 : 4);
}

static json_t *string_or_null(const char *s) { return s ? text_json(s, strlen(s)) : json_null(); }

static json_t *id_or_null(int32_t id) { return id >= 0 ? json_integer(id) : json_null(); }

static json_t *features_json(void)
{
    size_t n;
    uint64_t found = 0;
    const char *const *names = llada_cpu_features(&n, &found);
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        if (found >> i & 1) json_array_append_new(a, json_string(names[i]));
    return a;
}

/* ---------------------------------------------------------------- memory */

enum { MOST_SIZES = 5 };

/* Contexts worth a row: round ones up to what the model was trained for. */
static int sizes(const app_model *am, int out[MOST_SIZES])
{
    static const int round[] = {512, 1024, 4096, 16384};
    int n = 0, most = am->info.n_ctx;
    for (int i = 0; i < 4; i++)
        if (round[i] < most) out[n++] = round[i];
    if (most > 0 && most <= 32768) out[n++] = most;
    return n;
}

/* Recipes of the model's kind. */
static bool fits(const app_model *am, const llada_recipe *r) { return (r->rule == LLADA_RULE_AR) == am->info.causal; }

static json_t *memory_json(const app_model *am)
{
    json_t *list = json_array();
    int ctx[MOST_SIZES], n = sizes(am, ctx);
    size_t n_recipes;
    const char *const *names = llada_recipe_names(&n_recipes);
    for (size_t k = 0; k < n_recipes; k++) {
        llada_recipe r;
        tools_memory f32, f16;
        if (llada_recipe_named(&r, names[k], NULL) || !fits(am, &r)) continue;
        for (int i = 0; i < n; i++) {
            if (tools_session_bytes(am->m, &r, ctx[i], false, &f32, NULL) ||
                tools_session_bytes(am->m, &r, ctx[i], true, &f16, NULL))
                continue;
            json_array_append_new(list, json_pack("{s:s,s:i,s:I,s:I,s:I}", "recipe", names[k], "ctx", ctx[i], "kv_f32",
                                                  (json_int_t)f32.kv, "kv_f16", (json_int_t)f16.kv, "work",
                                                  (json_int_t)f32.work));
        }
    }
    return list;
}

static void print_json(const app_model *am, const char *file, const tools_found *f)
{
    const llada_model_info *i = &am->info;
    json_t *o = json_object();
    json_object_set_new(o, "file", string_or_null(file));
    json_object_set_new(o, "name", string_or_null(i->name));
    json_object_set_new(o, "arch", string_or_null(i->arch));
    json_object_set_new(o, "chat_layout", string_or_null(i->chat_layout));
    json_object_set_new(o, "n_params", json_integer((json_int_t)i->n_params));
    json_object_set_new(o, "file_bytes", json_integer((json_int_t)i->file_bytes));
    json_object_set_new(o, "packed", json_boolean(f->n_packed > 0));
    const struct {
        const char *key;
        int32_t value;
    } numbers[] = {{"n_layer", i->n_layer}, {"n_embd", i->n_embd}, {"n_head", i->n_head}, {"n_head_kv", i->n_head_kv},
                   {"n_ff", i->n_ff}, {"n_vocab", i->n_vocab}, {"n_ctx", i->n_ctx}, {"n_expert", i->n_expert},
                   {"n_expert_used", i->n_expert_used}};
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++)
        json_object_set_new(o, numbers[k].key, json_integer(numbers[k].value));
    json_object_set_new(o, "causal", json_boolean(i->causal));
    json_object_set_new(o, "mask_id", id_or_null(i->mask_id));
    json_object_set_new(o, "eos_id", id_or_null(i->eos_id));
    json_object_set_new(o, "eot_id", id_or_null(i->eot_id));
    json_object_set_new(o, "bos_id", id_or_null(i->bos_id));
    json_object_set_new(o, "kv_bytes_per_token", json_integer((json_int_t)kv_bytes(i, false)));
    json_object_set_new(o, "memory_free", json_integer((json_int_t)app_memory_free()));
    json_object_set_new(o, "cpu_features", features_json());
    json_object_set_new(o, "memory", memory_json(am));
    json_object_set_new(o, "runs", json_true());
    json_object_set_new(o, "version", json_string(llada_version()));
    char *s = json_dumps(o, JSON_INDENT(2) | JSON_SHORT_REALS);
    if (s) out_write(s, strlen(s));
    out_write("\n", 1);
    free(s);
    json_decref(o);
}

static void row(text *t, const char *name, const char *fmt, ...)
{
    va_list ap;
    char value[512];
    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    text_fmt(t, "%-14s %s\n", name, value);
}

static void id_row(text *t, const app_model *am, const char *name, int32_t id)
{
    text piece = {0};
    if (id < 0) return;
    text_str(&piece, "");
    if (app_detokenize(am, &id, 1, true, &piece) == EXIT_FINE) row(t, name, "%d  %.*s", (int)id, 64, piece.p);
    text_free(&piece);
}

static void features_row(text *t)
{
    size_t n;
    uint64_t found = 0;
    const char *const *names = llada_cpu_features(&n, &found);
    text list = {0};
    text_str(&list, "");
    for (size_t i = 0; i < n; i++)
        if (found >> i & 1) text_fmt(&list, "%s%s", list.n ? " " : "", names[i]);
    row(t, "CPU features", "%s", list.n ? list.p : "none that the kernels use");
    text_free(&list);
}

static void memory_rows(text *t, const app_model *am)
{
    int ctx[MOST_SIZES], n = sizes(am, ctx);
    llada_recipe r;
    llada_recipe_for(&r, am->m);
    for (int i = 0; i < n; i++) {
        tools_memory f32, f16;
        char name[32];
        if (tools_session_bytes(am->m, &r, ctx[i], false, &f32, NULL) ||
            tools_session_bytes(am->m, &r, ctx[i], true, &f16, NULL))
            continue;
        snprintf(name, sizeof name, "memory %d", ctx[i]);
        row(t, name, "%.1f MB beside the weights with recipe %s (%.1f MB with --kv f16)",
            (double)(f32.kv + f32.work) / 1e6,
            r.name, (double)(f16.kv + f16.work) / 1e6);
    }
}

static void packed_row(text *t, const tools_found *f)
{
    if (f->n_packed)
        row(t, "layout", "packed: %llu of %llu tensors", (unsigned long long)f->n_packed,
            (unsigned long long)f->n_tensors);
}

static void print_table(const app_model *am, const char *file, const tools_found *f)
{
    const llada_model_info *i = &am->info;
    text t = {0};
    row(&t, "file", "%s", file ? file : "(built in)");
    row(&t, "name", "%s", i->name ? i->name : "-");
    row(&t, "architecture", "%s", i->arch ? i->arch : "-");
    row(&t, "chat layout", "%s", i->chat_layout ? i->chat_layout : "unknown (--raw works, or --chat-layout NAME)");
    row(&t, "parameters", "%.2f M", (double)i->n_params / 1e6);
    row(&t, "weights", "%.1f MB", (double)i->file_bytes / 1e6);
    packed_row(&t, f);
    row(&t, "layers", "%d", (int)i->n_layer);
    row(&t, "width", "%d, feed-forward %d", (int)i->n_embd, (int)i->n_ff);
    row(&t, "heads", "%d, keys and values %d", (int)i->n_head, (int)i->n_head_kv);
    if (i->n_expert) row(&t, "experts", "%d, %d for each position", (int)i->n_expert, (int)i->n_expert_used);
    if (i->causal) row(&t, "kind", "autoregressive: writes from left to right (recipe ar)");
    row(&t, "vocabulary", "%d", (int)i->n_vocab);
    row(&t, "context", "%d positions", (int)i->n_ctx);
    id_row(&t, am, "mask token", i->mask_id);
    id_row(&t, am, "end of text", i->eos_id);
    id_row(&t, am, "end of turn", i->eot_id);
    id_row(&t, am, "begin of text", i->bos_id);
    row(&t, "keys, values", "%.1f KB a position (f32), %.1f MB for 1024 positions", kv_bytes(i, false) / 1e3,
        kv_bytes(i, false) * 1024 / 1e6);
    memory_rows(&t, am);
    row(&t, "memory free", "%.1f GB", (double)app_memory_free() / 1e9);
    features_row(&t);
    row(&t, "runs here", "yes");
    text safe = {0};
    text_terminal(&safe, t.p, t.n); /* the file chose these words */
    out_write(safe.p, safe.n);
    text_free(&safe);
    text_free(&t);
}

/* ---------------------------------------------------------------- plans of --mem-budget */

static void plan_json(const tools_plan *p)
{
    json_t *groups = json_array();
    for (int k = 0; k < p->n_groups; k++)
        json_array_append_new(groups,
                              json_pack("{s:s, s:I, s:I}", "name", p->group[k].name, "held",
                                        (json_int_t)p->group[k].held, "streamed", (json_int_t)p->group[k].streamed));
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:i, s:I, s:i, s:i}", "budget", (json_int_t)p->use.budget, "total",
                          (json_int_t)p->use.total, "held", (json_int_t)p->use.held, "streamed",
                          (json_int_t)p->use.streamed, "slots", p->use.slots, "slot_bytes",
                          (json_int_t)p->use.slot_bytes, "parts", p->use.parts, "held_parts", p->use.held_parts);
    json_t *more =
        json_pack("{s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:o}", "session", (json_int_t)p->contexts,
                  "fixed", (json_int_t)p->fixed, "embedding_held", p->table_held, "seconds", p->seconds, "read",
                  p->read, "compute", p->compute, "read_rate", p->read_rate, "work", (json_int_t)p->work, "work_sum",
                  (json_int_t)p->work_sum, "work_live", (json_int_t)p->work_live, "groups", groups);
    json_object_update(o, more);
    json_decref(more);
    char *s = json_dumps(o, JSON_INDENT(2) | JSON_SHORT_REALS);
    if (s) out_write(s, strlen(s));
    out_write("\n", 1);
    free(s);
    json_decref(o);
}

static void plan_table(const tools_plan *p)
{
    text t = {0};
    row(&t, "budget", "%.1f MB, planned %.1f", (double)p->use.budget / 1e6, (double)p->use.total / 1e6);
    row(&t, "session", "%.1f MB; norms, vocabulary and rows of the embedding %.1f", (double)p->contexts / 1e6,
        (double)p->fixed / 1e6);
    row(&t, "activations", "%.1f MB; each alone they would take %.1f, the most alive at once are %.1f",
        (double)p->work / 1e6, (double)p->work_sum / 1e6, (double)p->work_live / 1e6);
    row(&t, "embedding", "%s", p->table_held ? "stays in memory" : "its rows are read when a pass needs them");
    row(&t, "stays", "%.1f MB in %d of %d parts", (double)p->use.held / 1e6, p->use.held_parts, p->use.parts);
    row(&t, "streams", "%.1f MB a pass, through %d slots of %.1f MB", (double)p->use.streamed / 1e6, p->use.slots,
        (double)p->use.slot_bytes / 1e6);
    for (int k = 0; k < p->n_groups; k++)
        row(&t, k ? "" : "by kind", "%-16s %9.1f MB stay %9.1f MB stream", p->group[k].name,
            (double)p->group[k].held / 1e6, (double)p->group[k].streamed / 1e6);
    row(&t, "why",
        "a pass uses every part once, in order: which parts stay makes no difference but how evenly they lie, so "
        "that each transfer has a computation to hide behind; what is read more than once stays first");
    if (p->read_rate > 0)
        row(&t, "a pass", "%.2f s predicted: %.2f s of transfers at %.0f MB/s%s", p->seconds, p->read,
            p->read_rate / 1e6,
            p->compute > 0 ? "" : "; computing is not counted (llada bench forward --rows 32 --save measures it)");
    else
        row(&t, "a pass", "%.2f s of transfers if the storage reads 1000 MB/s (llada devices --profile measures it)",
            p->read);
    if (p->compute > 0) row(&t, "", "%.2f s of computing, with 32 rows", p->compute);
    text safe = {0};
    text_terminal(&safe, t.p, t.n);
    out_write(safe.p, safe.n);
    text_free(&safe);
    text_free(&t);
}

/* The session that is planned for: the model's own recipe, and -c positions or what a default answer needs. */
static int print_plan(const app_model *am, const options *o)
{
    llada_recipe r;
    tools_plan p;
    llada_err err = {0};
    llada_latency table[LLADA_MAX_LATENCY];
    llada_recipe_for(&r, am->m);
    int n = latency_load(am, o, table);
    double seconds = 0;
    for (int i = 0; i < n && table[i].rows <= 32; i++) seconds = table[i].ms * 1e-3;
    int ctx = o->ctx ? (int)o->ctx : 512 + (r.gen ? r.gen : 128);
    if (tools_memory_plan(am->m, &r, ctx, o->kv == 2, (uint64_t)o->mem_budget, profile_load(o->model).read_rate,
                          seconds, &p, &err))
        return app_fail(&err);
    if (o->json) plan_json(&p);
    else plan_table(&p);
    return EXIT_FINE;
}

/* ---------------------------------------------------------------- files that can't be run */

static void found_json(const tools_found *f, const char *file, const char *why)
{
    json_t *o = json_pack("{s:o,s:o,s:o,s:I,s:I,s:I,s:b,s:I,s:I,s:I,s:I,s:o,s:o,s:b,s:o,s:s}", "file",
                          string_or_null(file), "name", string_or_null(f->name), "arch", string_or_null(f->arch),
                          "n_params", (json_int_t)f->n_params, "file_bytes", (json_int_t)f->file_bytes, "n_tensors",
                          (json_int_t)f->n_tensors, "packed", f->n_packed > 0, "n_layer", (json_int_t)f->n_layer,
                          "n_embd", (json_int_t)f->n_embd, "n_head", (json_int_t)f->n_head, "n_ctx",
                          (json_int_t)f->n_ctx, "types", string_or_null(f->types), "tokenizer",
                          string_or_null(f->tokenizer), "runs", 0, "why", string_or_null(why), "version",
                          llada_version());
    char *s = json_dumps(o, JSON_INDENT(2));
    if (s) out_write(s, strlen(s));
    out_write("\n", 1);
    free(s);
    json_decref(o);
}

static void found_table(const tools_found *f, const char *file, const char *why)
{
    text t = {0}, safe = {0};
    row(&t, "file", "%s", file);
    row(&t, "name", "%s", f->name[0] ? f->name : "-");
    row(&t, "architecture", "%s", f->arch[0] ? f->arch : "-");
    row(&t, "parameters", "%.2f M in %llu tensors", (double)f->n_params / 1e6, (unsigned long long)f->n_tensors);
    row(&t, "types", "%s", f->types);
    packed_row(&t, f);
    row(&t, "file size", "%.1f MB", (double)f->file_bytes / 1e6);
    if (f->n_layer) row(&t, "layers", "%lld", (long long)f->n_layer);
    if (f->n_embd) row(&t, "width", "%lld", (long long)f->n_embd);
    if (f->n_ctx) row(&t, "context", "%lld positions", (long long)f->n_ctx);
    row(&t, "tokenizer", "%s %s", f->tokenizer[0] ? f->tokenizer : "-", f->pre);
    row(&t, "runs here", "no: %s", why);
    text_terminal(&safe, t.p, t.n);
    out_write(safe.p, safe.n);
    text_free(&safe);
    text_free(&t);
}

/* Looks at the header; a file that can't be run is told of all the same.  EXIT_FINE: it can be. */
static int probe(const options *o, tools_found *f)
{
    llada_err err = {0};
    llada_model *m = NULL;
    llada_model_opts mo;
    if (!o->model || tools_inspect(o->model, f, &err)) return EXIT_FINE; /* app_model_open says what is wrong */
    llada_model_opts_defaults(&mo);
    mo.chat_layout = o->chat_layout;
    llada_status st = llada_model_open(&m, o->model, &mo, &err);
    llada_model_close(&m);
    if (!st) return EXIT_FINE;
    if (o->json) found_json(f, o->model, err.text);
    else found_table(f, o->model, err.text);
    if (!o->quiet) app_error("%s", err.text);
    return EXIT_WRONG_USE;
}

int cmd_info(const options *o)
{
    app_model am;
    options one = *o;
    tools_found f = {.n_packed = 0};
    if (o->arg && o->model) {
        app_error("two models: -m %s and %s", o->model, o->arg);
        return EXIT_WRONG_USE;
    }
    if (o->arg) one.model = o->arg;
    if (o->json) one.quiet = true;
    if (o->plan != (o->mem_budget > 0)) {
        app_error("--plan and --mem-budget go together: a plan is for a budget");
        return EXIT_WRONG_USE;
    }
    one.mem_budget = 0; /* nothing is loaded */
    int rc = probe(&one, &f);
    if (!rc) rc = app_model_open(&am, &one, false);
    if (rc) return rc;
    one.mem_budget = o->mem_budget;
    if (o->plan) rc = print_plan(&am, &one);
    else if (o->json) print_json(&am, one.model, &f);
    else print_table(&am, one.model, &f);
    app_model_close(&am);
    return rc;
}
