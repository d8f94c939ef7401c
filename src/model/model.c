/* model.c - opening a model: architecture, hyper-parameters, tokenizer, special tokens, chat layout, weights, graph. */
#include "model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "model/params.h"

static const model_arch *const archs[] = { &arch_llada, &arch_dream, &arch_llada_moe, &arch_llama };

const model_arch *const *model_archs(size_t *n)
{
    *n = sizeof archs / sizeof *archs;
    return archs;
}

/* ------------------------------------------------------------ architecture */

static bool is(gguf_str s, const char *word) { return s.len == strlen(word) && memcmp(s.s, word, s.len) == 0; }

/* Names that are worth a better sentence than "unknown". */
static const char *kind_of(gguf_str arch)
{
    static const char *const diffusion[] = { "llada2", "rnd1" };
    static const char *const causal[] = { "llama4",   "qwen2",  "qwen2moe",  "qwen3",  "qwen3moe",
                                          "mistral3", "gemma",  "gemma2",    "gemma3", "phi2",
                                          "phi3",     "falcon", "deepseek2", "gpt2",   "gptneox" };
    for (size_t i = 0; i < sizeof diffusion / sizeof *diffusion; i++) {
        if (is(arch, diffusion[i])) return "a diffusion model that this version does not run";
    }
    for (size_t i = 0; i < sizeof causal / sizeof *causal; i++) {
        if (is(arch, causal[i])) return "an autoregressive model that this version does not run";
    }
    return "not an architecture known here";
}

static llada_status find_arch(model *m, llada_err *err)
{
    gguf_str name;
    llada_status st = gguf_get_str(m->file, "general.architecture", &name, err);
    if (st != LLADA_OK) return st;
    char list[128] = "", ar[64] = ""; /* diffusion models; the others */
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (is(name, archs[i]->name)) {
            m->arch = archs[i];
            return LLADA_OK;
        }
        char *to = archs[i]->causal ? ar : list;
        size_t at = strlen(to), room = (archs[i]->causal ? sizeof ar : sizeof list) - at;
        snprintf(to + at, room, "%s%s", at ? ", " : "", archs[i]->name);
    }
    return llada_fail(err, LLADA_BAD_MODEL,
                      "general.architecture is %.*s, %s; diffusion models of these can be run: %s; autoregressive: %s",
                      (int)(name.len < 64 ? name.len : 64), name.s, kind_of(name), list, ar);
}

/* ------------------------------------------------------------ tokens, title, size */

static llada_status read_tokens(model *m, const char *layout, llada_err *err)
{
    llada_status st = tok_open(&m->tok, m->file, err);
    if (st != LLADA_OK) return st;
    m->n_vocab = tok_n(m->tok);
    if (m->n_vocab < 1 || m->n_vocab > MODEL_MAX_VOCAB)
        return llada_fail(err, LLADA_BAD_MODEL, "a vocabulary of %d tokens; 1 to %d are allowed", m->n_vocab,
                          MODEL_MAX_VOCAB);
    const struct {
        const char *what;
        int32_t id, *out;
    } ids[] = { { "mask", tok_mask(m->tok), &m->mask },
                { "eos", tok_eos(m->tok), &m->eos },
                { "eot", tok_eot(m->tok), &m->eot },
                { "bos", tok_bos(m->tok), &m->bos },
                { "padding", tok_pad(m->tok), &m->pad } };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        *ids[i].out = ids[i].id;
        if (ids[i].id >= m->n_vocab)
            return llada_fail(err, LLADA_BAD_MODEL,
                              "tokenizer.ggml.%s_token_id is %d, but the vocabulary has %d tokens", ids[i].what,
                              ids[i].id, m->n_vocab);
    }
    if (m->mask < 0 && !m->arch->causal)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "tokenizer.ggml.mask_token_id is missing: without a mask there is nothing to fill");
    return chat_choose(&m->chat, m->file, m->tok, layout, err);
}

