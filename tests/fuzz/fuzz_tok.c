/* fuzz_tok.c - any bytes through the tokenizer and back, behind each kind of pre-tokenizer.  The first byte of the
 * input chooses: bits 0..1 the pre-tokenizer, bit 2 whether special tokens are recognised, bits 3..7 an allocation that
 * fails. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/mem.h"
#include "text/nfc.h"
#include "text/tok.h"
#include "text/utf8.h"

#ifndef FUZZ_MODEL
#define FUZZ_MODEL LLADA_SOURCE_DIR "/models/tiny-llada-q8_0.gguf"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pres[4] = { "qwen2", "llada-moe", "llama-bpe", "default" };
static tok *toks[4];

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "fuzz_tok: %s\n", what);
    abort();
}

/* The small model's vocabulary with another value of tokenizer.ggml.pre, written over in a copy of the file. */
static tok *open_with(const char *pre)
{
    static const char old[] = "tokenizer.ggml.pre";
    llada_err err;
    gguf *g = NULL;
    tok *t = NULL;
    FILE *f = fopen(FUZZ_MODEL, "rb");
    must(f && fseek(f, 0, SEEK_END) == 0, "the model can't be read");
    long len = ftell(f);
    size_t n = strlen(pre);
    uint8_t *data = malloc((size_t)len + 64);
    rewind(f);
    must(data && len > 0 && fread(data, 1, (size_t)len, f) == (size_t)len, "the model can't be read");
    fclose(f);
    uint8_t *at = memmem(data, (size_t)len, old, sizeof old - 1);
    must(at != NULL, "the model has no pre-tokenizer");
    at += sizeof old - 1 + 4; /* behind the value's kind: its length, then "qwen2" */
    memmove(at + 8 + n, at + 8 + 5, (size_t)(data + len - at) - 13);
    at[0] = (uint8_t)n;
    memcpy(at + 8, pre, n);
    must(gguf_open_memory(&g, data, (size_t)len + n - 5, NULL, 0, &err) == LLADA_OK, err.text);
    must(tok_open(&t, g, &err) == LLADA_OK, err.text);
    gguf_close(&g);
    free(data);
    return t;
}

/* What must come back: valid runs in form C, all else as it is. */
static char *expected(const char *s, size_t len, bool norm, size_t *n)
{
    char *out = malloc(3 * len + 1);
    must(out != NULL, "no memory");
    *n = 0;
    while (len) {
        size_t run = utf8_valid_run((const uint8_t *)s, len);
        size_t stray = utf8_invalid_run((const uint8_t *)s + run, len - run);
        uint8_t *c = NULL;
        utf8proc_ssize_t k = (utf8proc_ssize_t)run;
        if (norm) k = utf8proc_map((const uint8_t *)s, k, &c, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        must(k >= 0 && (size_t)k <= 3 * run, "the reference failed to normalise");
        if (k) memcpy(out + *n, norm ? (char *)c : s, (size_t)k);
        *n += (size_t)k;
        if (stray) memcpy(out + *n, s + run, stray);
        *n += stray;
        free(c);
        s += run + stray;
        len -= run + stray;
    }
    return out;
}

static void check(const tok *t, const char *s, size_t len, bool special, bool norm)
{
    llada_err err;
    size_t n = 0, again = 0, back = 0, want_len;
    must(tok_encode(t, s, len, special, NULL, 0, &n, &err) == LLADA_OK, "encode failed");
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    char *text = malloc(3 * len + 1), *want = expected(s, len, norm, &want_len);
    must(ids && text, "no memory");
    must(tok_encode(t, s, len, special, ids, n, &again, &err) == LLADA_OK && again == n, "encode gave another count");
    for (size_t i = 0; i < n; i++) must(special || !tok_is_special(t, ids[i]), "a special token out of plain text");
    must(tok_decode(t, ids, n, true, text, 3 * len, &back, &err) == LLADA_OK, "decode failed");
    must(back == want_len && memcmp(text, want, back) == 0, "another text came back");
    free(ids);
    free(text);
    free(want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int i = 0; i < 4; i++)
        if (!toks[i]) toks[i] = open_with(pres[i]);
    if (size == 0) return 0;
    int which = data[0] & 3;
    bool special = data[0] & 4;
    const char *s = (const char *)data + 1;
    llada_err err;
    size_t n;
    mem_fail_at(data[0] >> 3);
    llada_status st = tok_encode(toks[which], s, size - 1, special, NULL, 0, &n, &err);
    mem_fail_at(0);
    must(st == LLADA_OK || (st == LLADA_NO_MEMORY && data[0] >> 3), "a status that no failed allocation explains");
    /* special tokens split the text, and form C with it: then only what needs none can be compared */
    bool norm = which < 2 && nfc_needed(s, size - 1);
    if (!special || !norm) check(toks[which], s, size - 1, special, norm);
    return 0;
}
