/* bpe.c - byte-pair merging (bpe.h).  Short words, nearly all of them, are merged on the stack by looking for the best
 * pair again and again.  A word may also be megabytes long (one letter repeated); those use a heap of pairs: n log n.
 *
 * The heap holds stale pairs, too: merging changes a token's neighbours, and the pairs it had before stay in the heap
 * until they surface, where they are recognised because they no longer name the two tokens at their position. */
#include "text/bpe.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum {
    SHORT_WORD = 48, /* bytes; below this the quadratic search is the faster one */
    NO_RANK = UINT32_MAX >> 1,
    MAX_MERGES = 1 << 22, /* largest published list: 514,906 */
    PROBES_PER_MERGE = 64
};

static const char k_merges[] = "tokenizer.ggml.merges";

/* ------------------------------------------------------------ the table */

static uint32_t pair_slot(const bpe *b, int32_t left, int32_t right)
{
    uint64_t x = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32) & b->mask;
}

static uint32_t rank_of(const bpe *b, int32_t left, int32_t right)
{
    uint32_t i = pair_slot(b, left, right);
    for (; b->slot[i]; i = (i + 1) & b->mask) {
        const bpe_merge *m = &b->m[b->slot[i] - 1];
        if (m->left == left && m->right == right)
            return b->slot[i] - 1;
    }
    return NO_RANK;
}

/* "LEFT RIGHT": spellings hold no blank, so there is exactly one. */
static llada_status read_merge(bpe_merge *m, const vocab *v, gguf_str s, uint32_t rank, llada_err *err)
{
    const char *gap = s.len ? memchr(s.s, ' ', s.len) : NULL;
    int shown = (int)(s.len < 64 ? s.len : 64);
    size_t ln = gap ? (size_t)(gap - s.s) : 0, rn = gap ? s.len - ln - 1 : 0;
    if (ln == 0 || rn == 0 || memchr(gap + 1, ' ', rn))
        return llada_fail(err, LLADA_BAD_MODEL, "%s: item %u, \"%.*s\", is not two spellings with one blank between",
                          k_merges, (unsigned)rank, shown, s.s);
    m->left = vocab_find(v, s.s, ln, "", 0);
    m->right = vocab_find(v, gap + 1, rn, "", 0);
    m->id = vocab_find(v, s.s, ln, gap + 1, rn);
    if (m->left >= 0 && m->right >= 0 && m->id >= 0)
        return LLADA_OK;
    const char *what = m->left < 0 ? "left part" : m->right < 0 ? "right part" : "result";
    return llada_fail(err, LLADA_BAD_MODEL, "%s: the %s of item %u, \"%.*s\", is not in the token list", k_merges, what,
                      (unsigned)rank, shown, s.s);
}

/* As for the token list, the probe count bounds what a list made to collide can cost. */
static llada_status build_table(bpe *b, const vocab *v, const gguf_str *items, llada_err *err)
{
    uint64_t probes = (uint64_t)PROBES_PER_MERGE * (b->n + 1024u);
    for (uint32_t r = 0; r < b->n; r++) {
        llada_status st = read_merge(&b->m[r], v, items[r], r, err);
        if (st)
            return st;
        uint32_t i = pair_slot(b, b->m[r].left, b->m[r].right);
        for (; b->slot[i]; i = (i + 1) & b->mask) {
            const bpe_merge *m = &b->m[b->slot[i] - 1];
            if (m->left == b->m[r].left && m->right == b->m[r].right)
                return llada_fail(err, LLADA_BAD_MODEL, "%s: items %u and %u are the same pair", k_merges,
                                  (unsigned)(b->slot[i] - 1), (unsigned)r);
            if (--probes == 0)
                return llada_fail(err, LLADA_BAD_MODEL, "%s: the pairs up to item %u collide too often to be a merge list",
                                  k_merges, (unsigned)r);
        }
        b->slot[i] = r + 1;
    }
    return LLADA_OK;
}

llada_status bpe_read(bpe *b, const gguf *g, const vocab *v, llada_err *err)
{
    gguf_kind item;
    uint64_t n;
    llada_status st = gguf_get_arr(g, k_merges, &item, &n, err);
    if (st)
        return st;
    if (n > MAX_MERGES)
        return llada_fail(err, LLADA_BAD_MODEL, "%s has %llu items; at most %d is allowed", k_merges, (unsigned long long)n,
                          MAX_MERGES);
    uint32_t cap = 16;
    while (cap < 2 * n)
        cap *= 2;
    b->n = (uint32_t)n;
    b->mask = cap - 1;
    gguf_str *items = mem_array((size_t)n, sizeof *items);
    b->m = mem_array((size_t)n, sizeof *b->m);
    b->slot = mem_array(cap, sizeof *b->slot);
    if (!items || !b->m || !b->slot)
        st = llada_fail(err, LLADA_NO_MEMORY, "no memory for %llu merges", (unsigned long long)n);
    else if (!(st = gguf_arr_str(g, k_merges, items, n, err)))
        st = build_table(b, v, items, err);
    mem_free(items);
    return st;
}

void bpe_free(bpe *b)
{
    mem_free(b->m);
    mem_free(b->slot);
    *b = (bpe){ 0 };
}

/* ------------------------------------------------------------ short words */

