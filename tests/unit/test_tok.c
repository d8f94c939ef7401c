/* test_tok.c - the tokenizer on text: what goes in comes out, whatever it is; special tokens only where asked for;
 * every failed allocation is a status; time stays linear on runs of one character.  LLADA_LONG_TESTS in the
 * environment adds the runs of 8 MiB. */
#include "text_util.h"

#include <pthread.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/bpe.h"

enum { N_RANDOM = 3000, TEXT_CAP = 600 };

static const char *const pres[] = { "default", "gpt-2", "llama-bpe", "llama3", "llama-v3", "qwen2", "bailingmoe",
                                    "bailingmoe2", "llada-moe" };
enum { N_PRES = sizeof pres / sizeof *pres };

static bool normalises(const char *pre) { return *pre == 'q' || *pre == 'b' || strcmp(pre, "llada-moe") == 0; }

static void check_round_trip(const tok *t, const char *s, size_t len, const char *want, size_t want_len)
{
    size_t n, back;
    int32_t *ids = ids_of(t, s, len, false, &n);
    for (size_t i = 0; i < n; i++) assert_in_range(ids[i], 0, TINY_BOS - 1); /* never a special one */
    char *got = text_of(t, ids, n, false, &back);
    assert_int_equal(back, want_len);
    assert_memory_equal(got, want, back);
    free(got);
    free(ids);
}

static void same_back(const tok *t, const char *s, size_t len) { check_round_trip(t, s, len, s, len); }

/* ------------------------------------------------------------ round trips */

static void test_any_bytes_come_back(void **state)
{
    opened o;
    rng r;
    char s[TEXT_CAP];
    rng_seed(&r, 11);
    for (int p = 0; p < N_PRES; p++) {
        if (normalises(pres[p])) continue;
        text_open_pre(&o, pres[p]);
        for (int i = 0; i < N_RANDOM; i++) same_back(o.t, s, random_text(&r, s, sizeof s, false));
        text_close(&o);
    }
}

