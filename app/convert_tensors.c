/* convert_tensors.c - names and shapes: which tensor of a checkpoint becomes which of the GGUF file.  The tables are
 * the whole knowledge; every tensor of the checkpoint must be in one of them, and every one of them in it. */
#include "convert.h"

#include <stdlib.h>
#include <string.h>

typedef enum { ONE, EMBD, HEADS, KV, FF, EXPERTS, EXPERT_FF, HEAD_DIM, VOCAB } size_of;
enum { LAYER = 1, BIAS = 2, MOE = 4, DENSE = 8, HEAD = 16, PAIR_Q = 32, PAIR_K = 64, PLAIN = 128, STACK = 256 };

/* In names * stands for the layer, ~ for the expert.  rows ONE: a vector. */
typedef struct {
    const char *from, *to;
    size_of rows, cols;
    int when; /* LAYER: one a layer; BIAS, MOE, DENSE, HEAD (not tied): only where the model has it; PLAIN: stays F32 */
} row;

static const row llada[] = {
    {"model.transformer.wte.weight", "token_embd.weight", VOCAB, EMBD, 0},
    {"model.transformer.blocks.*.attn_norm.weight", "blk.*.attn_norm.weight", ONE, EMBD, LAYER},
    {"model.transformer.blocks.*.q_proj.weight", "blk.*.attn_q.weight", HEADS, EMBD, LAYER | PAIR_Q},
    {"model.transformer.blocks.*.k_proj.weight", "blk.*.attn_k.weight", KV, EMBD, LAYER | PAIR_K},
    {"model.transformer.blocks.*.v_proj.weight", "blk.*.attn_v.weight", KV, EMBD, LAYER},
    {"model.transformer.blocks.*.attn_out.weight", "blk.*.attn_output.weight", EMBD, HEADS, LAYER},
    {"model.transformer.blocks.*.ff_norm.weight", "blk.*.ffn_norm.weight", ONE, EMBD, LAYER},
    {"model.transformer.blocks.*.ff_proj.weight", "blk.*.ffn_gate.weight", FF, EMBD, LAYER},
    {"model.transformer.blocks.*.up_proj.weight", "blk.*.ffn_up.weight", FF, EMBD, LAYER},
    {"model.transformer.blocks.*.ff_out.weight", "blk.*.ffn_down.weight", EMBD, FF, LAYER},
    {"model.transformer.ln_f.weight", "output_norm.weight", ONE, EMBD, 0},
    {"model.transformer.ff_out.weight", "output.weight", VOCAB, EMBD, HEAD},
};

#define L "model.layers.*."
static const row others[] = {
    {"model.embed_tokens.weight", "token_embd.weight", VOCAB, EMBD, 0},
    {L "input_layernorm.weight", "blk.*.attn_norm.weight", ONE, EMBD, LAYER},
    {L "self_attn.q_proj.weight", "blk.*.attn_q.weight", HEADS, EMBD, LAYER | PAIR_Q},
    {L "self_attn.k_proj.weight", "blk.*.attn_k.weight", KV, EMBD, LAYER | PAIR_K},
    {L "self_attn.v_proj.weight", "blk.*.attn_v.weight", KV, EMBD, LAYER},
    {L "self_attn.q_proj.bias", "blk.*.attn_q.bias", ONE, HEADS, LAYER | BIAS},
    {L "self_attn.k_proj.bias", "blk.*.attn_k.bias", ONE, KV, LAYER | BIAS},
    {L "self_attn.v_proj.bias", "blk.*.attn_v.bias", ONE, KV, LAYER | BIAS},
    {L "self_attn.q_norm.weight", "blk.*.attn_q_norm.weight", ONE, HEAD_DIM, LAYER | MOE},
    {L "self_attn.k_norm.weight", "blk.*.attn_k_norm.weight", ONE, HEAD_DIM, LAYER | MOE},
    {L "self_attn.o_proj.weight", "blk.*.attn_output.weight", EMBD, HEADS, LAYER},
    {L "post_attention_layernorm.weight", "blk.*.ffn_norm.weight", ONE, EMBD, LAYER},
    {L "mlp.gate_proj.weight", "blk.*.ffn_gate.weight", FF, EMBD, LAYER | DENSE},
    {L "mlp.up_proj.weight", "blk.*.ffn_up.weight", FF, EMBD, LAYER | DENSE},
    {L "mlp.down_proj.weight", "blk.*.ffn_down.weight", EMBD, FF, LAYER | DENSE},
    {L "mlp.gate.weight", "blk.*.ffn_gate_inp.weight", EXPERTS, EMBD, LAYER | MOE | PLAIN},
    {L "mlp.experts.~.gate_proj.weight", "blk.*.ffn_gate_exps.weight", EXPERT_FF, EMBD, LAYER | MOE | STACK},
    {L "mlp.experts.~.up_proj.weight", "blk.*.ffn_up_exps.weight", EXPERT_FF, EMBD, LAYER | MOE | STACK},
    {L "mlp.experts.~.down_proj.weight", "blk.*.ffn_down_exps.weight", EMBD, EXPERT_FF, LAYER | MOE | STACK},
    {"model.norm.weight", "output_norm.weight", ONE, EMBD, 0},
    {"lm_head.weight", "output.weight", VOCAB, EMBD, HEAD},
};

