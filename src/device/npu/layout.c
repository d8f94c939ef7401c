/* layout.c - a context's buffers, and the operators of its passes as they will stand in messages.
 *
 *   work   activations (places shared as the planner says), room for experts, rows of the pass, rotations
 *   kv     [layer][keys, values][slots][kv_stride] half floats, as the CPU device has it */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "device/npu/inside.h"

static uint64_t lines(uint64_t bytes) { return (bytes + NPU_LINE - 1) / NPU_LINE * NPU_LINE; }

/* ------------------------------------------------------------ activations */

/* The planner counts floats; a row of halves with its end of zeros is half as many. */
static llada_status plan_halves(const device_ctx *c, graph_arena *plan, llada_err *err)
{
    graph g = *c->w->g;
    g.ops += c->w->first;
    g.n_ops = c->w->end - c->w->first;
    g.t = mem_array((size_t)g.n_t, sizeof *g.t);
    if (!g.t) return llada_fail(err, LLADA_NO_MEMORY, "no memory to plan %d tensors", g.n_t);
    for (int i = 0; i < g.n_t; i++) {
        g.t[i] = c->w->g->t[i];
        if (g.t[i].kind == T_ACTIVATION) g.t[i].cols = npu_stride((uint32_t)g.t[i].cols) / 2;
    }
    llada_status st = graph_plan(&g, c->lim.max_rows, c->lim.max_want, plan, err);
    mem_free(g.t);
    return st;
}

static llada_status shapes_ok(const device_ctx *c, llada_err *err)
{
    const graph *g = c->w->g;
    for (int i = c->w->first; i < c->w->end; i++) {
        const tensor_id ids[] = { g->ops[i].out, g->ops[i].in, g->ops[i].in2, g->ops[i].residual };
        for (int k = 0; k < 4; k++) {
            const tensor *t = ids[k] < 0 ? NULL : &g->t[ids[k]];
            if (t && (t->kind != T_ACTIVATION || t->rows != DIM_ROWS || t->cols > NPU_MAX_SIDE))
                return llada_fail(err, LLADA_UNSUPPORTED, "activation %.64s is no row of the pass for each", t->name);
        }
    }
    if (c->lim.slots > NPU_MAX_SIDE || c->lim.max_rows > NPU_MAX_SIDE / 8 || c->lim.max_pos > NPU_MAX_SIDE)
        return llada_fail(err, LLADA_UNSUPPORTED, "%d slots, %d rows, %d positions: the NPU takes %d", c->lim.slots,
                          c->lim.max_rows, c->lim.max_pos, NPU_MAX_SIDE / 8);
    return LLADA_OK;
}

/* ------------------------------------------------------------ tensors */

static int add(device_ctx *c, npu_region *r, npu_tensor t, bool is_rows)
{
    c->t[c->n_t] = t;
    c->region[c->n_t] = r;
    c->is_rows[c->n_t] = is_rows;
    return c->n_t++;
}

/* What building the operators needs. */
typedef struct {
    device_ctx *c;
    const graph_arena *plan;
    int *number; /* of each tensor of the graph; -1: not yet */
    int *keys;   /* of each layer; its values come next */
    int rope;
    int gathered, products, sums; /* room for experts; -1: there are none */
} builder;

static int activation(builder *b, tensor_id id)
{
    if (id < 0) return -1;
    if (b->number[id] >= 0) return b->number[id];
    const uint32_t cols = (uint32_t)b->c->w->g->t[id].cols;
    const npu_tensor t = {
        .offset = (uint32_t)b->plan->offset[id], .type = NPU_F16, .rows = 1, .cols = cols, .stride = npu_stride(cols)
    };
    return b->number[id] = add(b->c, &b->c->work, t, true);
}

static int weight(builder *b, tensor_id id)
{
    if (id < 0) return -1;
    if (b->number[id] >= 0) return b->number[id];
    const tensor *w = &b->c->w->g->t[id];
    const npu_place *p = &b->c->w->place[id];
    npu_tensor t = { .offset = p->offset, .type = p->type, .rows = (uint32_t)w->n_rows, .cols = (uint32_t)w->cols };
    if (p->type == NPU_F32) {
        t.rows = 1;
        t.stride = t.cols;
    }
    return b->number[id] = add(b->c, p->region, t, false);
}

static int keys_of(builder *b, int layer)
{
    device_ctx *c = b->c;
    if (b->keys[layer] >= 0) return b->keys[layer];
    const uint64_t store = (uint64_t)c->lim.slots * c->kv_stride * sizeof(uint16_t);
    npu_tensor t = { .type = NPU_F16,
                     .rows = (uint32_t)c->lim.slots,
                     .cols = (uint32_t)(c->w->g->n_kv_head * c->w->g->head_dim),
                     .stride = (uint32_t)c->kv_stride };
    t.offset = (uint32_t)(store * 2 * (uint64_t)layer);
    b->keys[layer] = add(c, &c->kv, t, false);
    t.offset += (uint32_t)store;
    add(c, &c->kv, t, false);
    return b->keys[layer];
}