static void test_normalised_text_comes_back_in_form_c(void **state)
{
    opened o;
    rng r;
    char s[TEXT_CAP + 1];
    text_open_pre(&o, "qwen2");
    rng_seed(&r, 12);
    for (int i = 0; i < N_RANDOM; i++) {
        size_t len = random_text(&r, s, TEXT_CAP, true);
        uint8_t *want = NULL;
        utf8proc_ssize_t n =
            utf8proc_map((const uint8_t *)s, (utf8proc_ssize_t)len, &want, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        assert_true(n >= 0);
        check_round_trip(o.t, s, len, (char *)want, (size_t)n);
        free(want);
    }
    text_close(&o);
}

/* Stray bytes split the text; what is between them is normalised, they are not touched. */
static void test_stray_bytes_survive_normalising(void **state)
{
    static const char in[] = "\xff" "e\xcc\x81\xc0\x80" "e\xcc\x81\xe6\xbc" "A\xcc\x8a";
    static const char out[] = "\xff\xc3\xa9\xc0\x80\xc3\xa9\xe6\xbc\xc3\x85";
    opened o;
    text_open_pre(&o, "llada-moe");
    check_round_trip(o.t, in, sizeof in - 1, out, sizeof out - 1);
    text_close(&o);
}

static void test_every_code_point_comes_back(void **state)
{
    char *s = malloc(0x110000 * 4), *s_end = s;
    opened o;
    assert_non_null(s);
    for (uint32_t c = 0; c < 0x110000; c++) s_end += put_cp(s_end, c); /* surrogates too: stray bytes */
    text_open_pre(&o, "default");
    same_back(o.t, s, (size_t)(s_end - s));
    text_close(&o);
    text_open_pre(&o, "llama-bpe");
    same_back(o.t, s, (size_t)(s_end - s));
    text_close(&o);
    free(s);
}

/* Text as people and files send it. */
static const struct {
    const char *what, *s;
    size_t len;
} odd_texts[] = {
#define TEXT(what, s) { what, s, sizeof s - 1 }
    TEXT("nothing", ""),
    TEXT("NUL", "\0"),
    TEXT("NULs between", "a\0b\0\0c"),
    TEXT("byte FF", "\xff"),
    TEXT("overlong NUL", "\xc0\x80"),
    TEXT("overlong slash", "\xe0\x80\xaf"),
    TEXT("surrogate", "\xed\xa0\x80"),
    TEXT("pair of surrogates", "\xed\xa0\xbd\xed\xb8\x80"),
    TEXT("F5", "\xf5\x80\x80\x80"),
    TEXT("above U+10FFFF", "\xf4\x90\x80\x80"),
    TEXT("lone continuation", "a\x80z"),
    TEXT("cut character", "\xf0\x9f\x98"),
    TEXT("UTF-8 BOM", "\xef\xbb\xbfHello"),
    TEXT("UTF-16 LE BOM", "\xff\xfeH\0i\0"),
    TEXT("UTF-16 BE BOM", "\xfe\xff\0H\0i"),
    TEXT("mask", "<|mdm_mask|>"),
    TEXT("end of turn", "x<|eot_id|>y"),
    TEXT("header", "<|start_header_id|>system<|end_header_id|>\n\nYou are<|eot_id|>"),
    TEXT("start", "<|startoftext|><|endoftext|>"),
    TEXT("half a special token", "<|mdm_mask|"),
    TEXT("blanks", "   \t \r\n\n  x  "),
};

static void test_odd_texts_come_back(void **state)
{
    opened o;
    for (int p = 0; p < N_PRES; p++) {
        text_open_pre(&o, pres[p]);
        for (size_t i = 0; i < sizeof odd_texts / sizeof *odd_texts; i++)
            same_back(o.t, odd_texts[i].s, odd_texts[i].len);
        text_close(&o);
    }
}

/* ------------------------------------------------------------ merging */

/* The definition: again and again, the leftmost pair of least rank. */
static size_t merge_naively(const bpe *b, int32_t *id, size_t n)
{
    for (;;) {
        uint32_t best = b->n;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t r = 0; r < best; r++)
                if (b->m[r].left == id[i] && b->m[r].right == id[i + 1]) {
                    best = r;
                    at = i;
                }
        if (best == b->n) return n;
        id[at] = b->m[best].id;
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        n--;
    }
}

/* A vocabulary over a, b, c in which tokens of up to eight letters can be reached in several ways, ranks at random: the
 * order of merges matters, and a merge may make a pair that goes before the one that made it. */
static tiny_gguf *random_merges(rng *r)
{
    enum { N = 200, FIRST = 256 };
    static const char *const letters[4] = { "a", "b", "c", "a" };
    static char spelling[FIRST + N][24], merge[3 * N][40];
    const char *tokens[FIRST + N], *merges[3 * N];
    tiny_gguf *t = tiny_vocab();
    tiny_key *k = tiny_find_key(t, "tokenizer.ggml.tokens");
    const uint8_t *p = k->raw;
    size_t n_tokens = FIRST, n_merges = 0;
    for (int i = 0; i < FIRST; i++) {
        snprintf(spelling[i], sizeof spelling[i], "%.*s", (int)p[0], (const char *)p + 8);
        p += 8 + p[0];
    }
    for (int tries = 0; tries < 4000 && n_tokens < FIRST + N && n_merges < 3 * N; tries++) {
        char both[48];
        const char *half[2];
        for (int i = 0; i < 2; i++)
            half[i] = rng_below(r, 2) && n_tokens > FIRST ? spelling[FIRST + rng_below(r, n_tokens - FIRST)]
                                                          : letters[rng_below(r, 4)];
        bool known = false, listed = false;
        snprintf(both, sizeof both, "%s%s", half[0], half[1]);
        if (strlen(both) > 8) continue;
        snprintf(merge[n_merges], sizeof merge[0], "%s %s", half[0], half[1]);
        for (size_t i = 0; i < n_merges; i++) listed |= strcmp(merge[i], merge[n_merges]) == 0;
        for (size_t i = 0; i < n_tokens; i++) known |= strcmp(spelling[i], both) == 0;
        if (listed) continue;
        if (!known) strcpy(spelling[n_tokens++], both);
        n_merges++;
    }
    for (size_t i = 0; i < n_tokens; i++) tokens[i] = spelling[i];
    for (size_t i = 0; i < n_merges; i++) merges[i] = merge[i];
    for (size_t i = n_merges; i-- > 1;) {
        size_t j = (size_t)rng_below(r, i + 1);
        const char *x = merges[i];
        merges[i] = merges[j];
        merges[j] = x;
    }
    tiny_set_strs(t, "tokenizer.ggml.tokens", tokens, n_tokens);
    tiny_set_strs(t, "tokenizer.ggml.merges", merges, n_merges);
    tiny_drop_key(t, "tokenizer.ggml.token_type");
    static const char *const ids[] = { "bos", "eos", "padding", "mask", "eot" };
    for (int i = 0; i < 5; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i]);
        tiny_drop_key(t, key);
    }
    return t;
}

