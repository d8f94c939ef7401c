/* check.c - is this message one that can be run?  Afterwards every index, shape and offset can be trusted. */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/half.h"

/* ------------------------------------------------------------ buffers and tensors */

static bool buffers_ok(const dsp *d)
{
    for (uint32_t i = 0; i < d->head->n_buffers; i++) {
        const npu_buffer *b = &d->buffers[i];
        if (b->bytes == 0 || b->bytes % NPU_LINE != 0 || b->flags > NPU_BUFFER_DMA || b->zero != 0) return false;
        for (uint32_t j = 0; j < i; j++)
            if (d->buffers[j].id == b->id) return false;
    }
    return true;
}

static uint64_t bytes_of(const npu_tensor *t)
{
    const uint32_t tile = npu_tile_bytes(t->type);
    if (tile) return (uint64_t)((t->rows + TILE - 1) / TILE) * ((t->cols + TILE - 1) / TILE) * tile;
    return (uint64_t)t->rows * t->stride * (t->type == NPU_F16 ? 2 : 4);
}

static bool tensor_ok(const dsp *d, const npu_tensor *t)
{
    if (t->buffer >= d->head->n_buffers || t->type >= NPU_TYPES || t->offset % NPU_LINE != 0) return false;
    if (t->rows < 1 || t->rows > NPU_MAX_SIDE || t->cols < 1 || t->cols > NPU_MAX_SIDE) return false;
    const npu_buffer *b = &d->buffers[t->buffer];
    if (npu_tile_bytes(t->type)) {
        if (t->stride != 0) return false;
    } else {
        if (t->stride < t->cols || t->stride > 2 * NPU_MAX_SIDE || (b->flags & NPU_BUFFER_DMA)) return false;
        if (t->type == NPU_F16 && t->stride % 64 != 0) return false;
    }
    return t->offset <= b->bytes && bytes_of(t) <= b->bytes - t->offset;
}

/* No operator may write where the rows of the pass lie: they are checked only once. */
static bool rows_apart(const dsp *d)
{
    const npu_tensor *r = &d->t[d->head->rows];
    for (uint32_t i = 0; i < d->head->n_tensors; i++) {
        const npu_tensor *t = &d->t[i];
        if (t == r || t->buffer != r->buffer) continue;
        if (t->offset < r->offset + bytes_of(r) && r->offset < t->offset + bytes_of(t)) return false;
    }
    return true;
}

/* ------------------------------------------------------------ operators */

enum { OUT = 1, IN = 2, IN2 = 4, WEIGHT = 8, BIAS = 16, RESIDUAL = 32, KEYS = 64, VALUES = 128 };

/* Tensors each kind must have, and those it may have beside. */
static const uint8_t needs[NPU_OP_KINDS] = {
    [NPU_OP_INPUT] = IN,
    [NPU_OP_OUTPUT] = IN,
    [NPU_OP_SUM_KV] = KEYS | VALUES,
    [NPU_OP_RMSNORM] = OUT | IN | WEIGHT,
    [NPU_OP_MATMUL] = OUT | IN | WEIGHT,
    [NPU_OP_ROPE] = IN | WEIGHT,
    [NPU_OP_KV] = IN | IN2 | KEYS | VALUES,
    [NPU_OP_ATTENTION] = OUT | IN | KEYS | VALUES,
    [NPU_OP_SWIGLU] = OUT | IN | IN2,
    [NPU_OP_ROUTE] = OUT | IN,
    [NPU_OP_EXPERTS] = OUT | IN | IN2 | WEIGHT | KEYS | VALUES,
};

static bool names_ok(const dsp *d, const npu_op *o)
{
    const int32_t all[] = { o->out, o->in, o->in2, o->weight, o->bias, o->residual, o->keys, o->values };
    const bool joins = o->kind == NPU_OP_MATMUL || o->kind == NPU_OP_EXPERTS;
    const uint32_t may = needs[o->kind] | (joins ? BIAS | RESIDUAL : 0);
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i] < -1 || all[i] >= (int32_t)d->head->n_tensors) return false;
        if (all[i] >= 0 ? !(may >> i & 1) : needs[o->kind] >> i & 1) return false;
    }
    return true;
}

static bool is(const dsp *d, int32_t id, uint32_t type, uint32_t rows, uint32_t cols)
{
    const npu_tensor *t = &d->t[id];
    return t->type == type && t->rows == rows && t->cols == cols;
}

