/* tools_convert.c - the parts of tools.h that convert uses: checkpoints, and GGUF files made from their tensors. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/safetensors.h"
#include "text/pretok.h"
#include "tools_retype.h"

struct tools_checkpoint {
    safetensors *s;
};

/* ---------------------------------------------------------------- types */

static bool same_word(const char *a, const char *b)
{
    for (;; a++, b++) {
        char x = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a, y = *b >= 'A' && *b <= 'Z' ? (char)(*b + 32) : *b;
        if (x != y) return false;
        if (!x) return true;
    }
}

int tools_type(const char *name)
{
    for (uint32_t t = 0; t < QT_COUNT; t++) {
        const quant_info *q = quant_get(t);
        if (q && q->encode && same_word(q->name, name)) return (int)t;
    }
    return -1;
}

const char *tools_type_name(int type)
{
    const quant_info *q = type < 0 ? NULL : quant_get((uint32_t)type);
    return q ? q->name : "?";
}

bool tools_pre_alike(const char *name, const char *regex, size_t len) { return pretok_cuts_alike(name, regex, len); }

/* ---------------------------------------------------------------- checkpoints */

llada_status tools_checkpoint_open(tools_checkpoint **out, const char *const *paths, size_t n, llada_err *err)
{
    *out = NULL;
    tools_checkpoint *c = mem_new(sizeof *c);
    if (!c) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a checkpoint");
    llada_status st = st_open(&c->s, paths, n, err);
    if (st) mem_free(c);
    else *out = c;
    return st;
}

void tools_checkpoint_close(tools_checkpoint **c)
{
    if (!*c) return;
    st_close(&(*c)->s);
    mem_free(*c);
    *c = NULL;
}

size_t tools_checkpoint_n(const tools_checkpoint *c) { return st_n_tensors(c->s); }

void tools_checkpoint_at(const tools_checkpoint *c, size_t i, tools_tensor *out)
{
    const gguf_tensor *t = st_tensor_at(c->s, (uint32_t)i);
    *out = (tools_tensor){ .name = t->name, .type = (int)t->type, .n_dims = t->n_dims, .file = st_file_of(c->s, t) };
    for (int k = 0; k < 4; k++) out->dims[k] = k < t->n_dims ? t->dims[t->n_dims - 1 - k] : 1;
}

long tools_checkpoint_find(const tools_checkpoint *c, const char *name)
{
    const gguf_tensor *t = st_find(c->s, name);
    return t ? (long)(t - st_tensor_at(c->s, 0)) : -1;
}

/* ---------------------------------------------------------------- output */

/* One tensor to be written. */
typedef struct {
    const char *name;    /* owned by the arena */
    uint32_t type;
    const long *which;   /* owned by the arena; n of them */
    size_t n;
    const float *values; /* owned by the arena; instead of which: n values */
    int heads;
} piece;

struct tools_output {
    gguf_writer *w;
    arena *mem;
    piece *list; /* owned */
    size_t n, cap;
};

llada_status tools_output_open(tools_output **out, const char *path, llada_err *err)
{
    *out = NULL;
    tools_output *o = mem_new(sizeof *o);
    if (o) o->mem = arena_new(16384);
    llada_status st = LLADA_NO_MEMORY;
    if (!o || !o->mem) llada_fail(err, st, "no memory for a file to write");
    else st = gguf_writer_open(&o->w, path, err);
    if (st) tools_output_discard(&o);
    *out = o;
    return st;
}

void tools_output_discard(tools_output **op)
{
    tools_output *o = *op;
    if (!o) return;
    gguf_writer_discard(&o->w);
    arena_free(o->mem);
    mem_free(o->list);
    mem_free(o);
    *op = NULL;
}

llada_status tools_put_u32(tools_output *o, const char *key, uint32_t v, llada_err *err)
{
    return gguf_put_u32(o->w, key, v, err);
}

llada_status tools_put_f32(tools_output *o, const char *key, double v, llada_err *err)
{
    return gguf_put_f32(o->w, key, (float)v, err);
}

llada_status tools_put_bool(tools_output *o, const char *key, bool v, llada_err *err)
{
    return gguf_put_bool(o->w, key, v, err);
}

llada_status tools_put_str(tools_output *o, const char *key, const char *s, llada_err *err)
{
    return gguf_put_str(o->w, key, s, strlen(s), err);
}

llada_status tools_put_strs(tools_output *o, const char *key, const char *const *s, size_t n, llada_err *err)
{
    gguf_str *items = mem_array(n, sizeof *items);
    if (!items) return llada_fail(err, LLADA_NO_MEMORY, "no memory for %zu texts", n);
    for (size_t i = 0; i < n; i++) items[i] = (gguf_str){ s[i], strlen(s[i]) };
    llada_status st = gguf_put_str_arr(o->w, key, items, n, err);
    mem_free(items);
    return st;
}

llada_status tools_put_i32s(tools_output *o, const char *key, const int32_t *v, size_t n, llada_err *err)
{
    return gguf_put_i32_arr(o->w, key, v, n, err);
}

static llada_status add_piece(tools_output *o, piece p, const char *name, int n_dims, const uint64_t *dims,
                              llada_err *err)
{
    if (o->n == o->cap) {
        size_t more = o->cap ? 2 * o->cap : 256;
        void *list = mem_grow(o->list, o->cap * sizeof *o->list, more * sizeof *o->list);
        if (!list) return llada_fail(err, LLADA_NO_MEMORY, "no memory for %zu tensors", more);
        o->list = list;
        o->cap = more;
    }
    if (!(p.name = arena_strdup(o->mem, name, strlen(name))))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for tensor %.64s", name);
    o->list[o->n++] = p;
    return gguf_add_tensor(o->w, name, p.type, n_dims, dims, err);
}

