/* texts.h - the texts of a request, as tokens: the prompt or conversation, and what is given of the canvas. */
#ifndef SERVER_TEXTS_H
#define SERVER_TEXTS_H

#include "openai.h"

enum { TEXTS_MOST_TOKENS = 65536 };

/* Fills in prompt, canvas, cells and max_tokens, which is what the request says of it, or its default.  `no` says why
 * the request can't be honoured. */
void texts_read(openai_ask *a, const json_t *o, const openai_ground *g, refusal *no);

/* Text to ids, plain or with special tokens recognised.  More ids than `most`: refused, with the field's name.  Owned
 * by the caller. */
bool texts_ids(const openai_ground *g, const char *name, const char *s, size_t len, bool special, size_t most,
               int32_t **ids, size_t *n, refusal *no);

#endif
