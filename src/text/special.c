/* special.c - matching of special tokens (special.h): a sorted list narrowed byte by byte, a trie without nodes. */
#include "text/special.h"

#include <string.h>

#include "base/mem.h"

static bool wanted(const vocab *v, int32_t id)
{
    size_t len;
    (void)vocab_text(v, id, &len);
    return (v->type[id] == TOKEN_CONTROL || v->type[id] == TOKEN_USER) && len >= 1 && len <= SPECIAL_MAX;
}

static int by_spelling(const vocab *v, int32_t x, int32_t y)
{
    size_t nx, ny;
    const char *a = vocab_text(v, x, &nx), *b = vocab_text(v, y, &ny);
    int c = memcmp(a, b, nx < ny ? nx : ny);
    return c ? c : nx < ny ? -1 : nx > ny;
}

static void sink(const vocab *v, int32_t *id, size_t i, size_t n)
{
    int32_t x = id[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && by_spelling(v, id[c + 1], id[c]) > 0)
            c++;
        if (by_spelling(v, id[c], x) <= 0)
            break;
        id[i] = id[c];
    }
    id[i] = x;
}

/* Heap sort: the C library's qsort may allocate behind our back, and takes no context. */
static void sort(const vocab *v, int32_t *id, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sink(v, id, i, n);
    for (size_t k = n; k-- > 1;) {
        int32_t last = id[k];
        id[k] = id[0];
        id[0] = last;
        sink(v, id, 0, k);
    }
}

llada_status specials_read(specials *s, const vocab *v, llada_err *err)
{
    for (int32_t id = 0; id < v->n; id++)
        s->n += wanted(v, id);
    if (!(s->id = mem_array(s->n, sizeof *s->id)))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for %u special tokens", (unsigned)s->n);
    uint32_t k = 0;
    for (int32_t id = 0; id < v->n; id++)
        if (wanted(v, id))
            s->id[k++] = id;
    sort(v, s->id, s->n);
    for (k = 0; k < s->n; k++)
        s->first[(uint8_t)v->text[v->at[s->id[k]]] + 1]++;
    for (int b = 0; b < 256; b++)
        s->first[b + 1] += s->first[b];
    return LLADA_OK;
}

void specials_free(specials *s)
{
    mem_free(s->id);
    *s = (specials){ 0 };
}

/* Of id[lo..hi), which agree in `depth` bytes and have more, the first whose next byte is at least c. */
static uint32_t lower_bound(const specials *s, const vocab *v, uint32_t lo, uint32_t hi, size_t depth, int c)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)v->text[v->at[s->id[mid]] + depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Length of the longest spelling at the start of text[0..len), len > 0; 0: none. */
static size_t longest(const specials *s, const vocab *v, const char *text, size_t len, int32_t *id)
{
    uint8_t c = (uint8_t)text[0];
    uint32_t lo = s->first[c], hi = s->first[c + 1];
    size_t best = 0;
    for (size_t depth = 1; lo < hi; depth++) {
        size_t n;
        (void)vocab_text(v, s->id[lo], &n);
        if (n == depth) { /* sorted: the spelling that ends here comes first */
            best = depth;
            *id = s->id[lo++];
        }
        if (depth == len)
            break;
        c = (uint8_t)text[depth];
        lo = lower_bound(s, v, lo, hi, depth, c);
        hi = lower_bound(s, v, lo, hi, depth, c + 1);
    }
    return best;
}

size_t specials_find(const specials *s, const vocab *v, const char *text, size_t len, size_t *at, int32_t *id)
{
    for (*at = 0; *at < len; ++*at) {
        size_t n = longest(s, v, text + *at, len - *at, id);
        if (n)
            return n;
    }
    return 0;
}
