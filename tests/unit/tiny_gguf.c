/* tiny_gguf.c - see tiny_gguf.h.  Written against the format's description, not with the project's own writer, so that
 * reader and writer can't be wrong in the same way. */
#include "tiny_gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

/* ------------------------------------------------------------ a growing run of bytes */

typedef struct {
    uint8_t *p;
    size_t len, cap;
} bytes;

static void add(bytes *b, const void *s, size_t n)
{
    if (b->len + n > b->cap) {
        b->cap = (b->len + n) * 2 + 64;
        b->p = realloc(b->p, b->cap);
        assert_non_null(b->p);
    }
    if (n) memcpy(b->p + b->len, s, n);
    b->len += n;
}

static void add_le(bytes *b, uint64_t v, int width)
{
    for (int i = 0; i < width; i++) {
        uint8_t c = (uint8_t)(v >> (8 * i));
        add(b, &c, 1);
    }
}

static void add_str(bytes *b, const char *s)
{
    add_le(b, strlen(s), 8);
    add(b, s, strlen(s));
}

/* ------------------------------------------------------------ keys */

tiny_gguf *tiny_new(void)
{
    tiny_gguf *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->version = 3;
    t->align = 32;
    return t;
}

void tiny_free(tiny_gguf *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_keys; i++) free(t->keys[i].raw);
    for (size_t i = 0; i < t->n_tensors; i++) free(t->tensors[i].data);
    free(t->keys);
    free(t->tensors);
    free(t);
}

tiny_key *tiny_find_key(tiny_gguf *t, const char *key)
{
    for (size_t i = 0; i < t->n_keys; i++)
        if (!strcmp(t->keys[i].name, key)) return &t->keys[i];
    return NULL;
}

static tiny_key *key_slot(tiny_gguf *t, const char *key)
{
    tiny_key *k = tiny_find_key(t, key);
    if (!k) {
        t->keys = realloc(t->keys, (t->n_keys + 1) * sizeof *t->keys);
        assert_non_null(t->keys);
        k = &t->keys[t->n_keys++];
        *k = (tiny_key){ .raw = NULL };
        assert_true(strlen(key) < sizeof k->name);
        strcpy(k->name, key);
    }
    free(k->raw);
    k->raw = NULL;
    return k;
}

/* Takes b over. */
static void set(tiny_gguf *t, const char *key, uint32_t kind, uint32_t item, uint64_t n, bytes b)
{
    tiny_key *k = key_slot(t, key);
    k->kind = kind;
    k->item = item;
    k->n = n;
    k->raw = b.p;
    k->raw_len = b.len;
}

void tiny_set_raw(tiny_gguf *t, const char *key, uint32_t kind, const void *raw, size_t len)
{
    bytes b = { .p = NULL };
    add(&b, raw, len);
    set(t, key, kind, kind, 1, b);
}

void tiny_set_arr(tiny_gguf *t, const char *key, uint32_t item, uint64_t n, const void *raw, size_t len)
{
    bytes b = { .p = NULL };
    add(&b, raw, len);
    set(t, key, GGUF_ARR, item, n, b);
}

void tiny_set_u32(tiny_gguf *t, const char *key, uint32_t v)
{
    bytes b = { .p = NULL };
    add_le(&b, v, 4);
    set(t, key, GGUF_U32, GGUF_U32, 1, b);
}

void tiny_set_f32(tiny_gguf *t, const char *key, float v)
{
    uint32_t u;
    bytes b = { .p = NULL };
    memcpy(&u, &v, sizeof u);
    add_le(&b, u, 4);
    set(t, key, GGUF_F32, GGUF_F32, 1, b);
}

void tiny_set_bool(tiny_gguf *t, const char *key, bool v)
{
    bytes b = { .p = NULL };
    add_le(&b, v, 1);
    set(t, key, GGUF_BOOL, GGUF_BOOL, 1, b);
}

void tiny_set_str(tiny_gguf *t, const char *key, const char *s)
{
    bytes b = { .p = NULL };
    add_str(&b, s);
    set(t, key, GGUF_STR, GGUF_STR, 1, b);
}

void tiny_set_strs(tiny_gguf *t, const char *key, const char *const *s, size_t n)
{
    bytes b = { .p = NULL };
    for (size_t i = 0; i < n; i++) add_str(&b, s[i]);
    set(t, key, GGUF_ARR, GGUF_STR, n, b);
}

static const int kind_width[13] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

void tiny_set_arr_of(tiny_gguf *t, const char *key, uint32_t item, uint64_t n)
{
    bytes b = { .p = NULL };
    for (uint64_t i = 0; i < n; i++) {
        uint64_t one = i % 2;
        if (item == GGUF_STR) {
            add_str(&b, one ? "a" : "");
        } else if (item == GGUF_ARR) {
            add_le(&b, GGUF_U8, 4);
            add_le(&b, 0, 8);
        } else {
            if (item == GGUF_F32) one *= 0x3f800000u;
            if (item == GGUF_F64) one *= 0x3ff0000000000000u;
            add_le(&b, one, kind_width[item]);
        }
    }
    set(t, key, GGUF_ARR, item, n, b);
}

