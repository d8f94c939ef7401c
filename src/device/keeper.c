/* keeper.c - see keeper.h.  One buffer as large as the budget allows, of which only what is used is ever touched: held
 * parts and slots have addresses in it (graph/addresses.h), so that a new plan moves little and reads little. */
#include "device/keeper.h"

#include <string.h>

#include "base/mem.h"
#include "base/monitor.h"
#include "device/stream.h"
#include "graph/addresses.h"

enum { LARGE_PAGES_FROM = 64 << 20 };

struct keeper {
    const graph *g;          /* borrowed */
    device_memory mem;
    os_reader **readers;     /* owned: per file of the set */
    uint32_t n_readers;
    monitor *turn;           /* owned; guards running and changing */
    int running;             /* passes that run now */
    bool changing;           /* a new plan waits for them, or is being made */
    size_t contexts;         /* bytes of those that are open */
    weight_plan plan;        /* owned */
    addresses where;         /* owned: a block for each part, one for the table, one for the slots */
    size_t *want;            /* owned: bytes of each block */
    int *first;              /* owned: per tensor: its first part; -1: none */
    stream *stream;          /* owned */
    stream_part *streams;    /* owned: the parts that stream */
    int *place;              /* owned: per part: its number among those */
    uint8_t *raw, *base;     /* raw owned; base: aligned within */
    size_t base_bytes;
    uint8_t *rows, *bounce, *bounce_raw; /* rows and bounce_raw owned: rows of the table, and room to read one */
    int32_t *row_of;         /* owned: which row each line of `rows` holds; -1: none */
    int n_rows;              /* lines of `rows` */
    device_memory_use use;   /* what it counts itself */
};

/* ------------------------------------------------------------ opening */

static uint8_t *align(uint8_t *p) { return p + (OS_READ_ALIGN - (uintptr_t)p % OS_READ_ALIGN) % OS_READ_ALIGN; }

static llada_status open_readers(keeper *s, llada_err *err)
{
    const gguf *file = s->mem.file;
    llada_status st = LLADA_OK;
    if (!(s->readers = mem_array(gguf_n_files(file), sizeof *s->readers)))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for readers of %u files", gguf_n_files(file));
    for (; s->n_readers < gguf_n_files(file) && st == LLADA_OK; s->n_readers += st == LLADA_OK)
        st = gguf_reader(file, s->n_readers, &s->readers[s->n_readers], err);
    if (st == LLADA_OK) gguf_sparse(file);
    return st;
}

static const tensor *embedding(const graph *g)
{
    for (int i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == OP_EMBED) return &g->t[g->ops[i].weight];
    return NULL;
}

static llada_status open_rows(keeper *s, llada_err *err)
{
    const tensor *t = embedding(s->g);
    size_t row = t ? t->row_bytes : 1;
    s->n_rows = s->plan.table_rows;
    s->rows = mem_array((size_t)s->plan.table_rows, row);
    s->row_of = mem_array((size_t)s->plan.table_rows, sizeof *s->row_of);
    s->bounce_raw = mem_new(os_reader_room(OS_READ_ALIGN - 1, row) + OS_READ_ALIGN);
    if (!s->rows || !s->row_of || !s->bounce_raw)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for %d rows of the token embedding", s->plan.table_rows);
    s->bounce = align(s->bounce_raw);
    for (int i = 0; i < s->plan.table_rows; i++) s->row_of[i] = -1;
    return LLADA_OK;
}

/* The buffer is made once, for all that can ever be held; pages that are not touched cost nothing.  Large pages let a
 * direct read be few long requests (the device takes so many pieces of memory in one), unless the budget is so small
 * that a part of one would count. */
static llada_status open_buffer(keeper *s, llada_err *err)
{
    const size_t most = (size_t)gguf_file_bytes(s->mem.file) + (32u << 20); /* with the alignment of any cut */
    s->base_bytes = (s->mem.budget - s->plan.fixed) / OS_READ_ALIGN * OS_READ_ALIGN;
    if (s->base_bytes > most) s->base_bytes = most / OS_READ_ALIGN * OS_READ_ALIGN;
    if (!(s->raw = mem_new(s->base_bytes + OS_READ_ALIGN)))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for %zu bytes of weights", s->base_bytes);
    s->base = align(s->raw);
    if (s->base_bytes >= LARGE_PAGES_FROM) os_large_pages(s->base, s->base_bytes);
    return LLADA_OK;
}

