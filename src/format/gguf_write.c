/* gguf_write.c - writing GGUF v3: keys stream to the file as they come, then the tensor table, then the data.  The two
 * counts in the header are filled in at the end; until then the file is a temporary one that nobody takes for whole. */
#include <errno.h>
#include <stdio.h>

#include "format/gguf_writer.h"

enum { MAX_NAME = 63 }; /* longer tensor names cannot be read by other programs */

llada_status gguf_writer_open(gguf_writer **out, const char *path, llada_err *err)
{
    *out = NULL;
    gguf_writer *w = mem_new(sizeof *w);
    if (w) w->names = arena_new(4096);
    if (!w || !w->names) {
        mem_free(w);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for a file writer");
    }
    static const uint8_t head[24] = { 'G', 'G', 'U', 'F', 3 };
    w->align = 32;
    llada_status st = os_create(&w->out, path, err);
    if (!st && fwrite(head, 1, sizeof head, w->out.f) != sizeof head)
        st = llada_fail(err, LLADA_IO, "cannot write %s: %s", path, os_why(errno));
    w->at = sizeof head;
    if (st) gguf_writer_discard(&w);
    *out = w;
    return st;
}

void gguf_writer_discard(gguf_writer **wp)
{
    gguf_writer *w = *wp;
    if (!w) return;
    os_discard(&w->out);
    arena_free(w->names);
    mem_free(w->kv);
    mem_free(w->t);
    mem_free(w);
    *wp = NULL;
}

/* ------------------------------------------------------------ bytes */

llada_status gguf_emit(gguf_writer *w, const void *data, size_t n, llada_err *err)
{
    if (w->broken) return llada_fail(err, LLADA_IO, "an earlier write to %s failed", w->out.path);
    if (n && fwrite(data, 1, n, w->out.f) != n) {
        w->broken = true;
        return llada_fail(err, LLADA_IO, "cannot write %s: %s", w->out.path, os_why(errno));
    }
    w->at += n;
    return LLADA_OK;
}

llada_status gguf_emit_le(gguf_writer *w, uint64_t v, size_t bytes, llada_err *err)
{
    uint8_t b[8];
    for (size_t i = 0; i < bytes; i++) b[i] = (uint8_t)(v >> (8 * i));
    return gguf_emit(w, b, bytes, err);
}

llada_status gguf_emit_str(gguf_writer *w, const char *s, size_t len, llada_err *err)
{
    llada_status st = gguf_emit_le(w, len, 8, err);
    return st ? st : gguf_emit(w, s, len, err);
}

bool gguf_reserve(void **p, uint32_t n, uint32_t *cap, size_t each)
{
    if (n < *cap) return true;
    uint32_t more = *cap ? *cap * 2 : 32;
    size_t old_bytes, new_bytes;
    if (more < *cap || !size_mul(*cap, each, &old_bytes) || !size_mul(more, each, &new_bytes)) return false;
    void *q = mem_grow(*p, old_bytes, new_bytes);
    if (!q) return false;
    *p = q;
    *cap = more;
    return true;
}

static llada_status emit_padding(gguf_writer *w, llada_err *err)
{
    static const uint8_t zeros[256];
    size_t n = (size_t)((w->align - w->at % w->align) % w->align);
    llada_status st = LLADA_OK;
    for (size_t k; n && !st; n -= k) {
        k = n < sizeof zeros ? n : sizeof zeros;
        st = gguf_emit(w, zeros, k, err);
    }
    return st;
}

/* ------------------------------------------------------------ tensors */

static llada_status check_tensor(const gguf_writer *w, const char *name, int n_dims, llada_err *err)
{
    size_t len = strlen(name);
    if (w->begun)
        return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s is declared after the tensor data has begun", name);
    if (len == 0 || len > MAX_NAME || !gguf_printable((const uint8_t *)name, len))
        return llada_fail(err, LLADA_BAD_ARG,
                          "tensor name %.64s has %zu bytes; 1 to %d printable ASCII ones are allowed", name, len,
                          MAX_NAME);
    if (n_dims < 1 || n_dims > 4)
        return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s has %d dimensions; 1 to 4 are allowed", name, n_dims);
    if (w->n_t >= GGUF_MAX_TENSORS) return llada_fail(err, LLADA_BAD_ARG, "more than %d tensors", GGUF_MAX_TENSORS);
    return LLADA_OK;
}

