/* pretok.h - pre-tokenizers: how text is cut into words before merging.  Each is one row of data: the names files use,
 * the pattern as its authors published it, and what else its tokenizer does. */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include "base/err.h"

typedef struct pretok pretok;

/* name: tokenizer.ggml.pre.  Unknown: a sentence that lists the known ones. */
llada_status pretok_open(pretok **out, const char *name, size_t len, llada_err *err);
void pretok_close(pretok **p);

bool pretok_nfc(const pretok *p);         /* text is normalised first */
bool pretok_whole_words(const pretok *p); /* a word that is a token is not merged from its bytes */

/* Whether a checkpoint's pattern (not terminated; from strangers) cuts a sample of all the differences as the
 * pre-tokenizer `name` does: published patterns differ in spelling.  false also when it is none, or takes too long. */
enum { PRETOK_MAX_REGEX = 4096 };
bool pretok_cuts_alike(const char *name, const char *regex, size_t len);

/* One thread's place to match in. */
typedef struct pretok_cut pretok_cut;

llada_status pretok_begin(pretok_cut **out, const pretok *p, llada_err *err);
void pretok_end(pretok_cut **c);
/* The word of valid UTF-8 s[0..len) that begins at `at` < len ends at *end > at. */
llada_status pretok_next(pretok_cut *c, const char *s, size_t len, size_t at, size_t *end, llada_err *err);

#endif