static const row *table_of(const convert_model *m, size_t *n)
{
    *n = m->fam->llada_names ? sizeof llada / sizeof *llada : sizeof others / sizeof *others;
    return m->fam->llada_names ? llada : others;
}

static bool applies(const convert_model *m, const row *r)
{
    if (r->when & BIAS) return m->fam->bias;
    if (r->when & MOE) return m->fam->experts;
    if (r->when & DENSE) return !m->fam->experts;
    if (r->when & HEAD) return !m->tied;
    return true;
}

static uint64_t size_in(const convert_model *m, size_of s)
{
    switch (s) {
    case ONE: return 1;
    case EMBD: return (uint64_t)m->embd;
    case HEADS: return (uint64_t)m->heads * (uint64_t)m->head_dim;
    case KV: return (uint64_t)m->kv_heads * (uint64_t)m->head_dim;
    case FF: return (uint64_t)m->ff;
    case EXPERTS: return (uint64_t)m->n_experts;
    case EXPERT_FF: return (uint64_t)m->expert_ff;
    case HEAD_DIM: return (uint64_t)m->head_dim;
    default: return (uint64_t)m->rows;
    }
}

/* * and ~ of a pattern by numbers. */
static void spell(char *out, size_t cap, const char *pattern, int layer, int expert)
{
    size_t n = 0;
    for (const char *p = pattern; *p && n + 12 < cap; p++) {
        if (*p == '*' || *p == '~') n += (size_t)snprintf(out + n, cap - n, "%d", *p == '*' ? layer : expert);
        else out[n++] = *p;
    }
    out[n] = 0;
}

/* The tensor of a row, checked; -1 with a sentence printed. */
static long find(const convert_model *m, const tools_checkpoint *c, const row *r, int layer, int expert)
{
    char name[256];
    tools_tensor t;
    spell(name, sizeof name, r->from, layer, expert);
    long i = tools_checkpoint_find(c, name);
    if (i < 0) {
        app_error("tensor %s is missing in the checkpoint", name);
        return -1;
    }
    tools_checkpoint_at(c, (size_t)i, &t);
    uint64_t rows = size_in(m, r->rows), cols = size_in(m, r->cols);
    bool vector = r->rows == ONE;
    if (t.n_dims == (vector ? 1 : 2) && (vector ? t.dims[0] == cols : t.dims[0] == rows && t.dims[1] == cols)) return i;
    app_error("tensor %s has %d dimensions, %llu x %llu; config.json makes it %llu x %llu", name, t.n_dims,
              (unsigned long long)t.dims[0], (unsigned long long)t.dims[1], (unsigned long long)(vector ? cols : rows),
              (unsigned long long)(vector ? 1 : cols));
    return -1;
}

/* The embedding may have more rows than the configuration says: padding. */
static int read_rows(convert_model *m, const tools_checkpoint *c)
{
    size_t n;
    const row *r = table_of(m, &n);
    tools_tensor t;
    long i = tools_checkpoint_find(c, r[0].from);
    if (i < 0) {
        app_error("tensor %s is missing in the checkpoint", r[0].from);
        return EXIT_WRONG_USE;
    }
    tools_checkpoint_at(c, (size_t)i, &t);
    if (t.dims[0] < (uint64_t)m->vocab || t.dims[0] > 1 << 24) {
        app_error("tensor %s has %llu rows, but config.json says vocab_size %d", r[0].from,
                  (unsigned long long)t.dims[0], m->vocab);
        return EXIT_WRONG_USE;
    }
    m->rows = (int)t.dims[0];
    return EXIT_FINE;
}

