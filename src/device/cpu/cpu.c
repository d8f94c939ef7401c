/* cpu.c - the CPU device: opening and closing.  Everything a pass needs is allocated in cpu_open; run.c uses it. */
#include "device/cpu/cpu.h"
#include "device/cpu/part.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/t32.h"

enum { MAX_THREADS = 1024, LINE = 64 };

/* ------------------------------------------------------------ weights */

/* A vector of floats that lies well can be used where it is. */
static bool in_place(const tensor *t) { return t->type == QT_F32 && (uintptr_t)t->data % sizeof(float) == 0; }

static llada_status packed_ok(const tensor *t, llada_err *err)
{
    t32_shape s;
    if (t32_shape_of(&s, t->type, (uint64_t)t->n_rows, (uint64_t)t->cols)) return LLADA_OK;
    return llada_fail(err, LLADA_BAD_MODEL, "tensor %.64s of %lld x %lld values can't be packed as %s", t->name,
                      (long long)t->n_rows, (long long)t->cols, quant_get(t->type)->name);
}

static llada_status weight_ok(const tensor *t, llada_err *err)
{
    const quant_info *q = quant_get(t->type);
    size_t bytes;

    if (!q || !q->decode)
        return llada_fail(err, LLADA_UNSUPPORTED, "tensor %.64s has type %s (number %u), which can't be computed with",
                          t->name, q ? q->name : "unknown", (unsigned)t->type);
    if (t->cols < 1 || t->cols > INT32_MAX / 2 || t->n_rows < 1 || t->n_rows > INT32_MAX / 2)
        return llada_fail(err, LLADA_UNSUPPORTED, "tensor %.64s is %lld x %lld, the largest side is %d", t->name,
                          (long long)t->n_rows, (long long)t->cols, INT32_MAX / 2);
    if (t->layout == LAYOUT_T32) return packed_ok(t, err);
    if (!quant_row_bytes(t->type, (uint64_t)t->cols, &bytes) || bytes != t->row_bytes)
        return llada_fail(err, LLADA_BAD_MODEL, "tensor %.64s has rows of %zu bytes, %lld values of %s need %zu",
                          t->name, t->row_bytes, (long long)t->cols, q->name, bytes);
    return LLADA_OK;
}

/* Within a budget the mapping is not touched: the vector is read. */
static llada_status decode_vector(device_weights *w, tensor_id id, float *to, llada_err *err)
{
    const tensor *t = &w->g->t[id];
    void *read = w->held ? mem_new(t->row_bytes) : NULL;
    llada_status st = LLADA_OK;

    if (w->held && !read) return llada_fail(err, LLADA_NO_MEMORY, "no memory to read tensor %.64s", t->name);
    if (read) st = keeper_read(w->held, id, read, err);
    if (st == LLADA_OK) quant_get(t->type)->decode(to, read ? read : t->data, (size_t)t->cols);
    mem_free(read);
    return st;
}

/* Norm weights and biases become floats once: sizes first (to NULL), then values. */
static llada_status take_vector(device_weights *w, tensor_id id, float *to, size_t *used, llada_err *err)
{
    const tensor *t = id < 0 ? NULL : &w->g->t[id];
    llada_status st = LLADA_OK;

    if (!t || (!w->held && in_place(t))) {
        if (t) w->vec[id] = t->data;
        return LLADA_OK;
    }
    if (to && !w->vec[id]) {
        if ((st = decode_vector(w, id, to + *used, err)) != LLADA_OK) return st;
        w->vec[id] = to + *used;
    }
    if (size_add(*used, (size_t)t->cols, used)) return LLADA_OK;
    return llada_fail(err, LLADA_NO_MEMORY, "norms and biases are too many values");
}

static llada_status take_vectors(device_weights *w, float *to, size_t *used, llada_err *err)
{
    llada_status st = LLADA_OK;

    *used = 0;
    for (int i = 0; st == LLADA_OK && i < w->g->n_ops; i++) {
        const op *o = &w->g->ops[i];
        if (o->kind == OP_RMSNORM) st = take_vector(w, o->weight, to, used, err);
        if (o->kind == OP_MATMUL) st = take_vector(w, o->bias, to, used, err);
    }
    return st;
}

static void weights_close(device_weights **w)
{
    if (!w || !*w) return;
    keeper_close(&(*w)->held);
    mem_free((*w)->vec);
    mem_free((*w)->store);
    mem_free(*w);
    *w = NULL;
}