static void check_word(const bpe *b, const vocab *v, const uint8_t *s, size_t len)
{
    int32_t *want = malloc((len + 1) * sizeof *want), *got = malloc((len + 1) * sizeof *got);
    bpe_scratch w = { 0 };
    id_sink sink = { .ids = got, .cap = len };
    assert_non_null(want);
    assert_non_null(got);
    for (size_t i = 0; i < len; i++) want[i] = v->byte_id[s[i]];
    size_t n = merge_naively(b, want, len);
    assert_int_equal(bpe_word(b, v, s, len, &w, &sink, NULL), LLADA_OK);
    assert_int_equal(sink.n, n);
    assert_memory_equal(got, want, n * sizeof *got);
    bpe_scratch_free(&w);
    free(got);
    free(want);
}

static void test_merging_follows_the_definition(void **state)
{
    static const size_t sizes[] = { 1, 2, 3, 5, 17, 47, 48, 49, 50, 63, 64, 65, 127, 128, 129, 200, 300 };
    rng r;
    rng_seed(&r, 5);
    for (int round = 0; round < 6; round++) {
        opened o = { 0 };
        vocab v = { 0 };
        bpe b = { 0 };
        tiny_gguf *t = random_merges(&r);
        if (text_open(&o, t)) fail_msg("%s", o.err.text);
        assert_int_equal(vocab_read(&v, o.g, &o.err), LLADA_OK);
        assert_int_equal(bpe_read(&b, o.g, &v, &o.err), LLADA_OK);
        assert_in_range(b.n, 100, 600);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            uint8_t s[300];
            int letters = 1 + (int)rng_below(&r, 3);
            for (size_t k = 0; k < sizes[i]; k++) s[k] = (uint8_t)('a' + rng_below(&r, (uint64_t)letters));
            check_word(&b, &v, s, sizes[i]);
        }
        bpe_free(&b);
        vocab_free(&v);
        text_close(&o);
        tiny_free(t);
    }
}

/* ------------------------------------------------------------ special tokens, decoding */

static void expect_ids(const tok *t, const char *s, bool special, const int32_t *want, size_t n_want)
{
    size_t n;
    int32_t *ids = ids_of(t, s, strlen(s), special, &n);
    if (n != n_want || memcmp(ids, want, n * sizeof *ids) != 0) fail_msg("\"%s\" gave other ids", s);
    free(ids);
}

