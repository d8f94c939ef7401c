/* graph.c - building a graph and checking it.  After graph_check a device may trust every index and every shape. */
#include "graph/graph.h"

#include <math.h>
#include <stdbool.h>

#include "base/mem.h"

static const char *const op_names[] = { "embed",  "rmsnorm", "matmul", "rope",  "kv",     "attention",
                                        "swiglu", "gather",  "score",  "route", "experts" };

/* Which tensors an operator may name; the others must be -1, so lifetimes can be read off without knowing kinds. */
enum { F_OUT = 1, F_IN = 2, F_IN2 = 4, F_WEIGHT = 8, F_BIAS = 16, F_RESIDUAL = 32 };
static const unsigned op_fields[] = { F_OUT | F_WEIGHT,
                                      F_OUT | F_IN | F_WEIGHT,
                                      F_OUT | F_IN | F_WEIGHT | F_BIAS | F_RESIDUAL,
                                      F_OUT | F_IN,
                                      F_IN | F_IN2,
                                      F_OUT | F_IN,
                                      F_OUT | F_IN | F_IN2,
                                      F_OUT | F_IN,
                                      F_IN | F_WEIGHT,
                                      F_OUT | F_IN,
                                      F_OUT | F_IN | F_IN2 | F_WEIGHT | F_RESIDUAL };

llada_status graph_init(graph *g, int cap_ops, int cap_t, llada_err *err)
{
    *g = (graph){ 0 };
    if (cap_ops < 1 || cap_t < 1)
        return llada_fail(err, LLADA_BAD_ARG, "a graph of %d operators and %d tensors can't be made", cap_ops, cap_t);
    g->ops = mem_array((size_t)cap_ops, sizeof *g->ops);
    g->t = mem_array((size_t)cap_t, sizeof *g->t);
    if (!g->ops || !g->t) {
        graph_free(g);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for a graph of %d operators and %d tensors", cap_ops, cap_t);
    }
    g->cap_ops = cap_ops;
    g->cap_t = cap_t;
    return LLADA_OK;
}

void graph_free(graph *g)
{
    mem_free(g->ops);
    mem_free(g->t);
    *g = (graph){ 0 };
}

tensor_id graph_tensor(graph *g, tensor t)
{
    if (g->n_t >= g->cap_t) return -1;
    g->t[g->n_t] = t;
    return g->n_t++;
}

int graph_op(graph *g, op o)
{
    if (g->n_ops >= g->cap_ops) return -1;
    g->ops[g->n_ops] = o;
    return g->n_ops++;
}

/* ------------------------------------------------------------ checking */

/* What a check needs to say where it stands. */
typedef struct {
    const graph *g;
    const bool *written; /* per tensor: some earlier operator wrote it */
    const bool *kv;      /* per layer: its K,V of this pass are stored */
    int n_score;
    int i; /* the operator */
    const op *o;
    llada_err *err;
} checker;

static llada_status bad(const checker *c, tensor_id id, const char *what)
{
    bool named = id >= 0 && id < c->g->n_t && c->g->t[id].name;
    const char *kind = (unsigned)c->o->kind < sizeof op_names / sizeof *op_names ? op_names[c->o->kind] : "unknown";
    return llada_fail(c->err, LLADA_BAD_MODEL, "operator %d (%s, layer %d), tensor %d (%.64s): %s", c->i, kind,
                      c->o->layer, id, named ? c->g->t[id].name : "none", what);
}

static const tensor *at(const checker *c, tensor_id id) { return &c->g->t[id]; }

static bool same_shape(const tensor *a, const tensor *b)
{
    return a->rows == b->rows && a->cols == b->cols && (a->rows != DIM_FIXED || a->n_rows == b->n_rows);
}

/* An activation that is read: it has been written before. */
static llada_status read_ok(const checker *c, tensor_id id)
{
    if (id < 0 || id >= c->g->n_t) return bad(c, id, "no such tensor");
    if (at(c, id)->kind != T_ACTIVATION) return bad(c, id, "an activation is wanted here");
    if (!c->written[id]) return bad(c, id, "read before it is written");
    return LLADA_OK;
}