void tiny_drop_key(tiny_gguf *t, const char *key)
{
    tiny_key *k = tiny_find_key(t, key);
    assert_non_null(k);
    free(k->raw);
    memmove(k, k + 1, (size_t)(t->keys + t->n_keys - (k + 1)) * sizeof *k);
    t->n_keys--;
}

/* ------------------------------------------------------------ tensors */

tiny_tensor *tiny_find_tensor(tiny_gguf *t, const char *name)
{
    for (size_t i = 0; i < t->n_tensors; i++)
        if (!strcmp(t->tensors[i].name, name)) return &t->tensors[i];
    return NULL;
}

/* Sum of twelve uniform numbers: near enough to a normal one. */
static float normal(rng *r)
{
    double s = -6;
    for (int i = 0; i < 12; i++) s += rng_unit(r);
    return (float)s;
}

void tiny_add_tensor(tiny_gguf *t, const char *name, uint32_t type, int n_dims, const uint64_t *dims,
                     const float *values, float std, uint64_t seed)
{
    const quant_info *q = quant_get(type);
    assert_true(q && q->encode && n_dims >= 1 && n_dims <= 4);
    tiny_tensor x = { .type = type, .n_dims = (uint32_t)n_dims };
    size_t n = 1;
    for (int i = 0; i < 4; i++) {
        x.dims[i] = i < n_dims ? dims[i] : 1;
        n *= x.dims[i];
    }
    assert_true(strlen(name) < sizeof x.name && dims[0] % (uint64_t)q->block == 0);
    strcpy(x.name, name);
    x.bytes = n / (size_t)q->block * (size_t)q->bytes;
    x.data = malloc(x.bytes);
    float *v = malloc(n * sizeof *v);
    assert_true(x.data && v);
    rng r;
    rng_seed(&r, seed);
    for (size_t i = 0; i < n; i++) v[i] = values ? values[i] : normal(&r) * std;
    q->encode(x.data, v, n);
    free(v);
    t->tensors = realloc(t->tensors, (t->n_tensors + 1) * sizeof *t->tensors);
    assert_non_null(t->tensors);
    t->tensors[t->n_tensors++] = x;
}

void tiny_pack_tensor(tiny_gguf *t, const char *name)
{
    tiny_tensor *x = tiny_find_tensor(t, name);
    t32_shape s;
    assert_true(x && t32_shape_of(&s, x->type, x->dims[1] * x->dims[2] * x->dims[3], x->dims[0]));
    uint8_t *packed = malloc(s.bytes);
    assert_non_null(packed);
    t32_pack(&s, packed, x->data, 0, s.stripes);
    free(x->data);
    x->data = packed;
    x->bytes = s.bytes;
    x->type += T32_TYPE;
}

void tiny_pack(tiny_gguf *t)
{
    for (size_t i = 0; i < t->n_tensors; i++)
        if (t->tensors[i].n_dims == 2 && strcmp(t->tensors[i].name, "token_embd.weight"))
            tiny_pack_tensor(t, t->tensors[i].name);
    tiny_set_u32(t, T32_KEY, T32_VERSION);
}

void tiny_drop_tensor(tiny_gguf *t, const char *name)
{
    tiny_tensor *x = tiny_find_tensor(t, name);
    assert_non_null(x);
    free(x->data);
    memmove(x, x + 1, (size_t)(t->tensors + t->n_tensors - (x + 1)) * sizeof *x);
    t->n_tensors--;
}

/* ------------------------------------------------------------ bytes */

static void mark(tiny_file *f, const bytes *b, int width, const char *what, const char *of)
{
    f->marks = realloc(f->marks, (f->n_marks + 1) * sizeof *f->marks);
    assert_non_null(f->marks);
    tiny_mark *m = &f->marks[f->n_marks++];
    m->at = b->len;
    m->width = width;
    snprintf(m->what, sizeof m->what, "%s%s", what, of);
}

static void put_key(tiny_file *f, bytes *b, const tiny_key *k)
{
    mark(f, b, 8, "key length of ", k->name);
    add_str(b, k->name);
    mark(f, b, 4, "kind of ", k->name);
    add_le(b, k->kind, 4);
    if (k->kind == GGUF_ARR) {
        mark(f, b, 4, "item kind of ", k->name);
        add_le(b, k->item, 4);
        mark(f, b, 8, "item count of ", k->name);
        add_le(b, k->n, 8);
        if (k->item == GGUF_STR && k->n) {
            size_t at = 0, last = 0;
            for (uint64_t i = 0; i < k->n; i++) {
                last = at;
                at += 8 + k->raw[at] + 256u * k->raw[at + 1];
            }
            mark(f, b, 8, "first string of ", k->name);
            b->len += last; /* only for the mark */
            mark(f, b, 8, "last string of ", k->name);
            b->len -= last;
        }
    } else if (k->kind == GGUF_STR) {
        mark(f, b, 8, "string length of ", k->name);
    }
    add(b, k->raw, k->raw_len);
}