static void test_special_tokens_where_asked_for(void **state)
{
    opened o;
    size_t n;
    text_open_pre(&o, "qwen2");
    int32_t a = tok_find(o.t, "a"), lt = tok_find(o.t, "<");
    expect_ids(o.t, "<|mdm_mask|>", true, (int32_t[]){ TINY_MASK }, 1);
    expect_ids(o.t, "a<|eot_id|><|eot_id|>a", true, (int32_t[]){ a, TINY_EOT, TINY_EOT, a }, 4);
    expect_ids(o.t, "<<|eot_id|>", true, (int32_t[]){ lt, TINY_EOT }, 2);
    int32_t *ids = ids_of(o.t, "<|mdm_mask|", 11, true, &n);
    for (size_t i = 0; i < n; i++) assert_in_range(ids[i], 0, TINY_BOS - 1);
    free(ids);
    for (int32_t id = 0; id < tok_n(o.t); id++) assert_int_equal(tok_is_special(o.t, id), id >= TINY_BOS);
    assert_false(tok_is_special(o.t, -1));
    assert_false(tok_is_special(o.t, TINY_VOCAB));
    text_close(&o);
}

/* Kinds of all sorts at the end of the list; the last merges' tokens give way. */
static tiny_gguf *with_kinds(void)
{
    static const char *const spelling[6] = { "<x>",          "<x><y>",     "<x>y",
                                              "[PAD\xc4\xa0x]", "plain word", "\xe2\x96\x81odd" };
    static const uint8_t kind[6] = { 3, 4, 3, 5, 1, 2 };
    const char *tokens[262];
    static char bytes[256][4];
    uint8_t types[262 * 4] = { 0 };
    tiny_gguf *t = tiny_vocab();
    const uint8_t *p = tiny_find_key(t, "tokenizer.ggml.tokens")->raw;
    for (int i = 0; i < 262; i++) {
        if (i < 256) {
            snprintf(bytes[i], sizeof bytes[i], "%.*s", (int)p[0], (const char *)p + 8);
            p += 8 + p[0];
        }
        tokens[i] = i < 256 ? bytes[i] : spelling[i - 256];
        types[4 * i] = i < 256 ? 1 : kind[i - 256];
    }
    tiny_set_strs(t, "tokenizer.ggml.tokens", tokens, 262);
    tiny_set_arr(t, "tokenizer.ggml.token_type", GGUF_I32, 262, types, sizeof types);
    tiny_set_strs(t, "tokenizer.ggml.merges", NULL, 0);
    tiny_set_u32(t, "tokenizer.ggml.bos_token_id", 0);
    tiny_set_u32(t, "tokenizer.ggml.eos_token_id", 256);
    tiny_set_u32(t, "tokenizer.ggml.padding_token_id", 256);
    tiny_set_u32(t, "tokenizer.ggml.mask_token_id", 258);
    tiny_drop_key(t, "tokenizer.ggml.eot_token_id");
    tiny_drop_key(t, "tokenizer.ggml.bos_token_id");
    return t;
}

static void test_longest_special_token_wins(void **state)
{
    tiny_gguf *t = with_kinds();
    opened o;
    if (text_open(&o, t)) fail_msg("%s", o.err.text);
    int32_t y = tok_find(o.t, "y"), lt = tok_find(o.t, "<"), x = tok_find(o.t, "x");
    expect_ids(o.t, "<x>", true, (int32_t[]){ 256 }, 1);
    expect_ids(o.t, "<x><y>", true, (int32_t[]){ 257 }, 1);
    expect_ids(o.t, "<x><y", true, (int32_t[]){ 256, lt, y }, 3);
    expect_ids(o.t, "<x>yy", true, (int32_t[]){ 258, y }, 2);
    expect_ids(o.t, "<x", true, (int32_t[]){ lt, x }, 2);
    text_close(&o);
    tiny_free(t);
}

