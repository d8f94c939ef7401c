/* utf8.h - one strict UTF-8 reader for the text folder: no overlong forms, no surrogates, nothing above U+10FFFF
 * (Unicode standard, table 3-7). */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at s[0..len); 0 when there is none that is valid (len 0 too).  Sets *cp; to U+FFFD when 0. */
static inline size_t utf8_next(const uint8_t *s, size_t len, uint32_t *cp)
{
    *cp = 0xfffd;
    if (len == 0)
        return 0;
    uint32_t a = s[0];
    if (a < 0x80) {
        *cp = a;
        return 1;
    }
    if (a < 0xc2 || a > 0xf4)
        return 0;
    size_t n = a < 0xe0 ? 2 : a < 0xf0 ? 3 : 4;
    if (len < n)
        return 0;
    /* the second byte's range rules out overlong forms, surrogates and values above U+10FFFF */
    uint8_t lo = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80;
    uint8_t hi = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < lo || s[1] > hi)
        return 0;
    uint32_t c = a & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    *cp = c;
    return n;
}

/* Length of the longest prefix that is valid UTF-8. */
static inline size_t utf8_valid_run(const uint8_t *s, size_t len)
{
    uint32_t cp;
    size_t at = 0, n;
    while ((n = utf8_next(s + at, len - at, &cp)) != 0)
        at += n;
    return at;
}

/* Length of the longest prefix in which no valid character begins. */
static inline size_t utf8_invalid_run(const uint8_t *s, size_t len)
{
    uint32_t cp;
    size_t at = 0;
    while (at < len && utf8_next(s + at, len - at, &cp) == 0)
        at++;
    return at;
}

#endif
