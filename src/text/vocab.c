/* vocab.c - reads the token list (vocab.h).  Every count, kind and spelling is checked here once; the rest of the
 * folder relies on it. */
#include "text/vocab.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/utf8.h"

enum {
    MAX_TOKENS = 1 << 22, /* largest published vocabulary: 262,144 */
    FIRST_MAPPED = 0x100, /* spellings of the unprintable bytes begin here */
    N_MAPPED = 68,
    PROBES_PER_TOKEN = 64 /* a random list of this size needs about 1.5 */
};

static const char k_tokens[] = "tokenizer.ggml.tokens";
static const char k_types[] = "tokenizer.ggml.token_type";

/* ------------------------------------------------------------ the byte alphabet */

static bool printable(int b)
{
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

static void fill_alphabet(vocab *v, uint8_t byte_of[FIRST_MAPPED + N_MAPPED], bool known[FIRST_MAPPED + N_MAPPED])
{
    uint32_t next = FIRST_MAPPED;
    for (int b = 0; b < 256; b++) {
        uint32_t cp = printable(b) ? (uint32_t)b : next++;
        byte_of[cp] = (uint8_t)b;
        known[cp] = true;
        v->spelt_n[b] = cp < 0x80 ? 1 : 2;
        v->spelt[b][0] = (uint8_t)(cp < 0x80 ? cp : 0xc0 | cp >> 6);
        v->spelt[b][1] = (uint8_t)(0x80 | (cp & 0x3f));
    }
}

/* ------------------------------------------------------------ the index */

static uint64_t hash_more(uint64_t h, const void *p, size_t n) /* FNV-1a */
{
    const uint8_t *s = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ s[i]) * 0x100000001b3u;
    return h;
}

static const uint64_t hash_start = 0xcbf29ce484222325u;

static uint32_t slot_of(const vocab *v, uint64_t h)
{
    return (uint32_t)((h ^ h >> 32) * 0x9e3779b97f4a7c15u >> 32) & v->mask;
}

static bool spelling_is(const vocab *v, int32_t id, const char *a, size_t an, const char *b, size_t bn)
{
    size_t n;
    const char *s = vocab_text(v, id, &n);
    return n == an + bn && memcmp(s, a, an) == 0 && memcmp(s + an, b, bn) == 0;
}

int32_t vocab_find(const vocab *v, const char *a, size_t an, const char *b, size_t bn)
{
    uint32_t i = slot_of(v, hash_more(hash_more(hash_start, a, an), b, bn));
    for (; v->slot[i]; i = (i + 1) & v->mask)
        if (spelling_is(v, (int32_t)(v->slot[i] - 1), a, an, b, bn))
            return (int32_t)(v->slot[i] - 1);
    return -1;
}

static bool raw_is(const vocab *v, int32_t id, const uint8_t *s, size_t n)
{
    size_t len = v->raw_at[id + 1] - v->raw_at[id];
    return v->type[id] == TOKEN_NORMAL && len == n && memcmp(v->raw + v->raw_at[id], s, n) == 0;
}

int32_t vocab_find_raw(const vocab *v, const uint8_t *s, size_t n)
{
    uint64_t h = hash_start;
    for (size_t k = 0; k < n; k++)
        h = hash_more(h, v->spelt[s[k]], v->spelt_n[s[k]]);
    uint32_t i = slot_of(v, h);
    for (; v->slot[i]; i = (i + 1) & v->mask)
        if (raw_is(v, (int32_t)(v->slot[i] - 1), s, n))
            return (int32_t)(v->slot[i] - 1);
    return -1;
}

/* The hash is public, so a file can be made to collide; the probe count bounds what such a file costs. */
static llada_status build_index(vocab *v, llada_err *err)
{
    uint32_t cap = 16;
    while (cap < 2 * (uint32_t)v->n)
        cap *= 2;
    v->mask = cap - 1;
    if (!(v->slot = mem_array(cap, sizeof *v->slot)))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the index of %d tokens", (int)v->n);
    uint64_t probes = (uint64_t)PROBES_PER_TOKEN * ((uint32_t)v->n + 1024);
    for (int32_t id = 0; id < v->n; id++) {
        size_t len;
        const char *s = vocab_text(v, id, &len);
        uint32_t i = slot_of(v, hash_more(hash_start, s, len));
        for (; v->slot[i]; i = (i + 1) & v->mask) {
            int32_t other = (int32_t)(v->slot[i] - 1);
            if (spelling_is(v, other, s, len, "", 0))
                return llada_fail(err, LLADA_BAD_MODEL, "%s: items %d and %d are both spelled \"%.*s\"", k_tokens,
                                  (int)other, (int)id, (int)(len < 64 ? len : 64), s);
            if (--probes == 0)
                return llada_fail(err, LLADA_BAD_MODEL, "%s: the spellings up to item %d collide too often",
                                  k_tokens, (int)id);
        }
        v->slot[i] = (uint32_t)id + 1;
    }
    return LLADA_OK;
}

/* ------------------------------------------------------------ reading */