/* A row of the pass each, of so many values. */
static bool rows_of(const dsp *d, int32_t id, uint32_t cols) { return is(d, id, NPU_F16, d->head->n_rows, cols); }

static bool kv_ok(const dsp *d, const npu_op *o, uint32_t cols)
{
    return is(d, o->keys, NPU_F16, d->head->slots, cols) && is(d, o->values, NPU_F16, d->head->slots, cols) &&
           d->t[o->keys].stride == d->t[o->values].stride;
}

static bool rmsnorm_ok(const dsp *d, const npu_op *o)
{
    const uint32_t cols = d->t[o->in].cols, width = o->width ? o->width : cols;
    const float eps = float_of_bits(o->eps);
    return rows_of(d, o->in, cols) && rows_of(d, o->out, cols) && width <= cols && cols % width == 0 &&
           is(d, o->weight, NPU_F32, 1, width) && eps > 0 && eps < 1;
}

static bool matmul_ok(const dsp *d, const npu_op *o)
{
    const npu_tensor *w = &d->t[o->weight];
    return npu_tile_bytes(w->type) && rows_of(d, o->in, w->cols) && rows_of(d, o->out, w->rows) &&
           (o->bias < 0 || is(d, o->bias, NPU_F32, 1, w->rows)) &&
           (o->residual < 0 || rows_of(d, o->residual, w->rows));
}

static bool heads_ok(const dsp *d, int32_t id, uint32_t heads, uint32_t width)
{
    return heads >= 1 && heads <= NPU_MAX_SIDE && width >= 1 && width <= NPU_MAX_HEAD && rows_of(d, id, heads * width);
}

static bool rope_ok(const dsp *d, const npu_op *o)
{
    return heads_ok(d, o->in, o->heads, o->width) && o->width % 2 == 0 && o->flags <= NPU_HALVES &&
           is(d, o->weight, NPU_F32, d->head->positions, o->width);
}

static bool attention_ok(const dsp *d, const npu_op *o)
{
    if (o->flags & ~(uint32_t)NPU_CAUSAL || !heads_ok(d, o->in, o->heads, o->width)) return false;
    if (o->kv_heads < 1 || o->kv_heads > o->heads || o->heads % o->kv_heads != 0) return false;
    return rows_of(d, o->out, o->heads * o->width) && kv_ok(d, o, o->kv_heads * o->width);
}

static bool experts_there(const npu_op *o)
{
    return o->heads >= 1 && o->heads <= NPU_MAX_EXPERTS && o->kv_heads >= 1 && o->kv_heads <= o->heads;
}

/* Rows of the pass each, of at least so many values. */
static bool room_for(const dsp *d, int32_t id, uint32_t type, uint32_t cols)
{
    const npu_tensor *t = &d->t[id];
    return t->type == type && t->rows == d->head->n_rows && t->cols >= cols && t->stride >= npu_stride(cols);
}

static bool experts_ok(const dsp *d, const npu_op *o)
{
    const npu_tensor *w = &d->t[o->weight];
    if (!experts_there(o) || !npu_tile_bytes(w->type) || w->rows % (o->heads * TILE) != 0) return false;
    const uint32_t n = w->rows / o->heads, k = w->cols, used = o->kv_heads;
    const bool joins = o->residual >= 0;
    if ((o->bias >= 0) != joins || (joins && !room_for(d, o->bias, NPU_F32, n))) return false;
    return rows_of(d, o->in, joins ? used * k : k) && rows_of(d, o->out, joins ? n : used * n) &&
           (!joins || rows_of(d, o->residual, n)) && rows_of(d, o->in2, 2 * used) && room_for(d, o->keys, NPU_F16, k) &&
           room_for(d, o->values, NPU_F16, n);
}

