/* err.c - fills error records.  Sentences quote file names and fields of hostile files, so what reaches a terminal or a
 * log is made harmless here, once: valid UTF-8 without control characters. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of the well-formed UTF-8 character at s (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing past
 * U+10FFFF), 0 for anything else.  s is NUL-terminated: a NUL is no continuation byte, so reading stops there. */
static size_t utf8_len(const unsigned char *s)
{
    unsigned char lo = 0x80, hi = 0xbf; /* range of the second byte */
    size_t n;
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        n = 2;
    } else if ((s[0] & 0xf0) == 0xe0) {
        n = 3;
        lo = s[0] == 0xe0 ? 0xa0 : lo;
        hi = s[0] == 0xed ? 0x9f : hi;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        n = 4;
        lo = s[0] == 0xf0 ? 0x90 : lo;
        hi = s[0] == 0xf4 ? 0x8f : hi;
    } else {
        return 0;
    }
    if (s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

/* C0, DEL, and C1 as UTF-8 spells it: a terminal may obey any of them. */
static bool is_control(const unsigned char *s, size_t n)
{
    return (n == 1 && (s[0] < 0x20 || s[0] == 0x7f)) || (n == 2 && s[0] == 0xc2 && s[1] < 0xa0);
}

/* Copies src to dst[cap]; whole characters only. */
static void copy_clean(char *dst, size_t cap, const char *src)
{
    const unsigned char *s = (const unsigned char *)src;
    size_t used = 0;
    while (*s) {
        size_t n = utf8_len(s), take = n ? n : 1;
        bool bad = n == 0 || is_control(s, n);
        size_t put = bad ? 1 : n;
        if (used + put >= cap)
            break;
        if (bad)
            dst[used] = '?';
        else
            memcpy(dst + used, s, n);
        used += put;
        s += take;
    }
    dst[used] = 0;
}

llada_status llada_fail(llada_err *err, llada_status st, const char *fmt, ...)
{
    if (!err)
        return st;
    /* A buffer of its own, because the arguments may quote err->text; 4 bytes more, so that the last character that
     * could be kept is seen whole. */
    char raw[sizeof err->text + 4];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    copy_clean(err->text, sizeof err->text, n < 0 ? "an error whose sentence could not be formed" : raw);
    err->status = st;
    return st;
}