static bool same_kind(const gguf_tensor *a, const gguf_tensor *b)
{
    return a->type == b->type && a->n_dims == b->n_dims && !memcmp(a->dims, b->dims, sizeof a->dims);
}

llada_status tools_put_tensor(tools_output *o, const char *name, int type, const tools_checkpoint *c, const long *which,
                              size_t n, int heads, llada_err *err)
{
    long *mine = arena_alloc(o->mem, n * sizeof *mine);
    if (!mine) return llada_fail(err, LLADA_NO_MEMORY, "no memory for tensor %.64s", name);
    memcpy(mine, which, n * sizeof *mine);
    const gguf_tensor *t = st_tensor_at(c->s, (uint32_t)which[0]);
    for (size_t i = 1; i < n; i++) {
        const gguf_tensor *b = st_tensor_at(c->s, (uint32_t)which[i]);
        if (!same_kind(t, b))
            return llada_fail(err, LLADA_BAD_MODEL, "%.80s and %.80s differ in type or shape", t->name, b->name);
    }
    if (heads && (t->n_dims != 2 || t->dims[1] % (uint64_t)heads || t->dims[1] / (uint64_t)heads % 2))
        return llada_fail(err, LLADA_BAD_MODEL, "%.80s has %llu rows, which are not those of %d heads", t->name,
                          (unsigned long long)t->dims[1], heads);
    uint64_t dims[4] = { t->dims[0], t->dims[1], t->dims[2], t->dims[3] };
    int n_dims = t->n_dims;
    if (n > 1) {
        if (n_dims > 3) return llada_fail(err, LLADA_BAD_MODEL, "%.80s has too many dimensions to be stacked", t->name);
        dims[n_dims++] = n;
    }
    return add_piece(o, (piece){ .type = (uint32_t)type, .which = mine, .n = n, .heads = heads }, name, n_dims, dims,
                     err);
}

llada_status tools_put_values(tools_output *o, const char *name, const float *v, size_t n, llada_err *err)
{
    float *mine = arena_alloc(o->mem, n * sizeof *mine);
    if (!mine) return llada_fail(err, LLADA_NO_MEMORY, "no memory for tensor %.64s", name);
    memcpy(mine, v, n * sizeof *mine);
    return add_piece(o, (piece){ .type = QT_F32, .values = mine, .n = n }, name, 1, (uint64_t[]){ n }, err);
}

/* ---------------------------------------------------------------- writing the data */

typedef struct {
    tools_output *o;
    const safetensors *s;
    retype *r;
    tools_tick tick;
    void *user;
    uint64_t done, total;
} run;

static uint64_t rows_of(const gguf_tensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }

static llada_status write_piece(run *u, const piece *p, llada_err *err)
{
    if (p->values) return gguf_write_data(u->o->w, p->values, p->n * sizeof *p->values, err);
    const uint8_t **parts = mem_array(p->n, sizeof *parts);
    if (!parts) return llada_fail(err, LLADA_NO_MEMORY, "no memory for %zu parts", p->n);
    for (size_t i = 0; i < p->n; i++) parts[i] = st_tensor_at(u->s, (uint32_t)p->which[i])->data;
    const gguf_tensor *t = st_tensor_at(u->s, (uint32_t)p->which[0]);
    retype_job j = { .name = p->name, .parts = parts, .n_parts = p->n, .part_rows = rows_of(t), .cols = t->dims[0],
                   .from = t->type, .to = p->type, .heads = (uint64_t)p->heads };
    retype_error e;
    size_t row = 0;
    llada_status st = retype_run(u->r, &j, u->o->w, &e, u->tick, u->user, u->done, u->total, err);
    if (quant_row_bytes(p->type, t->dims[0], &row)) u->done += row * j.part_rows * p->n;
    for (size_t i = 0; i < p->n; i++) st_forget(u->s, st_tensor_at(u->s, (uint32_t)p->which[i]));
    mem_free(parts);
    return st;
}

/* Bytes of all tensors, and the longest row. */
static void measure(const tools_output *o, const safetensors *s, uint64_t *total, uint64_t *longest)
{
    *total = 0;
    *longest = 1;
    for (size_t i = 0; i < o->n; i++) {
        const piece *p = &o->list[i];
        size_t row = 0;
        if (p->values) continue;
        const gguf_tensor *t = st_tensor_at(s, (uint32_t)p->which[0]);
        if (quant_row_bytes(p->type, t->dims[0], &row)) *total += row * rows_of(t) * p->n;
        if (t->dims[0] > *longest) *longest = t->dims[0];
    }
}

llada_status tools_output_finish(tools_output **op, const tools_checkpoint *c, int threads, tools_tick tick, void *user,
                                 llada_err *err)
{
    run u = { .o = *op, .s = c->s, .tick = tick, .user = user };
    uint64_t longest;
    measure(u.o, u.s, &u.total, &longest);
    llada_status st = retype_open(&u.r, threads, longest, err);
    for (size_t i = 0; i < u.o->n && !st; i++) st = write_piece(&u, &u.o->list[i], err);
    if (!st && tick && !tick(user, "", u.total, u.total))
        st = llada_fail(err, LLADA_CANCELLED, "stopped before the end");
    retype_close(&u.r);
    if (!st) st = gguf_writer_finish(&u.o->w, err);
    tools_output_discard(op);
    return st;
}
