/* gguf_index.c - sorted indices over keys and tensors: lookup, and the search for doubles and overlaps. */
#include "format/gguf_impl.h"

/* One pass of the merge sort: runs of `width` in src become runs of 2 * width in dst. */
static void merge_pass(const void *items, gguf_order_fn cmp, const uint32_t *src, uint32_t *dst, uint32_t n,
                       uint32_t width)
{
    for (uint32_t lo = 0; lo < n; lo += 2 * width) {
        uint32_t mid = n - lo > width ? lo + width : n;
        uint32_t hi = n - mid > width ? mid + width : n;
        uint32_t i = lo, j = mid;
        for (uint32_t k = lo; k < hi; k++) {
            bool left = i < mid && (j >= hi || cmp(items, src[i], src[j]) <= 0);
            dst[k] = left ? src[i++] : src[j++];
        }
    }
}

/* Merge sort: n log n at worst, which qsort does not promise; n <= GGUF_MAX_KEYS. */
uint32_t *gguf_sort(const void *items, uint32_t n, gguf_order_fn cmp)
{
    uint32_t *a = mem_array(n, sizeof *a), *b = mem_array(n, sizeof *b);
    if (!a || !b) {
        mem_free(a);
        mem_free(b);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) a[i] = i;
    for (uint32_t width = 1; width < n; width *= 2) {
        merge_pass(items, cmp, a, b, n, width);
        uint32_t *t = a;
        a = b;
        b = t;
    }
    mem_free(b);
    return a;
}

int gguf_by_key(const void *kv, uint32_t a, uint32_t b)
{
    const gguf_kv *k = kv;
    return strcmp(k[a].name, k[b].name);
}

int gguf_by_tensor(const void *t, uint32_t a, uint32_t b)
{
    const gguf_tensor *x = t;
    return strcmp(x[a].name, x[b].name);
}

int gguf_by_place(const void *t, uint32_t a, uint32_t b)
{
    const gguf_tensor *x = t;
    return x[a].data < x[b].data ? -1 : x[a].data > x[b].data;
}

const gguf_kv *gguf_part_find(const gguf_part *p, const char *key)
{
    uint32_t lo = 0, hi = p->n_kv;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const gguf_kv *kv = &p->kv[p->kv_order[mid]];
        int c = strcmp(key, kv->name);
        if (c == 0) return kv;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const gguf_tensor *gguf_find(const gguf *g, const char *name)
{
    uint32_t lo = 0, hi = g->n_t;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const gguf_tensor *t = &g->t[g->t_order[mid]];
        int c = strcmp(name, t->name);
        if (c == 0) return t;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