static llada_status write_ok(const checker *c, tensor_id id)
{
    if (id < 0 || id >= c->g->n_t) return bad(c, id, "no such tensor");
    if (at(c, id)->kind != T_ACTIVATION) return bad(c, id, "only activations can be written");
    if (at(c, id)->cols < 1 || (at(c, id)->rows == DIM_FIXED && at(c, id)->n_rows < 1))
        return bad(c, id, "an activation of no values");
    return LLADA_OK;
}

/* A weight of rows x cols; rows < 0: any. */
static llada_status weight_ok(const checker *c, tensor_id id, int64_t rows, int64_t cols)
{
    if (id < 0 || id >= c->g->n_t) return bad(c, id, "no such tensor");
    const tensor *w = at(c, id);
    if (w->kind != T_WEIGHT || w->rows != DIM_FIXED || !w->data || (w->row_bytes == 0 && w->layout == LAYOUT_ROWS))
        return bad(c, id, "a weight with data is wanted here");
    if (w->n_rows < 1 || (rows >= 0 && w->n_rows != rows) || w->cols != cols) {
        return llada_fail(c->err, LLADA_BAD_MODEL,
                          "operator %d (%s, layer %d): weight %.64s is %lld x %lld where %lld x %lld is wanted", c->i,
                          op_names[c->o->kind], c->o->layer, w->name ? w->name : "without a name", (long long)w->n_rows,
                          (long long)w->cols, (long long)(rows < 0 ? w->n_rows : rows), (long long)cols);
    }
    return LLADA_OK;
}

/* A weight that is read row by row, or as a vector. */
static llada_status rows_ok(const checker *c, tensor_id id, int64_t rows, int64_t cols)
{
    if (id >= 0 && id < c->g->n_t && at(c, id)->layout != LAYOUT_ROWS)
        return bad(c, id, "packed, but read row by row");
    return weight_ok(c, id, rows, cols);
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        llada_status try_st = (call);                                                                                  \
        if (try_st != LLADA_OK) return try_st;                                                                         \
    } while (0)

static llada_status check_embed(const checker *c)
{
    TRY(write_ok(c, c->o->out));
    if (at(c, c->o->out)->rows != DIM_ROWS) return bad(c, c->o->out, "embeddings are one per row of the pass");
    return rows_ok(c, c->o->weight, -1, at(c, c->o->out)->cols);
}

static llada_status check_rmsnorm(const checker *c)
{
    const op *o = c->o;
    TRY(read_ok(c, o->in));
    TRY(write_ok(c, o->out));
    const tensor *in = at(c, o->in);
    if (!same_shape(in, at(c, o->out))) return bad(c, o->out, "a norm does not change the shape");
    if (!(o->eps > 0) || !isfinite(o->eps)) return bad(c, o->in, "eps of a norm is not a positive number");
    if (o->width < 0 || (o->width > 0 && in->cols % o->width != 0))
        return bad(c, o->in, "groups of the norm do not divide the row");
    return rows_ok(c, o->weight, 1, o->width > 0 ? o->width : in->cols);
}

static llada_status check_matmul(const checker *c)
{
    const op *o = c->o;
    TRY(read_ok(c, o->in));
    TRY(write_ok(c, o->out));
    const tensor *in = at(c, o->in), *out = at(c, o->out);
    if (o->in == o->out) return bad(c, o->out, "a product can't be written over its own input");
    if (in->rows != out->rows || in->n_rows != out->n_rows) return bad(c, o->out, "input and output differ in rows");
    TRY(weight_ok(c, o->weight, out->cols, in->cols));
    if (o->bias >= 0) TRY(rows_ok(c, o->bias, 1, out->cols));
    if (o->residual < 0) return LLADA_OK;
    TRY(read_ok(c, o->residual));
    if (!same_shape(at(c, o->residual), out))
        return bad(c, o->residual, "the residual has another shape than the output");
    return LLADA_OK;
}

static llada_status check_rope(const checker *c)
{
    const op *o = c->o;
    TRY(read_ok(c, o->in));
    if (o->out != o->in || at(c, o->in)->rows != DIM_ROWS)
        return bad(c, o->in, "rotation is in place, on rows of the pass");
    if (o->heads < 1 || o->width < 2 || o->width % 2 != 0 || (int64_t)o->heads * o->width != at(c, o->in)->cols)
        return bad(c, o->in, "heads of even width do not make up the row");
    if (!(c->g->rope_base > 0) || !isfinite(c->g->rope_base))
        return bad(c, o->in, "the base of the rotation is not a positive number");
    return LLADA_OK;
}

