/* answer.c - settled text: whole characters, stop strings (answer.h). */
#include "answer.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

static bool ends_with(const buf *t, const char *s, size_t n)
{
    return t->n >= n && !memcmp(t->p + t->n - n, s, n);
}

/* Takes one byte of clean text and looks whether a stop string ends with it. */
static void add_byte(answer *a, char c)
{
    size_t longest = 0;
    if (a->stopped) return;
    buf_add(&a->text, &c, 1);
    for (int i = 0; i < a->n_stops; i++) {
        size_t n = strlen(a->stops[i]);
        if (n > longest && ends_with(&a->text, a->stops[i], n)) longest = n;
    }
    if (!longest) return;
    a->stopped = true;
    a->text.n -= longest;
    a->text.p[a->text.n] = 0;
    a->shown = a->text.n;
}

static void add_clean(answer *a, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) add_byte(a, p[i]);
}

/* Passes on whole characters of `half`; at the end also what never became one. */
static void take_half(answer *a, bool end)
{
    while (a->n_half > 0) {
        int len = utf8_length(a->half, (size_t)a->n_half);
        if (len == 0 && !end) return;
        if (len > 0) add_clean(a, a->half, (size_t)len);
        else add_clean(a, replacement, 3);
        int used = len > 0 ? len : 1;
        a->n_half -= used;
        memmove(a->half, a->half + used, (size_t)a->n_half);
    }
}

/* The longest end of the text that a stop string begins with. */
static size_t held_back(const answer *a)
{
    size_t most = 0;
    for (int i = 0; i < a->n_stops; i++) {
        size_t n = strlen(a->stops[i]);
        for (size_t k = n - 1; k > most; k--)
            if (ends_with(&a->text, a->stops[i], k)) most = k;
    }
    return most;
}

void answer_add(answer *a, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !a->stopped; i++) {
        a->half[a->n_half++] = bytes[i];
        take_half(a, false);
    }
    if (!a->stopped) a->shown = a->text.n - held_back(a);
}

void answer_end(answer *a)
{
    take_half(a, true);
    a->n_half = 0;
    a->shown = a->text.n;
}

void answer_free(answer *a)
{
    buf_free(&a->text);
    *a = (answer){0};
}
