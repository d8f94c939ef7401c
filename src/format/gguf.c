/* gguf.c - opening and closing: from a path or from bytes in memory to a checked `gguf`. */
#include <stdio.h>

#include "format/gguf_impl.h"

/* Sentences name the file, not the whole path: the caller knows that. */
static void set_where(gguf_part *p, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(p->where, sizeof p->where, "%.160s: ", slash ? slash + 1 : path);
}

llada_status gguf_open_part(gguf_part *p, const char *path, bool use_mmap, char *warn, size_t cap, llada_err *err)
{
    llada_status st = os_map(&p->file, path, use_mmap, err);
    if (st) return st;
    p->path = mem_strdup(path, strlen(path));
    if (!p->path) {
        os_unmap(&p->file);
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for a path");
    }
    set_where(p, path);
    return gguf_read_part(p, warn, cap, err);
}

/* All shards' tensors in one list.  Names and data stay where they are. */
static llada_status join_tensors(gguf *g, llada_err *err)
{
    if (g->n_parts == 1) {
        g->t = g->parts[0].t;
        g->n_t = g->parts[0].n_t;
        return LLADA_OK;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_parts; i++) n += g->parts[i].n_t; /* gguf_open_set has bounded the sum */
    g->t = mem_array(n, sizeof *g->t);
    if (!g->t) return llada_fail(err, LLADA_NO_MEMORY, "no memory for %u tensors", n);
    for (uint32_t i = 0; i < g->n_parts; i++) {
        const gguf_part *p = &g->parts[i];
        if (p->n_t) memcpy(g->t + g->n_t, p->t, p->n_t * sizeof *p->t);
        g->n_t += p->n_t;
    }
    return LLADA_OK;
}

/* The file that holds the i-th tensor of the joined list. */
static const gguf_part *part_of(const gguf *g, uint32_t i)
{
    const gguf_part *p = g->parts;
    while (i >= p->n_t) i -= p++->n_t;
    return p;
}

bool gguf_packed(const gguf *g)
{
    uint32_t i = 0;
    while (i < g->n_t && !g->t[i].packed) i++;
    return i < g->n_t;
}

/* Layouts may change from one version to the next: bytes that mean something else must not be computed with. */
static llada_status check_packed(const gguf *g, llada_err *err)
{
    int64_t version = 0;
    if (!gguf_packed(g)) return LLADA_OK;
    llada_status st = gguf_part_int(&g->parts[0], T32_KEY, INT64_MIN, INT64_MAX, &version, err);
    if (st || version == T32_VERSION) return st;
    return llada_fail(err, LLADA_BAD_MODEL,
                      "%sthe file is packed in version %lld of the layout, but this program reads version %d: pack "
                      "the original again",
                      g->parts[0].where, (long long)version, T32_VERSION);
}

static llada_status index_tensors(gguf *g, llada_err *err)
{
    llada_status st = join_tensors(g, err);
    if (st) return st;
    g->t_order = gguf_index_tensors(g->t, g->n_t);
    if (!g->t_order) return llada_fail(err, LLADA_NO_MEMORY, "no memory for an index of %u tensors", g->n_t);
    const gguf_slot *d = gguf_double(g->t_order, g->n_t);
    if (!d) return check_packed(g, err);
    return llada_fail(err, LLADA_BAD_MODEL, "%stensor %.64s is there twice", part_of(g, d->i)->where, d->name);
}

static gguf *new_gguf(llada_err *err)
{
    gguf *g = mem_new(sizeof *g);
    if (g) g->parts = mem_new(sizeof *g->parts);
    if (!g || !g->parts) {
        mem_free(g);
        llada_fail(err, LLADA_NO_MEMORY, "no memory for a file record");
        return NULL;
    }
    g->n_parts = 1;
    return g;
}

llada_status gguf_open(gguf **out, const char *path, bool use_mmap, char *warn, size_t cap, llada_err *err)
{
    *out = NULL;
    if (warn && cap) warn[0] = 0;
    gguf *g = new_gguf(err);
    if (!g) return LLADA_NO_MEMORY;
    llada_status st = gguf_open_part(&g->parts[0], path, use_mmap, warn, cap, err);
    if (!st) st = gguf_open_set(g, path, use_mmap, warn, cap, err);
    if (!st) st = index_tensors(g, err);
    if (st) gguf_close(&g);
    *out = g;
    return st;
}

llada_status gguf_open_memory(gguf **out, const void *data, size_t len, char *warn, size_t cap, llada_err *err)
{
    *out = NULL;
    if (warn && cap) warn[0] = 0;
    gguf *g = new_gguf(err);
    if (!g) return LLADA_NO_MEMORY;
    g->parts[0].file = (os_file){ .data = data, .len = len };
    llada_status st = gguf_read_part(&g->parts[0], warn, cap, err);
    if (!st) st = gguf_open_set(g, NULL, false, warn, cap, err);
    if (!st) st = index_tensors(g, err);
    if (st) gguf_close(&g);
    *out = g;
    return st;
}

void gguf_close(gguf **gp)
{
    gguf *g = *gp;
    if (!g) return;
    mem_free(g->t_order);
    if (g->n_parts > 1) mem_free(g->t);
    for (uint32_t i = 0; i < g->n_parts; i++) gguf_free_part(&g->parts[i]);
    mem_free(g->parts);
    mem_free(g);
    *gp = NULL;
}

uint32_t gguf_version(const gguf *g) { return g->parts[0].version; }

uint64_t gguf_file_bytes(const gguf *g)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_parts; i++) n += g->parts[i].file.len;
    return n;
}

bool gguf_lost(const gguf *g)
{
    for (uint32_t i = 0; i < g->n_parts; i++)
        if (g->parts[i].path && os_map_lost(&g->parts[i].file, g->parts[i].path)) return true;
    return false;
}

void gguf_forget(const gguf *g, const gguf_tensor *t)
{
    os_forget(&part_of(g, (uint32_t)(t - g->t))->file, t->data, t->bytes);
}
