/* tools_quantize.c - a GGUF file with its matrices in another type (tools.h).  Which type a tensor gets is one rule
 * (choose), the same for every architecture:
 *   - vectors, norms, biases and routers are kept as F32;
 *   - the head (or the embedding that serves as one) gets Q6_K where the recipe is smaller than that;
 *   - the mixed recipes (q4_k_m, q5_k_m) give attn_v and ffn_down of the first and last eighth of the layers, and of
 *     every third between, Q6_K;
 *   - rows that a type's blocks don't divide fall back to Q8_0, then F16. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/imatrix.h"
#include "tools_retype.h"

typedef struct {
    const char *name;
    uint32_t type;
    bool mixed;
    uint32_t file_type; /* general.file_type, as other programs number them */
} recipe;

static const recipe recipes[] = {
    { "f32", QT_F32, false, 0 },    { "f16", QT_F16, false, 1 },    { "bf16", QT_BF16, false, 32 },
    { "q8_0", QT_Q8_0, false, 7 },  { "q4_0", QT_Q4_0, false, 2 },  { "q4_1", QT_Q4_1, false, 3 },
    { "q5_0", QT_Q5_0, false, 8 },  { "q5_1", QT_Q5_1, false, 9 },  { "q4_k", QT_Q4_K, false, 14 },
    { "q4_k_m", QT_Q4_K, true, 15 }, { "q5_k", QT_Q5_K, false, 16 }, { "q5_k_m", QT_Q5_K, true, 17 },
    { "q6_k", QT_Q6_K, false, 18 },
};

#define KNOWN "f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q4_k q4_k_m q5_k q5_k_m q6_k"

const char *tools_recipes(void) { return KNOWN; }

static const recipe *find_recipe(const char *name)
{
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const char *a = recipes[i].name, *b = name;
        while (*a && (*b == *a || (*b >= 'A' && *b <= 'Z' && *b + 32 == *a))) a++, b++;
        if (!*a && !*b) return &recipes[i];
    }
    return NULL;
}

/* ---------------------------------------------------------------- the rule */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool stays_f32(const gguf_tensor *t)
{
    return t->n_dims == 1 || !ends_with(t->name, ".weight") || ends_with(t->name, "_norm.weight") ||
           strstr(t->name, "ffn_gate_inp") || !strcmp(t->name, "rope_freqs.weight");
}

static bool is_float(uint32_t type) { return type == QT_F32 || type == QT_F16 || type == QT_BF16; }

/* Bits a value costs, for comparing. */
static double bits(uint32_t type)
{
    const quant_info *q = quant_get(type);
    return 8.0 * q->bytes / q->block;
}

