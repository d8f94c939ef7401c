/* step.c - one pass as one message: what the DSP must map or let go on the way, the rows, the operators; then the reply
 * and what came with it are checked. */
#include <string.h>

#include "base/half.h"
#include "device/npu/inside.h"

enum { MAX_KEPT = 3 };

/* A message being put together. */
typedef struct {
    device_ctx *c;
    npu_head *head;
    npu_buffer *buffers;
    npu_region *region[NPU_MAX_BUFFERS]; /* of each of them */
    npu_tensor *t;
    npu_op *ops;
    const npu_region *keep[MAX_KEPT]; /* needed to the end of the message */
    int n_keep;
} writer;

/* ------------------------------------------------------------ buffers */

/* The region's number in the message; -1: no room. */
static int number_of(writer *m, npu_region *r)
{
    uint32_t i = 0;
    while (i < m->head->n_buffers && m->region[i] != r) i++;
    if (i == NPU_MAX_BUFFERS) return -1;
    if (i == m->head->n_buffers) {
        m->region[i] = r;
        m->buffers[i] = (npu_buffer){ .id = r->s.id, .bytes = r->s.bytes, .flags = r->flags };
        m->head->n_buffers++;
    }
    return (int)i;
}

static npu_op map_op(npu_op_kind kind, int buffer)
{
    return (npu_op){ .kind = kind,
                     .out = -1,
                     .in = -1,
                     .in2 = -1,
                     .weight = -1,
                     .bias = -1,
                     .residual = -1,
                     .keys = -1,
                     .values = -1,
                     .buffer = (uint32_t)buffer };
}

/* Maps a region from here on, after others had to go. */
static llada_status need(writer *m, npu_region *r, llada_err *err)
{
    device_weights *w = m->c->w;
    if (r->mapped) return LLADA_OK;
    for (npu_region *v; (v = npu_victim(w, r, m->keep, m->n_keep)); v->mapped = false) {
        const int n = number_of(m, v);
        if (n < 0) return llada_fail(err, LLADA_UNSUPPORTED, "a message holds %d buffers", NPU_MAX_BUFFERS);
        m->ops[m->head->n_ops++] = map_op(NPU_OP_UNMAP, n);
    }
    if (npu_mapped_bytes(w) + r->s.bytes > w->t->budget)
        return llada_fail(err, LLADA_NO_MEMORY, "the NPU's %llu bytes of addresses do not hold %u more beside %llu",
                          (unsigned long long)w->t->budget, (unsigned)r->s.bytes,
                          (unsigned long long)npu_mapped_bytes(w));
    const int n = number_of(m, r);
    if (n < 0) return llada_fail(err, LLADA_UNSUPPORTED, "a message holds %d buffers", NPU_MAX_BUFFERS);
    m->ops[m->head->n_ops++] = map_op(NPU_OP_MAP, n);
    r->mapped = true;
    return LLADA_OK;
}

/* ------------------------------------------------------------ the message */

/* Parts are written where they have room, then moved together. */
static void begin(writer *m, device_ctx *c)
{
    *m = (writer){ .c = c, .head = (npu_head *)(void *)c->message };
    *m->head = (npu_head){ .magic = NPU_MAGIC, .version = NPU_VERSION, .rows = -1 };
    m->buffers = (npu_buffer *)(void *)(m->head + 1);
    m->t = (npu_tensor *)(void *)(m->buffers + NPU_MAX_BUFFERS);
    m->ops = (npu_op *)(void *)(m->t + c->n_t);
}

static void finish(writer *m)
{
    npu_head *h = m->head;
    uint8_t *to = (uint8_t *)(m->buffers + h->n_buffers);
    memmove(to, m->t, h->n_tensors * sizeof *m->t);
    to += h->n_tensors * sizeof *m->t;
    memmove(to, m->ops, h->n_ops * sizeof *m->ops);
    to += h->n_ops * sizeof *m->ops;
    h->bytes = (uint32_t)(to - m->c->message);
}

