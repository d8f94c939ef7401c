/* test_pretok.c - how text is cut into words, pattern by pattern, and normalisation against the library's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <utf8proc.h>

#include "base/rng.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/utf8.h"

/* Words are shown with '|' between them; no text here holds one. */
static const struct {
    const char *pre, *text, *words;
} cuts[] = {
    { "llama-bpe", "Hello world", "Hello| world" },
    { "llama-bpe", "I'LL don'T 'tis", "I|'LL| don|'T| '|tis" },
    { "llama-bpe", "1234567 89", "123|456|7| |89" },
    { "llama-bpe", "a   b", "a|  | b" },
    { "llama-bpe", "a  \n\n  b", "a|  \n\n| | b" },
    { "llama-bpe", "end.\n\n\nNext", "end|.\n\n\n|Next" },
    { "llama-bpe", "(x) != {y}\r\n", "(x|)| !=| {|y|}\r\n" },
    { "llama-bpe", "tail   ", "tail|   " },
    { "llama-bpe", "caf\xc3\xa9 \xe6\xbc\xa2\xe5\xad\x97", "caf\xc3\xa9| \xe6\xbc\xa2\xe5\xad\x97" },
    { "llama-bpe", "e\xcc\x81x", "e|\xcc\x81x" }, /* a mark is no letter, but may stand before one */
    { "llama-bpe", "a\xe1\xa0\x8e\xe1\xa0\x8e", "a|\xe1\xa0\x8e\xe1\xa0\x8e" }, /* U+180E is no blank */
    { "llama-bpe", "a\xc2\x85", "a|\xc2\x85" },                                 /* U+0085 is one */
    { "llama-bpe", ".\xc2\x85", ".|\xc2\x85" },
    { "llama-bpe", ".\xe1\xa0\x8e", ".\xe1\xa0\x8e" },
    { "llama-bpe", ".\xef\xbb\xbf", ".\xef\xbb\xbf" }, /* the byte order mark is none either */
    { "qwen2", "1234 x\xc2\xb2", "1|2|3|4| x|\xc2\xb2" },
    { "qwen2", "\n\nTom's 3 eggs", "\n\n|Tom|'s| |3| eggs" },
    { "llada-moe", "12'S\n\n \n", "1|2|'S|\n\n \n" },
    { "bailingmoe", "a\n\n\nb", "a|\n\n\n|b" },
    { "bailingmoe2", "x ==  y", "x| ==| | y" },
    { "seed-coder", "end.\n\n\nNext 12", "end|.|\n\n\n|Next| |1|2" },
    { "seed-coder", "x'S (y)\r\n  z", "x|'S| (|y|)|\r\n| | z" },
    { "gpt-2", "1234 x'S x's", "1234| x|'|S| x|'s" },
    { "gpt-2", "a\n\n b", "a|\n\n| b" },
    { "default", "..\n x", "..|\n| x" },
};

static void test_cuts(void **state)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        pretok *p = NULL;
        pretok_cut *c = NULL;
        char got[256] = "";
        size_t len = strlen(cuts[i].text), n = 0, end;
        assert_int_equal(pretok_open(&p, cuts[i].pre, strlen(cuts[i].pre), NULL), LLADA_OK);
        assert_int_equal(pretok_begin(&c, p, NULL), LLADA_OK);
        for (size_t at = 0; at < len; at = end) {
            assert_int_equal(pretok_next(c, cuts[i].text, len, at, &end, NULL), LLADA_OK);
            assert_in_range(end, at + 1, len);
            n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", at ? "|" : "", (int)(end - at), cuts[i].text + at);
        }
        if (strcmp(got, cuts[i].words) != 0) fail_msg("%s cuts \"%s\" to \"%s\"", cuts[i].pre, cuts[i].text, got);
        pretok_end(&c);
        pretok_close(&p);
    }
}

static void test_unknown_names(void **state)
{
    static const char *const bad[] = { "", "qwen", "qwen22", "QWEN2", "llama-bpe ", "tekken", "gpt-4o" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pretok *p = NULL;
        llada_err err;
        assert_int_equal(pretok_open(&p, bad[i], strlen(bad[i]), &err), LLADA_UNSUPPORTED);
        assert_null(p);
        assert_non_null(strstr(err.text, "default, gpt-2, llama-bpe, llama3, llama-v3, qwen2, bailingmoe, "
                                         "bailingmoe2, llada-moe, seed-coder"));
    }
}

/* ------------------------------------------------------------ form C */