static void test_text_of_each_kind(void **state)
{
    static const struct {
        int32_t id;
        const char *plain, *special;
    } rows[] = { { 256, "", "<x>" },       { 257, "<x><y>", "<x><y>" },         { 259, "", "[PAD\xc4\xa0x]" },
                 { 260, "plain word", "plain word" }, { 261, "", "\xe2\x96\x81odd" } };
    tiny_gguf *t = with_kinds();
    opened o;
    if (text_open(&o, t)) fail_msg("%s", o.err.text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int special = 0; special < 2; special++) {
            const char *want = special ? rows[i].special : rows[i].plain;
            size_t len;
            char *s = text_of(o.t, &rows[i].id, 1, special, &len);
            assert_int_equal(len, strlen(want));
            assert_memory_equal(s, want, len);
            free(s);
        }
    text_close(&o);
    tiny_free(t);
}

static void test_decode_refuses_ids_outside(void **state)
{
    static const int32_t bad[] = { -1, TINY_VOCAB, INT32_MAX, INT32_MIN };
    opened o;
    text_open_pre(&o, "qwen2");
    for (int i = 0; i < 4; i++) {
        int32_t ids[2] = { 0, bad[i] };
        size_t len = 99;
        assert_int_equal(tok_decode(o.t, ids, 2, false, NULL, 0, &len, &o.err), LLADA_BAD_ARG);
        assert_non_null(strstr(o.err.text, "position 1"));
    }
    text_close(&o);
}

static void test_counts_past_a_small_buffer(void **state)
{
    static const char s[] = "the cat and the hat, 123";
    opened o;
    int32_t ids[64], all[64];
    char buf[64];
    size_t n_all, n, len;
    text_open_pre(&o, "qwen2");
    assert_int_equal(tok_encode(o.t, s, sizeof s - 1, false, all, 64, &n_all, NULL), LLADA_OK);
    for (size_t cap = 0; cap < n_all; cap++) {
        memset(ids, 0x7e, sizeof ids);
        assert_int_equal(tok_encode(o.t, s, sizeof s - 1, false, ids, cap, &n, NULL), LLADA_OK);
        assert_int_equal(n, n_all);
        assert_memory_equal(ids, all, cap * sizeof *ids);
        assert_int_equal(ids[cap], 0x7e7e7e7e);
    }
    for (size_t cap = 0; cap < sizeof s - 1; cap++) {
        memset(buf, 1, sizeof buf);
        assert_int_equal(tok_decode(o.t, all, n_all, false, buf, cap, &len, NULL), LLADA_OK);
        assert_int_equal(len, sizeof s - 1);
        assert_memory_equal(buf, s, cap);
        assert_int_equal(buf[cap], 1);
    }
    text_close(&o);
}

/* ------------------------------------------------------------ failing memory */

/* Something for every path that takes memory: a long word, text to normalise with many marks, stray bytes. */
static char *hungry_text(size_t *len)
{
    char *s = calloc(1, 8192), *p = s;
    assert_non_null(s);
    for (int i = 0; i < 3000; i++) *p++ = 'e';
    for (int i = 0; i < 40; i++) p += sprintf(p, "%s", i % 2 ? "\xcc\x81" : "\xcc\xa3");
    p += sprintf(p, "<|eot_id|>\xff\xfe 12 \xe1\x84\x80\xe1\x85\xa1");
    for (int i = 0; i < 600; i++) p += sprintf(p, "%s", "\xe6\xbc\xa2");
    *len = (size_t)(p - s);
    return s;
}

static void test_failed_allocation_in_encode(void **state)
{
    opened o;
    size_t len, n = 0, want = 0;
    char *s = hungry_text(&len);
    int k = 1;
    text_open_pre(&o, "qwen2");
    assert_int_equal(tok_encode(o.t, s, len, true, NULL, 0, &want, NULL), LLADA_OK);
    for (;; k++) {
        llada_err err = { 0 };
        mem_fail_at((uint64_t)k);
        llada_status st = tok_encode(o.t, s, len, true, NULL, 0, &n, &err);
        mem_fail_at(0);
        if (st == LLADA_OK) break;
        assert_int_equal(st, LLADA_NO_MEMORY);
        assert_non_null(strstr(err.text, "no memory"));
    }
    assert_in_range(k, 8, 60);
    assert_int_equal(n, want);
    assert_int_equal(tok_encode(o.t, s, len, true, NULL, 0, &n, NULL), LLADA_OK);
    assert_int_equal(n, want);
    text_close(&o);
    free(s);
}

