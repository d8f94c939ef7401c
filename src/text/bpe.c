/* bpe.c - byte-pair merging (bpe.h).  Short words, nearly all of them, are merged on the stack by looking for the best
 * pair again and again.  A word may also be megabytes long (one letter repeated): its bytes are cut into blocks, a tree
 * over the blocks leads to the best pair, and a merge touches three blocks at most: n log n, 12 bytes of memory for a
 * byte of text. */
#include "text/bpe.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum {
    SHORT_WORD = 48, /* bytes; below this the quadratic search is the faster one */
    BLOCK = 64,      /* bytes under one leaf of the tree */
    NO_RANK = INT32_MAX,
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

/* "LEFT RIGHT": spellings hold no blank, so there is exactly one.  Parts or results that are no tokens are -1: lists are
 * found in the field that name some (vocabularies cut down after training); such a merge can never be applied. */
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
    return LLADA_OK;
}

/* As for the token list, the probe count bounds what a list made to collide can cost. */
static llada_status build_table(bpe *b, const vocab *v, const gguf_str *items, llada_err *err)
{
    uint64_t probes = (uint64_t)PROBES_PER_MERGE * (b->n + 1024u);
    for (uint32_t r = 0; r < b->n; r++) {
        llada_status st = read_merge(&b->m[r], v, items[r], r, err);
        if (st)
            return st;
        if (b->m[r].left < 0 || b->m[r].right < 0 || b->m[r].id < 0)
            continue;
        uint32_t i = pair_slot(b, b->m[r].left, b->m[r].right);
        for (; b->slot[i]; i = (i + 1) & b->mask) {
            const bpe_merge *m = &b->m[b->slot[i] - 1];
            if (m->left == b->m[r].left && m->right == b->m[r].right)
                return llada_fail(err, LLADA_BAD_MODEL, "%s: items %u and %u are the same pair", k_merges,
                                  (unsigned)(b->slot[i] - 1), (unsigned)r);
            if (--probes == 0)
                return llada_fail(err, LLADA_BAD_MODEL, "%s: the pairs up to item %u collide too often",
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
        return llada_fail(err, LLADA_BAD_MODEL, "%s has %llu items; at most %d is allowed", k_merges,
                          (unsigned long long)n, MAX_MERGES);
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

static bool reserve(bpe_scratch *w, size_t len)
{
    if (w->cap < len) {
        size_t cap = len < 4096 ? 4096 : len;
        bpe_scratch_free(w);
        w->id = mem_array(cap, sizeof *w->id);
        w->span = mem_array(cap, sizeof *w->span);
        w->rank = mem_array(cap, sizeof *w->rank);
        w->tree = mem_array(cap / BLOCK + 1, 4 * sizeof *w->tree); /* leaves are at most twice the blocks */
        if (!w->id || !w->span || !w->rank || !w->tree)
            return false;
        w->cap = cap;
    }
    for (w->leaves = 1; w->leaves * BLOCK < len;)
        w->leaves *= 2;
    return true;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void fill(const bpe *b, const vocab *v, const uint8_t *s, size_t len, bpe_scratch *w)
{
    for (size_t i = 2 * w->leaves; i-- > 1;)
        w->tree[i] = NO_RANK;
    for (size_t i = 0; i < len; i++) {
        w->id[i] = v->byte_id[s[i]];
        w->span[i] = 1;
    }
    for (size_t i = 0; i < len; i++) {
        uint32_t *leaf = &w->tree[w->leaves + i / BLOCK];
        w->rank[i] = i + 1 < len ? rank_of(b, w->id[i], w->id[i + 1]) : NO_RANK;
        *leaf = least(*leaf, w->rank[i]);
    }
    for (size_t i = w->leaves; i-- > 1;)
        w->tree[i] = least(w->tree[2 * i], w->tree[2 * i + 1]);
}

/* Leftmost byte whose pair has the least rank of all. */
static size_t best_pair(const bpe_scratch *w)
{
    uint32_t r = w->tree[1];
    size_t i = 1;
    while (i < w->leaves)
        i = w->tree[2 * i] == r ? 2 * i : 2 * i + 1;
    for (i = (i - w->leaves) * BLOCK; w->rank[i] != r;)
        i++;
    return i;
}

/* Least rank of a block in which nothing is below `floor`. */
static uint32_t block_least(const bpe_scratch *w, size_t block, size_t len, uint32_t floor)
{
    uint32_t r = NO_RANK;
    size_t end = (block + 1) * BLOCK < len ? (block + 1) * BLOCK : len;
    for (size_t i = block * BLOCK; i < end && r != floor; i++)
        r = least(r, w->rank[i]);
    return r;
}

static void set_rank(bpe_scratch *w, size_t len, size_t at, uint32_t r)
{
    size_t block = at / BLOCK, i = w->leaves + block;
    uint32_t old = w->rank[at], floor = w->tree[i];
    w->rank[at] = r;
    if (r > floor && old > floor)
        return;
    w->tree[i] = r <= floor ? r : block_least(w, block, len, floor);
    while ((i /= 2) > 0)
        w->tree[i] = least(w->tree[2 * i], w->tree[2 * i + 1]);
}

static void merge(const bpe *b, size_t len, bpe_scratch *w, size_t at)
{
    size_t right = at + w->span[at], next = right + w->span[right];
    w->id[at] = b->m[w->rank[at]].id;
    w->id[right] = -1;
    w->span[at] = w->span[next - 1] = (uint32_t)(next - at);
    set_rank(w, len, at, next < len ? rank_of(b, w->id[at], w->id[next]) : NO_RANK);
    set_rank(w, len, right, NO_RANK);
    if (at > 0) {
        size_t before = at - w->span[at - 1];
        set_rank(w, len, before, rank_of(b, w->id[before], w->id[at]));
    }
}

static llada_status long_word(const bpe *b, const vocab *v, const uint8_t *s, size_t len, bpe_scratch *w, id_sink *out,
                              llada_err *err)
{
    if (!reserve(w, len))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory to tokenise a word of %zu bytes", len);
    fill(b, v, s, len, w);
    while (w->tree[1] != NO_RANK)
        merge(b, len, w, best_pair(w));
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
    mem_free(w->rank);
    mem_free(w->tree);
    *w = (bpe_scratch){ 0 };
}