static llada_status check_kv(const checker *c)
{
    const op *o = c->o;
    TRY(read_ok(c, o->in));
    TRY(read_ok(c, o->in2));
    int64_t cols = (int64_t)c->g->n_kv_head * c->g->head_dim;
    if (at(c, o->in)->rows != DIM_ROWS || at(c, o->in)->cols != cols)
        return bad(c, o->in, "keys are not n_kv_head x head_dim per row");
    if (at(c, o->in2)->rows != DIM_ROWS || at(c, o->in2)->cols != cols)
        return bad(c, o->in2, "values are not n_kv_head x head_dim per row");
    if (o->layer < 0) return bad(c, o->in, "keys and values belong to a layer");
    return c->kv[o->layer] ? bad(c, o->in, "the layer's keys are stored twice") : LLADA_OK;
}

static llada_status check_attention(const checker *c)
{
    const op *o = c->o;
    TRY(read_ok(c, o->in));
    TRY(write_ok(c, o->out));
    if (!same_shape(at(c, o->in), at(c, o->out)) || at(c, o->in)->rows != DIM_ROWS)
        return bad(c, o->out, "attention does not change the shape of its queries");
    if (o->width != c->g->head_dim || o->heads != c->g->n_head || o->kv_heads != c->g->n_kv_head)
        return bad(c, o->in, "heads differ from those of the graph");
    if (o->kv_heads < 1 || o->heads % o->kv_heads != 0 || (int64_t)o->heads * o->width != at(c, o->in)->cols)
        return bad(c, o->in, "heads do not make up the row");
    if (o->layer < 0 || !c->kv[o->layer])
        return bad(c, o->in, "attention before the layer's keys and values are stored");
    return LLADA_OK;
}

static llada_status check_swiglu(const checker *c)
{
    TRY(read_ok(c, c->o->in));
    TRY(read_ok(c, c->o->in2));
    TRY(write_ok(c, c->o->out));
    if (!same_shape(at(c, c->o->in), at(c, c->o->out)) || !same_shape(at(c, c->o->in2), at(c, c->o->out)))
        return bad(c, c->o->out, "gate, up and output differ in shape");
    return LLADA_OK;
}

static llada_status check_gather(const checker *c)
{
    TRY(read_ok(c, c->o->in));
    TRY(write_ok(c, c->o->out));
    if (at(c, c->o->in)->rows != DIM_ROWS || at(c, c->o->out)->rows != DIM_WANT ||
        at(c, c->o->in)->cols != at(c, c->o->out)->cols)
        return bad(c, c->o->out, "gather goes from rows of the pass to wanted rows of the same width");
    return LLADA_OK;
}

static llada_status check_score(const checker *c)
{
    TRY(read_ok(c, c->o->in));
    if (at(c, c->o->in)->rows != DIM_WANT) return bad(c, c->o->in, "only wanted rows are scored");
    if (c->n_score > 0) return bad(c, c->o->in, "rows are scored twice");
    return weight_ok(c, c->o->weight, c->g->n_vocab_rows, at(c, c->o->in)->cols);
}

/* Numbers of experts travel as floats. */
enum { MAX_EXPERTS = 1 << 16 };

/* Of T32 (format/t32.h, which is not ours to include). */
enum { STRIPE_ROWS = 32 };

static llada_status experts_ok(const checker *c)
{
    const op *o = c->o;
    if (o->experts < 1 || o->experts > MAX_EXPERTS || o->used < 1 || o->used > o->experts)
        return bad(c, o->in, "experts that can't be: none, too many, or fewer than serve a row");
    return LLADA_OK;
}