/* pos, slot, group, instead; then each group's slots and positions.  The head says how many of each. */
static void put_rows(writer *m, const pass *p)
{
    npu_tensor *t = &m->t[m->c->rows_tensor];
    int32_t *at = (int32_t *)(void *)(m->c->work.s.at + t->offset);
    const size_t n = (size_t)p->n;
    memcpy(at, p->pos, n * sizeof *at);
    memcpy(at + n, p->slot, n * sizeof *at);
    for (size_t i = 0; i < n; i++) {
        at[2 * n + i] = p->group[i];
        at[3 * n + i] = p->instead ? p->instead[i] : -1;
    }
    at += 4 * n;
    for (int g = 0; g < NPU_GROUPS; g++) {
        const size_t cols = (size_t)p->cols[g].n;
        if (cols) memcpy(at, p->cols[g].slot, cols * sizeof *at);
        if (cols) memcpy(at + cols, p->cols[g].pos, cols * sizeof *at);
        at += 2 * cols;
        m->head->n_cols[g] = (uint32_t)cols;
    }
    t->cols = t->stride = (uint32_t)(4 * n) + 2 * (m->head->n_cols[0] + m->head->n_cols[1]);
    m->head->rows = m->c->rows_tensor;
    m->head->n_rows = (uint32_t)n;
    m->head->slots = (uint32_t)m->c->lim.slots;
    m->head->positions = (uint32_t)m->c->lim.max_pos;
}

static llada_status put_tensors(writer *m, const pass *p, llada_err *err)
{
    const device_ctx *c = m->c;
    memcpy(m->t, c->t, (size_t)c->n_t * sizeof *m->t);
    m->head->n_tensors = (uint32_t)c->n_t;
    for (int i = 0; i < c->n_t; i++) {
        const int b = number_of(m, c->region[i]);
        if (b < 0) return llada_fail(err, LLADA_UNSUPPORTED, "a message holds %d buffers", NPU_MAX_BUFFERS);
        m->t[i].buffer = (uint32_t)b;
        if (c->is_rows[i]) m->t[i].rows = (uint32_t)p->n;
    }
    return LLADA_OK;
}

/* Another layer's keys and values are summed up each time. */
static uint32_t summed_layer(const device_ctx *c) { return (c->w->seq + 1) % (uint32_t)c->w->g->n_layer; }

static llada_status put_ops(writer *m, llada_err *err)
{
    device_ctx *c = m->c;
    int32_t keys = 0;
    uint32_t layer = 0;
    for (int i = 0; i < c->n_ops; i++) {
        npu_op o = c->ops[i].op;
        llada_status st = c->ops[i].group < 0 ? LLADA_OK : need(m, &c->w->groups[c->ops[i].group], err);
        if (st) return st;
        if (o.kind == NPU_OP_KV && layer++ == summed_layer(c)) keys = o.keys;
        if (o.kind == NPU_OP_SUM_KV) {
            o.keys = keys;
            o.values = keys + 1;
        }
        m->ops[m->head->n_ops++] = o;
    }
    return LLADA_OK;
}

static llada_status put_pass(writer *m, device_ctx *c, const pass *p, llada_err *err)
{
    llada_status st;
    begin(m, c);
    if (c->w->t->few_rows) m->head->flags |= NPU_FEW_ROWS;
    if (atomic_exchange(&c->host_wrote_kv, false)) m->head->flags |= NPU_HOST_WROTE_KV;
    npu_region *const own[] = { &c->w->vectors, &c->work, &c->kv };
    for (int i = 0; i < 3; i++) m->keep[m->n_keep++] = own[i]; /* all, before any of them makes others go */
    for (int i = 0; i < 3; i++)
        if ((st = need(m, own[i], err))) return st;
    if ((st = put_tensors(m, p, err))) return st;
    put_rows(m, p);
    if ((st = put_ops(m, err))) return st;
    finish(m);
    return LLADA_OK;
}

/* ------------------------------------------------------------ the reply */

static const char *const status_words[] = { "no fault",
                                            "the message was refused",
                                            "no address space was left",
                                            "a buffer could not be mapped",
                                            "the tightly coupled memory was too small",
                                            "a buffer was not mapped",
                                            "a rule of the machine was broken" };

static llada_status reply_ok(const npu_head *h, const npu_reply *r, llada_err *err)
{
    if (r->magic != NPU_MAGIC || r->seq != h->seq)
        return llada_fail(err, LLADA_IO, "the NPU answered message %u with a reply to %u", (unsigned)h->seq,
                          (unsigned)r->seq);
    if (r->status == NPU_OK) return LLADA_OK;
    const bool known = r->status < sizeof status_words / sizeof *status_words;
    return llada_fail(err, LLADA_IO, "the NPU failed at operator %u of message %u: %s (%u, detail %u)", (unsigned)r->op,
                      (unsigned)h->seq, known ? status_words[r->status] : "unknown status", (unsigned)r->status,
                      (unsigned)r->detail);
}

