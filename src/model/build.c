/* build.c - adding operators to a model's graph; see build.h. */
#include "model/build.h"

#include <stdio.h>

static const op no_op = { .layer = -1, .out = -1, .in = -1, .in2 = -1, .weight = -1, .bias = -1, .residual = -1 };

static bool failed(const builder *b) { return b->st != LLADA_OK; }

static void full(builder *b)
{
    b->st = llada_fail(b->err, LLADA_BAD_MODEL, "the graph of %s outgrew its tables of %d operators and %d tensors",
                       b->m->arch->name, b->m->g.cap_ops, b->m->g.cap_t);
}

static tensor_id activation(builder *b, dim_rows rows, int64_t cols, const char *name)
{
    if (failed(b)) return NO_TENSOR;
    tensor t = { .name = name, .kind = T_ACTIVATION, .rows = rows, .cols = cols };
    tensor_id id = graph_tensor(&b->m->g, t);
    if (id < 0) full(b);
    return id;
}

builder b_begin(model *m, int ops, int tensors, llada_err *err)
{
    builder b = { .m = m, .layer = -1, .err = err };
    b.st = graph_init(&m->g, ops, tensors, err);
    m->g.n_layer = m->n_layer;
    m->g.n_embd = m->n_embd;
    m->g.n_head = m->n_head;
    m->g.n_kv_head = m->n_head_kv;
    m->g.head_dim = m->head_dim;
    m->g.rope_base = m->rope_base;
    return b;
}

/* An activation of the shape of another. */
static tensor_id like(builder *b, tensor_id other, const char *name)
{
    if (failed(b)) return NO_TENSOR;
    return activation(b, b->m->g.t[other].rows, b->m->g.t[other].cols, name);
}

static void add(builder *b, op o)
{
    if (failed(b)) return;
    o.layer = b->layer;
    if (graph_op(&b->m->g, o) < 0) full(b);
}

int b_vocab_rows(builder *b, const char *name)
{
    if (failed(b)) return 0;
    const gguf_tensor *t = gguf_find(b->m->file, name);
    if (!t) {
        b->st = llada_fail(b->err, LLADA_BAD_MODEL, "tensor %s is missing", name);
        return 0;
    }
    uint64_t rows = t->dims[1];
    if (rows < (uint64_t)b->m->n_vocab || rows > MODEL_MAX_VOCAB) {
        b->st =
            llada_fail(b->err, LLADA_BAD_MODEL,
                       "the vocabulary has %d tokens but %s has %llu rows (at least as many, at most %d, are wanted)",
                       b->m->n_vocab, name, (unsigned long long)rows, MODEL_MAX_VOCAB);
        return 0;
    }
    return (int)rows;
}

tensor_id b_weight(builder *b, int64_t rows, int64_t cols, const char *name)
{
    if (failed(b)) return NO_TENSOR;
    if (b->layer < 0) return model_weight(b->m, rows, cols, false, &b->st, b->err, "%s", name);
    return model_weight(b->m, rows, cols, false, &b->st, b->err, "blk.%d.%s", b->layer, name);
}

tensor_id b_embed(builder *b, tensor_id table)
{
    op o = no_op;
    o.kind = OP_EMBED;
    o.weight = table;
    o.out = activation(b, DIM_ROWS, b->m->n_embd, "hidden");
    add(b, o);
    return o.out;
}

tensor_id b_norm(builder *b, tensor_id in, const char *name)
{
    op o = no_op;
    o.kind = OP_RMSNORM;
    o.in = in;
    o.eps = b->m->eps;
    o.out = like(b, in, "normed");
    o.weight = failed(b) ? NO_TENSOR : b_weight(b, 1, b->m->g.t[in].cols, name);
    add(b, o);
    return o.out;
}

void b_head_norm(builder *b, tensor_id x, const char *name)
{
    op o = no_op;
    o.kind = OP_RMSNORM;
    o.out = o.in = x;
    o.eps = b->m->eps;
    o.width = b->m->head_dim;
    o.weight = b_weight(b, 1, o.width, name);
    add(b, o);
}