static llada_status graph_ok(device_weights *w, llada_err *err)
{
    const graph *g = w->g;
    llada_status st;

    for (int i = 0; i < g->n_t; i++)
        if (g->t[i].kind == T_WEIGHT && (st = weight_ok(&g->t[i], err)) != LLADA_OK) return st;
    for (int i = 0; i < g->n_ops; i++) {
        const op *o = &g->ops[i];
        if (o->kind == OP_EMBED) w->vocab = (int)g->t[o->weight].n_rows;
        if (o->kind == OP_ROPE && o->width != g->head_dim)
            return llada_fail(err, LLADA_UNSUPPORTED, "operator %d rotates %d values of heads that have %d", i,
                              o->width, g->head_dim);
    }
    return LLADA_OK;
}

/* mem NULL: weights are used where they lie. */
static llada_status open_weights(device_weights **out, const graph *g, const device_memory *mem, llada_err *err)
{
    llada_status st;
    size_t n = 0;
    device_weights *w = mem_new(sizeof *w);

    if (!w) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the record of the weights");
    w->g = g;
    if ((st = graph_ok(w, err)) != LLADA_OK) goto fail;
    if (mem && (st = keeper_open(&w->held, g, mem, err)) != LLADA_OK) goto fail;
    if (!(w->vec = mem_array((size_t)g->n_t, sizeof *w->vec))) {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for a list of %d tensors", g->n_t);
        goto fail;
    }
    if ((st = take_vectors(w, NULL, &n, err)) != LLADA_OK) goto fail;
    if (!(w->store = mem_array(n, sizeof(float)))) {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for %zu values of norms and biases", n);
        goto fail;
    }
    if ((st = take_vectors(w, w->store, &n, err)) != LLADA_OK) goto fail;
    *out = w;
    return LLADA_OK;
fail:
    weights_close(&w);
    return st;
}

static llada_status weights_open(device_weights **out, const graph *g, llada_err *err)
{
    return open_weights(out, g, NULL, err);
}

static llada_status weights_within(device_weights **out, const graph *g, const device_memory *mem, llada_err *err)
{
    return open_weights(out, g, mem, err);
}

static void memory_use(const device_weights *w, device_memory_use *out)
{
    *out = (device_memory_use){ 0 };
    if (w->held) keeper_get_use(w->held, out);
}

/* ------------------------------------------------------------ contexts */

static void cpu_close(device_ctx **pc)
{
    device_ctx *c = pc ? *pc : NULL;

    if (!c) return;
    if (c->joined) keeper_leave(c->w->held, c->joined);
    pool_close(&c->pool);
    graph_arena_free(&c->plan);
    mem_free(c->arena);
    mem_free(c->own_kv);
    mem_free(c->rope);
    mem_free(c->scratch);
    mem_free(c->scratch_mem);
    mem_free(c->qx.q);
    mem_free(c->qx.scale);
    mem_free(c->logits);
    mem_free(c->stamp);
    mem_free(c->last);
    mem_free(c->gathered);
    mem_free(c->served);
    mem_free(c->served_rows);
    mem_free(c);
    *pc = NULL;
}