llada_status gguf_add_tensor(gguf_writer *w, const char *name, uint32_t type, int n_dims, const uint64_t *dims,
                             llada_err *err)
{
    llada_status st = check_tensor(w, name, n_dims, err);
    if (st) return st;
    gguf_tensor t = { .n_dims = n_dims };
    if (!gguf_take_type(&t, type))
        return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s has the unknown type %u", name, type);
    for (int i = 0; i < 4; i++) t.dims[i] = i < n_dims ? dims[i] : 1;
    if (!gguf_tensor_bytes(&t))
        return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s: %llu x %llu x %llu x %llu is not a shape that %s can hold",
                          name, (unsigned long long)t.dims[0], (unsigned long long)t.dims[1],
                          (unsigned long long)t.dims[2], (unsigned long long)t.dims[3], quant_get(t.type)->name);
    void *list = w->t;
    bool room = gguf_reserve(&list, w->n_t, &w->cap_t, sizeof *w->t);
    w->t = list;
    t.name = room ? arena_strdup(w->names, name, strlen(name)) : NULL;
    if (!t.name) return llada_fail(err, LLADA_NO_MEMORY, "no memory for tensor %.64s", name);
    w->t[w->n_t++] = t;
    return LLADA_OK;
}

/* Refuses what the reader would refuse. */
static llada_status check_doubles(const gguf_writer *w, llada_err *err)
{
    gguf_slot *k = gguf_index_keys(w->kv, w->n_kv), *t = gguf_index_tensors(w->t, w->n_t);
    const gguf_slot *twice = k ? gguf_double(k, w->n_kv) : NULL;
    llada_status st = LLADA_OK;
    if (!k || !t)
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for an index of %u keys and %u tensors", w->n_kv, w->n_t);
    else if (twice)
        st = llada_fail(err, LLADA_BAD_ARG, "key %.64s was written twice", twice->name);
    else if ((twice = gguf_double(t, w->n_t)))
        st = llada_fail(err, LLADA_BAD_ARG, "tensor %.64s was declared twice", twice->name);
    mem_free(k);
    mem_free(t);
    return st;
}

static llada_status emit_entry(gguf_writer *w, const gguf_tensor *t, uint64_t off, llada_err *err)
{
    llada_status st = gguf_emit_str(w, t->name, strlen(t->name), err);
    if (!st) st = gguf_emit_le(w, (uint64_t)t->n_dims, 4, err);
    for (int i = 0; i < t->n_dims && !st; i++) st = gguf_emit_le(w, t->dims[i], 8, err);
    if (!st) st = gguf_emit_le(w, t->type + (t->packed ? T32_TYPE : 0), 4, err);
    return st ? st : gguf_emit_le(w, off, 8, err);
}

static llada_status begin_data(gguf_writer *w, llada_err *err)
{
    if (w->begun) return LLADA_OK;
    llada_status st = check_doubles(w, err);
    if (st) return st;
    w->begun = true;
    size_t off = 0;
    for (uint32_t i = 0; i < w->n_t && !st; i++) {
        st = emit_entry(w, &w->t[i], off, err);
        bool fits = size_add(off, w->t[i].bytes, &off) && size_add(off, (w->align - off % w->align) % w->align, &off);
        if (!st && !fits) st = llada_fail(err, LLADA_BAD_ARG, "tensor %.64s: the file's size overflows", w->t[i].name);
    }
    if (!st) st = emit_padding(w, err);
    w->broken = w->broken || st;
    return st;
}

llada_status gguf_write_data(gguf_writer *w, const void *data, size_t bytes, llada_err *err)
{
    llada_status st = begin_data(w, err);
    if (st || bytes == 0) return st;
    if (w->now >= w->n_t)
        return llada_fail(err, LLADA_BAD_ARG, "%zu bytes more than the %u tensors take", bytes, w->n_t);
    const gguf_tensor *t = &w->t[w->now];
    if (bytes > t->bytes - w->filled)
        return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s takes %zu bytes, %zu were written and %zu more given",
                          t->name, t->bytes, w->filled, bytes);
    if ((st = gguf_emit(w, data, bytes, err))) return st;
    w->filled += bytes;
    if (w->filled < t->bytes) return LLADA_OK;
    w->now++;
    w->filled = 0;
    return emit_padding(w, err);
}

static llada_status finish(gguf_writer *w, llada_err *err)
{
    llada_status st = begin_data(w, err);
    if (st) return st;
    if (w->now < w->n_t)
        return llada_fail(err, LLADA_BAD_ARG, "tensor %.64s has %zu of its %zu bytes", w->t[w->now].name, w->filled,
                          w->t[w->now].bytes);
    if (w->broken) return llada_fail(err, LLADA_IO, "an earlier write to %s failed", w->out.path);
    if (fseek(w->out.f, 8, SEEK_SET))
        return llada_fail(err, LLADA_IO, "cannot write %s: %s", w->out.path, os_why(errno));
    if ((st = gguf_emit_le(w, w->n_t, 8, err)) || (st = gguf_emit_le(w, w->n_kv, 8, err))) return st;
    return os_commit(&w->out, err);
}

llada_status gguf_writer_finish(gguf_writer **w, llada_err *err)
{
    llada_status st = finish(*w, err);
    gguf_writer_discard(w);
    return st;
}
