/* bpe.h - the merge table, and merging one word's bytes into tokens: while some adjacent pair has a rank, the pair of
 * lowest rank (the leftmost of equals) becomes one token. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "text/vocab.h"

typedef struct {
    int32_t left, right, id; /* ids; id: the merged token */
} bpe_merge;

typedef struct {
    bpe_merge *m;   /* [n], by rank */
    uint32_t *slot; /* [mask + 1] hash slots by pair: rank + 1, 0 free */
    uint32_t n, mask;
} bpe;

/* b is all zero before; bpe_free accepts what a failed bpe_read left. */
llada_status bpe_read(bpe *b, const gguf *g, const vocab *v, llada_err *err);
void bpe_free(bpe *b);

/* Where ids go: counted in full, written up to cap. */
typedef struct {
    int32_t *ids;
    size_t cap, n;
} id_sink;

static inline void sink_put(id_sink *s, int32_t id)
{
    if (s->n < s->cap)
        s->ids[s->n] = id;
    s->n++;
}

/* Scratch for long words; kept between the words of one call.  All zero before, bpe_scratch_free after. */
typedef struct {
    int32_t *id;    /* [cap]: token that begins at this byte; -1: inside another */
    uint32_t *span; /* [cap]: bytes of the token, at its first and its last byte */
    uint32_t *rank; /* [cap]: of the pair of the token that begins here and the next */
    uint32_t *tree; /* [2 * leaves]: least rank of each block of bytes, above them of each two nodes; [1]: the root */
    size_t cap, leaves;
} bpe_scratch;

/* s: at most INT32_MAX bytes.  Fails only for memory. */
llada_status bpe_word(const bpe *b, const vocab *v, const uint8_t *s, size_t len, bpe_scratch *w, id_sink *out,
                      llada_err *err);
void bpe_scratch_free(bpe_scratch *w);

#endif
