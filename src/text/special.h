/* special.h - finds the spellings of special tokens in text, the longest at each place.  Used only where the caller
 * asks for it: in a user's text those spellings are plain characters. */
#ifndef TEXT_SPECIAL_H
#define TEXT_SPECIAL_H

#include "text/vocab.h"

/* Longest spelling that is looked for; it bounds the time spent at each byte of the text. */
enum { SPECIAL_MAX = 255 };

typedef struct {
    int32_t *id;         /* [n], sorted by spelling */
    uint32_t n;
    uint32_t first[257]; /* spellings that begin with byte b: id[first[b]..first[b + 1]) */
} specials;

/* Control and user-defined tokens.  s is all zero before. */
llada_status specials_read(specials *s, const vocab *v, llada_err *err);
void specials_free(specials *s);

/* First special token in text[0..len): *at its place, *id the token, returns its length; 0: none, *at = len. */
size_t specials_find(const specials *s, const vocab *v, const char *text, size_t len, size_t *at, int32_t *id);

#endif
