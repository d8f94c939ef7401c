/* pack.c - a model's weights on their way to the DSP: which operators it runs, and their matrices as tiles in shared
 * buffers, a few layers to a buffer.  Q4_0, Q8_0 and F16 keep their values; other types become Q8_0 where they are
 * blocks of few bits, else F16. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "device/npu/dsp/plan.h"
#include "device/npu/inside.h"
#include "format/t32.h"

static uint64_t lines(uint64_t bytes) { return (bytes + NPU_LINE - 1) / NPU_LINE * NPU_LINE; }

/* ------------------------------------------------------------ regions */

llada_status npu_region_take(device_weights *w, npu_region *r, uint64_t bytes, uint32_t flags, int turn, llada_err *err)
{
    const uint64_t most = UINT64_C(1) << 30; /* one mapping on the device */
    if (lines(bytes) > most)
        return llada_fail(err, LLADA_UNSUPPORTED, "a buffer of %llu bytes is larger than the NPU maps (%llu)",
                          (unsigned long long)bytes, (unsigned long long)most);
    llada_status st = w->t->calls->take(w->t, (uint32_t)lines(bytes ? bytes : 1), &r->s, err);
    if (st) return st;
    r->flags = flags;
    r->turn = turn;
    r->mapped = false;
    r->next = w->all;
    w->all = r;
    return LLADA_OK;
}

