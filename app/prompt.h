/* prompt.h - where a prompt comes from, and how it becomes ids. */
#ifndef APP_PROMPT_H
#define APP_PROMPT_H

#include "model.h"

/* Reads the prompt of -p, -f or standard input.  keep_end: the final newline of a file stays.  When nothing is given
 * and standard input is a terminal: *none is set (NULL: an error).  An exit code, with the sentence printed. */
int prompt_read(const options *o, bool keep_end, bool *none, text *out);

/* The prompt for the small model when nothing is given. */
extern const char prompt_default[];

/* A conversation, or with `raw` the text of its last message, to ids.  Owned by the caller. */
int prompt_ids(const app_model *am, const llada_message *msgs, size_t n_msgs, int32_t **ids, size_t *n);
int prompt_raw_ids(const app_model *am, const char *s, size_t len, bool special, int32_t **ids, size_t *n);
/* false, with the sentence printed: nothing but blanks (plain text may be blanks). */
bool prompt_check(const options *o, const text *prompt);
/* One user message, after the system message of the options; --raw: plain text. */
int prompt_request(const app_model *am, const options *o, const text *prompt, int32_t **ids, size_t *n);

#endif