/* mem_array, counted; a, b and c are multiplied. */
static void *take(device_ctx *ctx, size_t a, size_t b, size_t c)
{
    size_t n;
    void *p = size_mul(a, b, &n) && size_mul(n, c, &n) ? mem_new(n) : NULL;

    if (p) ctx->bytes += n;
    return p;
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Cosines and sines of pos * base^(-2i/width), computed in double. */
static bool make_rope(device_ctx *c)
{
    const int width = c->g->head_dim, half = width / 2;

    if (!(c->rope = take(c, (size_t)c->lim.max_pos, (size_t)width, sizeof(float)))) return false;
    for (int i = 0; i < half; i++) {
        double step = pow(c->g->rope_base, -2.0 * i / width);
        float factor;
        if (c->g->rope_factors) {
            memcpy(&factor, (const char *)c->g->rope_factors + (size_t)i * sizeof factor, sizeof factor);
            step /= factor;
        }
        for (int pos = 0; pos < c->lim.max_pos; pos++) {
            float *row = c->rope + (size_t)pos * (size_t)width;
            row[i] = (float)cos(pos * step);
            row[i + half] = (float)sin(pos * step);
        }
    }
    return true;
}

/* Rows of the largest product: of the pass, or fixed. */
static size_t most_rows(const device_ctx *c)
{
    size_t rows = (size_t)(c->lim.max_rows > c->lim.max_want ? c->lim.max_rows : c->lim.max_want);

    for (int i = 0; i < c->g->n_t; i++)
        if (c->g->t[i].kind == T_ACTIVATION && c->g->t[i].rows == DIM_FIXED && (size_t)c->g->t[i].n_rows > rows)
            rows = (size_t)c->g->t[i].n_rows;
    return rows;
}

static bool make_scratch(device_ctx *c)
{
    const size_t threads = (size_t)pool_threads(c->pool), nb = (size_t)c->k.mm.nb, cols = (size_t)c->lim.slots + 1;
    const size_t rows = most_rows(c), subs = Q_KC / QSUB * QCOLS;

    c->panel_ld = (size_t)c->k.mm.kc + 16;
    c->sums_ld = round_up(rows < MM_ROWS ? rows : MM_ROWS, 4);

    /* all of 4 bytes; list is checked by the K,V store's size before */
    size_t panel = round_up(nb * c->panel_ld, LINE), list = round_up(cols, LINE), levels = Q_KC * QCOLS / 4;
    size_t sums = round_up((nb > QCOLS ? nb : QCOLS) * c->sums_ld, LINE);
    size_t each = panel + sums + 2 * list + 2 * levels + 4 * subs;
    if (!(c->scratch = take(c, threads, sizeof *c->scratch, 1)) ||
        !(c->scratch_mem = take(c, threads, each, sizeof(float))))
        return false;
    for (size_t t = 0; t < threads; t++) {
        float *at = (float *)c->scratch_mem + t * each;
        cpu_scratch *s = &c->scratch[t];
        s->panel = at;
        s->sums = at += panel;
        s->att = at += sums;
        s->cols = (int32_t *)(void *)(at += list);
        s->qpanel.level = (uint8_t *)(at += list);
        s->qlevel = (uint8_t *)(at += levels);
        s->qpanel.scale = at += levels;
        s->qpanel.low = at += subs;
        s->qrow = at + subs;
    }
    return true;
}

/* Room for the rows of the widest product in integers. */
static bool make_qrows(device_ctx *c)
{
    const size_t rows = most_rows(c);
    size_t k = 0;

    for (int i = 0; i < c->g->n_t; i++) {
        const tensor *t = &c->g->t[i];
        if (t->kind == T_WEIGHT && quant_get(t->type)->levels && (size_t)t->cols > k) k = (size_t)t->cols;
    }
    if (k == 0) return true;
    if (!(c->qx.q = take(c, rows, k, 1)) || !(c->qx.scale = take(c, rows, k / QBLOCK, 4 * sizeof(float)))) return false;
    c->qx.sum32 = c->qx.scale + rows * (k / QBLOCK);
    c->qx.sum16 = c->qx.sum32 + rows * (k / QBLOCK);
    return true;
}

static bool make_kv(device_ctx *c)
{
    const graph *g = c->g;
    size_t row, n;

    if (!size_mul((size_t)g->n_kv_head, (size_t)g->head_dim, &row) || !size_add(row, LINE, &row)) return false;
    c->kv_stride = round_up(row, 16) - LINE + 16;
    if (!size_mul((size_t)g->n_layer, 2, &n) || !size_mul(n, c->kv_stride, &n)) return false;
    if (c->lim.kv_at) {
        c->kv = c->lim.kv_at;
        c->kv_stride = c->lim.kv_stride;
    } else if (c->lim.kv_of) {
        c->kv = c->lim.kv_of->kv;
        c->kv_stride = c->lim.kv_of->kv_stride;
    } else {
        c->kv = c->own_kv = take(c, n, (size_t)c->lim.slots, c->lim.kv_f16 ? 2 : 4);
    }
    return c->kv != NULL;
}

/* Marks where a layer's result is complete: its last operator with a residual, else its last with an output. */
static bool mark_layers(device_ctx *c)
{
    if (!(c->last = take(c, (size_t)c->g->n_ops, sizeof *c->last, 1))) return false;
    for (int layer = 0; layer < c->g->n_layer; layer++) {
        int at = -1;
        bool residual = false;
        for (int i = 0; i < c->g->n_ops; i++) {
            const op *o = &c->g->ops[i];
            if (o->layer != layer || o->out < 0 || (residual && o->residual < 0)) continue;
            at = i;
            residual = o->residual >= 0;
        }
        if (at >= 0) c->last[at] = true;
    }
    return true;
}

static bool make_logits(device_ctx *c)
{
    size_t rows = (size_t)(c->lim.max_want < SCORE_ROWS ? c->lim.max_want : SCORE_ROWS);
    return (c->logits = take(c, rows, (size_t)c->g->n_vocab_rows, sizeof(float))) != NULL;
}

static bool make_experts(device_ctx *c)
{
    size_t in, out, rows = (size_t)c->lim.max_rows;
    cpu_experts_size(c->g, &in, &out);
    if (in == 0) return true;
    return (c->gathered = take(c, rows, in, sizeof(float))) && (c->served = take(c, rows, out, sizeof(float))) &&
           (c->served_rows = take(c, rows, 2, sizeof *c->served_rows));
}

static llada_status limits_ok(const device_limits *l, llada_err *err)
{
    const struct {
        const char *what;
        int n, least, most;
    } all[] = { { "rows", l->max_rows, 1, INT32_MAX / 4 },
                { "scored rows", l->max_want, 0, INT32_MAX / 4 },
                { "slots", l->slots, 1, INT32_MAX / 4 },
                { "positions", l->max_pos, 1, INT32_MAX / 4 },
                { "threads", l->threads, 1, MAX_THREADS } };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].n < all[i].least || all[i].n > all[i].most)
            return llada_fail(err, LLADA_BAD_ARG, "%d %s were asked for, the CPU device takes %d to %d", all[i].n,
                              all[i].what, all[i].least, all[i].most);
    return LLADA_OK;
}

