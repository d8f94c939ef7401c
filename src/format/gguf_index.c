/* gguf_index.c - sorted indices over keys and tensors: lookup, and the search for doubles and overlaps.  Names are
 * sorted by a hash, so that most comparisons touch nothing but the index, then by name; sorting (not a hash table)
 * bounds the time whatever names a file was given. */
#include "base/rng.h"
#include "format/gguf_impl.h"

/* FNV-1a, and a mix because its high bits move little for short names. */
static uint64_t hash_name(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    return rng_mix(h);
}

static bool before(const gguf_slot *a, const gguf_slot *b)
{
    if (a->key != b->key || !a->name) return a->key < b->key;
    return strcmp(a->name, b->name) < 0;
}

/* One pass of the merge sort: runs of `width` in src become runs of 2 * width in dst. */
static void merge_pass(const gguf_slot *src, gguf_slot *dst, uint32_t n, uint32_t width)
{
    for (uint32_t lo = 0; lo < n; lo += 2 * width) {
        uint32_t mid = n - lo > width ? lo + width : n;
        uint32_t hi = n - mid > width ? mid + width : n;
        uint32_t i = lo, j = mid;
        for (uint32_t k = lo; k < hi; k++) {
            bool left = i < mid && (j >= hi || !before(&src[j], &src[i]));
            dst[k] = left ? src[i++] : src[j++];
        }
    }
}

/* Merge sort: n log n at worst, which qsort does not promise; n <= GGUF_MAX_KEYS.  Takes a over. */
static gguf_slot *sort(gguf_slot *a, uint32_t n)
{
    gguf_slot *b = mem_array(n, sizeof *b);
    if (!a || !b) {
        mem_free(a);
        mem_free(b);
        return NULL;
    }
    for (uint32_t width = 1; width < n; width *= 2) {
        merge_pass(a, b, n, width);
        gguf_slot *t = a;
        a = b;
        b = t;
    }
    mem_free(b);
    return a;
}

gguf_slot *gguf_index_keys(const gguf_kv *kv, uint32_t n)
{
    gguf_slot *s = mem_array(n, sizeof *s);
    for (uint32_t i = 0; s && i < n; i++)
        s[i] = (gguf_slot){ .key = hash_name(kv[i].name), .name = kv[i].name, .i = i };
    return sort(s, n);
}

gguf_slot *gguf_index_tensors(const gguf_tensor *t, uint32_t n)
{
    gguf_slot *s = mem_array(n, sizeof *s);
    for (uint32_t i = 0; s && i < n; i++) s[i] = (gguf_slot){ .key = hash_name(t[i].name), .name = t[i].name, .i = i };
    return sort(s, n);
}

gguf_slot *gguf_index_places(const gguf_tensor *t, uint32_t n)
{
    gguf_slot *s = mem_array(n, sizeof *s);
    for (uint32_t i = 0; s && i < n; i++) s[i] = (gguf_slot){ .key = (uintptr_t)t[i].data, .i = i };
    return sort(s, n);
}

const gguf_slot *gguf_double(const gguf_slot *s, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (s[i - 1].key == s[i].key && !strcmp(s[i - 1].name, s[i].name)) return &s[i];
    return NULL;
}

const gguf_slot *gguf_lookup(const gguf_slot *s, uint32_t n, const char *name)
{
    const gguf_slot want = { .key = hash_name(name), .name = name };
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (before(&s[mid], &want))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && s[lo].key == want.key && !strcmp(s[lo].name, name) ? &s[lo] : NULL;
}

const gguf_kv *gguf_part_find(const gguf_part *p, const char *key)
{
    const gguf_slot *s = gguf_lookup(p->kv_order, p->n_kv, key);
    return s ? &p->kv[s->i] : NULL;
}

const gguf_tensor *gguf_find(const gguf *g, const char *name)
{
    const gguf_slot *s = gguf_lookup(g->t_order, g->n_t, name);
    return s ? &g->t[s->i] : NULL;
}
