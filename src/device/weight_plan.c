/* weight_plan.c - see weight_plan.h. */
#include "device/weight_plan.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum {
    UNIT = 32,               /* rows a part's length is a multiple of */
    LARGEST_PART = 8 << 20,  /* bytes: long enough for storage to reach its full rate */
    SMALLEST_PART = 1 << 12,
    MOST_PARTS = 4096,
    SLOTS = 4, FEWEST_SLOTS = 2,
    ROUNDS = 2,              /* times a pass is taken to read the head: once for every 32 scored rows */
    TABLE_ROWS = 1024,       /* most rows of the token table that are remembered ... */
    TABLE_SHARE = 64         /* ... in at most one part in so many of the budget */
};
static const double ANY_RATE = 1e9;    /* bytes a second, when nobody measured */
static const double READ_DELAY = 1e-4; /* seconds before a read's first byte, about that of a solid-state disk */

/* ------------------------------------------------------------ cutting */

/* Rows that must stay together; 0: the operator's weight is no matrix that is gone through. */
static int64_t unit_of(const graph *g, const op *o)
{
    if (o->kind == OP_EXPERTS) return g->t[o->weight].n_rows / o->experts;
    return o->kind == OP_MATMUL || o->kind == OP_SCORE ? UNIT : 0;
}

/* Bytes of so many rows; of a packed tensor, of whole stripes. */
static size_t rows_bytes(const tensor *t, int64_t rows)
{
    t32_shape s;
    if (t->layout != LAYOUT_T32) return (size_t)rows * t->row_bytes;
    (void)t32_shape_of(&s, t->type, (uint64_t)t->n_rows, (uint64_t)t->cols); /* checked when the file was read */
    return (size_t)((rows + T32_ROWS - 1) / T32_ROWS) * s.stripe_bytes;
}

static bool place_part(weight_part *p, const graph *g, const gguf *file)
{
    const tensor *t = &g->t[p->id];
    if (!gguf_place(file, t->data, &p->file, &p->at)) return false;
    p->at += rows_bytes(t, p->first);
    p->bytes = rows_bytes(t, p->rows);
    p->room = os_reader_room(p->at, p->bytes);
    return true;
}

/* Parts of an operator's weight from part[n] on (part NULL: only counted); returns n and theirs. */
static int cut(const graph *g, const gguf *file, const op *o, size_t most, weight_part *part, int n)
{
    int64_t unit = unit_of(g, o);
    if (unit == 0) return n;
    const tensor *t = &g->t[o->weight];
    int64_t units = (t->n_rows + unit - 1) / unit, each = (int64_t)(most / rows_bytes(t, unit));
    each = each < 1 ? 1 : each > units ? units : each;
    int64_t pieces = (units + each - 1) / each;
    each = (units + pieces - 1) / pieces; /* of about the same size */
    for (int64_t first = 0; first < t->n_rows; first += each * unit) {
        int64_t rows = t->n_rows - first < each * unit ? t->n_rows - first : each * unit;
        if (part) {
            part[n] = (weight_part){ .id = o->weight, .first = first, .rows = rows };
            (void)place_part(&part[n], g, file); /* looked at before, for the whole tensor */
        }
        n++;
    }
    return n;
}

static int cut_all(weight_plan *p, const graph *g, const gguf *file, size_t most, weight_part *part)
{
    int n = 0;
    p->again = p->end = 0;
    for (int i = 0; i < g->n_ops; i++) {
        int before = n;
        n = cut(g, file, &g->ops[i], most, part, n);
        if (g->ops[i].kind != OP_SCORE) continue;
        p->again = before;
        p->end = n;
    }
    return n;
}

/* ------------------------------------------------------------ what else takes memory */

/* tight: no more rows of the table are remembered than must be. */
static llada_status find_fixed(weight_plan *p, const graph *g, const device_memory *mem, bool tight, llada_err *err)
{
    uint32_t file;
    uint64_t at;
    p->table = -1;
    p->fixed = mem->beside;
    for (int i = 0; i < g->n_ops; i++) {
        const op *o = &g->ops[i];
        const tensor_id vector[] = { o->kind == OP_RMSNORM ? o->weight : -1, o->bias };
        for (int k = 0; k < 2; k++)
            if (vector[k] >= 0) p->fixed += (size_t)g->t[vector[k]].cols * sizeof(float);
        if (o->kind == OP_EMBED) p->table = o->weight;
        if (o->weight >= 0 && !gguf_place(mem->file, g->t[o->weight].data, &file, &at))
            return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s lies in none of the model's files",
                              g->t[o->weight].name);
    }
    for (int i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind != OP_EMBED && g->ops[i].weight == p->table) p->table = -1;
    size_t row = 1;
    for (int i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == OP_EMBED) row = g->t[g->ops[i].weight].row_bytes;
    size_t rows = mem->budget / TABLE_SHARE / row;
    p->table_rows = rows < 1 || tight ? 1 : rows > TABLE_ROWS ? TABLE_ROWS : (int)rows;
    p->fixed +=
        (size_t)p->table_rows * (row + sizeof(int32_t)) + os_reader_room(OS_READ_ALIGN - 1, row) + OS_READ_ALIGN;
    if (p->table < 0) return LLADA_OK;
    p->whole_table = (weight_part){ .id = p->table, .rows = g->t[p->table].n_rows };
    (void)place_part(&p->whole_table, g, mem->file);
    return LLADA_OK;
}

