/* buf.c - growing bytes, allocation, the clock, UTF-8 (buf.h). */
#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void no_memory(void)
{
    fputs("llada: the server is out of memory\n", stderr);
    _exit(1);
}

void *buf_new(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p) no_memory();
    return p;
}

void *buf_grow(void *p, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / 2 / size) no_memory();
    size_t bytes = n * size;
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) no_memory();
    return q;
}

char *buf_copy(const char *s, size_t n)
{
    char *p = buf_new(n + 1, 1);
    if (n) memcpy(p, s, n);
    return p;
}

static void room(buf *b, size_t more)
{
    if (b->cap - b->n > more) return;
    if (more > SIZE_MAX / 4 || b->n > SIZE_MAX / 4) no_memory();
    size_t cap = b->cap ? b->cap * 2 : 256;
    while (cap - b->n <= more) cap *= 2;
    b->p = buf_grow(b->p, cap, 1);
    b->cap = cap;
}

void buf_add(buf *b, const void *bytes, size_t n)
{
    room(b, n);
    if (n) memcpy(b->p + b->n, bytes, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buf_str(buf *b, const char *s) { buf_add(b, s, strlen(s)); }

void buf_fmt(buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0) {
        room(b, (size_t)n + 1);
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void buf_free(buf *b)
{
    free(b->p);
    *b = (buf){0};
}

int utf8_length(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    int c = p[0];
    if (c < 0x80) return 1;
    int len = c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    if (!len) return -1;
    /* the second byte alone decides about overlong forms, surrogates and the upper end */
    int least = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, most = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) return 0;
        if (p[i] < (i == 1 ? least : 0x80) || p[i] > (i == 1 ? most : 0xBF)) return -1;
    }
    return len;
}

double now_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}