/* Another context's store is used as it lies, so it must be of the same kind. */
static llada_status shared_ok(const device_weights *w, const device_limits *l, llada_err *err)
{
    const device_ctx *o = l->kv_of;
    const size_t row = (size_t)w->g->n_kv_head * (size_t)w->g->head_dim;

    if (l->kv_at && (!l->kv_f16 || o || l->kv_stride < row))
        return llada_fail(err, LLADA_BAD_ARG, "a K,V store of another device must hold half floats, %zu a row, not %zu",
                          row, l->kv_stride);
    if (!o) return LLADA_OK;
    if (o->w->g != w->g) return llada_fail(err, LLADA_BAD_ARG, "keys and values of another model can't be used");
    if (o->lim.slots != l->slots || o->lim.kv_f16 != l->kv_f16)
        return llada_fail(err, LLADA_BAD_ARG, "keys and values in %d slots of %s can't be used as %d slots of %s",
                          o->lim.slots, o->lim.kv_f16 ? "half floats" : "floats", l->slots,
                          l->kv_f16 ? "half floats" : "floats");
    return LLADA_OK;
}

static llada_status cpu_open(device_ctx **out, device_weights *w, const device_limits *lim, llada_err *err)
{
    device_ctx *c;
    llada_status st = limits_ok(lim, err);

    if (st != LLADA_OK || (st = shared_ok(w, lim, err)) != LLADA_OK) return st;
    if (!(c = mem_new(sizeof *c))) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the record of a CPU context");
    c->w = w;
    c->g = w->g;
    c->lim = *lim;
    c->bytes = sizeof *c;
    kern_fill(&c->k, lim->cpu_mask);
    if ((st = pool_open(&c->pool, lim->threads, err)) != LLADA_OK) goto fail;
    if ((st = graph_plan(c->g, lim->max_rows, lim->max_want, &c->plan, err)) != LLADA_OK) goto fail;
    if (!(c->arena = take(c, c->plan.bytes, 1, 1)) || !make_kv(c) || !make_rope(c) || !make_scratch(c) ||
        !make_qrows(c) || !make_logits(c) || !make_experts(c) || !mark_layers(c) ||
        !(c->stamp = take(c, (size_t)lim->slots, sizeof *c->stamp, 1))) {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for passes of %d rows with %d slots of keys and values",
                        lim->max_rows, lim->slots);
        goto fail;
    }
    if (w->held && (st = keeper_join(w->held, c->bytes, err)) != LLADA_OK) goto fail;
    c->joined = w->held ? c->bytes : 0;
    *out = c;
    return LLADA_OK;
fail:
    cpu_close(&c);
    return st;
}

const float *cpu_rope_table(const device_ctx *c) { return c->rope; }

static int cpu_threads(const device_ctx *c) { return pool_threads(c->pool); }
static size_t cpu_bytes(const device_ctx *c) { return c->bytes; }

const device device_cpu = { "cpu", weights_open, weights_close, cpu_open, cpu_close, cpu_run, cpu_threads, cpu_bytes,
                            weights_within, memory_use };
