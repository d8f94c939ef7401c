/* text_util.h - what the tests of the text folder share: a tokenizer from a synthetic file, and random text. */
#ifndef TESTS_TEXT_UTIL_H
#define TESTS_TEXT_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "text/tok.h"
#include "tiny_gguf.h"

typedef struct {
    tiny_file f;
    gguf *g;
    tok *t; /* NULL unless the last status was LLADA_OK */
    llada_err err;
} opened;

/* A file without tensors is enough for a tokenizer. */
static inline tiny_gguf *tiny_vocab(void)
{
    tiny_gguf *t = tiny_llada(NULL);
    while (t->n_tensors) tiny_drop_tensor(t, t->tensors[0].name);
    return t;
}

static inline llada_status text_open(opened *o, const tiny_gguf *t)
{
    memset(o, 0, sizeof *o);
    o->f = tiny_bytes(t);
    llada_status st = gguf_open_memory(&o->g, o->f.data, o->f.len, NULL, 0, &o->err);
    if (!st) st = tok_open(&o->t, o->g, &o->err);
    return st;
}

static inline void text_close(opened *o)
{
    tok_close(&o->t);
    gguf_close(&o->g);
    tiny_file_free(&o->f);
}

/* The synthetic vocabulary behind a pre-tokenizer. */
static inline void text_open_pre(opened *o, const char *pre)
{
    tiny_gguf *t = tiny_vocab();
    tiny_set_str(t, "tokenizer.ggml.pre", pre);
    llada_status st = text_open(o, t);
    if (st) fail_msg("%s: %s", pre, o->err.text);
    tiny_free(t);
}

/* Ids of a text; *n their number.  Owned by the caller (free). */
static inline int32_t *ids_of(const tok *t, const char *s, size_t len, bool special, size_t *n)
{
    llada_err err;
    assert_int_equal(tok_encode(t, s, len, special, NULL, 0, n, &err), LLADA_OK);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    size_t again = 0;
    assert_non_null(ids);
    ids[*n] = -7;
    assert_int_equal(tok_encode(t, s, len, special, ids, *n, &again, &err), LLADA_OK);
    assert_int_equal(again, *n);
    assert_int_equal(ids[*n], -7);
    return ids;
}

/* Bytes of ids; *len their number.  Owned by the caller (free). */
static inline char *text_of(const tok *t, const int32_t *ids, size_t n, bool special, size_t *len)
{
    llada_err err;
    assert_int_equal(tok_decode(t, ids, n, special, NULL, 0, len, &err), LLADA_OK);
    char *s = malloc(*len + 1);
    size_t again = 0;
    assert_non_null(s);
    s[*len] = 7;
    assert_int_equal(tok_decode(t, ids, n, special, s, *len, &again, &err), LLADA_OK);
    assert_int_equal(again, *len);
    assert_int_equal(s[*len], 7);
    return s;
}

/* UTF-8 of any code point, surrogates and too large ones included (then invalid on purpose). */
static inline size_t put_cp(char *s, uint32_t c)
{
    if (c < 0x80) {
        s[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) s[i] = (char)(0x80 | (c & 63));
    s[0] = (char)((0xf00u >> n & 0xff) | c);
    return n;
}

/* Random text of pieces that tend to go wrong; `valid`: only well-formed UTF-8.  Returns its length, at most cap. */
static inline size_t random_text(rng *r, char *s, size_t cap, bool valid)
{
    static const char *const pieces[] = {
        " ", "\n", "\r\n", "\t", "A", "zz", "0", "12", "'s", "'LL", ".", "<|eot_id|>", "<|", "the", " and", "\xc3\xa9",
        "e\xcc\x81", "\xcc\xa3\xcc\x81", "\xe6\xbc\xa2", "\xf0\x9f\x91\xa9", "\xe2\x80\x8d", "\xef\xbb\xbf",
        "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xe0\xa5\x98", "\xc2\xa0", "\xe3\x80\x80", "\xc2\x85"
    };
    static const char *const broken[] = { "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\x80",
                                          "\xe6\xbc", "\xf0\x9f\x91", "\xfe\xff", "\xc3" };
    size_t n = 0, want = (size_t)rng_below(r, 60);
    for (size_t k = 0; k < want; k++) {
        char one[5] = { 0 };
        const char *p = pieces[rng_below(r, sizeof pieces / sizeof *pieces)];
        size_t len = strlen(p);
        uint64_t kind = rng_below(r, 8);
        if (kind == 0) {
            uint32_t c = (uint32_t)rng_below(r, 0x110000);
            if (c >= 0xd800 && c < 0xe000) c -= 0x800;
            len = put_cp(one, c);
            p = one;
        } else if (kind == 1) { /* NUL and other controls */
            one[0] = (char)rng_below(r, 32);
            len = 1;
            p = one;
        } else if (kind == 2 && !valid) {
            p = broken[rng_below(r, sizeof broken / sizeof *broken)];
            len = strlen(p);
        } else if (kind == 3 && !valid) {
            one[0] = (char)rng_below(r, 256);
            len = 1;
            p = one;
        }
        if (n + len > cap) break;
        memcpy(s + n, p, len);
        n += len;
    }
    return n;
}

#endif
