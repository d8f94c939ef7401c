/* safetensors.c - the reader of safetensors files (safetensors.h).  A file is: the header's length (u64,
 * little-endian), the header (a JSON object: "name": {"dtype", "shape", "data_offsets"}, and "__metadata__": strings),
 * the data.  Offsets count from the data's first byte.
 *
 * The scanner knows just the JSON that a header can hold: two levels of objects, strings, arrays of whole numbers.
 * Nothing else is in the format, so anything else is refused with the byte it begins at. */
#include "format/safetensors.h"

#include <stdio.h>

#include "format/gguf_impl.h"

#define MAX_HEADER ((size_t)100 << 20) /* the published reader's limit */

typedef struct {
    os_file file;    /* for bytes in memory: borrowed, not mapped */
    char where[168]; /* "name.safetensors: ", or "" */
    uint32_t first, n;
} st_file;

struct safetensors {
    st_file *files; /* owned */
    size_t n_files;
    gguf_tensor *t;     /* owned; in the order of files */
    gguf_slot *t_order; /* owned: index of t by name */
    arena *names;
    uint32_t n_t, cap_t;
};

/* ------------------------------------------------------------ the scanner */

typedef struct {
    const uint8_t *s; /* the whole file; positions in sentences are the file's */
    size_t at, end;   /* end of the header */
    const char *where;
    llada_err *err;
} scanner;

static llada_status wrong(const scanner *c, const char *wanted)
{
    if (c->at >= c->end)
        return llada_fail(c->err, LLADA_BAD_MODEL, "%sthe header ends at byte %zu, where %s was wanted", c->where,
                          c->end,
                          wanted);
    return llada_fail(c->err, LLADA_BAD_MODEL, "%sbyte %zu of the header is 0x%02x, where %s was wanted", c->where,
                      c->at,
                      c->s[c->at], wanted);
}

static void skip_blanks(scanner *c)
{
    while (c->at < c->end && (c->s[c->at] == ' ' || c->s[c->at] == '\t' || c->s[c->at] == '\n' || c->s[c->at] == '\r'))
        c->at++;
}

/* The next character behind blanks; 0 at the end. */
static int peek(scanner *c)
{
    skip_blanks(c);
    return c->at < c->end ? c->s[c->at] : 0;
}

static llada_status take(scanner *c, char what, const char *wanted)
{
    if (peek(c) != what) return wrong(c, wanted);
    c->at++;
    return LLADA_OK;
}

/* A string's bytes between the quotes, escapes as they stand; *plain: there are none. */
static llada_status take_string(scanner *c, gguf_str *out, bool *plain)
{
    llada_status st = take(c, '"', "a string");
    if (st) return st;
    *plain = true;
    out->s = (const char *)c->s + c->at;
    while (c->at < c->end && c->s[c->at] != '"') {
        if (c->s[c->at] < 0x20) return wrong(c, "a character of a string");
        if (c->s[c->at] == '\\') {
            *plain = false;
            c->at++;
        }
        c->at++; /* whatever is escaped is no end of the string */
    }
    if (c->at >= c->end) {
        c->at = c->end;
        return wrong(c, "the end of a string");
    }
    out->len = (size_t)((const char *)c->s + c->at - out->s);
    c->at++;
    return LLADA_OK;
}