/* A few of PCRE2's allocations only serve speed: without them the tokenizer opens all the same. */
static void test_failed_allocation_in_open(void **state)
{
    tiny_gguf *t = tiny_vocab();
    opened o;
    uint64_t before = mem_count(), failed = 0;
    if (text_open(&o, t)) fail_msg("%s", o.err.text);
    tok_close(&o.t);
    before = mem_count();
    assert_int_equal(tok_open(&o.t, o.g, &o.err), LLADA_OK);
    tok_close(&o.t);
    uint64_t all = mem_count() - before;
    assert_in_range(all, 15, 80);
    for (uint64_t k = 1; k <= all; k++) {
        mem_fail_at(k);
        llada_status st = tok_open(&o.t, o.g, &o.err);
        mem_fail_at(0);
        failed += st == LLADA_NO_MEMORY;
        assert_true(st == LLADA_NO_MEMORY ? o.t == NULL : st == LLADA_OK);
        tok_close(&o.t);
    }
    assert_in_range(failed, 16, all); /* 17 are ours or the pattern's */
    text_close(&o);
    tiny_free(t);
}

/* ------------------------------------------------------------ threads, long runs */

enum { N_THREADS = 4, SMALL_STACK = 256 << 10 };

typedef struct {
    const tok *t;
    const char *unit; /* NULL: hungry_text, again and again */
    size_t len;       /* of the run to build */
    bool good;
} job;

static bool run_comes_back(const tok *t, const char *s, size_t len)
{
    llada_err err;
    size_t n = 0, back = 0;
    int32_t *ids = malloc((len + 1) * sizeof *ids);
    char *text = malloc(len + 1);
    bool good = ids && text && tok_encode(t, s, len, true, ids, len, &n, &err) == LLADA_OK && n <= len &&
                tok_decode(t, ids, n, true, text, len, &back, &err) == LLADA_OK && back == len &&
                memcmp(text, s, len) == 0;
    free(ids);
    free(text);
    return good;
}

static void *do_job(void *arg)
{
    job *j = arg;
    size_t k = strlen(j->unit), len = j->len / k * k;
    char *s = malloc(len + 1);
    for (size_t i = 0; s && i < len; i += k) memcpy(s + i, j->unit, k);
    j->good = s && run_comes_back(j->t, s, len);
    free(s);
    return NULL;
}

static void on_small_stack(job *j)
{
    pthread_attr_t a;
    pthread_t th;
    assert_int_equal(pthread_attr_init(&a), 0);
    assert_int_equal(pthread_attr_setstacksize(&a, SMALL_STACK), 0);
    assert_int_equal(pthread_create(&th, &a, do_job, j), 0);
    pthread_join(th, NULL);
    pthread_attr_destroy(&a);
}

static void test_long_runs(void **state)
{
    static const char *const units[] = { "A", "0", " ", "\n", ".", "<", "\xff", "'", " \n", "  a", "\r ",
                                         "\xe6\xbc\xa2",      /* one CJK character */
                                         "\xcc\x81",          /* one combining mark */
                                         "\xcc\x95\xcc\xa3",  /* two, in the wrong order where text is normalised */
                                         "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb", /* emoji with a joiner */
                                         "<|eot_id|>", "<|eot_id|" };
    static const char *const some[] = { "llama-bpe", "default" };
    size_t sizes[] = { 1 << 10, 1 << 17, 1 << 20, 8 << 20 };
    size_t n_sizes = getenv("LLADA_LONG_TESTS") ? 4 : 3;
    for (int p = 0; p < 2; p++) {
        opened o;
        text_open_pre(&o, some[p]);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            for (size_t k = 0; k < n_sizes - (size_t)(p && n_sizes == 3); k++) {
                job j = { .t = o.t, .unit = units[i], .len = sizes[k] };
                on_small_stack(&j);
                if (!j.good) fail_msg("%s: a run of %zu bytes, unit %zu, did not come back", some[p], sizes[k], i);
            }
        text_close(&o);
    }
}