/* Layers whose errors cost most: the outer eighths, and every third between. */
static bool needs_more(int layer, int n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

typedef struct {
    const gguf *g;
    const recipe *r;
    int layers;
    const char *head; /* the tensor that makes the scores */
    const imatrix *weights; /* NULL: none */
    const char *weights_path;
} plan;

static uint32_t choose(const plan *p, const gguf_tensor *t, const char **why)
{
    uint32_t type = p->r->type;
    *why = NULL;
    if (stays_f32(t)) return QT_F32;
    if (!is_float(type) && !strcmp(t->name, p->head) && bits(type) < bits(QT_Q6_K)) {
        type = QT_Q6_K;
        *why = "the head";
    }
    int layer = -1, end = 0;
    bool may = p->r->mixed && sscanf(t->name, "blk.%d.%n", &layer, &end) == 1 && end > 0;
    if (may && (!strncmp(t->name + end, "attn_v.", 7) || !strncmp(t->name + end, "ffn_down", 8)) &&
        needs_more(layer, p->layers)) {
        type = QT_Q6_K;
        *why = "a layer that needs more";
    }
    if (t->dims[0] % (uint64_t)quant_get(type)->block) {
        type = t->dims[0] % (uint64_t)quant_get(QT_Q8_0)->block ? QT_F16 : QT_Q8_0;
        *why = "its rows do not divide into blocks";
    }
    return type;
}

/* ---------------------------------------------------------------- header */

static llada_status check_source(const plan *p, const gguf_tensor *t, uint32_t to, bool allow, llada_err *err)
{
    const quant_info *q = quant_get(t->type);
    if (!q->decode)
        return llada_fail(err, LLADA_UNSUPPORTED, "tensor %.64s is stored as %s, which can't be read yet", t->name,
                          q->name);
    if (to == t->type || is_float(t->type) || t->type == QT_Q8_0 || allow) return LLADA_OK;
    return llada_fail(err, LLADA_UNSUPPORTED,
                      "tensor %.64s is %s already: quantising it again to %s adds error to error; start from F16, "
                      "BF16, F32 or Q8_0, or allow it (--allow-requantize)",
                      t->name, q->name, quant_get(to)->name);
}

/* The weights of a tensor into the job; a type that makes nothing of them, or a tensor that has none: NULL. */
static llada_status find_weights(const plan *p, const gguf_tensor *t, uint32_t to, retype_job *j, llada_err *err)
{
    uint64_t n = 0, rows = t->dims[1] * t->dims[2] * t->dims[3];
    const float *w = p->weights && to != t->type && quant_get(to)->weigh ? imatrix_find(p->weights, t->name, &n) : NULL;
    if (!w) return LLADA_OK;
    if (n != t->dims[0] && n != t->dims[0] * t->dims[2])
        return llada_fail(err, LLADA_BAD_MODEL,
                          "the importance matrix has %llu weights for tensor %.64s, whose rows have %llu values: it is "
                          "another model's", (unsigned long long)n, t->name, (unsigned long long)t->dims[0]);
    j->weights = w;
    j->weight_rows = n == t->dims[0] ? rows : t->dims[1]; /* one for all, or one for each expert */
    return LLADA_OK;
}

/* An importance matrix that names no tensor of the file is another architecture's, or of other names. */
static llada_status check_weights(const plan *p, llada_err *err)
{
    uint64_t n;
    if (!p->weights) return LLADA_OK;
    for (uint64_t i = 0; i < gguf_n_tensors(p->g); i++)
        if (imatrix_find(p->weights, gguf_tensor_at(p->g, i)->name, &n)) return LLADA_OK;
    return llada_fail(err, LLADA_BAD_MODEL, "none of the %zu tensors of the importance matrix is in the model",
                      imatrix_n(p->weights));
}

/* Where the weights came from, under the keys that other programs use. */
static llada_status put_weights_keys(const plan *p, gguf_writer *w, llada_err *err)
{
    if (!p->weights) return LLADA_OK;
    const char *slash = strrchr(p->weights_path, '/'), *name = slash ? slash + 1 : p->weights_path;
    llada_status st = gguf_put_str(w, "quantize.imatrix.file", name, strlen(name), err);
    return st ? st : gguf_put_u32(w, "quantize.imatrix.entries_count", (uint32_t)imatrix_n(p->weights), err);
}

static llada_status put_keys(const plan *p, gguf_writer *w, llada_err *err)
{
    static const char type_key[] = "general.file_type", version_key[] = "general.quantization_version";
    static const char weights_keys[] = "quantize.imatrix."; /* of what was done before: it is done anew */
    llada_status st = LLADA_OK;
    gguf_kind kind;
    for (uint64_t i = 0; i < gguf_n_keys(p->g) && !st; i++) {
        const char *key = gguf_key(p->g, i, &kind);
        if (strcmp(key, type_key) && strcmp(key, version_key) && strncmp(key, weights_keys, sizeof weights_keys - 1))
            st = gguf_copy_key(w, p->g, i, err);
    }
    if (!st) st = gguf_put_u32(w, type_key, p->r->file_type, err);
    if (!st) st = gguf_put_u32(w, version_key, 2, err);
    return st ? st : put_weights_keys(p, w, err);
}

static int count_layers(const gguf *g)
{
    int most = 0, layer;
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++)
        if (sscanf(gguf_tensor_at(g, i)->name, "blk.%d.", &layer) == 1 && layer >= most && layer < 1 << 16)
            most = layer + 1;
    return most;
}

