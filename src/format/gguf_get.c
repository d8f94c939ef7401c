/* gguf_get.c - typed getters.  A key of the wrong type is refused by name, never converted in a way that loses
 * anything. */
#include "format/gguf_impl.h"

static llada_status missing(const gguf_part *p, const char *key, llada_err *err)
{
    return llada_fail(err, LLADA_BAD_MODEL, "%skey %.64s is missing", p->where, key);
}

static llada_status wrong(const gguf_part *p, const gguf_kv *kv, const char *wanted, llada_err *err)
{
    bool arr = kv->kind == GGUF_ARR;
    return llada_fail(err, LLADA_BAD_MODEL, "%skey %.64s is of type %s%s, but %s is wanted", p->where, kv->name,
                      arr ? "array of " : "", gguf_kind_name(kv->item), wanted);
}

static float f32_at(const uint8_t *d)
{
    uint32_t u = le32(d);
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static double f64_at(const uint8_t *d)
{
    uint64_t u = le64(d);
    double f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* An integer as sign and magnitude, so that u64 needs no wider type. */
typedef struct {
    bool neg;
    uint64_t bits; /* two's complement when neg */
} integer;

/* False when the kind is not an integer. */
static bool int_at(uint32_t kind, const uint8_t *d, integer *v)
{
    uint64_t u;
    switch (kind) {
    case GGUF_U8: u = d[0]; break;
    case GGUF_U16: u = (uint64_t)d[0] | (uint64_t)d[1] << 8; break;
    case GGUF_U32: u = le32(d); break;
    case GGUF_U64: u = le64(d); break;
    case GGUF_I8: u = (uint64_t)(int64_t)(int8_t)d[0]; break;
    case GGUF_I16: u = (uint64_t)(int64_t)(int16_t)(d[0] | d[1] << 8); break;
    case GGUF_I32: u = (uint64_t)(int64_t)(int32_t)le32(d); break;
    case GGUF_I64: u = le64(d); break;
    default: return false;
    }
    bool is_signed = kind == GGUF_I8 || kind == GGUF_I16 || kind == GGUF_I32 || kind == GGUF_I64;
    *v = (integer){ .neg = is_signed && u >> 63, .bits = u };
    return true;
}

static bool to_i64(integer v, int64_t *out)
{
    if (!v.neg && v.bits > INT64_MAX) return false;
    *out = (int64_t)v.bits;
    return true;
}

static double to_f64(integer v) { return v.neg ? (double)(int64_t)v.bits : (double)v.bits; }

bool gguf_has(const gguf *g, const char *key) { return gguf_part_find(&g->parts[0], key) != NULL; }

llada_status gguf_part_int(const gguf_part *p, const char *key, int64_t lo, int64_t hi, int64_t *out, llada_err *err)
{
    const gguf_kv *kv = gguf_part_find(p, key);
    integer v;
    if (!kv) return missing(p, key, err);
    if (!int_at(kv->kind, p->file.data + kv->at, &v)) return wrong(p, kv, "an integer", err);
    int64_t x;
    if (!to_i64(v, &x))
        return llada_fail(err, LLADA_BAD_MODEL, "%skey %.64s is %llu; %lld to %lld is allowed", p->where, key,
                          (unsigned long long)v.bits, (long long)lo, (long long)hi);
    if (x < lo || x > hi)
        return llada_fail(err, LLADA_BAD_MODEL, "%skey %.64s is %lld; %lld to %lld is allowed", p->where, key,
                          (long long)x, (long long)lo, (long long)hi);
    *out = x;
    return LLADA_OK;
}

llada_status gguf_get_int(const gguf *g, const char *key, int64_t lo, int64_t hi, int64_t *out, llada_err *err)
{
    return gguf_part_int(&g->parts[0], key, lo, hi, out, err);
}

llada_status gguf_get_f64(const gguf *g, const char *key, double *out, llada_err *err)
{
    const gguf_part *p = &g->parts[0];
    const gguf_kv *kv = gguf_part_find(p, key);
    integer v;
    if (!kv) return missing(p, key, err);
    const uint8_t *d = p->file.data + kv->at;
    if (kv->kind == GGUF_F32)
        *out = (double)f32_at(d);
    else if (kv->kind == GGUF_F64)
        *out = f64_at(d);
    else if (int_at(kv->kind, d, &v))
        *out = to_f64(v);
    else
        return wrong(p, kv, "a number", err);
    return LLADA_OK;
}

llada_status gguf_get_bool(const gguf *g, const char *key, bool *out, llada_err *err)
{
    const gguf_part *p = &g->parts[0];
    const gguf_kv *kv = gguf_part_find(p, key);
    if (!kv) return missing(p, key, err);
    if (kv->kind != GGUF_BOOL) return wrong(p, kv, "bool", err);
    *out = p->file.data[kv->at] != 0;
    return LLADA_OK;
}

llada_status gguf_get_str(const gguf *g, const char *key, gguf_str *out, llada_err *err)
{
    const gguf_part *p = &g->parts[0];
    const gguf_kv *kv = gguf_part_find(p, key);
    if (!kv) return missing(p, key, err);
    if (kv->kind != GGUF_STR) return wrong(p, kv, "string", err);
    const uint8_t *d = p->file.data + kv->at;
    *out = (gguf_str){ .s = (const char *)d + 8, .len = (size_t)le64(d) };
    return LLADA_OK;
}

/* ------------------------------------------------------------ arrays */

static llada_status find_arr(const gguf *g, const char *key, const gguf_kv **out, llada_err *err)
{
    const gguf_kv *kv = gguf_part_find(&g->parts[0], key);
    if (!kv) return missing(&g->parts[0], key, err);
    if (kv->kind != GGUF_ARR) return wrong(&g->parts[0], kv, "an array", err);
    *out = kv;
    return LLADA_OK;
}

llada_status gguf_get_arr(const gguf *g, const char *key, gguf_kind *item, uint64_t *n, llada_err *err)
{
    const gguf_kv *kv = NULL;
    llada_status st = find_arr(g, key, &kv, err);
    if (st) return st;
    *item = (gguf_kind)kv->item;
    *n = kv->n;
    return LLADA_OK;
}

/* The array and its first item's bytes; refuses another count than n. */
static llada_status find_items(const gguf *g, const char *key, uint64_t n, const gguf_kv **kv, const uint8_t **d,
                               llada_err *err)
{
    llada_status st = find_arr(g, key, kv, err);
    if (st) return st;
    if ((*kv)->n != n)
        return llada_fail(err, LLADA_BAD_MODEL, "%skey %.64s has %llu items, but %llu are wanted", g->parts[0].where,
                          key, (unsigned long long)(*kv)->n, (unsigned long long)n);
    *d = g->parts[0].file.data + (*kv)->at + GGUF_ARR_HEAD;
    return LLADA_OK;
}

llada_status gguf_arr_str(const gguf *g, const char *key, gguf_str *items, uint64_t n, llada_err *err)
{
    const gguf_kv *kv = NULL;
    const uint8_t *d = NULL;
    llada_status st = find_items(g, key, n, &kv, &d, err);
    if (st) return st;
    if (kv->item != GGUF_STR) return wrong(&g->parts[0], kv, "array of string", err);
    for (uint64_t i = 0; i < n; i++) {
        items[i] = (gguf_str){ .s = (const char *)d + 8, .len = (size_t)le64(d) };
        d += 8 + items[i].len;
    }
    return LLADA_OK;
}

llada_status gguf_arr_i64(const gguf *g, const char *key, int64_t *items, uint64_t n, llada_err *err)
{
    const gguf_kv *kv = NULL;
    const uint8_t *d = NULL;
    llada_status st = find_items(g, key, n, &kv, &d, err);
    if (st) return st;
    if (kv->item == GGUF_BOOL || kv->item == GGUF_STR || kv->item == GGUF_F32 || kv->item == GGUF_F64)
        return wrong(&g->parts[0], kv, "array of integers", err);
    size_t each = gguf_kind_bytes(kv->item);
    for (uint64_t i = 0; i < n; i++, d += each) {
        integer v = { 0 };
        if (!int_at(kv->item, d, &v) || !to_i64(v, &items[i]))
            return llada_fail(err, LLADA_BAD_MODEL, "%skey %.64s: item %llu is %llu, too large for a signed integer",
                              g->parts[0].where, key, (unsigned long long)i, (unsigned long long)v.bits);
    }
    return LLADA_OK;
}

llada_status gguf_arr_f32(const gguf *g, const char *key, float *items, uint64_t n, llada_err *err)
{
    const gguf_kv *kv = NULL;
    const uint8_t *d = NULL;
    llada_status st = find_items(g, key, n, &kv, &d, err);
    if (st) return st;
    if (kv->item != GGUF_F32 && kv->item != GGUF_F64) return wrong(&g->parts[0], kv, "array of f32", err);
    for (uint64_t i = 0; i < n; i++) items[i] = kv->item == GGUF_F32 ? f32_at(d + 4 * i) : (float)f64_at(d + 8 * i);
    return LLADA_OK;
}

/* ------------------------------------------------------------ lists */

uint64_t gguf_n_keys(const gguf *g) { return g->parts[0].n_kv; }

const char *gguf_key(const gguf *g, uint64_t i, gguf_kind *kind)
{
    if (i >= g->parts[0].n_kv) return NULL;
    if (kind) *kind = (gguf_kind)g->parts[0].kv[i].kind;
    return g->parts[0].kv[i].name;
}

uint64_t gguf_n_tensors(const gguf *g) { return g->n_t; }

const gguf_tensor *gguf_tensor_at(const gguf *g, uint64_t i) { return i < g->n_t ? &g->t[i] : NULL; }