static void check_nfc(nfc *b, const char *s, size_t len)
{
    uint8_t *want = NULL;
    utf8proc_ssize_t n =
        utf8proc_map((const uint8_t *)s, (utf8proc_ssize_t)len, &want, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(n >= 0);
    assert_int_equal(nfc_run(b, s, len, NULL), LLADA_OK);
    assert_int_equal(b->len, n);
    if (n) assert_memory_equal(b->s, want, (size_t)n);
    if (!nfc_needed(s, len)) assert_int_equal((size_t)n, len);
    free(want);
}

static void test_form_c_of_each_character(void **state)
{
    nfc b = { 0 };
    char s[16] = "x";
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        utf8proc_ssize_t n = utf8proc_encode_char((int32_t)c, (uint8_t *)s + 1);
        memcpy(s + 1 + n, "\xcc\xa3", 2); /* a dot below: class 220 */
        check_nfc(&b, s, (size_t)n + 3);
    }
    nfc_free(&b);
}

/* Mostly characters that take part in composition, in runs around the sizes where the way of ordering changes. */
static void test_form_c_of_random_text(void **state)
{
    static const uint32_t ranges[][2] = { { 'A', 'z' },         { 0xc0, 0x17f },      { 0x300, 0x36f },
                                          { 0x300, 0x36f },     { 0x591, 0x5bd },     { 0x610, 0x66f },
                                          { 0x900, 0x9ff },     { 0xf40, 0xf84 },     { 0x1100, 0x11ff },
                                          { 0xac00, 0xac20 },   { 0x1e00, 0x1fff },   { 0x2120, 0x2130 },
                                          { 0x3040, 0x309f },   { 0xf900, 0xfa00 },   { 0xfb1d, 0xfb4e },
                                          { 0x11080, 0x110c0 }, { 0x1d15e, 0x1d172 }, { 0x2f800, 0x2f820 } };
    nfc b = { 0 };
    rng r;
    char s[4 * 400];
    rng_seed(&r, 3);
    for (int i = 0; i < 4000; i++) {
        size_t len = 0, count = (size_t)rng_below(&r, i % 10 ? 30 : 400);
        uint64_t only = rng_below(&r, 4) ? 0 : 1 + rng_below(&r, sizeof ranges / sizeof *ranges);
        for (size_t k = 0; k < count; k++) {
            const uint32_t *range = ranges[only ? only - 1 : rng_below(&r, sizeof ranges / sizeof *ranges)];
            uint32_t c = range[0] + (uint32_t)rng_below(&r, range[1] - range[0] + 1);
            len += (size_t)utf8proc_encode_char((int32_t)c, (uint8_t *)s + len);
        }
        check_nfc(&b, s, len);
    }
    nfc_free(&b);
}

/* ------------------------------------------------------------ UTF-8 */

static void test_utf8_reader(void **state)
{
    static const struct {
        const char *s;
        size_t len, valid;
        uint32_t cp;
    } rows[] = {
        { "", 0, 0, 0xfffd },
        { "\0", 1, 1, 0 },
        { "\x7f", 1, 1, 0x7f },
        { "\x80", 1, 0, 0xfffd },
        { "\xc1\xbf", 2, 0, 0xfffd },
        { "\xc2\x80", 2, 2, 0x80 },
        { "\xdf\xbf", 2, 2, 0x7ff },
        { "\xe0\x9f\xbf", 3, 0, 0xfffd },
        { "\xe0\xa0\x80", 3, 3, 0x800 },
        { "\xed\x9f\xbf", 3, 3, 0xd7ff },
        { "\xed\xa0\x80", 3, 0, 0xfffd },
        { "\xee\x80\x80", 3, 3, 0xe000 },
        { "\xef\xbf\xbf", 3, 3, 0xffff },
        { "\xf0\x8f\xbf\xbf", 4, 0, 0xfffd },
        { "\xf0\x90\x80\x80", 4, 4, 0x10000 },
        { "\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff },
        { "\xf4\x90\x80\x80", 4, 0, 0xfffd },
        { "\xf5\x80\x80\x80", 4, 0, 0xfffd },
        { "\xe6\xbc\xa2", 2, 0, 0xfffd },
        { "\xf0\x9f\x98\x80", 3, 0, 0xfffd },
        { "\xc3(", 2, 0, 0xfffd },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t c = 1;
        assert_int_equal(utf8_next((const uint8_t *)rows[i].s, rows[i].len, &c), rows[i].valid);
        assert_int_equal(c, rows[i].cp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_form_c_of_each_character),
        cmocka_unit_test(test_form_c_of_random_text),
        cmocka_unit_test(test_utf8_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
