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

/* The first column at or behind a position. */
static int find_column(const pass_cols *g, int32_t pos)
{
    int lo = 0, hi = g->n;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (g->pos[mid] < pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The slots row r sees, by position: its group's list, its own slot standing in for a column at its own position or put
 * in at its place.  Returns how many. */
static int row_columns(const pass *p, int r, bool causal, int32_t *out)
{
    const pass_cols *g = &p->cols[p->group[r]];
    int lo = find_column(g, p->pos[r]), rest = lo < g->n && g->pos[lo] == p->pos[r] ? lo + 1 : lo;
    int other = p->instead ? p->instead[r] : -1, at = other < 0 ? g->n : find_column(g, p->pos[other]);

    if (lo > 0) memcpy(out, g->slot, (size_t)lo * sizeof *out);
    out[lo] = p->slot[r];
    if (!causal && g->n > rest) memcpy(out + lo + 1, g->slot + rest, (size_t)(g->n - rest) * sizeof *out);
    int n = causal ? lo + 1 : lo + 1 + g->n - rest;
    if (at < g->n && g->pos[at] == p->pos[other] && p->pos[other] != p->pos[r]) {
        int to = at < lo ? at : at - rest + lo + 1;
        if (to < n) out[to] = p->slot[other];
    }
    return n;
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