/* ------------------------------------------------------------ operators */

static npu_op no_op(npu_op_kind kind)
{
    return (npu_op){
        .kind = kind, .out = -1, .in = -1, .in2 = -1, .weight = -1, .bias = -1, .residual = -1, .keys = -1, .values = -1
    };
}

static void put(device_ctx *c, npu_op o, int group) { c->ops[c->n_ops++] = (npu_planned){ o, group }; }

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void put_op(builder *b, const op *o)
{
    device_ctx *c = b->c;
    npu_op n = no_op(NPU_OP_SWIGLU);
    int group = -1;
    n.in = activation(b, o->in);
    switch (o->kind) {
    case OP_RMSNORM:
        n.kind = NPU_OP_RMSNORM;
        n.out = activation(b, o->out);
        n.weight = weight(b, o->weight);
        n.width = (uint32_t)o->width;
        n.eps = bits(o->eps);
        break;
    case OP_MATMUL:
        n.kind = NPU_OP_MATMUL;
        n.out = activation(b, o->out);
        n.weight = weight(b, o->weight);
        n.bias = weight(b, o->bias);
        n.residual = activation(b, o->residual);
        group = o->layer / c->w->layers_per_group;
        break;
    case OP_ROPE:
        n.kind = NPU_OP_ROPE;
        n.weight = b->rope;
        n.width = (uint32_t)o->width;
        n.heads = (uint32_t)o->heads;
        n.flags = o->rope == ROPE_HALVES ? NPU_HALVES : 0;
        break;
    case OP_KV:
        n.kind = NPU_OP_KV;
        n.in2 = activation(b, o->in2);
        n.keys = keys_of(b, o->layer);
        n.values = n.keys + 1;
        break;
    case OP_ROUTE:
        n.kind = NPU_OP_ROUTE;
        n.out = activation(b, o->out);
        n.heads = (uint32_t)o->experts;
        n.kv_heads = (uint32_t)o->used;
        break;
    case OP_EXPERTS:
        n.kind = NPU_OP_EXPERTS;
        n.out = activation(b, o->out);
        n.in2 = activation(b, o->in2);
        n.weight = weight(b, o->weight);
        n.residual = activation(b, o->residual);
        n.heads = (uint32_t)o->experts;
        n.kv_heads = (uint32_t)o->used;
        n.keys = b->gathered;
        n.values = b->products;
        n.bias = o->residual >= 0 ? b->sums : -1;
        group = o->layer / c->w->layers_per_group;
        break;
    case OP_ATTENTION:
        n.kind = NPU_OP_ATTENTION;
        n.out = activation(b, o->out);
        n.keys = keys_of(b, o->layer);
        n.values = n.keys + 1;
        n.width = (uint32_t)o->width;
        n.heads = (uint32_t)o->heads;
        n.kv_heads = (uint32_t)o->kv_heads;
        n.flags = o->causal ? NPU_CAUSAL : 0;
        break;
    default:
        n.out = activation(b, o->out);
        n.in2 = activation(b, o->in2);
        break;
    }
    put(c, n, group);
}

/* In front: the rows come in.  Behind: they go out; a layer's keys and values are summed (npu_step says which). */
static void build(builder *b)
{
    device_ctx *c = b->c;
    const graph *g = c->w->g;
    npu_op o = no_op(NPU_OP_INPUT);
    o.in = activation(b, c->hidden_in);
    put(c, o, -1);
    for (int i = c->w->first; i < c->w->end; i++) put_op(b, &g->ops[i]);
    o = no_op(NPU_OP_SUM_KV);
    o.keys = keys_of(b, 0);
    o.values = o.keys + 1;
    put(c, o, -1);
    o = no_op(NPU_OP_OUTPUT);
    o.in = activation(b, c->hidden_out);
    put(c, o, -1);
}

/* ------------------------------------------------------------ the whole */

/* What lies in work behind the activations. */
typedef struct {
    uint64_t gathered, products, sums, rows, rope;
    uint32_t k, n; /* the widest expert's inputs and outputs; 0: there are none */
} places;

static void widest_expert(const device_ctx *c, places *p)
{
    const graph *g = c->w->g;
    for (int i = c->w->first; i < c->w->end; i++) {
        const op *o = &g->ops[i];
        if (o->kind != OP_EXPERTS) continue;
        const uint32_t k = (uint32_t)g->t[o->weight].cols, n = (uint32_t)(g->t[o->weight].n_rows / o->experts);
        p->k = k > p->k ? k : p->k;
        p->n = n > p->n ? n : p->n;
    }
}

