/* gguf_read.c - the header of one file: counts and key/value pairs.  Nothing is believed: a length or count is compared
 * with the bytes that are left before it is used, and memory is taken only for what the file can really hold. */
#include "format/gguf_impl.h"

static const struct {
    const char *name;
    uint8_t bytes;
} kinds[GGUF_KINDS] = {
    [GGUF_U8] = { "u8", 1 },      [GGUF_I8] = { "i8", 1 },     [GGUF_U16] = { "u16", 2 }, [GGUF_I16] = { "i16", 2 },
    [GGUF_U32] = { "u32", 4 },    [GGUF_I32] = { "i32", 4 },   [GGUF_F32] = { "f32", 4 }, [GGUF_BOOL] = { "bool", 1 },
    [GGUF_STR] = { "string", 0 }, [GGUF_ARR] = { "array", 0 }, [GGUF_U64] = { "u64", 8 }, [GGUF_I64] = { "i64", 8 },
    [GGUF_F64] = { "f64", 8 },
};

/* The least an entry takes, without its name: length u64, type u32, one byte of value. */
enum { HEADER_BYTES = 24, LEAST_KEY = 13 };

size_t gguf_kind_bytes(uint32_t kind) { return kind < GGUF_KINDS ? kinds[kind].bytes : 0; }

const char *gguf_kind_name(uint32_t kind) { return kind < GGUF_KINDS ? kinds[kind].name : "unknown"; }

llada_status gguf_cut_short(const gguf_part *p, const char *what, const char *name, size_t at, uint64_t need,
                            llada_err *err)
{
    return llada_fail(err, LLADA_BAD_MODEL,
                      "%scut short: %s%.64s needs %llu bytes at byte %zu, but the file ends at byte %zu", p->where,
                      what, name, (unsigned long long)need, at, p->file.len);
}

bool gguf_printable(const uint8_t *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (s[i] < 0x20 || s[i] > 0x7e) return false;
    return true;
}

llada_status gguf_read_name(gguf_part *p, size_t at, uint64_t len, uint64_t max, const char *what, size_t *name_bytes,
                            const char **name, llada_err *err)
{
    const char *s = (const char *)p->file.data + at;
    if (len == 0) return llada_fail(err, LLADA_BAD_MODEL, "%sempty %s at byte %zu", p->where, what, at - 8);
    if (len > max)
        return llada_fail(err, LLADA_BAD_MODEL, "%s%s of %llu bytes at byte %zu; the limit is %llu", p->where, what,
                          (unsigned long long)len, at - 8, (unsigned long long)max);
    if (len > p->file.len - at) return gguf_cut_short(p, what, "", at, len, err);
    if (!gguf_printable(p->file.data + at, (size_t)len))
        return llada_fail(err, LLADA_BAD_MODEL, "%s%s at byte %zu has bytes that are not printable ASCII", p->where,
                          what, at);
    *name_bytes += (size_t)len;
    if (*name_bytes > GGUF_MAX_NAME_BYTES)
        return llada_fail(err, LLADA_BAD_MODEL, "%snames take more than %d bytes (at byte %zu)", p->where,
                          GGUF_MAX_NAME_BYTES, at);
    *name = arena_strdup(p->names, s, (size_t)len);
    return *name ? LLADA_OK : llada_fail(err, LLADA_NO_MEMORY, "no memory for the names in the file's header");
}

/* Where the reader stands. */
typedef struct {
    gguf_part *p;
    size_t at;     /* next byte; never past the end */
    size_t walked; /* strings and booleans of arrays seen so far */
    size_t name_bytes;
    const char *key; /* for sentences */
    llada_err *err;
} cursor;

static size_t left(const cursor *c) { return c->p->file.len - c->at; }

static llada_status short_value(cursor *c, uint64_t need)
{
    return gguf_cut_short(c->p, c->key[0] ? "the value of key " : "a key", c->key, c->at, need, c->err);
}

static llada_status take_u32(cursor *c, uint32_t *v)
{
    if (left(c) < 4) return short_value(c, 4);
    *v = le32(c->p->file.data + c->at);
    c->at += 4;
    return LLADA_OK;
}

static llada_status take_u64(cursor *c, uint64_t *v)
{
    if (left(c) < 8) return short_value(c, 8);
    *v = le64(c->p->file.data + c->at);
    c->at += 8;
    return LLADA_OK;
}

static llada_status skip_strings(cursor *c, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len = 0;
        llada_status st = take_u64(c, &len);
        if (st) return st;
        if (len > left(c)) return short_value(c, len);
        c->at += (size_t)len;
    }
    return LLADA_OK;
}

static llada_status skip_bools(cursor *c, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++, c->at++)
        if (c->p->file.data[c->at] > 1)
            return llada_fail(c->err, LLADA_BAD_MODEL, "%skey %.64s: a bool at byte %zu is %u, not 0 or 1", c->p->where,
                              c->key, c->at, c->p->file.data[c->at]);
    return LLADA_OK;
}

