/* gguf_put.c - the keys of a file that is being written.  Each goes to the file at once; only the names are kept, to
 * find doubles. */
#include "format/gguf_writer.h"

#define ALIGN_KEY "general.alignment"

static llada_status check_key(const gguf_writer *w, const char *key, gguf_kind kind, llada_err *err)
{
    size_t len = strlen(key);
    if (w->begun) return llada_fail(err, LLADA_BAD_ARG, "key %.64s comes after the tensor data has begun", key);
    if (len == 0 || len > GGUF_MAX_KEY || !gguf_printable((const uint8_t *)key, len))
        return llada_fail(err, LLADA_BAD_ARG,
                          "a key must have 1 to %d printable ASCII characters, this one has %zu bytes", GGUF_MAX_KEY,
                          len);
    if (!strcmp(key, ALIGN_KEY) && (kind == GGUF_STR || kind == GGUF_ARR || kind == GGUF_F32 || kind == GGUF_BOOL))
        return llada_fail(err, LLADA_BAD_ARG, "key " ALIGN_KEY " must be an integer");
    if (w->n_kv >= GGUF_MAX_KEYS) return llada_fail(err, LLADA_BAD_ARG, "more than %d keys", GGUF_MAX_KEYS);
    return LLADA_OK;
}

/* Notes the key and writes its name and type; the value must follow. */
static llada_status begin_key(gguf_writer *w, const char *key, gguf_kind kind, llada_err *err)
{
    llada_status st = check_key(w, key, kind, err);
    if (st) return st;
    size_t len = strlen(key);
    void *kv = w->kv;
    bool room = gguf_reserve(&kv, w->n_kv, &w->cap_kv, sizeof *w->kv);
    w->kv = kv;
    const char *name = room ? arena_strdup(w->names, key, len) : NULL;
    if (!name) return llada_fail(err, LLADA_NO_MEMORY, "no memory for key %.64s", key);
    w->kv[w->n_kv++].name = name;
    if ((st = gguf_emit_str(w, key, len, err))) return st;
    return gguf_emit_le(w, (uint64_t)kind, 4, err);
}

static llada_status begin_array(gguf_writer *w, const char *key, gguf_kind item, uint64_t n, llada_err *err)
{
    llada_status st = begin_key(w, key, GGUF_ARR, err);
    if (st || (st = gguf_emit_le(w, (uint64_t)item, 4, err))) return st;
    return gguf_emit_le(w, n, 8, err);
}

/* The alignment of the new file follows its own key: general.alignment as an integer v. */
static llada_status put_alignment(gguf_writer *w, gguf_kind kind, uint64_t v, llada_err *err)
{
    if (!gguf_align_ok(v))
        return llada_fail(err, LLADA_BAD_ARG, "key " ALIGN_KEY " is %llu, not a power of two up to %d",
                          (unsigned long long)v, GGUF_MAX_ALIGN);
    llada_status st = begin_key(w, ALIGN_KEY, kind, err);
    if (!st) w->align = (size_t)v;
    return st;
}

llada_status gguf_put_u32(gguf_writer *w, const char *key, uint32_t v, llada_err *err)
{
    bool align = !strcmp(key, ALIGN_KEY);
    llada_status st = align ? put_alignment(w, GGUF_U32, v, err) : begin_key(w, key, GGUF_U32, err);
    return st ? st : gguf_emit_le(w, v, 4, err);
}

static uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

llada_status gguf_put_f32(gguf_writer *w, const char *key, float v, llada_err *err)
{
    llada_status st = begin_key(w, key, GGUF_F32, err);
    return st ? st : gguf_emit_le(w, f32_bits(v), 4, err);
}

llada_status gguf_put_bool(gguf_writer *w, const char *key, bool v, llada_err *err)
{
    llada_status st = begin_key(w, key, GGUF_BOOL, err);
    return st ? st : gguf_emit_le(w, v ? 1 : 0, 1, err);
}

llada_status gguf_put_str(gguf_writer *w, const char *key, const char *s, size_t len, llada_err *err)
{
    llada_status st = begin_key(w, key, GGUF_STR, err);
    return st ? st : gguf_emit_str(w, s, len, err);
}

llada_status gguf_put_str_arr(gguf_writer *w, const char *key, const gguf_str *items, uint64_t n, llada_err *err)
{
    llada_status st = begin_array(w, key, GGUF_STR, n, err);
    for (uint64_t i = 0; i < n && !st; i++) st = gguf_emit_str(w, items[i].s, items[i].len, err);
    return st;
}

llada_status gguf_put_i32_arr(gguf_writer *w, const char *key, const int32_t *items, uint64_t n, llada_err *err)
{
    llada_status st = begin_array(w, key, GGUF_I32, n, err);
    for (uint64_t i = 0; i < n && !st; i++) st = gguf_emit_le(w, (uint32_t)items[i], 4, err);
    return st;
}

llada_status gguf_put_f32_arr(gguf_writer *w, const char *key, const float *items, uint64_t n, llada_err *err)
{
    llada_status st = begin_array(w, key, GGUF_F32, n, err);
    for (uint64_t i = 0; i < n && !st; i++) st = gguf_emit_le(w, f32_bits(items[i]), 4, err);
    return st;
}

llada_status gguf_copy_key(gguf_writer *w, const gguf *from, uint64_t i, llada_err *err)
{
    const gguf_part *p = &from->parts[0];
    if (i >= p->n_kv) return llada_fail(err, LLADA_BAD_ARG, "key number %llu of %u", (unsigned long long)i, p->n_kv);
    const gguf_kv *kv = &p->kv[i];
    if (!strncmp(kv->name, "split.", 6)) return LLADA_OK; /* the new file is one file */
    llada_status st;
    int64_t align = 0;
    if (strcmp(kv->name, ALIGN_KEY))
        st = begin_key(w, kv->name, (gguf_kind)kv->kind, err);
    else if (!(st = gguf_part_int(p, ALIGN_KEY, 1, GGUF_MAX_ALIGN, &align, err)))
        st = put_alignment(w, (gguf_kind)kv->kind, (uint64_t)align, err);
    if (st) return st;
    return gguf_emit(w, p->file.data + kv->at, kv->end - kv->at, err);
}
