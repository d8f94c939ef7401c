/* run.c - a message from end to end: copied, checked, its operators run in order, the reply filled. */
#include <string.h>

#include "device/npu/dsp/dsp.h"

bool dsp_open(dsp *d, port *m, uint32_t contexts)
{
    memset(d, 0, sizeof *d);
    d->m = m;
    return team_open(&d->team, m, (contexts ? contexts : DSP_CONTEXTS) - 1);
}

void dsp_close(dsp *d)
{
    team_close(&d->team);
    for (uint32_t i = 0; i < d->n_map; i++) port_unmap(d->m, &d->map[i]);
    d->n_map = 0;
}

const port_buffer *dsp_buffer(const dsp *d, int32_t tensor)
{
    const int32_t at = d->where[d->t[tensor].buffer];
    return at < 0 ? NULL : &d->map[at];
}

uint8_t *dsp_at(const dsp *d, int32_t tensor)
{
    const port_buffer *b = dsp_buffer(d, tensor);
    return b && b->at ? b->at + d->t[tensor].offset : NULL;
}

/* ------------------------------------------------------------ buffers */

/* Where the message's buffers are among the mapped ones. */
static void find_buffers(dsp *d)
{
    for (uint32_t i = 0; i < d->head->n_buffers; i++) {
        const npu_buffer *b = &d->buffers[i];
        d->where[i] = -1;
        for (uint32_t j = 0; j < d->n_map; j++)
            if (d->map[j].id == b->id && d->map[j].bytes == b->bytes && d->map[j].flags == b->flags)
                d->where[i] = (int32_t)j;
    }
}

static uint32_t map_one(dsp *d, const npu_op *o)
{
    const npu_buffer *b = &d->buffers[o->buffer];
    if (d->where[o->buffer] >= 0) return NPU_OK;
    if (d->n_map == NPU_MAX_BUFFERS) return NPU_NO_ADDRESS;
    uint32_t st = port_map(d->m, b->id, b->bytes, b->flags, &d->map[d->n_map]);
    if (st != NPU_OK) return st;
    /* a fresh mapping may find lines of an older one */
    if (!(b->flags & NPU_BUFFER_DMA)) port_invalidate(d->m, &d->map[d->n_map], 0, b->bytes);
    d->n_map++;
    d->reply->maps++;
    find_buffers(d);
    return NPU_OK;
}

static uint32_t unmap_one(dsp *d, const npu_op *o)
{
    const int32_t at = d->where[o->buffer];
    if (at < 0) return NPU_OK;
    port_unmap(d->m, &d->map[at]);
    d->map[at] = d->map[--d->n_map];
    d->reply->unmaps++;
    find_buffers(d);
    return NPU_OK;
}

/* ------------------------------------------------------------ what passes between host and DSP */

static uint32_t lines(uint32_t bytes) { return (bytes + NPU_LINE - 1) / NPU_LINE * NPU_LINE; }

static uint32_t tensor_bytes(const npu_tensor *t) { return t->rows * t->stride * (t->type == NPU_F16 ? 2 : 4); }

static uint32_t input(dsp *d, int32_t tensor)
{
    const port_buffer *b = dsp_buffer(d, tensor);
    if (!b) return NPU_NOT_MAPPED;
    port_invalidate(d->m, b, d->t[tensor].offset, lines(tensor_bytes(&d->t[tensor])));
    return NPU_OK;
}

static uint32_t output(dsp *d, const npu_op *o)
{
    const npu_tensor *t = &d->t[o->in];
    const half *x = (const half *)(const void *)dsp_at(d, o->in);
    npu_sum sum = { 0, 0 };
    if (!x) return NPU_NOT_MAPPED;
    for (uint32_t r = 0; r < t->rows; r++) npu_sum_add(&sum, x + r * t->stride, t->cols);
    d->reply->sum[0] = npu_sum_end(&sum);
    port_flush(d->m, dsp_buffer(d, o->in), t->offset, lines(tensor_bytes(t)));
    return NPU_OK;
}