static llada_status take_number(scanner *c, uint64_t *out)
{
    uint64_t v = 0;
    int d = peek(c);
    if (d < '0' || d > '9') return wrong(c, "a whole number");
    size_t begin = c->at;
    for (; c->at < c->end && c->s[c->at] >= '0' && c->s[c->at] <= '9'; c->at++) {
        uint64_t digit = (uint64_t)(c->s[c->at] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return llada_fail(c->err, LLADA_BAD_MODEL, "%sthe number at byte %zu of the header is too large", c->where,
                              begin);
        v = v * 10 + digit;
    }
    if (d == '0' && c->at - begin > 1) {
        c->at = begin;
        return wrong(c, "a number without zeros in front");
    }
    *out = v;
    return LLADA_OK;
}

/* [1,2,3] into at most cap numbers. */
static llada_status take_numbers(scanner *c, uint64_t *out, int cap, int *n, const char *what)
{
    llada_status st = take(c, '[', "a list of numbers");
    *n = 0;
    if (st) return st;
    if (peek(c) == ']') {
        c->at++;
        return LLADA_OK;
    }
    for (;;) {
        if (*n == cap)
            return llada_fail(c->err, LLADA_BAD_MODEL, "%sat byte %zu of the header: more than %d numbers in a %s",
                              c->where, c->at, cap, what);
        if ((st = take_number(c, &out[*n]))) return st;
        ++*n;
        if (peek(c) != ',') return take(c, ']', "a comma or the end of the list");
        c->at++;
    }
}

/* Behind a member of an object: true when another follows, false behind its end. */
static llada_status next_member(scanner *c, bool *more)
{
    *more = peek(c) == ',';
    if (!*more) return take(c, '}', "a comma or the end of the object");
    c->at++;
    return LLADA_OK;
}

/* {"k": "v", ...}, all strings; nothing of it is used. */
static llada_status skip_metadata(scanner *c)
{
    gguf_str s;
    bool plain, more = true;
    llada_status st = take(c, '{', "an object of strings");
    if (st) return st;
    if (peek(c) == '}') {
        c->at++;
        return LLADA_OK;
    }
    while (!st && more) {
        if ((st = take_string(c, &s, &plain)) || (st = take(c, ':', "a colon"))) break;
        if ((st = take_string(c, &s, &plain))) break;
        st = next_member(c, &more);
    }
    return st;
}

/* ------------------------------------------------------------ one tensor */

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

typedef struct {
    gguf_str dtype;
    uint64_t shape[4], off[2];
    int n_dims, n_off, has;
} st_entry;

static bool is(gguf_str s, const char *word) { return s.len == strlen(word) && !memcmp(s.s, word, s.len); }

static llada_status take_field(scanner *c, st_entry *e)
{
    gguf_str key = {0};
    bool plain;
    size_t begin = c->at;
    llada_status st = take_string(c, &key, &plain);
    if (st || (st = take(c, ':', "a colon"))) return st;
    int bit = is(key, "dtype") ? HAS_DTYPE : is(key, "shape") ? HAS_SHAPE : is(key, "data_offsets") ? HAS_OFFSETS : 0;
    if (!bit || e->has & bit)
        return llada_fail(c->err, LLADA_BAD_MODEL, "%sthe field at byte %zu of the header is %s", c->where, begin,
                          bit ? "there twice" : "none of dtype, shape, data_offsets");
    e->has |= bit;
    if (bit == HAS_DTYPE) return take_string(c, &e->dtype, &plain);
    if (bit == HAS_SHAPE) return take_numbers(c, e->shape, 4, &e->n_dims, "shape");
    return take_numbers(c, e->off, 2, &e->n_off, "pair of offsets");
}

static llada_status take_entry(scanner *c, st_entry *e, const char *name)
{
    bool more = true;
    llada_status st = take(c, '{', "a tensor's object");
    while (!st && more) {
        if ((st = take_field(c, e))) break;
        st = next_member(c, &more);
    }
    if (st) return st;
    if (e->has != HAS_ALL || e->n_off != 2)
        return llada_fail(c->err, LLADA_BAD_MODEL, "%stensor %.64s lacks %s", c->where, name,
                          !(e->has & HAS_DTYPE)   ? "its dtype"
                          : !(e->has & HAS_SHAPE) ? "its shape"
                                                  : "its two data_offsets");
    return LLADA_OK;
}

static llada_status fill_shape(const scanner *c, const st_entry *e, gguf_tensor *t)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = { { "F32", QT_F32 }, { "F16", QT_F16 }, { "BF16", QT_BF16 } };
    t->type = QT_COUNT;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is(e->dtype, types[i].name)) t->type = types[i].type;
    if (t->type == QT_COUNT) {
        bool fine = e->dtype.len <= 16 && gguf_printable((const uint8_t *)e->dtype.s, e->dtype.len);
        return llada_fail(c->err, LLADA_UNSUPPORTED, "%stensor %.64s is stored as %.*s; F32, F16 and BF16 can be read",
                          c->where, t->name, fine ? (int)e->dtype.len : 1, fine ? e->dtype.s : "?");
    }
    t->n_dims = e->n_dims ? e->n_dims : 1;
    for (int i = 0; i < 4; i++) t->dims[i] = 1;
    for (int i = 0; i < e->n_dims; i++) t->dims[i] = e->shape[e->n_dims - 1 - i];
    if (!gguf_tensor_bytes(t))
        return llada_fail(c->err, LLADA_BAD_MODEL,
                          "%stensor %.64s: the shape %llu x %llu x %llu x %llu is empty or overflows", c->where,
                          t->name, (unsigned long long)t->dims[3], (unsigned long long)t->dims[2],
                          (unsigned long long)t->dims[1], (unsigned long long)t->dims[0]);
    return LLADA_OK;
}