/* Checks n values of one kind and moves behind them. */
static llada_status skip_values(cursor *c, uint32_t kind, uint64_t n)
{
    size_t each = kind == GGUF_STR ? 8 : gguf_kind_bytes(kind);
    if (n > left(c) / each)
        return llada_fail(
            c->err, LLADA_BAD_MODEL,
            "%scut short: key %.64s has %llu values of type %s at byte %zu, but the file ends at byte %zu", c->p->where,
            c->key, (unsigned long long)n, gguf_kind_name(kind), c->at, c->p->file.len);
    if (kind != GGUF_STR && kind != GGUF_BOOL) {
        c->at += (size_t)n * each;
        return LLADA_OK;
    }
    c->walked += (size_t)n;
    if (n > GGUF_MAX_WALKED || c->walked > GGUF_MAX_WALKED)
        return llada_fail(c->err, LLADA_BAD_MODEL, "%skey %.64s has %llu values of type %s; the limit is %d",
                          c->p->where, c->key, (unsigned long long)n, gguf_kind_name(kind), GGUF_MAX_WALKED);
    return kind == GGUF_STR ? skip_strings(c, n) : skip_bools(c, n);
}

static llada_status check_kind(cursor *c, uint32_t kind, const char *what)
{
    if (kind < GGUF_KINDS) return LLADA_OK;
    return llada_fail(c->err, LLADA_BAD_MODEL, "%skey %.64s has %s %u at byte %zu, which GGUF does not define",
                      c->p->where, c->key, what, kind, c->at - 4);
}

static llada_status read_array_head(cursor *c, gguf_kv *kv)
{
    uint32_t item = 0;
    llada_status st = take_u32(c, &item);
    if (st || (st = check_kind(c, item, "item type"))) return st;
    if (item == GGUF_ARR)
        return llada_fail(c->err, LLADA_BAD_MODEL,
                          "%skey %.64s is an array of arrays (at byte %zu), which is not supported", c->p->where,
                          c->key, c->at - 4);
    kv->item = (uint8_t)item;
    return take_u64(c, &kv->n);
}

static llada_status read_kv(cursor *c, gguf_kv *kv)
{
    uint64_t len = 0;
    uint32_t kind = 0;
    c->key = "";
    llada_status st = take_u64(c, &len);
    if (st || (st = gguf_read_name(c->p, c->at, len, GGUF_MAX_KEY, "key", &c->name_bytes, &kv->name, c->err)))
        return st;
    c->at += (size_t)len;
    c->key = kv->name;
    if ((st = take_u32(c, &kind)) || (st = check_kind(c, kind, "type"))) return st;
    kv->kind = kv->item = (uint8_t)kind;
    kv->n = 1;
    kv->at = c->at;
    if (kind == GGUF_ARR && (st = read_array_head(c, kv))) return st;
    st = skip_values(c, kv->item, kv->n);
    kv->end = c->at;
    return st;
}

static llada_status index_keys(gguf_part *p, llada_err *err)
{
    p->kv_order = gguf_index_keys(p->kv, p->n_kv);
    if (!p->kv_order) return llada_fail(err, LLADA_NO_MEMORY, "no memory for an index of %u keys", p->n_kv);
    const gguf_slot *d = gguf_double(p->kv_order, p->n_kv);
    if (!d) return LLADA_OK;
    return llada_fail(err, LLADA_BAD_MODEL, "%skey %.64s is there twice (values at bytes %zu and %zu)", p->where,
                      d->name, p->kv[d[-1].i].at, p->kv[d->i].at);
}

static llada_status read_keys(gguf_part *p, uint64_t count, cursor *c)
{
    if (count > left(c) / LEAST_KEY)
        return llada_fail(c->err, LLADA_BAD_MODEL,
                          "%scut short: the header promises %llu keys, but only %zu bytes follow", p->where,
                          (unsigned long long)count, left(c));
    if (count > GGUF_MAX_KEYS)
        return llada_fail(c->err, LLADA_BAD_MODEL, "%s%llu keys; the limit is %d", p->where, (unsigned long long)count,
                          GGUF_MAX_KEYS);
    p->names = arena_new(16384);
    p->kv = mem_array((size_t)count, sizeof *p->kv);
    if (!p->kv || !p->names)
        return llada_fail(c->err, LLADA_NO_MEMORY, "no memory for %llu keys", (unsigned long long)count);
    for (; p->n_kv < count; p->n_kv++) {
        llada_status st = read_kv(c, &p->kv[p->n_kv]);
        if (st) return st;
    }
    return index_keys(p, c->err);
}

static llada_status read_alignment(gguf_part *p, llada_err *err)
{
    int64_t a = 32;
    llada_status st;
    if (gguf_part_find(p, "general.alignment") &&
        (st = gguf_part_int(p, "general.alignment", 1, GGUF_MAX_ALIGN, &a, err)))
        return st;
    if (!gguf_align_ok((uint64_t)a))
        return llada_fail(err, LLADA_BAD_MODEL, "%skey general.alignment is %lld, not a power of two", p->where,
                          (long long)a);
    p->align = (size_t)a;
    return LLADA_OK;
}

llada_status gguf_read_part(gguf_part *p, char *warn, size_t cap, llada_err *err)
{
    llada_status st = gguf_check_magic(p, err);
    if (st) return st;
    if (p->file.len < HEADER_BYTES) return gguf_cut_short(p, "the header", "", 0, HEADER_BYTES, err);
    p->version = le32(p->file.data + 4);
    cursor c = { .p = p, .at = HEADER_BYTES, .key = "", .err = err };
    if ((st = read_keys(p, le64(p->file.data + 16), &c)) || (st = read_alignment(p, err))) return st;
    return gguf_read_tensors(p, c.at, le64(p->file.data + 8), c.name_bytes, warn, cap, err);
}

void gguf_free_part(gguf_part *p)
{
    if (p->path) os_unmap(&p->file);
    mem_free(p->path);
    mem_free(p->kv);
    mem_free(p->t);
    mem_free(p->kv_order);
    arena_free(p->names);
    *p = (gguf_part){ 0 };
}