void npu_region_give(device_weights *w, npu_region *r)
{
    if (!r->s.at) return;
    for (npu_region **at = &w->all; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    w->t->calls->give(w->t, &r->s);
}

/* ------------------------------------------------------------ which operators */

static bool runs_there(op_kind k)
{
    return k == OP_RMSNORM || k == OP_MATMUL || k == OP_ROPE || k == OP_KV || k == OP_ATTENTION || k == OP_SWIGLU ||
           k == OP_ROUTE || k == OP_EXPERTS;
}

static bool multiplies(const op *o) { return o->kind == OP_MATMUL || o->kind == OP_EXPERTS; }

/* Mixtures are run when an expert's matrix begins with a tile. */
static llada_status mixture_ok(const graph *g, const op *o, llada_err *err)
{
    const tensor *t = &g->t[o->weight];
    if (o->experts <= NPU_MAX_EXPERTS && t->n_rows / o->experts % T32_ROWS == 0) return LLADA_OK;
    return llada_fail(err, LLADA_UNSUPPORTED,
                      "%d experts with %lld outputs each; the NPU takes up to %d, and multiples of %d outputs",
                      o->experts, (long long)(t->n_rows / o->experts), NPU_MAX_EXPERTS, T32_ROWS);
}

/* From behind the embedding to the choice of the rows to be scored. */
static llada_status choose_ops(device_weights *w, llada_err *err)
{
    const graph *g = w->g;
    while (w->first < g->n_ops && g->ops[w->first].kind == OP_EMBED) w->first++;
    w->end = w->first;
    while (w->end < g->n_ops && runs_there(g->ops[w->end].kind) && g->ops[w->end].layer >= 0) w->end++;
    if (w->first != 1 || w->end == w->first || w->end >= g->n_ops || g->ops[w->end].kind != OP_GATHER)
        return llada_fail(err, LLADA_UNSUPPORTED, "the NPU runs no network with operators in this one's order");
    for (int i = w->first; i < w->end; i++) {
        llada_status st = g->ops[i].kind == OP_EXPERTS ? mixture_ok(g, &g->ops[i], err) : LLADA_OK;
        if (st) return st;
    }
    if (g->head_dim > NPU_MAX_HEAD)
        return llada_fail(err, LLADA_UNSUPPORTED, "heads of %d values; the NPU takes %d", g->head_dim, NPU_MAX_HEAD);
    return LLADA_OK;
}

/* ------------------------------------------------------------ matrices */

static uint32_t packed_type(uint32_t type)
{
    if (type == QT_Q4_0 || type == QT_Q8_0 || type == QT_F16) return type;
    return type == QT_F32 || type == QT_BF16 ? QT_F16 : QT_Q8_0;
}

static uint32_t wire_type(uint32_t type)
{
    return type == QT_Q4_0 ? NPU_T32_Q4_0 : type == QT_Q8_0 ? NPU_T32_Q8_0 : NPU_T32_F16;
}

static llada_status matrix_shape(const device_weights *w, const tensor *t, t32_shape *s, llada_err *err)
{
    uint32_t type = packed_type(t->type);
    if (quant_get(type)->block > 1 && t->cols % quant_get(type)->block != 0) type = QT_F16;
    if (t->n_rows > NPU_MAX_SIDE || t->cols > NPU_MAX_SIDE ||
        !t32_shape_of(s, type, (uint64_t)t->n_rows, (uint64_t)t->cols))
        return llada_fail(err, LLADA_UNSUPPORTED, "tensor %.64s of %lld x %lld does not go into tiles", t->name,
                          (long long)t->n_rows, (long long)t->cols);
    const plan_shape product = { 1, (uint32_t)s->stripes, (uint32_t)s->tiles, wire_type(type) };
    if (plan_bytes(&product, 1, 1) > w->t->vtcm)
        return llada_fail(err, LLADA_UNSUPPORTED, "tensor %.64s with rows of %lld does not fit %u bytes of VTCM",
                          t->name, (long long)t->cols, (unsigned)w->t->vtcm);
    return LLADA_OK;
}

/* Stripe by stripe through rows of the target's type. */
static bool pack_matrix(const tensor *t, const t32_shape *s, uint8_t *dst)
{
    t32_shape from = { 0 };
    if (t->layout == LAYOUT_T32 && !t32_shape_of(&from, t->type, (uint64_t)t->n_rows, (uint64_t)t->cols)) return false;
    if (t->layout == LAYOUT_T32 && t->type == s->type) {
        memcpy(dst, t->data, s->bytes);
        return true;
    }
    if (t->type == s->type) {
        t32_pack(s, dst, t->data, 0, s->stripes);
        return true;
    }
    const quant_info *old = quant_get(t->type), *new = quant_get(s->type);
    const size_t row_bytes = s->k / (size_t) new->block *(size_t) new->bytes;
    float *wide = mem_array(s->k, sizeof *wide);
    uint8_t *rows = mem_array(T32_ROWS, row_bytes);
    t32_shape one = *s;
    for (size_t stripe = 0; wide && rows && stripe < s->stripes; stripe++) {
        const size_t left = s->n - stripe * T32_ROWS, n = left < T32_ROWS ? left : T32_ROWS;
        for (size_t r = 0; r < n; r++) {
            const size_t row = stripe * T32_ROWS + r;
            if (t->layout == LAYOUT_T32)
                t32_decode_row(&from, wide, t->data, row);
            else
                old->decode(wide, (const uint8_t *)t->data + row * t->row_bytes, s->k);
            new->encode(rows + r * row_bytes, wide, s->k);
        }
        one.n = n;
        t32_pack(&one, dst + stripe * s->stripe_bytes, rows, 0, 1);
    }
    bool done = wide && rows;
    mem_free(wide);
    mem_free(rows);
    return done;
}

/* ------------------------------------------------------------ places */

static void put_vector(const device_weights *w, const tensor *t, uint32_t offset)
{
    if (t->type == QT_F32)
        memcpy(w->vectors.s.at + offset, t->data, (size_t)t->cols * sizeof(float));
    else
        quant_get(t->type)->decode((float *)(void *)(w->vectors.s.at + offset), t->data, (size_t)t->cols);
}

/* Norms and biases: first their places, then (at: the buffer is there) their values. */
static uint64_t lay_vectors(device_weights *w, bool values)
{
    uint64_t used = 0;
    for (int i = w->first; i < w->end; i++) {
        const op *o = &w->g->ops[i];
        const tensor_id id = o->kind == OP_RMSNORM ? o->weight : o->kind == OP_MATMUL ? o->bias : -1;
        if (id < 0) continue;
        w->place[id] = (npu_place){ .region = &w->vectors, .offset = (uint32_t)used, .type = NPU_F32 };
        if (values) put_vector(w, &w->g->t[id], (uint32_t)used);
        used = lines(used + (uint64_t)w->g->t[id].cols * sizeof(float));
    }
    return used;
}

/* Matrices of layers [lo, hi): their places in a region; returns the bytes. */
static llada_status lay_group(const device_weights *w, int lo, int hi, npu_region *r, uint64_t *bytes, llada_err *err)
{
    uint64_t used = 0;
    for (int i = w->first; i < w->end; i++) {
        const op *o = &w->g->ops[i];
        t32_shape s;
        if (!multiplies(o) || o->layer < lo || o->layer >= hi) continue;
        llada_status st = matrix_shape(w, &w->g->t[o->weight], &s, err);
        if (st) return st;
        w->place[o->weight] = (npu_place){ .region = r, .offset = (uint32_t)used, .type = wire_type(s.type) };
        used = lines(used + s.bytes);
        if (used > UINT32_MAX)
            return llada_fail(err, LLADA_UNSUPPORTED, "the matrices of layer %d are larger than the NPU maps",
                              o->layer);
    }
    *bytes = used;
    return LLADA_OK;
}

/* How many layers share a buffer: few buffers where there is room, small ones where they must be swapped. */
static llada_status choose_groups(device_weights *w, llada_err *err)
{
    enum { FEW = 12 };
    uint64_t layer = 0, most = 0;
    for (int l = 0; l < w->g->n_layer; l++) {
        llada_status st = lay_group(w, l, l + 1, NULL, &layer, err);
        if (st) return st;
        most = layer > most ? layer : most;
    }
    const uint64_t share = w->t->budget / 8 < (UINT64_C(1) << 30) ? w->t->budget / 8 : UINT64_C(1) << 30;
    int per = (w->g->n_layer + FEW - 1) / FEW;
    while (per > 1 && most * (uint64_t)per > share) per--;
    while ((w->g->n_layer + per - 1) / per > NPU_MAX_GROUPS) per++;
    w->layers_per_group = per;
    w->n_groups = (w->g->n_layer + per - 1) / per;
    return LLADA_OK;
}

static llada_status fill_group(const device_weights *w, int lo, int hi, llada_err *err)
{
    for (int i = w->first; i < w->end; i++) {
        const op *o = &w->g->ops[i];
        t32_shape s;
        if (!multiplies(o) || o->layer < lo || o->layer >= hi) continue;
        const npu_place *p = &w->place[o->weight];
        llada_status st = matrix_shape(w, &w->g->t[o->weight], &s, err);
        if (st) return st;
        if (!pack_matrix(&w->g->t[o->weight], &s, p->region->s.at + p->offset))
            return llada_fail(err, LLADA_NO_MEMORY, "no memory to pack tensor %.64s", w->g->t[o->weight].name);
    }
    return LLADA_OK;
}

llada_status npu_pack(device_weights *w, llada_err *err)
{
    llada_status st;
    uint64_t bytes;
    if ((st = choose_ops(w, err))) return st;
    w->place = mem_array((size_t)w->g->n_t, sizeof *w->place);
    if (!w->place) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the places of %d tensors", w->g->n_t);
    if ((st = choose_groups(w, err))) return st;
    if ((st = npu_region_take(w, &w->vectors, lay_vectors(w, false), 0, -1, err))) return st;
    lay_vectors(w, true);
    for (int i = 0; i < w->n_groups; i++) {
        const int lo = i * w->layers_per_group, hi = lo + w->layers_per_group;
        if ((st = lay_group(w, lo, hi, &w->groups[i], &bytes, err))) return st;
        if ((st = npu_region_take(w, &w->groups[i], bytes, NPU_BUFFER_DMA, i, err))) return st;
        if ((st = fill_group(w, lo, hi, err))) return st;
    }
    return LLADA_OK;
}

llada_status npu_share(device_weights *w, llada_err *err)
{
    const graph *g = w->g;
    tensor *t = mem_array((size_t)g->n_t, sizeof *t);
    if (!t) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a graph of %d tensors", g->n_t);
    w->shared = *g;
    w->shared.t = t;
    for (int i = 0; i < g->n_t; i++) {
        const npu_place *p = &w->place[i];
        t[i] = g->t[i];
        if (!p->region || p->type == NPU_F32 || p->type != wire_type(t[i].type)) continue;
        if (packed_type(t[i].type) != t[i].type) continue; /* converted */
        t[i].data = p->region->s.at + p->offset;
        t[i].layout = LAYOUT_T32;
        t[i].row_bytes = 0;
    }
    return LLADA_OK;
}

void npu_unpack(device_weights *w)
{
    mem_free(w->shared.t);
    w->shared.t = NULL;
    for (int i = 0; i < w->n_groups; i++) npu_region_give(w, &w->groups[i]);
    npu_region_give(w, &w->vectors);
    mem_free(w->place);
    w->place = NULL;
}
