/* tools_pack.c - a GGUF file with its matrices in T32 layout (tools.h).  Packed is what the model's own graph
 * multiplies with, so a file is packed only when it can be run; what is looked up or read as a vector (embedding, a
 * head that is the embedding, norms, biases) stays in rows, and so do experts whose matrices would share a stripe.
 * Memory: one batch of stripes. */
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"
#include "model/model.h"
#include "tools.h"

enum {
    BATCH_BYTES = 8 << 20,
    ALIGN = 128 /* of tensors in the file: tiles are multiples of 64 bytes, and an HMX operand begins at 128 */
};
#define ALIGN_KEY "general.alignment"

typedef struct {
    const gguf *g;
    const tools_pack_opts *o;
    bool *packs;     /* owned: per tensor of g */
    pool *threads;   /* owned */
    uint8_t *out;    /* owned: [cap] bytes of a batch */
    size_t cap;
    uint64_t done, total;
    /* the batch */
    t32_shape s;
    const uint8_t *rows;
    size_t first;    /* stripe */
    int n;           /* stripes */
} packer;

/* ---------------------------------------------------------------- which tensors */

static uint64_t rows_of(const gguf_tensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }

static bool multiplies(const op *o) { return o->kind == OP_MATMUL || o->kind == OP_SCORE || o->kind == OP_EXPERTS; }

static void mark(const packer *p, const graph *g, tensor_id id, bool packs)
{
    const gguf_tensor *t = id < 0 ? NULL : gguf_find(p->g, g->t[id].name);
    if (t) p->packs[t - gguf_tensor_at(p->g, 0)] = packs;
}

static void choose(const packer *p, const graph *g)
{
    for (int i = 0; i < g->n_ops; i++) {
        const op *o = &g->ops[i];
        if (!multiplies(o) || (o->kind == OP_EXPERTS && g->t[o->weight].n_rows / o->experts % T32_ROWS)) continue;
        mark(p, g, o->weight, true);
    }
    for (int i = 0; i < g->n_ops; i++)
        if (!multiplies(&g->ops[i])) mark(p, g, g->ops[i].weight, false);
}

/* ---------------------------------------------------------------- header */

static llada_status put_keys(const packer *p, gguf_writer *w, llada_err *err)
{
    gguf_kind kind;
    llada_status st = gguf_put_u32(w, ALIGN_KEY, ALIGN, err);
    for (uint64_t i = 0; i < gguf_n_keys(p->g) && !st; i++) {
        const char *key = gguf_key(p->g, i, &kind);
        if (strcmp(key, ALIGN_KEY) && strcmp(key, T32_KEY)) st = gguf_copy_key(w, p->g, i, err);
    }
    return st ? st : gguf_put_u32(w, T32_KEY, T32_VERSION, err);
}

static llada_status put_table(packer *p, gguf_writer *w, llada_err *err)
{
    size_t stripe = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(p->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(p->g, i);
        t32_shape s = { .bytes = t->bytes };
        if (p->packs[i] && !t32_shape_of(&s, t->type, rows_of(t), t->dims[0]))
            return llada_fail(err, LLADA_BAD_MODEL, "tensor %.64s: %llu rows of %llu values are too much to pack",
                              t->name, (unsigned long long)rows_of(t), (unsigned long long)t->dims[0]);
        llada_status st = gguf_add_tensor(w, t->name, t->type + (p->packs[i] ? T32_TYPE : 0), t->n_dims, t->dims, err);
        if (st) return st;
        stripe = s.stripe_bytes > stripe ? s.stripe_bytes : stripe;
        p->total += s.bytes;
    }
    p->cap = stripe > BATCH_BYTES ? stripe : BATCH_BYTES;
    p->out = mem_new(p->cap);
    return p->out ? LLADA_OK : llada_fail(err, LLADA_NO_MEMORY, "no memory for a batch of %zu bytes", p->cap);
}

/* ---------------------------------------------------------------- data */

