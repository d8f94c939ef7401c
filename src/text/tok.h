/* tok.h - byte-level BPE tokenizer, read from GGUF metadata.  Text is normalised (NFC, where the vocabulary's family
 * does so), cut into words by the pre-tokenizer's pattern, and each word's bytes are merged by rank.  encode runs in
 * time linear in the text (n log n within one word).  decode(encode(x)) = x for every byte string, up to NFC. */
#ifndef TEXT_TOK_H
#define TEXT_TOK_H

#include "base/err.h"
#include "format/gguf.h"

typedef struct tok tok;

llada_status tok_open(tok **out, const gguf *g, llada_err *err);
void tok_close(tok **t);

int32_t tok_n(const tok *t);                   /* vocabulary size */
int32_t tok_mask(const tok *t);                /* special ids; -1 where the file names none */
int32_t tok_eos(const tok *t);
int32_t tok_eot(const tok *t);                /* no key: the control token <|eot_id|>, <|im_end|> or <|role_end|> */
int32_t tok_bos(const tok *t);
int32_t tok_pad(const tok *t);
bool tok_is_special(const tok *t, int32_t id); /* control or unused: gives no text */
int32_t tok_find(const tok *t, const char *spelling); /* id of an exact token spelling (as stored); -1: none */

/* Ids of text.  Writes up to cap, sets *n to the full count.  special: spellings of special tokens are recognised. */
llada_status tok_encode(const tok *t, const char *text, size_t len, bool special, int32_t *ids, size_t cap, size_t *n,
                        llada_err *err);
/* Bytes of ids; special tokens give their spelling when `special`, else nothing.  LLADA_BAD_ARG: an id out of range. */
llada_status tok_decode(const tok *t, const int32_t *ids, size_t n, bool special, char *buf, size_t cap, size_t *len,
                        llada_err *err);

#endif