static void add_end(model *m, int32_t id)
{
    if (id < 0 || model_is_end(m, id) || m->n_ends == MODEL_MAX_ENDS) return;
    int i = m->n_ends++;
    for (; i > 0 && m->ends[i - 1] > id; i--) m->ends[i] = m->ends[i - 1];
    m->ends[i] = id;
}

static llada_status find_ends(model *m, llada_err *err)
{
    if (m->mask >= 0 && (m->mask == m->eos || m->mask == m->eot))
        return llada_fail(err, LLADA_BAD_MODEL, "token %d is both the mask and an end of text", m->mask);
    add_end(m, m->eos);
    add_end(m, m->eot);
    if (m->n_ends == 0) model_warn(m, "the file names no end-of-text token: every text fills its canvas");
    return LLADA_OK;
}

/* A name from the file may hold anything: it is cleaned as error sentences are. */
static void set_title(model *m, const char *title)
{
    llada_err clean;
    gguf_str s = { title ? title : "", title ? strlen(title) : 0 };
    gguf_str named;
    if (gguf_has(m->file, "general.name") && gguf_get_str(m->file, "general.name", &named, NULL) == LLADA_OK &&
        named.len > 0)
        s = named;
    llada_fail(&clean, LLADA_OK, "%.*s", (int)(s.len < 400 ? s.len : 400), s.s);
    size_t n = strlen(clean.text);
    n = n < sizeof m->title ? n : sizeof m->title - 1;
    while (n > 0 && ((unsigned char)clean.text[n] & 0xc0) == 0x80) n--;
    memcpy(m->title, clean.text, n);
    m->title[n] = '\0';
}

static llada_status count_params(model *m, llada_err *err)
{
    size_t total = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        size_t n = 1;
        bool fits = true;
        for (int k = 0; fits && k < 4; k++) fits = t->dims[k] <= SIZE_MAX && size_mul(n, (size_t)t->dims[k], &n);
        if (!fits || !size_add(total, n, &total))
            return llada_fail(err, LLADA_BAD_MODEL, "tensor %.64s has more values than can be counted", t->name);
    }
    m->n_params = total;
    return LLADA_OK;
}

/* ------------------------------------------------------------ weights */

/* n matrices of rows x cols; n 1: a plain one. */
static llada_status check_weight(const gguf_tensor *t, int n, int64_t rows, int64_t cols, llada_err *err)
{
    const uint64_t want[4] = { (uint64_t)cols, (uint64_t)rows, (uint64_t)n, 1 };
    char third[16] = "";
    if (n > 1) snprintf(third, sizeof third, " x %d", n);
    if (memcmp(t->dims, want, sizeof want) != 0)
        return llada_fail(
            err, LLADA_BAD_MODEL, "tensor %.64s is %llu x %llu x %llu x %llu, but %lld x %lld%s is wanted", t->name,
            (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
            (unsigned long long)t->dims[3], (long long)cols, (long long)rows, third);
    const quant_info *q = quant_get(t->type);
    if (!q || !q->decode)
        return llada_fail(err, LLADA_BAD_MODEL, "tensor %.64s is of type %u (%s), which can't be read yet", t->name,
                          t->type, q ? q->name : "unknown");
    size_t row = 0, all = 0;
    if (t->packed) return LLADA_OK; /* the reader has counted the bytes of just this shape */
    if (!quant_row_bytes(t->type, (uint64_t)cols, &row) || !size_mul(row, (size_t)rows, &all) ||
        !size_mul(all, (size_t)n, &all) || all != t->bytes)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "tensor %.64s has %zu bytes, but %d x %lld rows of %lld values as %s are %zu", t->name,
                          t->bytes, n, (long long)rows, (long long)cols, q->name, all);
    return LLADA_OK;
}

