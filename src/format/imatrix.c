/* imatrix.c - see imatrix.h. */
#include "format/imatrix.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/size.h"
#include "format/gguf.h"
#include "format/quant_impl.h"

/* The least an entry of the older file takes: two lengths, calls, one letter, one number. */
enum { MOST_ENTRIES = 65536, MOST_NAME = 256, LEAST_ENTRY = 17 };

typedef struct {
    char *name;   /* owned */
    float *value; /* owned: [n] */
    uint64_t n;
} entry;

struct imatrix {
    entry *e; /* owned: [cap] */
    size_t n, cap;
};

static llada_status open_with(imatrix **out, size_t cap, llada_err *err)
{
    imatrix *m = mem_new(sizeof *m);
    if (m) {
        m->cap = cap;
        m->e = mem_array(cap ? cap : 1, sizeof *m->e);
    }
    if (m && m->e) {
        *out = m;
        return LLADA_OK;
    }
    imatrix_close(&m);
    return llada_fail(err, LLADA_NO_MEMORY, "no memory for an importance matrix of %zu tensors", cap);
}

void imatrix_close(imatrix **mp)
{
    imatrix *m = *mp;
    if (!m) return;
    for (size_t i = 0; m->e && i < m->n; i++) {
        mem_free(m->e[i].name);
        mem_free(m->e[i].value);
    }
    mem_free(m->e);
    mem_free(m);
    *mp = NULL;
}

size_t imatrix_n(const imatrix *m) { return m->n; }

const float *imatrix_find(const imatrix *m, const char *name, uint64_t *n)
{
    for (size_t i = 0; i < m->n; i++) {
        if (strcmp(m->e[i].name, name)) continue;
        *n = m->e[i].n;
        return m->e[i].value;
    }
    return NULL;
}

/* A new entry of n numbers, still zeros; n is what the file holds, so memory is no more than that. */
static llada_status add(imatrix *m, const char *name, size_t len, uint64_t n, entry **out, llada_err *err)
{
    uint64_t old;
    size_t bytes;
    entry *e = &m->e[m->n];
    e->name = mem_strdup(name, len);
    e->value = size_mul((size_t)n, sizeof(float), &bytes) ? mem_new(bytes) : NULL;
    e->n = n;
    if (e->name && e->value && imatrix_find(m, e->name, &old)) {
        llada_fail(err, LLADA_BAD_MODEL, "importance matrix: %.64s is there twice", e->name);
        mem_free(e->name);
        mem_free(e->value);
        return LLADA_BAD_MODEL;
    }
    if (!e->name || !e->value) {
        mem_free(e->name);
        mem_free(e->value);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for %llu weights", (unsigned long long)n);
    }
    m->n++;
    *out = e;
    return LLADA_OK;
}

/* Sums over `count` calls become means; a part that no call reached weighs all its columns alike. */
static llada_status put_means(entry *e, uint64_t first, uint64_t n, const uint8_t *sums, float count, llada_err *err)
{
    if (!isfinite(count) || count < 0)
        return llada_fail(err, LLADA_BAD_MODEL, "importance matrix: %.64s has the count %g", e->name, (double)count);
    quant_get(QT_F32)->decode(e->value + first, sums, n);
    for (uint64_t i = first; i < first + n; i++) {
        float v = count > 0 ? e->value[i] / count : 1;
        if (!isfinite(v) || v < 0)
            return llada_fail(err, LLADA_BAD_MODEL, "importance matrix: weight %llu of %.64s is %g",
                              (unsigned long long)i, e->name, (double)v);
        e->value[i] = v;
    }
    return LLADA_OK;
}

/* ---------------------------------------------------------------- GGUF */

static llada_status read_tensor(imatrix *m, const gguf *g, const gguf_tensor *t, size_t len, llada_err *err)
{
    char name[MOST_NAME + 16];
    entry *e;
    if (len > MOST_NAME) return llada_fail(err, LLADA_BAD_MODEL, "importance matrix: a name of %zu bytes", len);
    memcpy(name, t->name, len);
    memcpy(name + len, ".counts", sizeof ".counts");
    const gguf_tensor *c = gguf_find(g, name);
    uint64_t parts = t->dims[1] * t->dims[2] * t->dims[3]; /* the reader has checked the product */
    if (!c || c->type != QT_F32 || t->type != QT_F32 || c->dims[0] * c->dims[1] * c->dims[2] * c->dims[3] != parts)
        return llada_fail(err, LLADA_BAD_MODEL, "importance matrix: %.64s has no count for each of %llu parts in F32",
                          t->name, (unsigned long long)parts);
    llada_status st = add(m, t->name, len, t->dims[0] * parts, &e, err);
    for (uint64_t p = 0; p < parts && !st; p++) {
        float count;
        quant_get(QT_F32)->decode(&count, c->data + 4 * p, 1);
        st = put_means(e, p * t->dims[0], t->dims[0], t->data + 4 * p * t->dims[0], count, err);
    }
    return st;
}