static bool op_ok(const dsp *d, const npu_op *o)
{
    if (o->kind >= NPU_OP_KINDS || o->zero != 0 || !names_ok(d, o)) return false;
    if (o->kind == NPU_OP_MAP || o->kind == NPU_OP_UNMAP) return o->buffer < d->head->n_buffers;
    if (d->head->n_rows == 0) return false;
    switch (o->kind) {
    case NPU_OP_INPUT: return !npu_tile_bytes(d->t[o->in].type) && o->in != d->head->rows;
    case NPU_OP_OUTPUT: return rows_of(d, o->in, d->t[o->in].cols);
    case NPU_OP_SUM_KV: return kv_ok(d, o, d->t[o->keys].cols);
    case NPU_OP_RMSNORM: return rmsnorm_ok(d, o);
    case NPU_OP_MATMUL: return matmul_ok(d, o);
    case NPU_OP_ROPE: return rope_ok(d, o);
    case NPU_OP_KV:
        return rows_of(d, o->in, d->t[o->in].cols) && rows_of(d, o->in2, d->t[o->in].cols) &&
               kv_ok(d, o, d->t[o->in].cols);
    case NPU_OP_ATTENTION: return attention_ok(d, o);
    case NPU_OP_ROUTE: return experts_there(o) && rows_of(d, o->in, o->heads) && rows_of(d, o->out, 2 * o->kv_heads);
    case NPU_OP_EXPERTS: return experts_ok(d, o);
    default:
        return rows_of(d, o->in, d->t[o->in].cols) && rows_of(d, o->in2, d->t[o->in].cols) &&
               rows_of(d, o->out, d->t[o->in].cols);
    }
}

/* ------------------------------------------------------------ the message */

static bool head_ok(const npu_head *h, uint32_t bytes)
{
    if (bytes < sizeof *h || h->magic != NPU_MAGIC || h->version != NPU_VERSION || h->bytes != bytes) return false;
    if (h->n_buffers > NPU_MAX_BUFFERS || h->n_tensors > NPU_MAX_TENSORS || h->n_ops > NPU_MAX_OPS) return false;
    if (h->flags > (NPU_HOST_WROTE_KV | NPU_FEW_ROWS) || h->zero[0] != 0 || h->zero[1] != 0) return false;
    if (h->n_rows > NPU_MAX_SIDE || h->slots > NPU_MAX_SIDE || h->positions > NPU_MAX_SIDE) return false;
    for (int g = 0; g < NPU_GROUPS; g++)
        if (h->n_cols[g] > h->slots) return false;
    return bytes == sizeof *h + h->n_buffers * sizeof(npu_buffer) + h->n_tensors * sizeof(npu_tensor) +
                        h->n_ops * sizeof(npu_op);
}

bool dsp_check(dsp *d, uint32_t bytes)
{
    const npu_head *h = (const npu_head *)(const void *)d->copy;
    if (!head_ok(h, bytes)) return false;
    d->head = h;
    d->buffers = (const npu_buffer *)(const void *)(h + 1);
    d->t = (const npu_tensor *)(const void *)(d->buffers + h->n_buffers);
    d->ops = (const npu_op *)(const void *)(d->t + h->n_tensors);
    if (!buffers_ok(d)) return false;
    for (uint32_t i = 0; i < h->n_tensors; i++)
        if (!tensor_ok(d, &d->t[i])) return false;
    if (h->n_rows > 0) {
        if (h->rows < 0 || (uint32_t)h->rows >= h->n_tensors) return false;
        if (!is(d, h->rows, NPU_I32, 1, 4 * h->n_rows + 2 * (h->n_cols[0] + h->n_cols[1]))) return false;
        if (!rows_apart(d)) return false;
    }
    for (uint32_t i = 0; i < h->n_ops; i++) {
        d->reply->op = i;
        if (!op_ok(d, &d->ops[i])) return false;
    }
    return true;
}

bool dsp_check_rows(const dsp *d)
{
    const npu_head *h = d->head;
    const int32_t n = (int32_t)h->n_rows, slots = (int32_t)h->slots;
    for (int32_t i = 0; i < n; i++) {
        if (d->pos[i] < 0 || d->pos[i] >= (int32_t)h->positions || d->slot[i] < 0 || d->slot[i] >= slots) return false;
        if (d->group[i] < 0 || d->group[i] >= NPU_GROUPS || d->instead[i] < -1 || d->instead[i] >= n) return false;
    }
    for (int g = 0; g < NPU_GROUPS; g++)
        for (int i = 0; i < d->cols[g].n; i++) {
            if (d->cols[g].slot[i] < 0 || d->cols[g].slot[i] >= slots) return false;
            if (i > 0 && d->cols[g].pos[i] <= d->cols[g].pos[i - 1]) return false;
        }
    return true;
}