llada_status keeper_open(keeper **out, const graph *g, const device_memory *mem, llada_err *err)
{
    keeper *s = mem_new(sizeof *s);
    if (!s) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the record of the weights");
    s->g = g;
    s->mem = *mem;
    llada_status st;
    if ((st = open_readers(s, err)) != LLADA_OK || (st = monitor_open(&s->turn, err)) != LLADA_OK ||
        (st = stream_open(&s->stream, !(mem->without & WITHOUT_PIPELINE), err)) != LLADA_OK ||
        (st = weight_plan_make(&s->plan, g, mem, 0, 0, err)) != LLADA_OK || (st = open_rows(s, err)) != LLADA_OK ||
        (st = open_buffer(s, err)) != LLADA_OK)
        goto fail;
    weight_plan_free(&s->plan); /* was for sizes; the first context's is the first that counts */
    *out = s;
    return LLADA_OK;
fail:
    keeper_close(&s);
    return st;
}

static void drop_parts(keeper *s)
{
    addresses_free(&s->where);
    mem_free(s->want);
    mem_free(s->first);
    mem_free(s->streams);
    mem_free(s->place);
    s->want = NULL;
    s->first = s->place = NULL;
    s->streams = NULL;
}

void keeper_close(keeper **ps)
{
    keeper *s = ps ? *ps : NULL;
    if (!s) return;
    stream_close(&s->stream);
    drop_parts(s);
    weight_plan_free(&s->plan);
    for (uint32_t i = 0; i < s->n_readers; i++) os_reader_close(&s->readers[i]);
    mem_free(s->readers);
    monitor_close(&s->turn);
    mem_free(s->raw);
    mem_free(s->rows);
    mem_free(s->row_of);
    mem_free(s->bounce_raw);
    mem_free(s);
    *ps = NULL;
}

/* ------------------------------------------------------------ a new plan */

/* Tables for another cut of the weights; whatever was held is gone. */
static llada_status take_cut(keeper *s, const weight_plan *p, llada_err *err)
{
    drop_parts(s);
    size_t n = (size_t)p->n;
    s->want = mem_array(n + 2, sizeof *s->want);
    s->first = mem_array((size_t)s->g->n_t, sizeof *s->first);
    s->streams = mem_array(n, sizeof *s->streams);
    s->place = mem_array(n, sizeof *s->place);
    if (!s->want || !s->first || !s->streams || !s->place ||
        addresses_open(&s->where, p->n + 2, 1, s->base_bytes, err) != LLADA_OK) {
        drop_parts(s);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for a list of %d parts of the weights", p->n);
    }
    for (int i = 0; i < s->g->n_t; i++) s->first[i] = -1;
    for (int i = p->n - 1; i >= 0; i--) s->first[p->part[i].id] = i;
    return LLADA_OK;
}

static llada_status load(keeper *s, const weight_part *p, int block, llada_err *err)
{
    llada_err why;
    llada_status st = os_reader_read(s->readers[p->file], s->base + s->where.at[block].offset, p->at, p->bytes, &why);
    if (!st) return st;
    return llada_fail(err, st, "tensor %.64s can't be read at byte %llu: %s", s->g->t[p->id].name,
                      (unsigned long long)p->at, why.text);
}

/* Moves what stays, reads what is new, gives back what is free. */
static llada_status fill(keeper *s, llada_err *err)
{
    const weight_plan *p = &s->plan;
    const addresses *w = &s->where;
    llada_status st = LLADA_OK;
    for (int k = 0; k < w->n_moves; k++) {
        const address *to = &w->at[w->moves[k].block];
        memmove(s->base + to->offset, s->base + w->moves[k].from, to->bytes);
    }
    os_give_back(s->base + w->used[0], s->base_bytes - w->used[0]);
    for (int i = 0; i < p->n && st == LLADA_OK; i++)
        if (p->r.held[i] && !w->kept[i]) st = load(s, &p->part[i], i, err);
    if (st == LLADA_OK && p->table_held && !w->kept[p->n]) st = load(s, &p->whole_table, p->n, err);
    return st;
}

static void set_stream(keeper *s)
{
    const weight_plan *p = &s->plan;
    int n = 0, again = 0, end = 0;
    for (int i = 0; i < p->n; i++) {
        const weight_part *w = &p->part[i];
        if (i == p->again) again = n;
        s->place[i] = n;
        if (!p->r.held[i])
            s->streams[n++] = (stream_part){ s->g->t[w->id].name, s->readers[w->file], w->at, w->bytes };
        if (i + 1 == p->end) end = n;
    }
    uint8_t *room = p->r.slots ? s->base + s->where.at[p->n + 1].offset : NULL;
    stream_set(s->stream, s->streams, n, again, end, room, p->r.slots, p->r.slot_bytes);
}