/* Buffers: sizes, then memory. */
static llada_status take_buffers(device_ctx *c, const graph_arena *plan, places *p, llada_err *err)
{
    const graph *g = c->w->g;
    const uint64_t most = (uint64_t)c->lim.max_rows, rope = (uint64_t)c->lim.max_pos * (uint64_t)g->head_dim;
    const uint64_t rows = 4 * most + 2 * NPU_GROUPS * (uint64_t)c->lim.slots;
    widest_expert(c, p);
    p->gathered = lines(plan->bytes);
    p->products = p->gathered + most * npu_stride(p->k) * sizeof(uint16_t);
    p->sums = p->products + most * npu_stride(p->n) * sizeof(uint16_t);
    p->rows = p->sums + most * npu_stride(p->n) * sizeof(float);
    p->rope = lines(p->rows + rows * sizeof(int32_t));
    llada_status st = npu_region_take(c->w, &c->work, p->rope + rope * sizeof(float), 0, -1, err);
    if (st) return st;
    memcpy(c->work.s.at + p->rope, cpu_rope_table(c->cpu), rope * sizeof(float));
    c->bytes += c->work.s.bytes + c->kv.s.bytes;
    return LLADA_OK;
}

static bool take_tables(device_ctx *c, builder *b)
{
    const graph *g = c->w->g;
    const size_t most_t = (size_t)g->n_t + 2 * (size_t)g->n_layer + 5, most_ops = (size_t)g->n_ops + 3;
    c->t = mem_array(most_t, sizeof *c->t);
    c->region = mem_array(most_t, sizeof *c->region);
    c->is_rows = mem_array(most_t, sizeof *c->is_rows);
    c->ops = mem_array(most_ops, sizeof *c->ops);
    c->message = mem_new(NPU_MAX_MESSAGE);
    b->number = mem_array((size_t)g->n_t, sizeof *b->number);
    b->keys = mem_array((size_t)g->n_layer, sizeof *b->keys);
    if (!c->t || !c->region || !c->is_rows || !c->ops || !c->message || !b->number || !b->keys) return false;
    for (int i = 0; i < g->n_t; i++) b->number[i] = -1;
    for (int i = 0; i < g->n_layer; i++) b->keys[i] = -1;
    return true;
}

static int add_room(builder *b, uint64_t offset, npu_type type, uint32_t cols)
{
    const npu_tensor t = {
        .offset = (uint32_t)offset, .type = type, .rows = 1, .cols = cols, .stride = npu_stride(cols)
    };
    return add(b->c, &b->c->work, t, true);
}

static void add_places(builder *b, const places *p)
{
    device_ctx *c = b->c;
    const uint32_t width = (uint32_t)c->w->g->head_dim;
    c->rows_tensor = add(c, &c->work, (npu_tensor){ .offset = (uint32_t)p->rows, .type = NPU_I32, .rows = 1 }, false);
    b->rope = add(c, &c->work,
                  (npu_tensor){ .offset = (uint32_t)p->rope,
                                .type = NPU_F32,
                                .rows = (uint32_t)c->lim.max_pos,
                                .cols = width,
                                .stride = width },
                  false);
    b->gathered = p->k ? add_room(b, p->gathered, NPU_F16, p->k) : -1;
    b->products = p->k ? add_room(b, p->products, NPU_F16, p->n) : -1;
    b->sums = p->k ? add_room(b, p->sums, NPU_F32, p->n) : -1;
}

/* A message with a map and an unmap for every buffer there is room for. */
static llada_status message_ok(const device_ctx *c, llada_err *err)
{
    const size_t maps = 2 * NPU_MAX_BUFFERS;
    const size_t bytes = sizeof(npu_head) + NPU_MAX_BUFFERS * sizeof(npu_buffer) + (size_t)c->n_t * sizeof(npu_tensor) +
                         ((size_t)c->n_ops + maps) * sizeof(npu_op);
    if (bytes <= NPU_MAX_MESSAGE && c->n_t <= NPU_MAX_TENSORS && (size_t)c->n_ops + maps <= NPU_MAX_OPS)
        return LLADA_OK;
    return llada_fail(err, LLADA_UNSUPPORTED, "a pass takes %d operators and %d tensors, more than a message holds",
                      c->n_ops, c->n_t);
}

llada_status npu_lay_out(device_ctx *c, llada_err *err)
{
    graph_arena plan = { 0 };
    builder b = { .c = c, .plan = &plan };
    places at = { 0 };
    const graph *g = c->w->g;
    llada_status st;
    c->hidden_in = g->ops[0].out;
    c->hidden_out = g->ops[c->w->end].in;
    c->width = (uint32_t)g->t[c->hidden_out].cols;
    if ((st = shapes_ok(c, err)) || (st = plan_halves(c, &plan, err))) goto done;
    if ((st = take_buffers(c, &plan, &at, err))) goto done;
    if (!take_tables(c, &b)) {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for the operators of an NPU context");
        goto done;
    }
    c->in_offset = (uint32_t)plan.offset[c->hidden_in];
    c->out_offset = (uint32_t)plan.offset[c->hidden_out];
    add_places(&b, &at);
    build(&b);
    st = message_ok(c, err);
done:
    graph_arena_free(&plan);
    mem_free(b.number);
    mem_free(b.keys);
    return st;
}