/* The same where text is normalised: marks come back in order. */
static void test_long_runs_of_marks(void **state)
{
    enum { PAIRS = 1 << 18 };
    opened o;
    char *s = malloc(4 * PAIRS + 1), *want = malloc(4 * PAIRS + 1);
    assert_non_null(s);
    assert_non_null(want);
    *s = *want = 'q';
    for (size_t i = 0; i < PAIRS; i++) {
        memcpy(s + 1 + 4 * i, "\xcc\x95\xcc\xa3", 4);              /* classes 232, 220 */
        memcpy(want + 1 + 2 * i, "\xcc\xa3", 2);
        memcpy(want + 1 + 2 * PAIRS + 2 * i, "\xcc\x95", 2);
    }
    text_open_pre(&o, "qwen2");
    check_round_trip(o.t, s, 4 * PAIRS + 1, want, 4 * PAIRS + 1);
    text_close(&o);
    free(s);
    free(want);
}

static void *encode_many(void *arg)
{
    job *j = arg;
    size_t len, n, want = 0;
    char *s = calloc(1, 4096);
    if (!s) return NULL;
    len = (size_t)sprintf(s, "the cat%0600d and <|eot_id|> e\xcc\x81", 7);
    j->good = tok_encode(j->t, s, len, true, NULL, 0, &want, NULL) == LLADA_OK;
    for (int i = 0; i < 200; i++) j->good &= tok_encode(j->t, s, len, true, NULL, 0, &n, NULL) == LLADA_OK && n == want;
    free(s);
    return NULL;
}

static void test_one_tokenizer_many_threads(void **state)
{
    opened o;
    pthread_t th[N_THREADS];
    job jobs[N_THREADS];
    text_open_pre(&o, "qwen2");
    for (int i = 0; i < N_THREADS; i++) {
        jobs[i] = (job){ .t = o.t };
        assert_int_equal(pthread_create(&th[i], NULL, encode_many, &jobs[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(th[i], NULL);
    for (int i = 0; i < N_THREADS; i++) assert_true(jobs[i].good);
    text_close(&o);
}

static void test_too_long_a_text(void **state)
{
    opened o;
    size_t n = 0;
    text_open_pre(&o, "qwen2");
    assert_int_equal(tok_encode(o.t, "x", (size_t)INT32_MAX, false, NULL, 0, &n, &o.err), LLADA_TOO_LONG);
    assert_non_null(strstr(o.err.text, "2147483647"));
    text_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_bytes_come_back),
        cmocka_unit_test(test_normalised_text_comes_back_in_form_c),
        cmocka_unit_test(test_stray_bytes_survive_normalising),
        cmocka_unit_test(test_every_code_point_comes_back),
        cmocka_unit_test(test_odd_texts_come_back),
        cmocka_unit_test(test_merging_follows_the_definition),
        cmocka_unit_test(test_special_tokens_where_asked_for),
        cmocka_unit_test(test_longest_special_token_wins),
        cmocka_unit_test(test_text_of_each_kind),
        cmocka_unit_test(test_decode_refuses_ids_outside),
        cmocka_unit_test(test_counts_past_a_small_buffer),
        cmocka_unit_test(test_failed_allocation_in_encode),
        cmocka_unit_test(test_failed_allocation_in_open),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_long_runs_of_marks),
        cmocka_unit_test(test_one_tokenizer_many_threads),
        cmocka_unit_test(test_too_long_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