static llada_status add_tensor(safetensors *s, const scanner *c, const st_entry *e, const char *name)
{
    gguf_tensor t = { .name = name };
    llada_status st = fill_shape(c, e, &t);
    if (st) return st;
    if (e->off[0] > e->off[1] || e->off[1] - e->off[0] != t.bytes)
        return llada_fail(c->err, LLADA_BAD_MODEL, "%stensor %.64s takes %zu bytes, but its offsets are %llu to %llu",
                          c->where, name, t.bytes, (unsigned long long)e->off[0], (unsigned long long)e->off[1]);
    if (s->n_t >= GGUF_MAX_TENSORS)
        return llada_fail(c->err, LLADA_BAD_MODEL, "%smore than %d tensors", c->where, GGUF_MAX_TENSORS);
    void *list = s->t;
    if (s->n_t == s->cap_t) {
        uint32_t more = s->cap_t ? 2 * s->cap_t : 256;
        if (!(list = mem_grow(s->t, s->cap_t * sizeof t, more * sizeof t)))
            return llada_fail(c->err, LLADA_NO_MEMORY, "no memory for %u tensors", more);
        s->t = list;
        s->cap_t = more;
    }
    s->t[s->n_t++] = t;
    return LLADA_OK;
}

/* ------------------------------------------------------------ one file */

/* One member of the header's object: a tensor whose data begins at data + off, or the metadata. */
static llada_status take_member(safetensors *s, scanner *c, size_t data_len)
{
    gguf_str key;
    bool plain;
    size_t begin = c->at;
    llada_status st = take_string(c, &key, &plain);
    if (st || (st = take(c, ':', "a colon"))) return st;
    if (is(key, "__metadata__")) return skip_metadata(c);
    if (!plain || key.len == 0 || key.len > GGUF_MAX_TENSOR_NAME || !gguf_printable((const uint8_t *)key.s, key.len))
        return llada_fail(c->err, LLADA_BAD_MODEL,
                          "%sthe tensor name at byte %zu of the header is not 1 to %d printable ASCII characters",
                          c->where, begin, GGUF_MAX_TENSOR_NAME);
    st_entry e = { .has = 0 };
    char *name = arena_strdup(s->names, key.s, key.len);
    if (!name) return llada_fail(c->err, LLADA_NO_MEMORY, "no memory for tensor names");
    if ((st = take_entry(c, &e, name)) || (st = add_tensor(s, c, &e, name))) return st;
    if (e.off[1] > data_len)
        return llada_fail(c->err, LLADA_BAD_MODEL,
                          "%scut short: tensor %.64s ends at byte %llu of the data, which has %zu", c->where, name,
                          (unsigned long long)e.off[1], data_len);
    s->t[s->n_t - 1].data = c->s + c->end + (size_t)e.off[0];
    return LLADA_OK;
}

/* Neither holes nor overlaps: each tensor begins where the one before it ends, and the last ends with the file. */
static llada_status check_cover(const safetensors *s, const st_file *f, size_t data_at, llada_err *err)
{
    gguf_slot *order = gguf_index_places(f->n ? s->t + f->first : s->t, f->n); /* no tensors: s->t may be NULL */
    if (!order) return llada_fail(err, LLADA_NO_MEMORY, "no memory for an index of %u tensors", f->n);
    llada_status st = LLADA_OK;
    size_t at = data_at;
    for (uint32_t i = 0; i < f->n && !st; i++) {
        const gguf_tensor *t = &s->t[f->first + order[i].i];
        size_t begin = (size_t)(t->data - f->file.data);
        if (begin != at)
            st = llada_fail(err, LLADA_BAD_MODEL,
                            "%stensor %.64s begins at byte %zu, but the one before it ends at byte %zu: %s", f->where,
                            t->name, begin, at, begin < at ? "they overlap" : "a hole");
        at = begin + t->bytes;
    }
    mem_free(order);
    if (!st && at != f->file.len)
        st = llada_fail(err, LLADA_BAD_MODEL, "%sthe tensors end at byte %zu, but the file at byte %zu", f->where, at,
                        f->file.len);
    return st;
}

static llada_status read_header(safetensors *s, st_file *f, size_t header, llada_err *err)
{
    scanner c = { .s = f->file.data, .at = 8, .end = 8 + header, .where = f->where, .err = err };
    bool more = true;
    llada_status st = take(&c, '{', "the header's object");
    if (!st && peek(&c) == '}') {
        c.at++;
        more = false;
    }
    while (!st && more) {
        if ((st = take_member(s, &c, f->file.len - c.end))) break;
        st = next_member(&c, &more);
    }
    if (st) return st;
    skip_blanks(&c);
    if (c.at != c.end) return wrong(&c, "the end of the header");
    f->n = s->n_t - f->first;
    return check_cover(s, f, c.end, err);
}

