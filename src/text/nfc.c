/* nfc.c - normalisation (nfc.h) with utf8proc's tables.  Two things are done here rather than by the library: only the
 * stretches that can change are touched, and combining marks are put in order by counting, because sorting by exchanges
 * is quadratic in a long run of marks.
 *
 * A stretch is a run of characters at or above U+0300 with the one character before it.  Nothing below U+0300 is ever
 * the second half of a composition or a mark, so a stretch never changes what is around it. */
#include "text/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/utf8.h"

enum {
    FIRST_LEAD = 0xcc, /* lead byte of U+0300; characters below have smaller ones */
    ROOM = 32,         /* code points one character may become; utf8proc's longest canonical decomposition is 4 */
    FEW_MARKS = 16,    /* runs up to this are ordered by insertion */
    CLASSES = 256
};

bool nfc_needed(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)s[i] >= FIRST_LEAD)
            return true;
    return false;
}

static bool put_text(nfc *b, const void *s, size_t len)
{
    size_t need;
    if (!size_add(b->len, len, &need))
        return false;
    if (need > b->cap) {
        size_t cap = need + need / 2 + 64;
        char *t = mem_grow(b->s, b->len, cap);
        if (!t)
            return false;
        b->s = t;
        b->cap = cap;
    }
    if (len)
        memcpy(b->s + b->len, s, len);
    b->len = need;
    return true;
}

/* ------------------------------------------------------------ one stretch */

static bool decompose(nfc *b, const uint8_t *s, size_t len)
{
    b->n_cp = 0;
    for (size_t i = 0; i < len;) {
        uint32_t c;
        i += utf8_next(s + i, len - i, &c);
        if (b->cp_cap - b->n_cp < ROOM) {
            size_t cap = b->cp_cap + b->cp_cap / 2 + 256;
            int32_t *t = mem_grow(b->cp, b->cp_cap * sizeof *t, cap * sizeof *t);
            if (!t)
                return false;
            b->cp = t;
            b->cp_cap = cap;
        }
        int last_boundclass = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char((int32_t)c, b->cp + b->n_cp, ROOM,
                                                     UTF8PROC_STABLE | UTF8PROC_COMPOSE, &last_boundclass);
        if (n < 1 || n > ROOM) { /* unassigned to this version of the tables: stands for itself */
            b->cp[b->n_cp] = (int32_t)c;
            n = 1;
        }
        b->n_cp += (size_t)n;
    }
    return true;
}

static unsigned mark_class(int32_t c) { return utf8proc_get_property(c)->combining_class; }

static void insert_few(int32_t *c, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        int32_t x = c[i];
        size_t k = i;
        for (; k > 0 && mark_class(c[k - 1]) > mark_class(x); k--)
            c[k] = c[k - 1];
        c[k] = x;
    }
}

/* Stable counting sort by combining class. */
static bool sort_many(nfc *b, int32_t *c, size_t n)
{
    if (n > b->sorted_cap) {
        mem_free(b->sorted);
        b->sorted_cap = 0;
        if (!(b->sorted = mem_array(n, sizeof *b->sorted)))
            return false;
        b->sorted_cap = n;
    }
    size_t start[CLASSES + 1] = { 0 };
    for (size_t i = 0; i < n; i++)
        start[mark_class(c[i]) + 1]++;
    for (int k = 0; k < CLASSES; k++)
        start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++)
        b->sorted[start[mark_class(c[i])]++] = c[i];
    memcpy(c, b->sorted, n * sizeof *c);
    return true;
}

static bool order_marks(nfc *b)
{
    size_t n;
    for (size_t i = 0; i < b->n_cp; i += n + 1) {
        for (n = 0; i + n < b->n_cp && mark_class(b->cp[i + n]) != 0; n++)
            ;
        if (n <= FEW_MARKS)
            insert_few(b->cp + i, n);
        else if (!sort_many(b, b->cp + i, n))
            return false;
    }
    return true;
}

static bool compose(nfc *b)
{
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(b->cp, (utf8proc_ssize_t)b->n_cp, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        uint8_t u[4];
        utf8proc_ssize_t len = utf8proc_encode_char(b->cp[i], u);
        if (len < 1 || !put_text(b, u, (size_t)len))
            return false;
    }
    return n >= 0;
}

/* ------------------------------------------------------------ the text */

/* Start of the stretch at or behind `from`, its end in *end; len when there is none. */
static size_t next_stretch(const uint8_t *s, size_t len, size_t from, size_t *end)
{
    size_t i = from;
    while (i < len && s[i] < FIRST_LEAD)
        i++;
    size_t begin = i;
    while (i < len && (s[i] >= FIRST_LEAD || (s[i] & 0xc0) == 0x80))
        i++;
    *end = i;
    if (begin == len || begin == from)
        return begin;
    do
        begin--;
    while (begin > from && (s[begin] & 0xc0) == 0x80);
    return begin;
}

llada_status nfc_run(nfc *b, const char *text, size_t len, llada_err *err)
{
    const uint8_t *s = (const uint8_t *)text;
    b->len = 0;
    for (size_t at = 0, end; at < len; at = end) {
        size_t begin = next_stretch(s, len, at, &end);
        bool room = put_text(b, s + at, begin - at);
        if (room && begin < end)
            room = decompose(b, s + begin, end - begin) && order_marks(b) && compose(b);
        if (!room)
            return llada_fail(err, LLADA_NO_MEMORY, "no memory to normalise %zu bytes of text", len);
    }
    return LLADA_OK;
}

void nfc_free(nfc *b)
{
    mem_free(b->s);
    mem_free(b->cp);
    mem_free(b->sorted);
    *b = (nfc){ 0 };
}
