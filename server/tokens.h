/* tokens.h - text to token ids and back, for programs that count or lay out prompts themselves. */
#ifndef SERVER_TOKENS_H
#define SERVER_TOKENS_H

#include "openai.h"

/* From a request's body; NULL: `no` says why. */
json_t *tokens_of_text(const openai_ground *g, const char *body, size_t n, refusal *no);
json_t *tokens_to_text(const openai_ground *g, const char *body, size_t n, refusal *no);

#endif