static llada_status read_gguf(imatrix **out, const gguf *g, llada_err *err)
{
    static const char end[] = ".in_sum2";
    gguf_str type;
    llada_status st = gguf_get_str(g, "general.type", &type, err);
    if (st || type.len != 7 || memcmp(type.s, "imatrix", 7))
        return llada_fail(err, LLADA_BAD_MODEL,
                          "this GGUF file is no importance matrix: general.type does not say \"imatrix\"");
    if (gguf_n_tensors(g) > 2 * (uint64_t)MOST_ENTRIES)
        return llada_fail(err, LLADA_BAD_MODEL, "importance matrix of %llu tensors; the limit is %d",
                          (unsigned long long)gguf_n_tensors(g), MOST_ENTRIES);
    st = open_with(out, (size_t)gguf_n_tensors(g), err);
    for (uint64_t i = 0; i < gguf_n_tensors(g) && !st; i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        size_t len = strlen(t->name);
        if (len < sizeof end || strcmp(t->name + len - (sizeof end - 1), end)) continue;
        st = read_tensor(*out, g, t, len - (sizeof end - 1), err);
    }
    return st;
}

/* ---------------------------------------------------------------- the older file
 * Little-endian: i32 entries; each: i32 length, name, i32 calls, i32 n, f32[n] (sums of squares a column, over calls).
 * What follows (the count of chunks, the name of the text) is not needed. */

typedef struct {
    const os_file *f;
    size_t at;
} cursor;

static bool take_i32(cursor *c, int64_t *v)
{
    if (c->f->len - c->at < 4) return false;
    const uint8_t *p = c->f->data + c->at;
    *v = (int32_t)((uint32_t)q_le16(p) | (uint32_t)q_le16(p + 2) << 16);
    c->at += 4;
    return true;
}

static llada_status bad_entry(const cursor *c, size_t i, llada_err *err)
{
    return llada_fail(err, LLADA_BAD_MODEL,
                      "no importance matrix, or one cut short: entry %zu does not fit into the %zu bytes of the file "
                      "(byte %zu)", i, c->f->len, c->at);
}

static llada_status read_entry(imatrix *m, cursor *c, size_t i, llada_err *err)
{
    int64_t len, calls, n;
    entry *e;
    if (!take_i32(c, &len) || len < 1 || len > MOST_NAME || (uint64_t)len > c->f->len - c->at)
        return bad_entry(c, i, err);
    const char *name = (const char *)c->f->data + c->at;
    for (int64_t k = 0; k < len; k++)
        if (name[k] <= ' ' || name[k] > '~') return bad_entry(c, i, err);
    c->at += (size_t)len;
    if (!take_i32(c, &calls) || !take_i32(c, &n) || n < 1 || calls < 0 || (uint64_t)n > (c->f->len - c->at) / 4)
        return bad_entry(c, i, err);
    llada_status st = add(m, name, (size_t)len, (uint64_t)n, &e, err);
    if (!st) st = put_means(e, 0, (uint64_t)n, c->f->data + c->at, (float)calls, err);
    c->at += 4 * (size_t)n;
    return st;
}

static llada_status read_old(imatrix **out, const os_file *f, llada_err *err)
{
    cursor c = { .f = f };
    int64_t n;
    if (!take_i32(&c, &n) || n < 1 || n > MOST_ENTRIES || (uint64_t)n > f->len / LEAST_ENTRY)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "no importance matrix: neither a GGUF file, nor does it begin with a count of entries that "
                          "its %zu bytes could hold", f->len);
    llada_status st = open_with(out, (size_t)n, err);
    for (size_t i = 0; i < (size_t)n && !st; i++) st = read_entry(*out, &c, i, err);
    return st;
}

llada_status imatrix_open(imatrix **out, const char *path, llada_err *err)
{
    os_file f;
    *out = NULL;
    llada_status st = os_map(&f, path, false, err); /* read: a mapping could be cut short under us */
    if (st) return st;
    if (f.len >= 4 && !memcmp(f.data, "GGUF", 4)) {
        gguf *g;
        st = gguf_open_memory(&g, f.data, f.len, NULL, 0, err);
        if (!st) {
            st = read_gguf(out, g, err);
            gguf_close(&g);
        }
    } else {
        st = read_old(out, &f, err);
    }
    os_unmap(&f);
    if (!st && !(*out)->n) st = llada_fail(err, LLADA_BAD_MODEL, "the importance matrix is empty");
    if (st) imatrix_close(out);
    return st;
}