/* Follows a plan; on failure no part has a place, and the next plan begins anew. */
static llada_status follow(keeper *s, weight_plan *p, llada_err *err)
{
    bool same = s->first && s->plan.part && p->part_bytes == s->plan.part_bytes && p->n == s->plan.n, fresh;
    llada_status st = same ? LLADA_OK : take_cut(s, p, err);
    weight_plan_free(&s->plan);
    if (st) return st;
    s->plan = *p;
    *p = (weight_plan){ .table = -1 };
    for (int i = 0; i < s->plan.n; i++) s->want[i] = s->plan.r.held[i] ? s->plan.part[i].room : 0;
    s->want[s->plan.n] = s->plan.table_held ? s->plan.whole_table.room : 0;
    s->want[s->plan.n + 1] = (size_t)s->plan.r.slots * s->plan.r.slot_bytes;
    st = addresses_plan(&s->where, s->want, &fresh, err);
    if (st == LLADA_OK) st = fill(s, err);
    if (st == LLADA_OK) set_stream(s);
    if (st) {
        drop_parts(s);
        weight_plan_free(&s->plan);
    }
    return st;
}

/* A plan with the cut of the last one where that works, since what is held can then stay. */
static llada_status new_plan(keeper *s, weight_plan *p, size_t contexts, llada_err *err)
{
    if (s->plan.part && weight_plan_make(p, s->g, &s->mem, contexts, s->plan.part_bytes, NULL) == LLADA_OK)
        return LLADA_OK;
    return weight_plan_make(p, s->g, &s->mem, contexts, 0, err);
}

/* Nothing else runs between these two. */
static void begin_change(keeper *s)
{
    monitor_enter(s->turn);
    while (s->changing) monitor_wait(s->turn);
    s->changing = true;
    while (s->running > 0) monitor_wait(s->turn);
    monitor_leave(s->turn);
}

static void end_change(keeper *s)
{
    monitor_enter(s->turn);
    s->changing = false;
    monitor_wake(s->turn);
    monitor_leave(s->turn);
}

llada_status keeper_join(keeper *s, size_t bytes, llada_err *err)
{
    weight_plan p = { .table = -1 };
    begin_change(s);
    llada_status st = new_plan(s, &p, s->contexts + bytes, err);
    if (st == LLADA_OK) { /* else the old plan stays */
        stream_set(s->stream, NULL, 0, 0, 0, NULL, 1, 0); /* the thread lets go of slots and list */
        st = follow(s, &p, err);
        if (st == LLADA_OK) s->contexts += bytes;
    }
    weight_plan_free(&p);
    end_change(s);
    return st;
}

/* What is held stays as it is: closing reads nothing, and the next to open makes a new plan. */
void keeper_leave(keeper *s, size_t bytes)
{
    begin_change(s);
    s->contexts -= bytes;
    end_change(s);
}

/* ------------------------------------------------------------ passes */

/* Slots, and the remembered rows of the table, serve one pass at a time. */
static bool alone(const keeper *s) { return s->plan.r.slots > 0 || (s->plan.table >= 0 && !s->plan.table_held); }

llada_status keeper_begin(keeper *s, int rounds, const atomic_bool *stop, llada_err *err)
{
    monitor_enter(s->turn);
    for (;;) {
        bool going = true;
        while (going && (s->changing || (s->running > 0 && alone(s)))) going = monitor_wait_unless(s->turn, stop);
        if (!going) {
            monitor_leave(s->turn);
            return llada_fail(err, LLADA_CANCELLED, "stopped before another pass had ended");
        }
        if (s->plan.part) break;
        monitor_leave(s->turn); /* the last plan failed half-way: once more */
        llada_status st = keeper_join(s, 0, err);
        if (st) return st;
        monitor_enter(s->turn);
    }
    s->running++;
    s->use.passes++;
    bool streams = s->plan.r.slots > 0;
    monitor_leave(s->turn);
    if (streams) stream_begin(s->stream, rounds);
    return LLADA_OK;
}

void keeper_end(keeper *s)
{
    monitor_enter(s->turn);
    s->running--;
    monitor_wake(s->turn);
    monitor_leave(s->turn);
}

int keeper_parts(const keeper *s, tensor_id id, int *first)
{
    int n = 0;
    *first = s->first[id];
    while (*first >= 0 && *first + n < s->plan.n && s->plan.part[*first + n].id == id) n++;
    return n;
}

static const uint8_t *held_data(const keeper *s, const weight_part *p, int block)
{
    return s->base + s->where.at[block].offset + p->at % OS_READ_ALIGN;
}