/* The tensor as a weight of the graph; t NULL: missing. */
static tensor_id take_weight(model *m, const gguf_tensor *t, const char *name, int n, int64_t rows, int64_t cols,
                             llada_status *st, llada_err *err)
{
    *st = t ? check_weight(t, n, rows, cols, err) : llada_fail(err, LLADA_BAD_MODEL, "tensor %s is missing", name);
    if (*st != LLADA_OK) return -1;
    tensor w = { .name = t->name,
                 .kind = T_WEIGHT,
                 .rows = DIM_FIXED,
                 .n_rows = n * rows,
                 .cols = cols,
                 .type = t->type,
                 .data = t->data,
                 .row_bytes = t->packed ? 0 : t->bytes / (size_t)(n * rows),
                 .layout = t->packed ? LAYOUT_T32 : LAYOUT_ROWS };
    tensor_id id = graph_tensor(&m->g, w);
    if (id < 0)
        *st = llada_fail(err, LLADA_BAD_MODEL, "the graph of %s has no room for tensor %s", m->arch->name, name);
    return id;
}

tensor_id model_experts(model *m, int n, int64_t rows, int64_t cols, const char *name, llada_status *st, llada_err *err)
{
    return take_weight(m, gguf_find(m->file, name), name, n, rows, cols, st, err);
}

tensor_id model_weight(model *m, int64_t rows, int64_t cols, bool optional, llada_status *st, llada_err *err,
                       const char *fmt, ...)
{
    char name[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const gguf_tensor *t = gguf_find(m->file, name);
    *st = LLADA_OK;
    if (!t && optional) return -1;
    return take_weight(m, t, name, 1, rows, cols, st, err);
}

/* A tensor that the network does not use is most likely a part of it that we do not know: worth a sentence. */
static void warn_unused(model *m)
{
    uint64_t used = 0, n = gguf_n_tensors(m->file);
    for (int i = 0; i < m->g.n_t; i++) used += m->g.t[i].kind == T_WEIGHT;
    if (used >= n) return;
    for (uint64_t i = 0; i < n; i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        int k = 0;
        while (k < m->g.n_t && (m->g.t[k].kind != T_WEIGHT || m->g.t[k].data != t->data)) k++;
        if (k < m->g.n_t) continue;
        model_warn(m, "%llu of %llu tensors are not used by %s models, the first is %.64s",
                   (unsigned long long)(n - used), (unsigned long long)n, m->arch->name, t->name);
        return;
    }
}

static llada_status build_graph(model *m, llada_err *err)
{
    llada_status st = m->arch->build(m, err);
    if (st == LLADA_OK) st = graph_check(&m->g, err);
    if (st == LLADA_OK) warn_unused(m);
    return st;
}

/* ------------------------------------------------------------ open, close */

static llada_status fill(model *m, const char *title, const char *layout, llada_err *err)
{
    llada_status st = find_arch(m, err);
    if (st == LLADA_OK) st = model_read_params(m, err);
    if (st == LLADA_OK) st = count_params(m, err);
    if (st == LLADA_OK) st = read_tokens(m, layout, err);
    if (st == LLADA_OK) st = find_ends(m, err);
    if (st == LLADA_OK) st = build_graph(m, err);
    if (st == LLADA_OK) set_title(m, title);
    return st;
}

llada_status model_open(model **out, gguf *file, const char *title, const char *layout, llada_err *err)
{
    *out = NULL;
    model *m = mem_new(sizeof *m);
    if (!m) {
        gguf_close(&file);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the model record");
    }
    m->file = file;
    llada_status st = fill(m, title, layout, err);
    if (st != LLADA_OK) model_close(&m);
    *out = m;
    return st;
}

void model_close(model **m)
{
    if (!m || !*m) return;
    graph_free(&(*m)->g);
    tok_close(&(*m)->tok);
    gguf_close(&(*m)->file);
    mem_free(*m);
    *m = NULL;
}

bool model_is_end(const model *m, int32_t id)
{
    for (int i = 0; i < m->n_ends; i++) {
        if (m->ends[i] == id) return true;
    }
    return false;
}
