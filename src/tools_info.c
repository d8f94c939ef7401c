/* tools_info.c - what `llada info` says beyond llada_model_info: what any GGUF file holds, whether we run it or not,
 * and the memory a session would take, without opening one. */
#include "tools_info.h"

#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- what a file holds */

static void get_text(const gguf *g, const char *key, char *out, size_t cap)
{
    gguf_str s = { "", 0 };
    llada_err err;
    if (gguf_has(g, key)) (void)gguf_get_str(g, key, &s, &err);
    snprintf(out, cap, "%.*s", (int)(s.len < cap ? s.len : cap - 1), s.s);
}

static int64_t get_number(const gguf *g, const char *arch, const char *what)
{
    char key[160];
    int64_t v = 0;
    llada_err err;
    snprintf(key, sizeof key, "%.80s.%s", arch, what);
    return gguf_has(g, key) && gguf_get_int(g, key, 0, INT32_MAX, &v, &err) == LLADA_OK ? v : 0;
}

/* "F32 65, Q4_K 193", by number of the type. */
static void list_types(const gguf *g, tools_found *f)
{
    uint64_t n[QT_COUNT] = { 0 };
    size_t at = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        n[t->type]++;
        f->n_packed += t->packed;
        f->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    for (uint32_t k = 0; k < QT_COUNT && at < sizeof f->types; k++)
        if (n[k])
            at += (size_t)snprintf(f->types + at, sizeof f->types - at, "%s%s %llu", at ? ", " : "", quant_get(k)->name,
                                   (unsigned long long)n[k]);
}

llada_status tools_inspect(const char *path, tools_found *f, llada_err *err)
{
    gguf *g;
    *f = (tools_found){ .n_params = 0 };
    llada_status st = gguf_open(&g, path, true, f->warning, sizeof f->warning, err);
    if (st) return st;
    get_text(g, "general.architecture", f->arch, sizeof f->arch);
    get_text(g, "general.name", f->name, sizeof f->name);
    get_text(g, "tokenizer.ggml.model", f->tokenizer, sizeof f->tokenizer);
    get_text(g, "tokenizer.ggml.pre", f->pre, sizeof f->pre);
    f->n_layer = get_number(g, f->arch, "block_count");
    f->n_embd = get_number(g, f->arch, "embedding_length");
    f->n_head = get_number(g, f->arch, "attention.head_count");
    f->n_ctx = get_number(g, f->arch, "context_length");
    f->file_bytes = gguf_file_bytes(g);
    f->n_tensors = gguf_n_tensors(g);
    f->n_keys = gguf_n_keys(g);
    f->version = gguf_version(g);
    list_types(g, f);
    gguf_close(&g);
    return LLADA_OK;
}

/* ---------------------------------------------------------------- memory of a session */

llada_status info_session_bytes(const model *m, const llada_recipe *r, int ctx, bool kv_f16, tools_memory *out,
                                llada_err *err)
{
    /* rows of the largest pass and slots of the store, as decode/open.c counts them */
    int64_t per_look = m->arch->shift_logits ? 2 : 1, rev = r->rev < ctx ? r->rev : ctx;
    bool aside = r->dppr && r->lag >= 2 && r->exec != LLADA_EXEC_SERIAL;
    int64_t checks = r->mbsd != LLADA_MBSD_OFF && r->verify ? ctx * per_look : 0;
    int64_t jobs = r->dppr ? (1 + per_look) * rev : 0, dense = ctx + checks;
    int64_t rows = aside && r->exec != LLADA_EXEC_ASYNC ? dense + jobs : dense > jobs ? dense : jobs;
    int64_t slots = dense + (r->dppr ? rev * (r->lag + 1 + per_look) : 0) + (aside ? ctx : 0) + (r->cfg > 0 ? ctx : 0);
    graph_arena plan;
    if (ctx < 1 || rows > INT32_MAX / 8)
        return llada_fail(err, LLADA_BAD_ARG, "a context of %d positions can't be planned", ctx);
    llada_status st = graph_plan(&m->g, (int)rows, (int)rows, &plan, err);
    if (st) return st;
    double position = 2.0 * m->n_layer * m->n_head_kv * m->head_dim * (kv_f16 ? 2 : 4);
    *out = (tools_memory){
        .kv = (uint64_t)(position * (double)slots), .work = plan.bytes, .sum = plan.sum, .live = plan.live
    };
    out->work += (uint64_t)ctx * (uint64_t)m->head_dim * sizeof(float); /* cosines and sines */
    graph_arena_free(&plan);
    return LLADA_OK;
}