llada_status keeper_take(keeper *s, int part, const atomic_bool *stop, tensor *out, int64_t *first, llada_err *err)
{
    const weight_part *p = &s->plan.part[part];
    const uint8_t *data = NULL;
    llada_status st = LLADA_OK;
    if (s->plan.r.held[part]) data = held_data(s, p, part);
    else st = stream_take(s->stream, s->place[part], stop, &data, err);
    *out = s->g->t[p->id];
    out->n_rows = p->rows;
    out->data = data;
    *first = p->first;
    return st;
}

void keeper_give(keeper *s, int part)
{
    if (!s->plan.r.held[part]) stream_give(s->stream);
}

/* Where a row of the embedding is held; NULL: nowhere. */
static const uint8_t *held_row(const keeper *s, tensor_id id, int64_t row)
{
    size_t row_bytes = s->g->t[id].row_bytes;
    int first, n;
    if (id == s->plan.table) {
        if (!s->plan.table_held) return NULL;
        return held_data(s, &s->plan.whole_table, s->plan.n) + (size_t)row * row_bytes;
    }
    n = keeper_parts(s, id, &first);
    for (int i = first; i < first + n; i++) {
        const weight_part *p = &s->plan.part[i];
        if (row >= p->first && row < p->first + p->rows)
            return s->plan.r.held[i] ? held_data(s, p, i) + (size_t)(row - p->first) * row_bytes : NULL;
    }
    return NULL;
}

static llada_status read_row(keeper *s, tensor_id id, int64_t row, uint8_t *to, llada_err *err)
{
    const tensor *t = &s->g->t[id];
    uint32_t file = 0;
    uint64_t at = 0;
    llada_err why;
    (void)gguf_place(s->mem.file, t->data, &file, &at); /* looked at when the plan was made */
    at += (uint64_t)row * t->row_bytes;
    double began = os_seconds();
    llada_status st = os_reader_read(s->readers[file], s->bounce, at, t->row_bytes, &why);
    if (st)
        return llada_fail(err, st, "tensor %.64s can't be read at byte %llu: %s", t->name, (unsigned long long)at,
                          why.text);
    memcpy(to, s->bounce + at % OS_READ_ALIGN, t->row_bytes);
    s->use.bytes += t->row_bytes;
    s->use.transfer += os_seconds() - began;
    s->use.stall += os_seconds() - began;
    return LLADA_OK;
}

llada_status keeper_row(keeper *s, tensor_id id, int64_t row, const void **data, llada_err *err)
{
    int line = (int)(row % s->n_rows);
    uint8_t *at = s->rows + (size_t)line * s->g->t[id].row_bytes;
    llada_status st = LLADA_OK;
    if ((*data = held_row(s, id, row)) != NULL) return LLADA_OK;
    if (s->row_of[line] != row) {
        s->row_of[line] = -1;
        if ((st = read_row(s, id, row, at, err)) == LLADA_OK) s->row_of[line] = (int32_t)row;
    }
    *data = at;
    return st;
}

llada_status keeper_read(keeper *s, tensor_id id, void *to, llada_err *err)
{
    const tensor *t = &s->g->t[id];
    weight_part p = { .id = id, .bytes = (size_t)t->n_rows * t->row_bytes };
    llada_err why;
    if (!gguf_place(s->mem.file, t->data, &p.file, &p.at))
        return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s lies in none of the model's files", t->name);
    uint8_t *raw = mem_new(os_reader_room(p.at, p.bytes) + OS_READ_ALIGN);
    if (!raw) return llada_fail(err, LLADA_NO_MEMORY, "no memory to read tensor %.64s", t->name);
    llada_status st = os_reader_read(s->readers[p.file], align(raw), p.at, p.bytes, &why);
    if (st)
        llada_fail(err, st, "tensor %.64s can't be read at byte %llu: %s", t->name, (unsigned long long)p.at, why.text);
    else
        memcpy(to, align(raw) + p.at % OS_READ_ALIGN, p.bytes);
    mem_free(raw);
    return st;
}

void keeper_get_use(keeper *s, device_memory_use *out)
{
    stream_stats t;
    stream_get_stats(s->stream, &t);
    monitor_enter(s->turn);
    const residency *r = &s->plan.r;
    *out = s->use;
    out->budget = s->mem.budget;
    out->total = s->plan.total;
    out->held = r->held_bytes + (s->plan.table_held ? s->plan.whole_table.room : 0);
    out->stream = r->stream_bytes;
    out->slots = r->slots;
    out->slot_bytes = r->slot_bytes;
    out->parts = s->plan.n;
    out->held_parts = r->n_held;
    out->direct = os_reader_direct(s->readers[0]);
    out->bytes += t.bytes;
    out->transfer += t.transfer;
    out->stall += t.stall;
    monitor_leave(s->turn);
}