static tensor_id linear(builder *b, tensor_id in, int64_t n_out, const char *name, bool bias, tensor_id residual)
{
    if (failed(b)) return NO_TENSOR;
    char weight[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    op o = no_op;
    o.kind = OP_MATMUL;
    o.in = in;
    o.residual = residual;
    o.weight = b_weight(b, n_out, b->m->g.t[in].cols, weight);
    snprintf(weight, sizeof weight, "%s.bias", name);
    if (bias) o.bias = b_weight(b, 1, n_out, weight);
    o.out = residual >= 0 || failed(b) ? residual : activation(b, b->m->g.t[in].rows, n_out, name);
    add(b, o);
    return o.out;
}

tensor_id b_linear(builder *b, tensor_id in, int64_t n_out, const char *name, tensor_id residual)
{
    return linear(b, in, n_out, name, false, residual);
}

tensor_id b_linear_bias(builder *b, tensor_id in, int64_t n_out, const char *name)
{
    return linear(b, in, n_out, name, true, NO_TENSOR);
}

tensor_id b_route(builder *b, tensor_id logits)
{
    op o = no_op;
    o.kind = OP_ROUTE;
    o.in = logits;
    o.experts = b->m->n_expert;
    o.used = b->m->n_expert_used;
    o.out = activation(b, DIM_ROWS, 2 * (int64_t)o.used, "route");
    add(b, o);
    return o.out;
}

tensor_id b_experts(builder *b, tensor_id in, tensor_id route, int64_t n_out, const char *name, tensor_id residual)
{
    if (failed(b)) return NO_TENSOR;
    const model *m = b->m;
    char weight[64];
    snprintf(weight, sizeof weight, "blk.%d.%s.weight", b->layer, name);
    op o = no_op;
    o.kind = OP_EXPERTS;
    o.in = in;
    o.in2 = route;
    o.residual = residual;
    o.experts = m->n_expert;
    o.used = m->n_expert_used;
    int64_t k = residual >= 0 ? m->g.t[in].cols / o.used : m->g.t[in].cols;
    o.weight = model_experts(b->m, o.experts, n_out, k, weight, &b->st, b->err);
    o.out = residual >= 0 || failed(b) ? residual : activation(b, DIM_ROWS, n_out * o.used, name);
    add(b, o);
    return o.out;
}

void b_rope(builder *b, tensor_id x, int heads)
{
    op o = no_op;
    o.kind = OP_ROPE;
    o.out = o.in = x;
    o.heads = heads;
    o.width = b->m->head_dim;
    o.rope = b->m->arch->rope;
    add(b, o);
}

tensor_id b_attention(builder *b, tensor_id q, tensor_id k, tensor_id v)
{
    op store = no_op, o = no_op;
    store.kind = OP_KV;
    store.in = k;
    store.in2 = v;
    add(b, store);
    o.kind = OP_ATTENTION;
    o.in = q;
    o.heads = b->m->n_head;
    o.kv_heads = b->m->n_head_kv;
    o.width = b->m->head_dim;
    o.causal = b->m->arch->causal;
    o.out = like(b, q, "attended");
    add(b, o);
    return o.out;
}

tensor_id b_swiglu(builder *b, tensor_id gate, tensor_id up)
{
    op o = no_op;
    o.kind = OP_SWIGLU;
    o.in = gate;
    o.in2 = up;
    o.out = gate;
    add(b, o);
    return o.out;
}

tensor_id b_gather(builder *b, tensor_id in)
{
    op o = no_op;
    o.kind = OP_GATHER;
    o.in = in;
    o.out = activation(b, DIM_WANT, b->m->n_embd, "wanted");
    add(b, o);
    return o.out;
}

void b_score(builder *b, tensor_id in, tensor_id head)
{
    op o = no_op;
    o.kind = OP_SCORE;
    o.in = in;
    o.weight = head;
    add(b, o);
    if (!failed(b)) b->m->g.n_vocab_rows = (int)b->m->g.t[head].n_rows;
}