static uint32_t sum_kv(dsp *d, const npu_op *o)
{
    const half *k = (const half *)(const void *)dsp_at(d, o->keys),
               *v = (const half *)(const void *)dsp_at(d, o->values);
    const npu_tensor *t = &d->t[o->keys];
    npu_sum sum = { 0, 0 };
    if (!k || !v) return NPU_NOT_MAPPED;
    for (uint32_t r = 0; r < d->head->n_rows; r++) {
        npu_sum_add(&sum, k + (uint32_t)d->slot[r] * t->stride, t->cols);
        npu_sum_add(&sum, v + (uint32_t)d->slot[r] * t->stride, t->cols);
    }
    d->reply->sum[1] = npu_sum_end(&sum);
    return NPU_OK;
}

/* The pass's rows and columns, checked; needed by the operators that ask for positions and slots. */
static uint32_t take_rows(dsp *d)
{
    const npu_head *h = d->head;
    if (d->pos) return NPU_OK;
    uint32_t st = input(d, h->rows);
    if (st != NPU_OK) return st;
    const int32_t *at = (const int32_t *)(const void *)dsp_at(d, h->rows);
    const uint32_t n = h->n_rows;
    d->pos = at;
    d->slot = at + n;
    d->group = at + 2 * n;
    d->instead = at + 3 * n;
    at += 4 * n;
    for (int g = 0; g < NPU_GROUPS; g++) {
        d->cols[g] = (pass_cols){ .slot = at, .pos = at + h->n_cols[g], .n = (int)h->n_cols[g] };
        at += 2 * h->n_cols[g];
    }
    return dsp_check_rows(d) ? NPU_OK : NPU_BAD_MESSAGE;
}

/* ------------------------------------------------------------ operators */

static uint32_t run_op(dsp *d, const npu_op *o)
{
    const bool asks_rows =
        o->kind == NPU_OP_SUM_KV || o->kind == NPU_OP_ROPE || o->kind == NPU_OP_KV || o->kind == NPU_OP_ATTENTION;
    uint32_t st = asks_rows ? take_rows(d) : NPU_OK;
    if (st != NPU_OK) return st;
    switch (o->kind) {
    case NPU_OP_MAP: return map_one(d, o);
    case NPU_OP_UNMAP: return unmap_one(d, o);
    case NPU_OP_INPUT: return input(d, o->in);
    case NPU_OP_OUTPUT: return output(d, o);
    case NPU_OP_SUM_KV: return sum_kv(d, o);
    case NPU_OP_RMSNORM: return dsp_rmsnorm(d, o);
    case NPU_OP_MATMUL: return dsp_matmul(d, o);
    case NPU_OP_ROPE: return dsp_rope(d, o);
    case NPU_OP_KV: return dsp_kv(d, o);
    case NPU_OP_ATTENTION: return dsp_attention(d, o);
    case NPU_OP_ROUTE: return dsp_route(d, o);
    case NPU_OP_EXPERTS: return dsp_experts(d, o);
    default: return dsp_swiglu(d, o);
    }
}

/* A buffer that the rows lie in must not go while they are used. */
static void forget_rows(dsp *d) { d->pos = NULL; }

void dsp_run(dsp *d, const void *message, uint32_t bytes, npu_reply *reply)
{
    memset(reply, 0, sizeof *reply);
    d->reply = reply;
    forget_rows(d);
    reply->magic = NPU_MAGIC;
    reply->status = NPU_BAD_MESSAGE;
    port_begin(d->m);
    if (bytes <= sizeof d->copy) {
        memcpy(d->copy, message, bytes);
        if (bytes >= sizeof(npu_head)) reply->seq = ((const npu_head *)(const void *)d->copy)->seq;
        if (dsp_check(d, bytes)) reply->status = NPU_OK;
    }
    if (reply->status == NPU_OK) find_buffers(d);
    for (uint32_t i = 0; reply->status == NPU_OK && i < d->head->n_ops; i++) {
        const npu_op *o = &d->ops[i];
        reply->op = i;
        reply->status = run_op(d, o);
        if (o->kind == NPU_OP_UNMAP) forget_rows(d);
        if (reply->status == NPU_OK && port_fault(d->m) != NPU_RULE_NONE) reply->status = NPU_BROKEN_RULE;
    }
    reply->detail = port_fault(d->m);
    reply->mapped = port_mapped(d->m);
}