static void short_word(const bpe *b, const vocab *v, const uint8_t *s, size_t len, id_sink *out)
{
    int32_t id[SHORT_WORD];
    uint32_t rank[SHORT_WORD]; /* of the pair (i, i + 1) */
    for (size_t i = 0; i < len; i++)
        id[i] = v->byte_id[s[i]];
    for (size_t i = 0; i + 1 < len; i++)
        rank[i] = rank_of(b, id[i], id[i + 1]);
    while (len > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < len; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == NO_RANK)
            break;
        id[best] = b->m[rank[best]].id;
        len--;
        memmove(id + best + 1, id + best + 2, (len - best - 1) * sizeof *id);
        if (best + 1 < len) {
            memmove(rank + best + 1, rank + best + 2, (len - best - 2) * sizeof *rank);
            rank[best] = rank_of(b, id[best], id[best + 1]);
        }
        if (best > 0)
            rank[best - 1] = rank_of(b, id[best - 1], id[best]);
    }
    for (size_t i = 0; i < len; i++)
        sink_put(out, id[i]);
}

/* ------------------------------------------------------------ long words */

/* Sinks heap[i] to its place; four children a node halve the depth and share a cache line. */
static void heap_sink(bpe_scratch *w, size_t i)
{
    uint64_t x = w->heap[i];
    for (;;) {
        size_t c = 4 * i + 1, end = c + 4 < w->heap_n ? c + 4 : w->heap_n, least = c;
        if (c >= w->heap_n)
            break;
        for (size_t k = c + 1; k < end; k++)
            if (w->heap[k] < w->heap[least])
                least = k;
        if (w->heap[least] >= x)
            break;
        w->heap[i] = w->heap[least];
        i = least;
    }
    w->heap[i] = x;
}

static uint64_t heap_take(bpe_scratch *w)
{
    uint64_t top = w->heap[0];
    w->heap[0] = w->heap[--w->heap_n];
    if (w->heap_n)
        heap_sink(w, 0);
    return top;
}

static bool heap_put(bpe_scratch *w, uint64_t x)
{
    if (w->heap_n == w->heap_cap) {
        size_t cap = w->heap_cap + w->heap_cap / 2;
        uint64_t *h = mem_grow(w->heap, w->heap_cap * sizeof *h, cap * sizeof *h);
        if (!h)
            return false;
        w->heap = h;
        w->heap_cap = cap;
    }
    size_t i = w->heap_n++;
    for (; i > 0 && w->heap[(i - 1) / 4] > x; i = (i - 1) / 4)
        w->heap[i] = w->heap[(i - 1) / 4];
    w->heap[i] = x;
    return true;
}

static bool reserve(bpe_scratch *w, size_t len)
{
    if (w->cap >= len)
        return true;
    size_t cap = len < 4096 ? 4096 : len;
    bpe_scratch_free(w);
    w->id = mem_array(cap, sizeof *w->id);
    w->span = mem_array(cap, sizeof *w->span);
    w->heap = mem_array(cap, sizeof *w->heap);
    if (!w->id || !w->span || !w->heap)
        return false;
    w->cap = w->heap_cap = cap;
    return true;
}

static void fill(const bpe *b, const vocab *v, const uint8_t *s, size_t len, bpe_scratch *w)
{
    w->heap_n = 0;
    for (size_t i = 0; i < len; i++) {
        w->id[i] = v->byte_id[s[i]];
        w->span[i] = 1;
        uint32_t r = i ? rank_of(b, w->id[i - 1], w->id[i]) : NO_RANK;
        if (r != NO_RANK)
            w->heap[w->heap_n++] = (uint64_t)r << 32 | (i - 1);
    }
    for (size_t i = w->heap_n / 4 + 1; i-- > 0;)
        if (i < w->heap_n)
            heap_sink(w, i);
}

static bool put_pair(const bpe *b, bpe_scratch *w, size_t left, size_t right)
{
    uint32_t r = rank_of(b, w->id[left], w->id[right]);
    return r == NO_RANK || heap_put(w, (uint64_t)r << 32 | left);
}

/* Merges the pair if it still stands there; false: no memory. */
static bool merge(const bpe *b, size_t len, bpe_scratch *w, uint64_t pair)
{
    const bpe_merge *m = &b->m[pair >> 32];
    size_t at = (uint32_t)pair;
    if (w->id[at] != m->left)
        return true;
    size_t right = at + w->span[at];
    if (right >= len || w->id[right] != m->right)
        return true;
    size_t next = right + w->span[right];
    w->id[at] = m->id;
    w->id[right] = -1;
    w->span[at] = w->span[next - 1] = (uint32_t)(next - at);
    if (at > 0 && !put_pair(b, w, at - w->span[at - 1], at))
        return false;
    return next >= len || put_pair(b, w, at, next);
}

static llada_status long_word(const bpe *b, const vocab *v, const uint8_t *s, size_t len, bpe_scratch *w, id_sink *out,
                              llada_err *err)
{
    bool room = reserve(w, len);
    if (room)
        fill(b, v, s, len, w);
    while (room && w->heap_n)
        room = merge(b, len, w, heap_take(w));
    if (!room)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory to tokenise a word of %zu bytes", len);
    for (size_t i = 0; i < len; i += w->span[i])
        sink_put(out, w->id[i]);
    return LLADA_OK;
}

llada_status bpe_word(const bpe *b, const vocab *v, const uint8_t *s, size_t len, bpe_scratch *w, id_sink *out,
                      llada_err *err)
{
    if (len > SHORT_WORD)
        return long_word(b, v, s, len, w, out, err);
    short_word(b, v, s, len, out);
    return LLADA_OK;
}

void bpe_scratch_free(bpe_scratch *w)
{
    mem_free(w->id);
    mem_free(w->span);
    mem_free(w->heap);
    *w = (bpe_scratch){ 0 };
}