static void pack_share(void *user, int t, int n)
{
    const packer *p = user;
    int lo, hi;
    pool_share(p->n, 1, t, n, &lo, &hi);
    t32_pack(&p->s, p->out + (size_t)lo * p->s.stripe_bytes, p->rows, p->first + (size_t)lo, p->first + (size_t)hi);
}

static llada_status tick(packer *p, const char *name, llada_err *err)
{
    if (!p->o->tick || p->o->tick(p->o->user, name, p->done, p->total)) return LLADA_OK;
    return llada_fail(err, LLADA_CANCELLED, "stopped at tensor %.64s", name);
}

static llada_status put(packer *p, gguf_writer *w, const void *data, size_t bytes, llada_err *err)
{
    p->done += bytes;
    return gguf_write_data(w, data, bytes, err);
}

static llada_status write_packed(packer *p, gguf_writer *w, const gguf_tensor *t, llada_err *err)
{
    llada_status st = LLADA_OK;
    (void)t32_shape_of(&p->s, t->type, rows_of(t), t->dims[0]); /* put_table has seen to it */
    p->rows = t->data;
    const size_t most = p->cap / p->s.stripe_bytes;
    for (p->first = 0; p->first < p->s.stripes && !st; p->first += (size_t)p->n) {
        if ((st = tick(p, t->name, err))) break;
        p->n = (int)(p->s.stripes - p->first < most ? p->s.stripes - p->first : most);
        pool_run(p->threads, pack_share, p);
        st = put(p, w, p->out, (size_t)p->n * p->s.stripe_bytes, err);
    }
    return st;
}

static llada_status write_rows(packer *p, gguf_writer *w, const gguf_tensor *t, llada_err *err)
{
    llada_status st = LLADA_OK;
    for (size_t at = 0, n; at < t->bytes && !st; at += n) {
        n = t->bytes - at < BATCH_BYTES ? t->bytes - at : BATCH_BYTES;
        if (!(st = tick(p, t->name, err))) st = put(p, w, t->data + at, n, err);
    }
    return st;
}

static llada_status write_all(packer *p, gguf_writer *w, llada_err *err)
{
    llada_status st = LLADA_OK;
    for (uint64_t i = 0; i < gguf_n_tensors(p->g) && !st; i++) {
        const gguf_tensor *t = gguf_tensor_at(p->g, i);
        st = p->packs[i] ? write_packed(p, w, t, err) : write_rows(p, w, t, err);
        gguf_forget(p->g, t);
        if (!st && gguf_lost(p->g)) st = llada_fail(err, LLADA_IO, "the file was cut short while it was read");
    }
    return st ? st : tick(p, "", err);
}

static llada_status pack_model(const model *m, const char *out, const tools_pack_opts *o, llada_err *err)
{
    packer p = { .g = m->file, .o = o };
    gguf_writer *w = NULL;
    llada_status st;
    if (!(p.packs = mem_array((size_t)gguf_n_tensors(p.g), sizeof *p.packs)))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for a plan");
    choose(&p, &m->g);
    st = gguf_writer_open(&w, out, err);
    if (!st) st = put_keys(&p, w, err);
    if (!st) st = put_table(&p, w, err);
    if (!st) st = pool_open(&p.threads, o->threads, err);
    if (!st) st = write_all(&p, w, err);
    if (!st) st = gguf_writer_finish(&w, err);
    gguf_writer_discard(&w);
    pool_close(&p.threads);
    mem_free(p.packs);
    mem_free(p.out);
    return st;
}

llada_status tools_pack(const char *in, const char *out, const tools_pack_opts *o, llada_err *err)
{
    gguf *g = NULL;
    model *m = NULL;
    llada_status st = gguf_open(&g, in, true, NULL, 0, err);
    if (st) return st;
    if (gguf_packed(g)) {
        gguf_close(&g);
        return llada_fail(err, LLADA_UNSUPPORTED, "the file is packed already: it can be run as it is");
    }
    if ((st = model_open(&m, g, NULL, NULL, err))) return st;
    st = pack_model(m, out, o, err);
    model_close(&m);
    return st;
}
