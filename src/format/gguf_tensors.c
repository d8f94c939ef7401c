/* gguf_tensors.c - the tensor table of one file: names, shapes, types, and where the data of each lies. */
#include <stdio.h>

#include "format/gguf_impl.h"

/* The least an entry takes, without name and dimensions: length u64, n_dims u32, type u32, offset u64. */
enum { LEAST_TENSOR = 24 };

static llada_status check_dims(const gguf_part *p, const gguf_tensor *t, llada_err *err)
{
    for (int i = 0; i < t->n_dims; i++)
        if (t->dims[i] == 0)
            return llada_fail(err, LLADA_BAD_MODEL, "%stensor %.64s: dimension %d is 0", p->where, t->name, i);
    const quant_info *q = quant_get(t->type);
    if (t->dims[0] % (uint64_t)q->block)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%stensor %.64s: rows of %llu values are not a multiple of %s's block of %d", p->where,
                          t->name, (unsigned long long)t->dims[0], q->name, q->block);
    if (!gguf_stack_ok(t))
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%stensor %.64s is packed, but its matrices have %llu rows, not a multiple of %d", p->where,
                          t->name, (unsigned long long)t->dims[1], T32_ROWS);
    return LLADA_OK;
}

bool gguf_take_type(gguf_tensor *t, uint32_t file_type)
{
    t->packed = file_type >= T32_TYPE && file_type - T32_TYPE < QT_COUNT;
    t->type = t->packed ? file_type - T32_TYPE : file_type;
    return quant_get(t->type) != NULL;
}

bool gguf_stack_ok(const gguf_tensor *t)
{
    return !t->packed || (t->dims[2] == 1 && t->dims[3] == 1) || t->dims[1] % T32_ROWS == 0;
}

static bool packed_bytes(gguf_tensor *t)
{
    t32_shape s;
    size_t n;
    if (t->dims[1] > SIZE_MAX || t->dims[2] > SIZE_MAX || t->dims[3] > SIZE_MAX || !gguf_stack_ok(t)) return false;
    if (!size_mul((size_t)t->dims[1], (size_t)t->dims[2], &n) || !size_mul(n, (size_t)t->dims[3], &n)) return false;
    if (!t32_shape_of(&s, t->type, n, t->dims[0])) return false;
    t->bytes = s.bytes;
    return true;
}

bool gguf_tensor_bytes(gguf_tensor *t)
{
    if (t->packed) return packed_bytes(t);
    if (!quant_row_bytes(t->type, t->dims[0], &t->bytes)) return false;
    for (int i = 1; i < 4; i++)
        if (t->dims[i] > SIZE_MAX || !size_mul(t->bytes, (size_t)t->dims[i], &t->bytes)) return false;
    return t->bytes > 0;
}

static llada_status count_bytes(const gguf_part *p, gguf_tensor *t, llada_err *err)
{
    if (gguf_tensor_bytes(t)) return LLADA_OK;
    return llada_fail(err, LLADA_BAD_MODEL, "%stensor %.64s: the shape %llu x %llu x %llu x %llu overflows", p->where,
                      t->name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                      (unsigned long long)t->dims[2], (unsigned long long)t->dims[3]);
}

/* One entry at *at; moves *at behind it. */
static llada_status read_entry(gguf_part *p, gguf_tensor *t, uint64_t *off, size_t *at, size_t *name_bytes,
                               llada_err *err)
{
    const uint8_t *d = p->file.data;
    if (p->file.len - *at < 8) return gguf_cut_short(p, "the tensor table", "", *at, 8, err);
    uint64_t len = le64(d + *at);
    *at += 8;
    llada_status st = gguf_read_name(p, *at, len, GGUF_MAX_TENSOR_NAME, "tensor name", name_bytes, &t->name, err);
    if (st) return st;
    *at += (size_t)len;
    if (p->file.len - *at < 4) return gguf_cut_short(p, "the table entry of tensor ", t->name, *at, 4, err);
    uint32_t n = le32(d + *at);
    if (n < 1 || n > 4)
        return llada_fail(err, LLADA_BAD_MODEL, "%stensor %.64s has %u dimensions (at byte %zu); 1 to 4 are supported",
                          p->where, t->name, n, *at);
    *at += 4;
    if (p->file.len - *at < 8 * n + 12)
        return gguf_cut_short(p, "the table entry of tensor ", t->name, *at, 8 * n + 12, err);
    t->n_dims = (int)n;
    for (uint32_t i = 0; i < 4; i++) t->dims[i] = i < n ? le64(d + *at + 8 * i) : 1;
    *at += 8 * n;
    uint32_t type = le32(d + *at);
    *off = le64(d + *at + 4);
    *at += 12;
    if (!gguf_take_type(t, type))
        return llada_fail(err, LLADA_BAD_MODEL, "%stensor %.64s has type %u, which is not supported", p->where, t->name,
                          type);
    if ((st = check_dims(p, t, err))) return st;
    return count_bytes(p, t, err);
}

