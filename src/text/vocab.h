/* vocab.h - the token list of a GGUF file: spellings as stored, the bytes each token stands for, its kind, and an index
 * from spelling to id.
 *
 * Byte-level vocabularies spell every byte as one printable character: the 188 printable bytes of Latin-1 stand for
 * themselves, the other 68 for U+0100..U+0143 in byte order (GPT-2's table).  Control and user-defined tokens are
 * spelled plainly. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "base/err.h"
#include "format/gguf.h"

/* tokenizer.ggml.token_type */
typedef enum {
    TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE
} token_type;

typedef struct {
    int32_t n;
    uint32_t *at;        /* [n + 1]: spelling of id is text[at[id]..at[id + 1]) */
    char *text;
    uint32_t *raw_at;    /* [n + 1]: the same for the bytes it stands for */
    uint8_t *raw;
    uint8_t *type;       /* [n] token_type */
    uint32_t *slot;      /* [mask + 1] hash slots: id + 1, 0 free */
    uint32_t mask;
    int32_t byte_id[256]; /* the token of each single byte; never -1 */
    uint8_t spelt[256][2], spelt_n[256]; /* each byte's character in UTF-8 */
} vocab;

/* v is all zero before; vocab_free accepts what a failed vocab_read left. */
llada_status vocab_read(vocab *v, const gguf *g, llada_err *err);
void vocab_free(vocab *v);

/* Id of the spelling a[0..an) followed by b[0..bn); -1: none. */
int32_t vocab_find(const vocab *v, const char *a, size_t an, const char *b, size_t bn);
/* Id of the normal token that stands for exactly these bytes; -1: none. */
int32_t vocab_find_raw(const vocab *v, const uint8_t *s, size_t n);

static inline const char *vocab_text(const vocab *v, int32_t id, size_t *len)
{
    *len = v->at[id + 1] - v->at[id];
    return v->text + v->at[id];
}

#endif
