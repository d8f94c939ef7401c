/* tok.c - the tokenizer (tok.h): reads its tables from a GGUF file, and puts the steps together.
 *
 *   text -> special tokens (when asked) -> valid UTF-8 runs and stray bytes -> NFC -> words -> merges -> ids
 *
 * Stray bytes (invalid UTF-8) are words of their own: never normalised, never dropped. */
#include "text/tok.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/special.h"
#include "text/utf8.h"

typedef enum { ID_BOS, ID_EOS, ID_EOT, ID_PAD, ID_MASK, N_IDS } id_name;

struct tok {
    vocab v;
    bpe b;
    specials special;
    pretok *pre;
    int32_t id[N_IDS]; /* -1: the file names none */
};

/* ------------------------------------------------------------ opening */

static const char *const id_keys[N_IDS] = {
    [ID_BOS] = "tokenizer.ggml.bos_token_id",     [ID_EOS] = "tokenizer.ggml.eos_token_id",
    [ID_EOT] = "tokenizer.ggml.eot_token_id",     [ID_PAD] = "tokenizer.ggml.padding_token_id",
    [ID_MASK] = "tokenizer.ggml.mask_token_id",
};

/* Published LLaDA and Dream files name no end-of-turn token; their chat layouts end a turn with one of these. */
static const char *const end_of_turn[] = { "<|eot_id|>", "<|im_end|>", "<|role_end|>" };

static llada_status read_model(const gguf *g, llada_err *err)
{
    gguf_str s;
    llada_status st = gguf_get_str(g, "tokenizer.ggml.model", &s, err);
    if (st)
        return st;
    if (s.len == 4 && memcmp(s.s, "gpt2", 4) == 0)
        return LLADA_OK;
    return llada_fail(err, LLADA_UNSUPPORTED,
                      "tokenizer.ggml.model is \"%.*s\"; only \"gpt2\" (byte-level BPE) can be read",
                      (int)(s.len < 64 ? s.len : 64), s.s);
}

/* Files made before the key existed have GPT-2's. */
static llada_status read_pre(pretok **out, const gguf *g, llada_err *err)
{
    gguf_str s = { .s = "default", .len = 7 };
    if (gguf_has(g, "tokenizer.ggml.pre")) {
        llada_status st = gguf_get_str(g, "tokenizer.ggml.pre", &s, err);
        if (st)
            return st;
    }
    return pretok_open(out, s.s, s.len, err);
}

static llada_status read_ids(tok *t, const gguf *g, llada_err *err)
{
    for (int i = 0; i < N_IDS; i++) {
        int64_t v = -1;
        t->id[i] = -1;
        if (!gguf_has(g, id_keys[i]))
            continue;
        llada_status st = gguf_get_int(g, id_keys[i], 0, t->v.n - 1, &v, err);
        if (st)
            return st;
        t->id[i] = (int32_t)v;
    }
    size_t n = sizeof end_of_turn / sizeof *end_of_turn;
    for (size_t i = 0; i < n && t->id[ID_EOT] < 0; i++) {
        int32_t id = tok_find(t, end_of_turn[i]);
        t->id[ID_EOT] = id >= 0 && t->v.type[id] == TOKEN_CONTROL ? id : -1;
    }
    /* a token that has a role is not text, whatever its type says */
    for (int i = 0; i < N_IDS; i++)
        if (t->id[i] >= 0)
            t->v.type[t->id[i]] = TOKEN_CONTROL;
    return LLADA_OK;
}

llada_status tok_open(tok **out, const gguf *g, llada_err *err)
{
    tok *t = mem_new(sizeof *t);
    llada_status st;
    if (!t)
        return llada_fail(err, LLADA_NO_MEMORY, "no memory for the tokenizer");
    if ((st = read_model(g, err)))
        goto fail;
    if ((st = read_pre(&t->pre, g, err)))
        goto fail;
    if ((st = vocab_read(&t->v, g, err)))
        goto fail;
    if ((st = bpe_read(&t->b, g, &t->v, err)))
        goto fail;
    if ((st = read_ids(t, g, err)))
        goto fail;
    if ((st = specials_read(&t->special, &t->v, err)))
        goto fail;
    *out = t;
    return LLADA_OK;
fail:
    tok_close(&t);
    return st;
}

void tok_close(tok **t)
{
    if (!*t)
        return;
    specials_free(&(*t)->special);
    bpe_free(&(*t)->b);
    vocab_free(&(*t)->v);
    pretok_close(&(*t)->pre);
    mem_free(*t);
    *t = NULL;
}

/* ------------------------------------------------------------ facts */

int32_t tok_n(const tok *t) { return t->v.n; }

int32_t tok_mask(const tok *t) { return t->id[ID_MASK]; }

int32_t tok_eos(const tok *t) { return t->id[ID_EOS]; }

