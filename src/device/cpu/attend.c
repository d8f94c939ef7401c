/* attend.c - the K,V store and attention over it.  Work is dealt out by key head, then row: the keys of one head
 * that all rows read stay in cache. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

static size_t value_bytes(const device_ctx *c) { return c->lim.kv_f16 ? sizeof(uint16_t) : sizeof(float); }

/* Slot 0 of a layer's K (which = 0) or V (1). */
static uint8_t *layer_store(const device_ctx *c, int layer, int which)
{
    size_t slots = ((size_t)layer * 2 + (size_t)which) * (size_t)c->lim.slots;
    return (uint8_t *)c->kv + slots * c->kv_stride * value_bytes(c);
}

static void store_row(const device_ctx *c, uint8_t *base, int slot, const float *row, size_t n)
{
    uint8_t *to = base + (size_t)slot * c->kv_stride * value_bytes(c);

    if (c->lim.kv_f16)
        c->k.half.fn((uint16_t *)(void *)to, row, n);
    else
        memcpy(to, row, n * sizeof *row);
}

void cpu_store_kv(const device_ctx *c, const pass *p, int layer, const float *k, const float *v)
{
    const size_t n = (size_t)c->g->n_kv_head * (size_t)c->g->head_dim;
    uint8_t *ks = layer_store(c, layer, 0), *vs = layer_store(c, layer, 1);

    for (int r = 0; r < p->n; r++) {
        store_row(c, ks, p->slot[r], k + (size_t)r * n, n);
        store_row(c, vs, p->slot[r], v + (size_t)r * n, n);
    }
}

/* The slots row r sees. */
static int row_columns(const pass *p, int r, bool causal, int32_t *out)
{
    const int32_t other = p->instead ? p->instead[r] : -1;
    pass_row row = { .pos = p->pos[r], .slot = p->slot[r], .causal = causal, .instead = other >= 0 };
    if (other >= 0) {
        row.instead_pos = p->pos[other];
        row.instead_slot = p->slot[other];
    }
    return columns_of(&p->cols[p->group[r]], &row, out);
}

typedef struct {
    const device_ctx *c;
    const pass *p;
    const op *o;
    float *out;
    const float *q;
} job;

static void attend(const job *b, const cpu_scratch *s, int kv_head, int r)
{
    const device_ctx *c = b->c;
    const op *o = b->o;
    const int kind = c->lim.kv_f16 ? KV_F16 : KV_F32, per = o->heads / o->kv_heads;
    const size_t head = (size_t)kv_head * (size_t)o->width * value_bytes(c);
    const uint8_t *k = layer_store(c, o->layer, 0) + head, *v = layer_store(c, o->layer, 1) + head;
    const float scale = (float)(1.0 / sqrt(o->width));
    const int n = row_columns(b->p, r, o->causal, s->cols);

    for (int h = kv_head * per; h < (kv_head + 1) * per; h++) {
        size_t at = ((size_t)r * (size_t)o->heads + (size_t)h) * (size_t)o->width;
        c->k.dots[kind].fn(s->att, b->q + at, k, c->kv_stride, s->cols, n, o->width, scale);
        float sum = c->k.softmax.fn(s->att, n);
        c->k.mix[kind].fn(b->out + at, s->att, v, c->kv_stride, s->cols, n, o->width, 1.0f / sum);
    }
}

static void part(void *user, int t, int n)
{
    const job *b = user;
    const int64_t rows = b->p->n, all = rows * b->o->kv_heads;

    for (int64_t i = all * t / n; i < all * (t + 1) / n; i++)
        attend(b, &b->c->scratch[t], (int)(i / rows), (int)(i % rows));
}

void cpu_attention(const device_ctx *c, const pass *p, const op *o, float *out, const float *q)
{
    job b = { .c = c, .p = p, .o = o, .out = out, .q = q };
    int most = 0;

    for (int g = 0; g < PASS_GROUPS; g++) most = p->cols[g].n > most ? p->cols[g].n : most;
    cpu_share(c, 2.0 * p->n * (most + 1) * o->heads * o->width, part, &b);
}
