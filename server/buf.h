/* buf.h - growing bytes, allocation that does not fail, the clock, and UTF-8 by the character. */
#ifndef SERVER_BUF_H
#define SERVER_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *p;       /* owned; NUL behind the last byte; NULL while empty */
    size_t n, cap;
} buf;

/* Zeroed.  A server without memory for its bookkeeping can only end: says so on stderr, exit code 1. */
void *buf_new(size_t n, size_t size);
void *buf_grow(void *p, size_t n, size_t size);
char *buf_copy(const char *s, size_t n); /* n bytes and a NUL; owned by the caller */

void buf_add(buf *b, const void *bytes, size_t n);
void buf_str(buf *b, const char *s);
void buf_fmt(buf *b, const char *fmt, ...);
void buf_free(buf *b);

/* Length of the character at p, by strict rules (no overlong forms, no surrogates, at most U+10FFFF); 0: the n bytes
 * are the beginning of one; -1: they are not.  n > 0. */
int utf8_length(const char *p, size_t n);

double now_seconds(void); /* only moves forward */

#endif