static llada_status place(const gguf_part *p, gguf_tensor *t, uint64_t off, llada_err *err)
{
    size_t begin, end;
    if (off % p->align)
        return llada_fail(err, LLADA_BAD_MODEL, "%stensor %.64s: offset %llu is not a multiple of the alignment %zu",
                          p->where, t->name, (unsigned long long)off, p->align);
    if (off > SIZE_MAX || !size_add(p->data_at, (size_t)off, &begin) || !size_add(begin, t->bytes, &end))
        return llada_fail(err, LLADA_BAD_MODEL, "%stensor %.64s: offset %llu with %zu bytes overflows", p->where,
                          t->name, (unsigned long long)off, t->bytes);
    if (end > p->file.len)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%scut short: tensor %.64s needs bytes %zu to %zu, but the file ends at byte %zu", p->where,
                          t->name, begin, end, p->file.len);
    t->data = p->file.data + begin;
    return LLADA_OK;
}

static void warn_longer(const gguf_part *p, size_t end, char *warn, size_t cap)
{
    /* writers may or may not pad the last tensor */
    size_t pad = (p->align - end % p->align) % p->align;
    if (!warn || !cap || p->file.len <= end || p->file.len - end <= pad || warn[0]) return;
    snprintf(warn, cap, "%slonger than its table: %zu bytes follow the last tensor", p->where, p->file.len - end);
}

static llada_status check_overlap(const gguf_part *p, char *warn, size_t cap, llada_err *err)
{
    gguf_slot *order = gguf_index_places(p->t, p->n_t);
    if (!order) return llada_fail(err, LLADA_NO_MEMORY, "no memory for an index of %u tensors", p->n_t);
    llada_status st = LLADA_OK;
    for (uint32_t i = 1; i < p->n_t && !st; i++) {
        const gguf_tensor *a = &p->t[order[i - 1].i], *b = &p->t[order[i].i];
        if ((size_t)(b->data - a->data) < a->bytes)
            st = llada_fail(err, LLADA_BAD_MODEL, "%stensors %.64s and %.64s overlap at byte %zu", p->where, a->name,
                            b->name, (size_t)(b->data - p->file.data));
    }
    size_t end = p->data_at;
    if (p->n_t) {
        const gguf_tensor *last = &p->t[order[p->n_t - 1].i];
        end = (size_t)(last->data - p->file.data) + last->bytes;
    }
    if (!st) warn_longer(p, end, warn, cap);
    mem_free(order);
    return st;
}

static llada_status read_table(gguf_part *p, uint64_t *off, uint64_t count, size_t at, size_t name_bytes,
                               llada_err *err)
{
    llada_status st;
    for (; p->n_t < count; p->n_t++)
        if ((st = read_entry(p, &p->t[p->n_t], &off[p->n_t], &at, &name_bytes, err))) return st;
    if (!size_add(at, (p->align - at % p->align) % p->align, &p->data_at))
        return llada_fail(err, LLADA_BAD_MODEL, "%sthe header's length overflows", p->where);
    for (uint32_t i = 0; i < p->n_t; i++)
        if ((st = place(p, &p->t[i], off[i], err))) return st;
    return LLADA_OK;
}

llada_status gguf_read_tensors(gguf_part *p, size_t at, uint64_t count, size_t name_bytes, char *warn, size_t cap,
                               llada_err *err)
{
    if (count > (p->file.len - at) / LEAST_TENSOR)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%scut short: the header promises %llu tensors, but only %zu bytes follow at byte %zu",
                          p->where, (unsigned long long)count, p->file.len - at, at);
    if (count > GGUF_MAX_TENSORS)
        return llada_fail(err, LLADA_BAD_MODEL, "%s%llu tensors; the limit is %d", p->where, (unsigned long long)count,
                          GGUF_MAX_TENSORS);
    uint64_t *off = mem_array((size_t)count, sizeof *off);
    p->t = mem_array((size_t)count, sizeof *p->t);
    llada_status st;
    if (!off || !p->t)
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for %llu tensors", (unsigned long long)count);
    else
        st = read_table(p, off, count, at, name_bytes, err);
    mem_free(off);
    return st ? st : check_overlap(p, warn, cap, err);
}