static void put_entry(tiny_file *f, bytes *b, const tiny_tensor *x, uint64_t off)
{
    mark(f, b, 8, "name length of ", x->name);
    add_str(b, x->name);
    mark(f, b, 4, "n_dims of ", x->name);
    add_le(b, x->n_dims, 4);
    for (uint32_t i = 0; i < x->n_dims && i < 4; i++) {
        char what[16];
        snprintf(what, sizeof what, "dim%u of ", i);
        mark(f, b, 8, what, x->name);
        add_le(b, x->dims[i], 8);
    }
    mark(f, b, 4, "type of ", x->name);
    add_le(b, x->type, 4);
    mark(f, b, 8, "offset of ", x->name);
    add_le(b, off, 8);
}

static void pad(bytes *b, size_t from, size_t align)
{
    while ((b->len - from) % align) add_le(b, 0, 1);
}

tiny_file tiny_bytes(const tiny_gguf *t)
{
    tiny_file f = { .data = NULL };
    bytes b = { .p = NULL };
    add(&b, "GGUF", 4);
    mark(&f, &b, 4, "version", "");
    add_le(&b, t->version, 4);
    mark(&f, &b, 8, "tensor count", "");
    add_le(&b, t->n_tensors, 8);
    mark(&f, &b, 8, "key count", "");
    add_le(&b, t->n_keys, 8);
    for (size_t i = 0; i < t->n_keys; i++) put_key(&f, &b, &t->keys[i]);
    uint64_t off = 0;
    for (size_t i = 0; i < t->n_tensors; i++) {
        put_entry(&f, &b, &t->tensors[i], off);
        off += (t->tensors[i].bytes + t->align - 1) / t->align * t->align;
    }
    pad(&b, 0, t->align);
    f.data_at = b.len;
    for (size_t i = 0; i < t->n_tensors; i++) {
        add(&b, t->tensors[i].data, t->tensors[i].bytes);
        pad(&b, f.data_at, t->align);
    }
    /* exactly as long as the file, so that a sanitizer sees a read past the end */
    f.len = b.len;
    f.data = realloc(b.p, b.len);
    assert_non_null(f.data);
    return f;
}

void tiny_file_free(tiny_file *f)
{
    free(f->data);
    free(f->marks);
    *f = (tiny_file){ .data = NULL };
}

const tiny_mark *tiny_find_mark(const tiny_file *f, const char *what)
{
    for (size_t i = 0; i < f->n_marks; i++)
        if (!strcmp(f->marks[i].what, what)) return &f->marks[i];
    fail_msg("no mark \"%s\"", what);
    return NULL;
}

void tiny_poke_mark(tiny_file *f, const tiny_mark *m, uint64_t v)
{
    for (int i = 0; i < m->width; i++) f->data[m->at + (size_t)i] = (uint8_t)(v >> (8 * i));
}

void tiny_poke(tiny_file *f, const char *what, uint64_t v) { tiny_poke_mark(f, tiny_find_mark(f, what), v); }

void tiny_save(const tiny_gguf *t, const char *path)
{
    tiny_file f = tiny_bytes(t);
    FILE *o = fopen(path, "wb");
    assert_non_null(o);
    assert_int_equal(fwrite(f.data, 1, f.len, o), f.len);
    assert_int_equal(fclose(o), 0);
    tiny_file_free(&f);
}

static void set_u16(tiny_gguf *t, const char *key, unsigned v)
{
    uint8_t b[2] = { (uint8_t)v, (uint8_t)(v >> 8) };
    tiny_set_raw(t, key, GGUF_U16, b, 2);
}

tiny_gguf *tiny_shard(const tiny_gguf *t, int no, int count)
{
    tiny_gguf *s = tiny_new();
    s->version = t->version;
    for (size_t i = 0; i < t->n_keys && no == 0; i++) {
        const tiny_key *k = &t->keys[i];
        bytes b = { .p = NULL };
        add(&b, k->raw, k->raw_len);
        set(s, k->name, k->kind, k->item, k->n, b);
    }
    set_u16(s, "split.no", (unsigned)no);
    set_u16(s, "split.count", (unsigned)count);
    uint32_t total = (uint32_t)t->n_tensors;
    uint8_t n[4] = { (uint8_t)total, (uint8_t)(total >> 8), (uint8_t)(total >> 16), (uint8_t)(total >> 24) };
    tiny_set_raw(s, "split.tensors.count", GGUF_I32, n, 4);
    size_t from = t->n_tensors * (size_t)no / (size_t)count, to = t->n_tensors * (size_t)(no + 1) / (size_t)count;
    s->tensors = calloc(to - from + 1, sizeof *s->tensors);
    assert_non_null(s->tensors);
    for (size_t i = from; i < to; i++) {
        tiny_tensor *x = &s->tensors[s->n_tensors++];
        *x = t->tensors[i];
        x->data = malloc(x->bytes);
        assert_non_null(x->data);
        memcpy(x->data, t->tensors[i].data, x->bytes);
    }
    return s;
}
