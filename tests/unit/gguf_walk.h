/* gguf_walk.h - uses everything that an opened GGUF file offers: every key through every getter, every array item, and
 * the first values of every tensor.  For hostile files that open nevertheless: a sanitizer watches. */
#ifndef TESTS_GGUF_WALK_H
#define TESTS_GGUF_WALK_H

#include <stdlib.h>
#include <string.h>

#include "format/gguf.h"

static inline uint64_t walk_bytes(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = h * 31 + b[i];
    return h;
}

static inline uint64_t walk_array(const gguf *g, const char *key)
{
    gguf_kind item;
    uint64_t n, h = 0;
    llada_err err;
    if (gguf_get_arr(g, key, &item, &n, &err) != LLADA_OK) return 0;
    void *items = malloc((size_t)n * 16 + 1);
    if (!items) return 0;
    if (gguf_arr_str(g, key, items, n, &err) == LLADA_OK) {
        const gguf_str *s = items;
        for (uint64_t i = 0; i < n; i++) h ^= walk_bytes(s[i].s, s[i].len);
    }
    if (gguf_arr_i64(g, key, items, n, &err) == LLADA_OK) h ^= walk_bytes(items, (size_t)n * 8);
    if (gguf_arr_f32(g, key, items, n, &err) == LLADA_OK) h ^= walk_bytes(items, (size_t)n * 4);
    free(items);
    return h;
}

static inline uint64_t walk_key(const gguf *g, const char *key)
{
    int64_t i = 0;
    double d = 0;
    bool b = false;
    gguf_str s = { .len = 0 };
    llada_err err;
    uint64_t h = gguf_has(g, key);
    if (gguf_get_int(g, key, INT64_MIN, INT64_MAX, &i, &err) == LLADA_OK) h ^= (uint64_t)i;
    if (gguf_get_f64(g, key, &d, &err) == LLADA_OK) h ^= walk_bytes(&d, sizeof d);
    if (gguf_get_bool(g, key, &b, &err) == LLADA_OK) h ^= b;
    if (gguf_get_str(g, key, &s, &err) == LLADA_OK) h ^= walk_bytes(s.s, s.len);
    return h ^ walk_array(g, key);
}

/* Decodes the last row, padding included. */
static inline uint64_t walk_packed(const gguf_tensor *t)
{
    static const size_t most_k = 1 << 16;
    t32_shape s;
    if (!t32_shape_of(&s, t->type, t->dims[1] * t->dims[2] * t->dims[3], t->dims[0]) || s.bytes != t->bytes) abort();
    if (s.k > most_k) return s.k;
    float *row = malloc((s.k + 1) * sizeof *row);
    if (!row) return 0;
    t32_decode_row(&s, row, t->data, s.n - 1);
    uint64_t h = walk_bytes(row, s.k * sizeof *row);
    free(row);
    return h;
}

/* Decodes up to `budget` bytes of the tensor, in pieces of whole blocks. */
static inline uint64_t walk_tensor(const gguf_tensor *t, size_t budget)
{
    const quant_info *q = quant_get(t->type);
    float out[512];
    uint64_t h = walk_bytes(t->name, strlen(t->name));
    if (t->packed) return h ^ walk_packed(t);
    size_t n = t->bytes < budget ? t->bytes : budget, each = (size_t)q->bytes;
    for (size_t at = 0; at + each <= n; at += each) {
        if (q->decode) q->decode(out, t->data + at, (size_t)q->block);
        h = h * 31 + t->data[at];
    }
    return h ^ t->data[t->bytes - 1];
}

/* The result only keeps the compiler from leaving the work out. */
static inline uint64_t walk_gguf(const gguf *g, size_t budget)
{
    uint64_t h = gguf_version(g) ^ gguf_file_bytes(g);
    for (uint64_t i = 0; i < gguf_n_keys(g); i++) {
        gguf_kind kind;
        h ^= walk_key(g, gguf_key(g, i, &kind));
    }
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        h ^= gguf_find(g, t->name) == t;
        h ^= walk_tensor(t, budget);
        budget -= t->bytes < budget ? t->bytes : budget;
    }
    return h;
}

#endif
