/* eval_score.h - is an answer right?  The rules are named in docs/eval.md. */
#ifndef APP_EVAL_SCORE_H
#define APP_EVAL_SCORE_H

#include <stdbool.h>
#include <stddef.h>

/* In the order of --extract's words. */
typedef enum {
    EXTRACT_UNSAID, EXTRACT_AUTO, EXTRACT_ANSWER, EXTRACT_WHOLE, EXTRACT_JSON, EXTRACT_GSM8K, EXTRACT_STORY
} extract_rule;

const char *extract_name(extract_rule r);

/* The rule for one question: the one asked for, or with auto by the form of the answer and the name of the set's file.
 * answer and reference may be NULL. */
extract_rule extract_choose(extract_rule asked, const char *file, const char *answer, const char *reference);

/* What the rule takes from a text: a pointer into it and a length; false: nothing that could be an answer. */
bool extract_find(extract_rule r, const char *said, size_t n, const char **found, size_t *len);

/* Whether the text (of n bytes, before the first end token) answers the question rightly. */
bool extract_correct(extract_rule r, const char *prompt, const char *answer, const char *said, size_t n);

#endif