static llada_status check_route(const checker *c)
{
    TRY(read_ok(c, c->o->in));
    TRY(write_ok(c, c->o->out));
    TRY(experts_ok(c));
    if (c->o->in == c->o->out) return bad(c, c->o->out, "a choice can't be written over what it is made from");
    if (at(c, c->o->in)->rows != DIM_ROWS || at(c, c->o->in)->cols != c->o->experts)
        return bad(c, c->o->in, "not one value per row and expert");
    if (at(c, c->o->out)->rows != DIM_ROWS || at(c, c->o->out)->cols != 2 * (int64_t)c->o->used)
        return bad(c, c->o->out, "not a number and a probability per row and serving expert");
    return LLADA_OK;
}

static llada_status check_experts(const checker *c)
{
    const op *o = c->o;
    TRY(read_ok(c, o->in));
    TRY(read_ok(c, o->in2));
    TRY(write_ok(c, o->out));
    TRY(experts_ok(c));
    const tensor *in = at(c, o->in), *out = at(c, o->out);
    if (in->rows != DIM_ROWS || out->rows != DIM_ROWS) return bad(c, o->out, "experts serve rows of the pass");
    if (o->in == o->out || o->in2 == o->out) return bad(c, o->out, "a product can't be written over its own input");
    if (at(c, o->in2)->rows != DIM_ROWS || at(c, o->in2)->cols != 2 * (int64_t)o->used)
        return bad(c, o->in2, "not a number and a probability per row and serving expert");
    bool joins = o->residual >= 0;
    int64_t k = joins ? in->cols / o->used : in->cols, n = joins ? out->cols : out->cols / o->used;
    if ((joins ? in->cols : out->cols) % o->used != 0)
        return bad(c, joins ? o->in : o->out, "the serving experts do not divide the row");
    TRY(weight_ok(c, o->weight, n * o->experts, k));
    if (at(c, o->weight)->layout == LAYOUT_T32 && n % STRIPE_ROWS != 0)
        return bad(c, o->weight, "packed, but an expert's matrix does not begin with a stripe");
    if (!joins) return LLADA_OK;
    TRY(read_ok(c, o->residual));
    if (!same_shape(at(c, o->residual), out))
        return bad(c, o->residual, "the residual has another shape than the output");
    return LLADA_OK;
}

static llada_status check_op(const checker *c)
{
    static llada_status (*const checks[])(const checker *) = { check_embed, check_rmsnorm,   check_matmul, check_rope,
                                                               check_kv,    check_attention, check_swiglu, check_gather,
                                                               check_score, check_route,     check_experts };
    if ((unsigned)c->o->kind >= sizeof checks / sizeof *checks) return bad(c, -1, "no such operator");
    if (c->o->layer < -1 || c->o->layer >= c->g->n_layer) return bad(c, -1, "no such layer");
    const tensor_id ids[] = { c->o->out, c->o->in, c->o->in2, c->o->weight, c->o->bias, c->o->residual };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        if (ids[i] != -1 && !(op_fields[c->o->kind] >> i & 1))
            return bad(c, ids[i], "a tensor that this operator does not take");
    }
    return checks[c->o->kind](c);
}

llada_status graph_check(const graph *g, llada_err *err)
{
    if (g->n_layer < 0 || g->n_head < 1 || g->n_kv_head < 1 || g->head_dim < 1)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "a graph of %d layers with %d heads (%d for keys) of width %d can't be run", g->n_layer,
                          g->n_head, g->n_kv_head, g->head_dim);
    bool *written = mem_array((size_t)g->n_t + 1, sizeof *written);
    bool *kv = mem_array((size_t)g->n_layer + 1, sizeof *kv);
    llada_status st = LLADA_OK;
    if (!written || !kv) st = llada_fail(err, LLADA_NO_MEMORY, "no memory to check a graph of %d tensors", g->n_t);
    checker c = { .g = g, .written = written, .kv = kv, .err = err };
    for (c.i = 0; st == LLADA_OK && c.i < g->n_ops; c.i++) {
        c.o = &g->ops[c.i];
        st = check_op(&c);
        if (st != LLADA_OK) break;
        if (c.o->kind == OP_KV)
            kv[c.o->layer] = true;
        else if (c.o->kind == OP_SCORE)
            c.n_score++;
        else
            written[c.o->out] = true;
    }
    if (st == LLADA_OK && c.n_score != 1)
        st = llada_fail(err, LLADA_BAD_MODEL, "a graph of %d operators scores no rows", g->n_ops);
    mem_free(written);
    mem_free(kv);
    return st;
}