int32_t tok_eot(const tok *t) { return t->id[ID_EOT]; }

int32_t tok_bos(const tok *t) { return t->id[ID_BOS]; }

int32_t tok_pad(const tok *t) { return t->id[ID_PAD]; }

bool tok_is_special(const tok *t, int32_t id)
{
    if (id < 0 || id >= t->v.n)
        return false;
    uint8_t k = t->v.type[id];
    return k == TOKEN_CONTROL || k == TOKEN_UNUSED || k == TOKEN_UNKNOWN;
}

int32_t tok_find(const tok *t, const char *spelling) { return vocab_find(&t->v, spelling, strlen(spelling), "", 0); }

/* ------------------------------------------------------------ encoding */

/* What one call of tok_encode works with. */
typedef struct {
    const tok *t;
    pretok_cut *cut;
    bpe_scratch scratch;
    nfc norm;
    id_sink out;
    llada_err *err;
} encoder;

static llada_status encode_word(encoder *e, const uint8_t *s, size_t len)
{
    if (pretok_whole_words(e->t->pre)) {
        int32_t id = vocab_find_raw(&e->t->v, s, len);
        if (id >= 0) {
            sink_put(&e->out, id);
            return LLADA_OK;
        }
    }
    return bpe_word(&e->t->b, &e->t->v, s, len, &e->scratch, &e->out, e->err);
}

static llada_status encode_valid(encoder *e, const char *s, size_t len)
{
    if (pretok_nfc(e->t->pre) && nfc_needed(s, len)) {
        llada_status st = nfc_run(&e->norm, s, len, e->err);
        if (st)
            return st;
        s = e->norm.s;
        len = e->norm.len;
    }
    for (size_t at = 0, end; at < len; at = end) {
        llada_status st = pretok_next(e->cut, s, len, at, &end, e->err);
        if (!st)
            st = encode_word(e, (const uint8_t *)s + at, end - at);
        if (st)
            return st;
    }
    return LLADA_OK;
}

static llada_status encode_plain(encoder *e, const char *s, size_t len)
{
    while (len) {
        size_t n = utf8_valid_run((const uint8_t *)s, len);
        llada_status st = encode_valid(e, s, n);
        size_t stray = utf8_invalid_run((const uint8_t *)s + n, len - n);
        if (!st && stray)
            st = encode_word(e, (const uint8_t *)s + n, stray);
        if (st)
            return st;
        s += n + stray;
        len -= n + stray;
    }
    return LLADA_OK;
}

static llada_status encode_special(encoder *e, const char *s, size_t len)
{
    while (len) {
        size_t at;
        int32_t id = -1;
        size_t n = specials_find(&e->t->special, &e->t->v, s, len, &at, &id);
        llada_status st = encode_plain(e, s, at);
        if (st)
            return st;
        if (n)
            sink_put(&e->out, id);
        s += at + n;
        len -= at + n;
    }
    return LLADA_OK;
}

llada_status tok_encode(const tok *t, const char *text, size_t len, bool special, int32_t *ids, size_t cap, size_t *n,
                        llada_err *err)
{
    /* normalising may make text up to three times as long, and positions in it are 32 bits wide */
    if (len > INT32_MAX / 3)
        return llada_fail(err, LLADA_TOO_LONG, "the text has %zu bytes; at most %d can be tokenised", len,
                          INT32_MAX / 3);
    encoder e = { .t = t, .out = { .ids = ids, .cap = cap }, .err = err };
    llada_status st = pretok_begin(&e.cut, t->pre, err);
    if (!st)
        st = special ? encode_special(&e, text, len) : encode_plain(&e, text, len);
    pretok_end(&e.cut);
    bpe_scratch_free(&e.scratch);
    nfc_free(&e.norm);
    if (!st)
        *n = e.out.n;
    return st;
}

/* ------------------------------------------------------------ decoding */

llada_status tok_decode(const tok *t, const int32_t *ids, size_t n, bool special, char *buf, size_t cap, size_t *len,
                        llada_err *err)
{
    const vocab *v = &t->v;
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= v->n)
            return llada_fail(err, LLADA_BAD_ARG, "id %d at position %zu is outside the vocabulary of %d", (int)ids[i],
                              i, (int)v->n);
        if (!special && tok_is_special(t, ids[i]))
            continue;
        size_t bytes = v->raw_at[ids[i] + 1] - v->raw_at[ids[i]];
        size_t room = total < cap ? cap - total : 0;
        size_t copied = bytes < room ? bytes : room;
        if (copied)
            memcpy(buf + total, v->raw + v->raw_at[ids[i]], copied);
        if (!size_add(total, bytes, &total))
            return llada_fail(err, LLADA_TOO_LONG, "the text of %zu ids is too long", n);
    }
    *len = total;
    return LLADA_OK;
}
