/* gguf_place.c - where tensors lie on disk, for those that read them without the mapping. */
#include "format/gguf_impl.h"

uint32_t gguf_n_files(const gguf *g) { return g->n_parts; }

bool gguf_place(const gguf *g, const void *p, uint32_t *file, uint64_t *offset)
{
    for (uint32_t i = 0; i < g->n_parts; i++) {
        uintptr_t begin = (uintptr_t)g->parts[i].file.data, at = (uintptr_t)p;
        if (at < begin || at - begin >= g->parts[i].file.len) continue;
        *file = i;
        *offset = at - begin;
        return true;
    }
    return false;
}

llada_status gguf_reader(const gguf *g, uint32_t file, os_reader **out, llada_err *err)
{
    const gguf_part *p = &g->parts[file];
    *out = NULL;
    if (!p->path)
        return llada_fail(err, LLADA_UNSUPPORTED, "a model that is in memory already can't be kept within a budget");
    return os_reader_open(out, p->path, &p->file, err);
}

void gguf_sparse(const gguf *g)
{
    for (uint32_t i = 0; i < g->n_parts; i++) os_sparse(&g->parts[i].file);
}

size_t gguf_header_bytes(const gguf *g)
{
    size_t n = 0;
    for (uint32_t i = 0; i < g->n_parts; i++) n += g->parts[i].data_at;
    return n;
}