/* ------------------------------------------------------------ choosing */

static void price(const weight_plan *p, const graph *g, const device_memory *mem, residency_part *out)
{
    double rate = mem->read_rate > 0 ? mem->read_rate : ANY_RATE, work = 0;
    for (int i = 0; i < p->n; i++) work += (double)p->part[i].rows * (double)g->t[p->part[i].id].cols;
    for (int i = 0; i < p->n; i++) {
        const weight_part *w = &p->part[i];
        int reads = i >= p->again && i < p->end && p->end - p->again > 1 ? ROUNDS : 1;
        out[i] = (residency_part){ .bytes = w->room, .read = reads * (READ_DELAY + (double)w->room / rate) };
        out[i].compute = mem->pass_seconds * (double)w->rows * (double)g->t[w->id].cols / work;
    }
}

/* One size of parts, one number of slots.  *least falls to the smallest budget seen that works. */
static llada_status try_size(weight_plan *p, const graph *g, const device_memory *mem, size_t most, int slots,
                             size_t *least, bool *works, llada_err *err)
{
    size_t taken = p->fixed + p->contexts;
    *works = false;
    p->part_bytes = most;
    p->n = cut_all(p, g, mem->file, most, NULL);
    p->part = mem_array((size_t)p->n, sizeof *p->part);
    residency_part *priced = mem_array((size_t)p->n, sizeof *priced);
    llada_status st = LLADA_OK;
    if (!p->part || !priced) {
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for a plan of %d parts of the weights", p->n);
    } else {
        cut_all(p, g, mem->file, most, p->part);
        price(p, g, mem, priced);
        size_t need = taken + residency_least(priced, p->n, slots);
        *least = need < *least ? need : *least;
        *works = need <= mem->budget;
        if (*works) st = residency_plan(&p->r, priced, p->n, mem->budget - taken, slots, err);
    }
    if (st == LLADA_OK && *works && mem->without & WITHOUT_RESIDENCY) {
        memset(p->r.held, 0, (size_t)p->n * sizeof *p->r.held);
        residency_restate(&p->r, priced, slots);
    }
    mem_free(priced);
    return st;
}

static void keep_better(weight_plan *best, weight_plan *p)
{
    if (!best->part || p->r.seconds < best->r.seconds * 0.995) {
        weight_plan t = *best;
        *best = *p;
        *p = t;
    }
    mem_free(p->part);
    residency_free(&p->r);
    p->part = NULL;
}

/* Larger parts first: a smaller size must be better to be taken. */
static llada_status try_sizes(weight_plan *best, const weight_plan *base, const graph *g, const device_memory *mem,
                              size_t part_bytes, int slots, size_t *least, llada_err *err)
{
    size_t from = part_bytes ? part_bytes : LARGEST_PART, to = part_bytes ? part_bytes : SMALLEST_PART;
    if (mem->without & WITHOUT_LAYOUT) from = to = SIZE_MAX / 2;
    for (size_t most = from; most >= to; most /= 2) {
        weight_plan p = *base;
        bool works;
        if (most < from && cut_all(&p, g, mem->file, most, NULL) > MOST_PARTS) break;
        llada_status st = try_size(&p, g, mem, most, slots, least, &works, err);
        if (st == LLADA_OK && works) keep_better(best, &p);
        else mem_free(p.part);
        if (st) return st;
        if (best->part && best->r.slots == 0) break;
    }
    return LLADA_OK;
}

static void finish(weight_plan *p, const device_memory *mem)
{
    p->total = p->fixed + p->contexts + p->r.bytes;
    p->table_held = p->table >= 0 && p->r.slots == 0 && mem->budget - p->total >= p->whole_table.room;
    if (p->table_held) p->total += p->whole_table.room;
}

static llada_status make(weight_plan *out, const graph *g, const device_memory *mem, size_t contexts, size_t part_bytes,
                         bool tight, size_t *least, llada_err *err)
{
    weight_plan base = { .contexts = contexts };
    llada_status st = find_fixed(&base, g, mem, tight, err);
    if (st == LLADA_OK && !(mem->without & WITHOUT_LAYOUT))
        st = try_sizes(out, &base, g, mem, part_bytes, SLOTS, least, err);
    if (st == LLADA_OK && !out->part) st = try_sizes(out, &base, g, mem, part_bytes, FEWEST_SLOTS, least, err);
    return st;
}

llada_status weight_plan_make(weight_plan *out, const graph *g, const device_memory *mem, size_t contexts,
                              size_t part_bytes, llada_err *err)
{
    size_t least = SIZE_MAX;
    *out = (weight_plan){ .table = -1 };
    llada_status st = make(out, g, mem, contexts, part_bytes, false, &least, err);
    if (st == LLADA_OK && !out->part) st = make(out, g, mem, contexts, part_bytes, true, &least, err);
    if (st == LLADA_OK && !out->part)
        st = llada_fail(err, LLADA_BAD_ARG,
                        "a memory budget of %zu bytes can't work: the smallest that can is %zu, %zu of it for sessions%s",
                        mem->budget, least, contexts, contexts ? "" : " (none is open yet)");
    if (st == LLADA_OK) finish(out, mem);
    else weight_plan_free(out);
    return st;
}

void weight_plan_free(weight_plan *p)
{
    mem_free(p->part);
    residency_free(&p->r);
    *p = (weight_plan){ .table = -1 };
}
