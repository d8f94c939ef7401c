/* tok_driver.c - tokenises strings for a checking program.
 *
 *     tok_driver VOCAB.gguf [--special] [--nfc] < strings > ids
 *
 * Input: per string, its length in bytes as 4 bytes little-endian, then the bytes.  Output: per string one line of ids
 * in decimal, blanks between.
 *     --special   spellings of special tokens are recognised
 *     --nfc       the vocabulary normalises: don't check that decoding gives the same text back */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/gguf.h"
#include "text/tok.h"

static int die(const char *what)
{
    fprintf(stderr, "tok_driver: %s\n", what);
    return 1;
}

static bool round_trip(const tok *t, const char *s, size_t len, const int32_t *ids, size_t n)
{
    llada_err err;
    size_t got = 0;
    char *back = mem_new(len + 1);
    bool same = back && tok_decode(t, ids, n, true, back, len, &got, &err) == LLADA_OK && got == len &&
                memcmp(back, s, len) == 0;
    mem_free(back);
    return same;
}

static int run_one(const tok *t, const char *s, size_t len, bool special, bool check)
{
    llada_err err;
    size_t n = 0;
    int32_t *ids = mem_array(len + 1, 3 * sizeof *ids); /* NFC may triple the bytes */
    if (!ids)
        return die("no memory");
    if (tok_encode(t, s, len, special, ids, 3 * (len + 1), &n, &err) != LLADA_OK)
        return die(err.text);
    for (size_t i = 0; i < n; i++)
        printf(i ? " %d" : "%d", (int)ids[i]);
    putchar('\n');
    int bad = check && !round_trip(t, s, len, ids, n) ? die("decoding gave another text") : 0;
    mem_free(ids);
    return bad;
}

static int run(const tok *t, bool special, bool check)
{
    unsigned char h[4];
    int bad = 0;
    while (!bad && fread(h, 1, 4, stdin) == 4) {
        size_t len = h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16 | (size_t)h[3] << 24;
        char *s = mem_new(len + 1);
        if (!s || fread(s, 1, len, stdin) != len)
            return die("a string is cut short");
        bad = run_one(t, s, len, special, check);
        mem_free(s);
    }
    return bad;
}

static bool flag(int argc, char **argv, const char *name)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    llada_err err;
    gguf *g = NULL;
    tok *t = NULL;
    if (argc < 2)
        return die("usage: tok_driver VOCAB.gguf [--special] [--nfc] < strings");
    if (gguf_open(&g, argv[1], true, NULL, 0, &err) != LLADA_OK || tok_open(&t, g, &err) != LLADA_OK)
        return die(err.text);
    int bad = run(t, flag(argc, argv, "--special"), !flag(argc, argv, "--nfc"));
    tok_close(&t);
    gguf_close(&g);
    return bad;
}