static llada_status read_spellings(vocab *v, const gguf *g, gguf_str *items, llada_err *err)
{
    llada_status st = gguf_arr_str(g, k_tokens, items, (uint64_t)v->n, err);
    if (st)
        return st;
    size_t total = 0;
    for (int32_t id = 0; id < v->n; id++)
        if (!size_add(total, items[id].len, &total) || total >= UINT32_MAX)
            return llada_fail(err, LLADA_BAD_MODEL, "%s: the spellings up to item %d have more than %lu bytes",
                              k_tokens, (int)id, (unsigned long)UINT32_MAX);
    v->at = mem_array((size_t)v->n + 1, sizeof *v->at);
    v->raw_at = mem_array((size_t)v->n + 1, sizeof *v->raw_at);
    v->text = mem_new(total);
    v->raw = mem_new(total);
    if (!v->at || !v->raw_at || !v->text || !v->raw)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for %d tokens of %zu bytes", (int)v->n, total);
    for (int32_t id = 0; id < v->n; id++) {
        if (items[id].len)
            memcpy(v->text + v->at[id], items[id].s, items[id].len);
        v->at[id + 1] = v->at[id] + (uint32_t)items[id].len;
    }
    return LLADA_OK;
}

/* A file without the list has normal tokens only. */
static llada_status read_types(vocab *v, const gguf *g, llada_err *err)
{
    if (!(v->type = mem_new((size_t)v->n)))
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for %d token types", (int)v->n);
    memset(v->type, TOKEN_NORMAL, (size_t)v->n);
    if (!gguf_has(g, k_types))
        return LLADA_OK;
    int64_t *t = mem_array((size_t)v->n, sizeof *t);
    if (!t)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for %d token types", (int)v->n);
    llada_status st = gguf_arr_i64(g, k_types, t, (uint64_t)v->n, err);
    for (int32_t id = 0; !st && id < v->n; id++) {
        if (t[id] < TOKEN_NORMAL || t[id] > TOKEN_BYTE)
            st = llada_fail(err, LLADA_BAD_MODEL, "%s: item %d is %lld; %d to %d is allowed", k_types, (int)id,
                            (long long)t[id], TOKEN_NORMAL, TOKEN_BYTE);
        else
            v->type[id] = (uint8_t)t[id];
    }
    mem_free(t);
    return st;
}

/* Spelling to bytes.  A character outside the alphabet (added tokens have some) makes the whole token plain text, as
 * the published tokenizers' decoders do. */
static void fill_raw(vocab *v, const uint8_t *byte_of, const bool *known)
{
    for (int32_t id = 0; id < v->n; id++) {
        size_t len, n = 0, step;
        const uint8_t *s = (const uint8_t *)vocab_text(v, id, &len);
        uint8_t *out = v->raw + v->raw_at[id];
        bool plain = v->type[id] != TOKEN_NORMAL && v->type[id] != TOKEN_BYTE;
        for (size_t i = 0; !plain && i < len; i += step) {
            uint32_t cp;
            step = utf8_next(s + i, len - i, &cp);
            plain = step == 0 || cp >= FIRST_MAPPED + N_MAPPED || !known[cp];
            if (!plain)
                out[n++] = byte_of[cp];
        }
        if (plain && (n = len) != 0)
            memcpy(out, s, len);
        v->raw_at[id + 1] = v->raw_at[id] + (uint32_t)n;
    }
}

static llada_status find_bytes(vocab *v, llada_err *err)
{
    for (int b = 0; b < 256; b++) {
        v->byte_id[b] = vocab_find(v, (const char *)v->spelt[b], v->spelt_n[b], "", 0);
        if (v->byte_id[b] < 0)
            return llada_fail(err, LLADA_BAD_MODEL, "%s: no token stands for the byte 0x%02x", k_tokens, b);
    }
    return LLADA_OK;
}

llada_status vocab_read(vocab *v, const gguf *g, llada_err *err)
{
    gguf_kind item;
    uint64_t n;
    llada_status st = gguf_get_arr(g, k_tokens, &item, &n, err);
    if (st)
        return st;
    if (n < 256 || n > MAX_TOKENS)
        return llada_fail(err, LLADA_BAD_MODEL, "%s has %llu items; 256 to %d is allowed", k_tokens,
                          (unsigned long long)n, MAX_TOKENS);
    v->n = (int32_t)n;
    gguf_str *items = mem_array((size_t)n, sizeof *items);
    if (!items)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the list of %llu tokens", (unsigned long long)n);
    st = read_spellings(v, g, items, err);
    mem_free(items);
    if (st || (st = read_types(v, g, err)))
        return st;
    uint8_t byte_of[FIRST_MAPPED + N_MAPPED] = { 0 };
    bool known[FIRST_MAPPED + N_MAPPED] = { false };
    fill_alphabet(v, byte_of, known);
    fill_raw(v, byte_of, known);
    if ((st = build_index(v, err)))
        return st;
    return find_bytes(v, err);
}

void vocab_free(vocab *v)
{
    mem_free(v->at);
    mem_free(v->text);
    mem_free(v->raw_at);
    mem_free(v->raw);
    mem_free(v->type);
    mem_free(v->slot);
    *v = (vocab){ 0 };
}