static llada_status put_table(const plan *p, gguf_writer *w, bool allow, uint64_t *total, uint64_t *longest,
                              llada_err *err)
{
    llada_status st = LLADA_OK;
    const char *why;
    *total = 0;
    *longest = 1;
    for (uint64_t i = 0; i < gguf_n_tensors(p->g) && !st; i++) {
        const gguf_tensor *t = gguf_tensor_at(p->g, i);
        uint32_t to = choose(p, t, &why);
        size_t row = 0;
        if ((st = check_source(p, t, to, allow, err))) break;
        st = gguf_add_tensor(w, t->name, to, t->n_dims, t->dims, err);
        if (quant_row_bytes(to, t->dims[0], &row)) *total += row * t->dims[1] * t->dims[2] * t->dims[3];
        if (t->dims[0] > *longest) *longest = t->dims[0];
    }
    return st;
}

/* ---------------------------------------------------------------- data */

static llada_status write_all(const plan *p, gguf_writer *w, const tools_quantize_opts *o, retype *r, uint64_t total,
                              llada_err *err)
{
    llada_status st = LLADA_OK;
    uint64_t done = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(p->g) && !st; i++) {
        const gguf_tensor *t = gguf_tensor_at(p->g, i);
        const char *why;
        retype_error e;
        size_t row = 0;
        retype_job j = { .name = t->name, .parts = &t->data, .n_parts = 1,
                         .part_rows = t->dims[1] * t->dims[2] * t->dims[3],
                         .cols = t->dims[0], .from = t->type, .to = choose(p, t, &why) };
        if ((st = find_weights(p, t, j.to, &j, err))) break;
        st = retype_run(r, &j, w, &e, o->tick, o->user, done, total, err);
        if (quant_row_bytes(j.to, j.cols, &row)) done += row * j.part_rows;
        gguf_forget(p->g, t);
        if (!st && gguf_lost(p->g)) st = llada_fail(err, LLADA_IO, "the file was cut short while it was read");
        if (st || !o->report) continue;
        tools_quantized q = { .name = t->name, .from = quant_get(j.from)->name, .to = quant_get(j.to)->name,
                              .values = j.part_rows * j.cols, .error = e.sum2 > 0 ? sqrt(e.err2 / e.sum2) : 0,
                              .weighed = e.weighed2 > 0 ? sqrt(e.weighed_err2 / e.weighed2) : -1, .why = why };
        o->report(o->user, &q);
    }
    if (!st && o->tick && !o->tick(o->user, "", total, total))
        st = llada_fail(err, LLADA_CANCELLED, "stopped before the end");
    return st;
}

/* A file that can't be opened for reading is the caller's mistake; LLADA_IO is left for the one that is written. */
static llada_status read_status(llada_status st, llada_err *err)
{
    if (st != LLADA_IO) return st;
    if (err) err->status = LLADA_BAD_ARG;
    return LLADA_BAD_ARG;
}

llada_status tools_quantize(const char *in, const char *out, const tools_quantize_opts *o, llada_err *err)
{
    plan p = { .r = find_recipe(o->type) };
    gguf *g = NULL;
    gguf_writer *w = NULL;
    retype *r = NULL;
    imatrix *weights = NULL;
    uint64_t total = 0, longest = 1;
    if (!p.r)
        return llada_fail(err, LLADA_BAD_ARG, "'%.32s' is no type this version writes; these are: %s", o->type, KNOWN);
    llada_status st = read_status(gguf_open(&g, in, true, NULL, 0, err), err);
    if (st) return st;
    if (gguf_packed(g)) {
        gguf_close(&g);
        return llada_fail(err, LLADA_UNSUPPORTED,
                          "the file is packed: quantise the file it was packed from, then pack the result");
    }
    p.g = g;
    p.layers = count_layers(g);
    p.head = gguf_find(g, "output.weight") ? "output.weight" : "token_embd.weight";
    if (o->imatrix) st = read_status(imatrix_open(&weights, o->imatrix, err), err);
    p.weights = weights;
    p.weights_path = o->imatrix;
    if (!st) st = check_weights(&p, err);
    if (!st) st = gguf_writer_open(&w, out, err);
    if (!st) st = put_keys(&p, w, err);
    if (!st) st = put_table(&p, w, o->allow_requantize, &total, &longest, err);
    if (!st) st = retype_open(&r, o->threads, longest, err);
    if (!st) st = write_all(&p, w, o, r, total, err);
    if (!st) st = gguf_writer_finish(&w, err);
    gguf_writer_discard(&w);
    retype_close(&r);
    imatrix_close(&weights);
    gguf_close(&g);
    return st;
}
