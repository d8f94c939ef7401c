/* info.c - `llada info`: what a model file holds, and what running it takes on this machine. */
#include "commands.h"
#include "model.h"
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

static void print_json(const app_model *am, const char *file)
{
    const llada_model_info *i = &am->info;
    json_t *o = json_object();
    json_object_set_new(o, "file", string_or_null(file));
    json_object_set_new(o, "name", string_or_null(i->name));
    json_object_set_new(o, "arch", string_or_null(i->arch));
    json_object_set_new(o, "chat_layout", string_or_null(i->chat_layout));
    json_object_set_new(o, "n_params", json_integer((json_int_t)i->n_params));
    json_object_set_new(o, "file_bytes", json_integer((json_int_t)i->file_bytes));
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

static void print_table(const app_model *am, const char *file)
{
    const llada_model_info *i = &am->info;
    text t = {0};
    row(&t, "file", "%s", file ? file : "(built in)");
    row(&t, "name", "%s", i->name ? i->name : "-");
    row(&t, "architecture", "%s", i->arch ? i->arch : "-");
    row(&t, "chat layout", "%s", i->chat_layout ? i->chat_layout : "unknown (--raw works, or --chat-layout NAME)");
    row(&t, "parameters", "%.2f M", (double)i->n_params / 1e6);
    row(&t, "weights", "%.1f MB", (double)i->file_bytes / 1e6);
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
    row(&t, "memory free", "%.1f GB", (double)app_memory_free() / 1e9);
    features_row(&t);
    row(&t, "runs here", "yes");
    text safe = {0};
    text_terminal(&safe, t.p, t.n); /* the file chose these words */
    out_write(safe.p, safe.n);
    text_free(&safe);
    text_free(&t);
}

int cmd_info(const options *o)
{
    app_model am;
    options one = *o;
    if (o->arg && o->model) {
        app_error("two models: -m %s and %s", o->model, o->arg);
        return EXIT_WRONG_USE;
    }
    if (o->arg) one.model = o->arg;
    if (o->json) one.quiet = true;
    int rc = app_model_open(&am, &one, false);
    if (rc) return rc;
    if (o->json) print_json(&am, one.model);
    else print_table(&am, one.model);
    app_model_close(&am);
    return EXIT_FINE;
}