llada_status npu_call(device_weights *w, uint8_t *message, npu_reply *reply, llada_err *err)
{
    npu_head *h = (npu_head *)(void *)message;
    h->seq = ++w->seq;
    *reply = (npu_reply){ .magic = 0 };
    llada_status st = w->t->calls->call(w->t, message, h->bytes, reply, err);
    if (st) return st;
    w->counts.messages++;
    w->counts.maps += reply->maps;
    w->counts.unmaps += reply->unmaps;
    return reply_ok(h, reply, err);
}

/* ------------------------------------------------------------ a pass */

static uint16_t *row_at(const device_ctx *c, uint32_t offset, int r)
{
    return (uint16_t *)(void *)(c->work.s.at + offset) + (size_t)r * npu_stride(c->width);
}

static void hand_over(const device_ctx *c, const pass *p)
{
    const float *x = cpu_activation(c->cpu, c->hidden_in);
    for (int r = 0; r < p->n; r++) {
        uint16_t *row = row_at(c, c->in_offset, r);
        memset(row, 0, npu_stride(c->width) * sizeof *row);
        for (uint32_t i = 0; i < c->width; i++) row[i] = half_from_float(x[(size_t)r * c->width + i]);
    }
}

/* False: NaN or infinity among them. */
static bool take_back(const device_ctx *c, const pass *p)
{
    float *x = cpu_activation(c->cpu, c->hidden_out);
    bool finite = true;
    for (int r = 0; r < p->n; r++) {
        const uint16_t *row = row_at(c, c->out_offset, r);
        for (uint32_t i = 0; i < c->width; i++) {
            x[(size_t)r * c->width + i] = half_to_float(row[i]);
            finite &= (row[i] & 0x7c00) != 0x7c00;
        }
    }
    return finite;
}

/* What arrived is what the DSP computed: nothing is old, missing or elsewhere. */
static llada_status sums_ok(const device_ctx *c, const pass *p, uint32_t layer, const npu_reply *r, llada_err *err)
{
    npu_sum out = { 0, 0 }, kv = { 0, 0 };
    const size_t store = (size_t)c->lim.slots * c->kv_stride;
    const uint16_t *keys = (const uint16_t *)(const void *)c->kv.s.at + store * 2 * layer;
    const uint32_t n = (uint32_t)(c->w->g->n_kv_head * c->w->g->head_dim);
    for (int i = 0; i < p->n; i++) {
        const size_t slot = (size_t)p->slot[i] * c->kv_stride;
        npu_sum_add(&out, row_at(c, c->out_offset, i), c->width);
        npu_sum_add(&kv, keys + slot, n);
        npu_sum_add(&kv, keys + store + slot, n);
    }
    if (npu_sum_end(&out) == r->sum[0] && npu_sum_end(&kv) == r->sum[1]) return LLADA_OK;
    return llada_fail(err, LLADA_IO, "the %s that arrived from the NPU with message %u are not those it computed",
                      npu_sum_end(&out) == r->sum[0] ? "keys and values" : "results", (unsigned)r->seq);
}

llada_status npu_step(device_ctx *c, const pass *p, llada_err *err)
{
    writer m;
    npu_reply reply;
    const uint32_t layer = summed_layer(c);
    llada_status st = put_pass(&m, c, p, err);
    if (st) return st;
    hand_over(c, p);
    if ((st = npu_call(c->w, c->message, &reply, err))) return st;
    if ((st = sums_ok(c, p, layer, &reply, err))) return st;
    if (take_back(c, p)) return LLADA_OK;
    return llada_fail(err, LLADA_NUMERIC, "the NPU's half floats overflowed in message %u", (unsigned)reply.seq);
}

llada_status npu_forget(device_ctx *c, llada_err *err)
{
    writer m;
    npu_reply reply;
    npu_region *const own[] = { &c->work, &c->kv };
    if (!c->work.mapped && !c->kv.mapped) return LLADA_OK;
    begin(&m, c);
    for (int i = 0; i < 2; i++)
        if (own[i]->mapped) {
            m.ops[m.head->n_ops++] = map_op(NPU_OP_UNMAP, number_of(&m, own[i]));
            own[i]->mapped = false;
        }
    finish(&m);
    return npu_call(c->w, c->message, &reply, err);
}