/* Marks what the row uses; false: something is wrong with it. */
static bool mark(const convert_model *m, const tools_checkpoint *c, const row *r, char *used)
{
    int layers = r->when & LAYER ? m->layers : 1, experts = r->when & STACK ? m->n_experts : 1;
    for (int k = 0; k < layers * experts; k++) {
        long i = find(m, c, r, k / experts, k % experts);
        if (i < 0) return false;
        used[i] = 1;
    }
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* Tables of angles, which follow from the configuration, and a head that equals the embedding. */
static bool may_be_left(const convert_model *m, const char *name)
{
    size_t n;
    const row *r = table_of(m, &n);
    return ends_with(name, "rotary_emb.inv_freq") || (m->tied && !strcmp(name, r[n - 1].from));
}

static int check_unused(const convert_model *m, const tools_checkpoint *c, const char *used, bool quiet)
{
    size_t left = 0, n = tools_checkpoint_n(c);
    tools_tensor t, first = {0};
    for (size_t i = 0; i < n; i++) {
        tools_checkpoint_at(c, i, &t);
        if (used[i]) continue;
        if (may_be_left(m, t.name)) {
            if (!quiet) app_note("note: not used: %s", t.name);
        } else if (left++ == 0) {
            first = t;
        }
    }
    if (!left) return EXIT_FINE;
    app_error("%zu tensors of the checkpoint have no place in a %s file, the first is %s: is it another model?", left,
              m->fam->arch, first.name);
    return EXIT_WRONG_USE;
}

int convert_check_tensors(convert_model *m, const tools_checkpoint *c, bool quiet)
{
    size_t n;
    const row *r = table_of(m, &n);
    int rc = read_rows(m, c);
    if (rc) return rc;
    char *used = app_new(tools_checkpoint_n(c) + 1, 1);
    for (size_t i = 0; i < n && !rc; i++)
        if (applies(m, &r[i]) && !mark(m, c, &r[i], used)) rc = EXIT_WRONG_USE;
    if (!rc) rc = check_unused(m, c, used, quiet);
    free(used);
    return rc;
}

/* ---------------------------------------------------------------- declaring */

/* Vectors and routers stay F32; rows that blocks of 32 don't divide fall back to F16. */
static int type_of(const convert_model *m, const row *r)
{
    if (r->rows == ONE || r->when & PLAIN) return tools_type("f32");
    bool blocks = !strcmp(m->type, "q8_0");
    return tools_type(blocks && size_in(m, r->cols) % 32 ? "f16" : m->type);
}

static int put_row(const convert_model *m, const tools_checkpoint *c, tools_output *o, const row *r, int layer)
{
    char name[128];
    llada_err err = {0};
    size_t n = r->when & STACK ? (size_t)m->n_experts : 1;
    int heads = !m->fam->pairs ? 0 : r->when & PAIR_Q ? m->heads : r->when & PAIR_K ? m->kv_heads : 0;
    long *which = app_new(n, sizeof *which);
    spell(name, sizeof name, r->to, layer, 0);
    int rc = EXIT_FINE;
    for (size_t i = 0; i < n && !rc; i++)
        if ((which[i] = find(m, c, r, layer, (int)i)) < 0) rc = EXIT_WRONG_USE;
    if (!rc && tools_put_tensor(o, name, type_of(m, r), c, which, n, heads, &err)) rc = app_fail(&err);
    free(which);
    return rc;
}

int convert_put_tensors(const convert_model *m, const tools_checkpoint *c, tools_output *o)
{
    size_t n;
    const row *r = table_of(m, &n);
    int rc = EXIT_FINE;
    for (size_t i = 0; i < n && !rc; i++) {
        int layers = r[i].when & LAYER ? m->layers : 1;
        for (int l = 0; l < layers && !rc && applies(m, &r[i]); l++) rc = put_row(m, c, o, &r[i], l);
    }
    return rc;
}