static llada_status read_file(safetensors *s, st_file *f, llada_err *err)
{
    f->first = s->n_t;
    if (f->file.len < 8)
        return llada_fail(err, LLADA_BAD_MODEL, "%snot safetensors: the file has only %zu bytes", f->where,
                          f->file.len);
    uint64_t header = le64(f->file.data);
    if (header > MAX_HEADER)
        return llada_fail(err, LLADA_BAD_MODEL, "%snot safetensors: a header of %llu bytes; the limit is %zu", f->where,
                          (unsigned long long)header, MAX_HEADER);
    if (header > f->file.len - 8)
        return llada_fail(err, LLADA_BAD_MODEL, "%scut short: the header has %llu bytes, but the file %zu", f->where,
                          (unsigned long long)header, f->file.len);
    return read_header(s, f, (size_t)header, err);
}

/* ------------------------------------------------------------ all files */

static safetensors *new_set(size_t n, llada_err *err)
{
    safetensors *s = mem_new(sizeof *s);
    if (s) {
        s->files = mem_array(n, sizeof *s->files);
        s->names = arena_new(16384);
    }
    if (s && s->files && s->names) return s;
    llada_fail(err, LLADA_NO_MEMORY, "no memory for %zu files", n);
    st_close(&s);
    return NULL;
}

static llada_status index_set(safetensors *s, llada_err *err)
{
    s->t_order = gguf_index_tensors(s->t, s->n_t);
    if (!s->t_order) return llada_fail(err, LLADA_NO_MEMORY, "no memory for an index of %u tensors", s->n_t);
    const gguf_slot *d = gguf_double(s->t_order, s->n_t);
    if (!d) return LLADA_OK;
    return llada_fail(err, LLADA_BAD_MODEL, "%stensor %.64s is there twice", s->files[st_file_of(s, &s->t[d->i])].where,
                      d->name);
}

llada_status st_open(safetensors **out, const char *const *paths, size_t n, llada_err *err)
{
    *out = NULL;
    safetensors *s = new_set(n, err);
    if (!s) return LLADA_NO_MEMORY;
    llada_status st = LLADA_OK;
    for (size_t i = 0; i < n && !st; i++) {
        st_file *f = &s->files[i];
        const char *slash = strrchr(paths[i], '/');
        if ((st = os_map(&f->file, paths[i], true, err))) break;
        s->n_files++;
        snprintf(f->where, sizeof f->where, "%.160s: ", slash ? slash + 1 : paths[i]);
        st = read_file(s, f, err);
    }
    if (!st) st = index_set(s, err);
    if (st) st_close(&s);
    *out = s;
    return st;
}

llada_status st_open_memory(safetensors **out, const void *data, size_t len, llada_err *err)
{
    *out = NULL;
    safetensors *s = new_set(1, err);
    if (!s) return LLADA_NO_MEMORY;
    s->files[0].file = (os_file){ .data = data, .len = len };
    llada_status st = read_file(s, &s->files[0], err); /* n_files stays 0: the bytes are the caller's */
    if (!st) st = index_set(s, err);
    if (st) st_close(&s);
    *out = s;
    return st;
}

void st_close(safetensors **sp)
{
    safetensors *s = *sp;
    if (!s) return;
    for (size_t i = 0; i < s->n_files; i++) os_unmap(&s->files[i].file);
    mem_free(s->files);
    mem_free(s->t);
    mem_free(s->t_order);
    arena_free(s->names);
    mem_free(s);
    *sp = NULL;
}

uint32_t st_n_tensors(const safetensors *s) { return s->n_t; }

const gguf_tensor *st_tensor_at(const safetensors *s, uint32_t i) { return &s->t[i]; }

const gguf_tensor *st_find(const safetensors *s, const char *name)
{
    const gguf_slot *e = gguf_lookup(s->t_order, s->n_t, name);
    return e ? &s->t[e->i] : NULL;
}

size_t st_file_of(const safetensors *s, const gguf_tensor *t)
{
    uint32_t i = (uint32_t)(t - s->t);
    size_t f = 0;
    while (f + 1 < s->n_files && i >= s->files[f + 1].first) f++;
    return f;
}

void st_forget(const safetensors *s, const gguf_tensor *t)
{
    if (s->n_files) os_forget(&s->files[st_file_of(s, t)].file, t->data, t->bytes);
}
