/* test_app_answer.c - settled text: whole characters, stop strings, nothing taken back, whatever the pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/answer.h"
#include "server/guard.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define FFFD "\xEF\xBF\xBD"

/* The definition, over the whole text at once: bytes that are no character become U+FFFD; then the stop string that ends
 * first counts, of those the longest. */
static char *oracle(const char *bytes, size_t n, const char *const *stops, int n_stops)
{
    buf t = {0};
    buf_str(&t, "");
    for (size_t i = 0; i < n;) {
        int len = utf8_length(bytes + i, n - i);
        if (len > 0) buf_add(&t, bytes + i, (size_t)len);
        else buf_str(&t, FFFD);
        i += len > 0 ? (size_t)len : 1;
    }
    for (size_t end = 1; end <= t.n; end++) {
        size_t longest = 0;
        for (int k = 0; k < n_stops; k++) {
            size_t m = strlen(stops[k]);
            if (m > longest && m <= end && !memcmp(t.p + end - m, stops[k], m)) longest = m;
        }
        if (!longest) continue;
        t.p[end - longest] = 0;
        break;
    }
    return t.p;
}

/* Feeds bytes in pieces that end at the set bits of `cuts`; what is shown may only grow, and is UTF-8. */
static void check_pieces(const char *bytes, size_t n, const char *const *stops, int n_stops, uint64_t cuts)
{
    answer a = {.stops = stops, .n_stops = n_stops};
    char *want = oracle(bytes, n, stops, n_stops);
    buf joined = {0};
    buf_str(&joined, "");
    for (size_t from = 0, i = 1; i <= n; i++) {
        if (i < n && !(cuts >> (i % 64) & 1)) continue;
        answer_add(&a, bytes + from, i - from);
        from = i;
        assert_true(a.shown >= joined.n);
        if (a.text.p) buf_add(&joined, a.text.p + joined.n, a.shown - joined.n);
        for (size_t k = 0; k < joined.n;) {
            int len = utf8_length(joined.p + k, joined.n - k);
            assert_true(len > 0);
            k += (size_t)len;
        }
    }
    answer_end(&a);
    if (a.text.p) buf_add(&joined, a.text.p + joined.n, a.shown - joined.n);
    assert_string_equal(joined.p, want);
    assert_string_equal(a.text.p ? a.text.p : "", want);
    buf_free(&joined);
    answer_free(&a);
    free(want);
}

static const struct {
    const char *text;
    const char *stops[3];
} cases[] = {
    {"plain", {NULL}},
    {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80!", {NULL}},
    {"half \xf0\x9f\x98", {NULL}},                   /* max_tokens ends inside a character */
    {"\xff \xc0\x80 \xed\xa0\x80 \xf5 \x80", {NULL}}, /* never UTF-8 */
    {"\xe2\x82\x28 \xf0\x9f\x41", {NULL}},           /* a beginning that another byte breaks off */
    {"one STOP two", {"STOP"}},
    {"one STO", {"STOP"}},                           /* held back, and then shown after all */
    {"aaaab", {"aab"}},
    {"abababac", {"ababac"}},
    {"x<|end|>y", {"<|end|>", "|e"}},                /* the one that ends first */
    {"abcdef", {"cd", "bcd"}},                       /* both end at once: the longest */
    {"abcdef", {"bcdefgh", "de"}},                   /* a longer one had begun, and another is complete */
    {"caf\xc3\xa9\xc3\xa9", {"\xc3\xa9"}},
    {"x\xffy", {FFFD}},
    {"STOP", {"STOP"}},
    {"\n\nUser:", {"\n\n", "User:"}},
};

static void every_split(void **state)
{
    for (size_t c = 0; c < COUNT(cases); c++) {
        int n_stops = 0;
        size_t n = strlen(cases[c].text);
        while (n_stops < 3 && cases[c].stops[n_stops]) n_stops++;
        check_pieces(cases[c].text, n, cases[c].stops, n_stops, ~0ull); /* byte by byte */
        check_pieces(cases[c].text, n, cases[c].stops, n_stops, 0);     /* at once */
        for (size_t i = 0; i < n; i++)
            for (size_t k = i; k < n; k++) check_pieces(cases[c].text, n, cases[c].stops, n_stops, 1ull << i | 1ull << k);
    }
}

static void random_texts(void **state)
{
    uint64_t seed = 88172645463325252ull;
    static const char letters[] = "aab\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff";
    for (int round = 0; round < 3000; round++) {
        char text[48], stop[2][6];
        const char *stops[2] = {stop[0], stop[1]};
        for (size_t i = 0; i < sizeof text; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            text[i] = letters[(seed >> 33) % (sizeof letters - 1)];
        }
        for (int k = 0; k < 2; k++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            size_t n = 1 + (seed >> 40) % 5;
            for (size_t i = 0; i < n; i++) stop[k][i] = (seed >> (20 + i)) & 1 ? 'a' : 'b';
            stop[k][n] = 0;
        }
        check_pieces(text, sizeof text, stops, (int)((seed >> 50) % 3), seed);
    }
}

/* ---------------------------------------------------------------- headers */

static const struct {
    const char *host, *bound;
    bool good;
} hosts[] = {
    {"127.0.0.1:8080", "127.0.0.1", true}, {"localhost", "127.0.0.1", true}, {"LOCALHOST:1", "127.0.0.1", true},
    {"[::1]:8080", "127.0.0.1", true}, {"127.9.9.9", "127.0.0.1", true}, {"evil.example", "127.0.0.1", false},
    {"localhost.evil.example", "127.0.0.1", false}, {"127.0.0.1.evil.example:80", "127.0.0.1", false},
    {"192.168.1.5", "127.0.0.1", false}, {"192.168.1.5:80", "0.0.0.0", true}, {"[fe80::1]", "0.0.0.0", true},
    {"evil.example", "0.0.0.0", false}, {"", "127.0.0.1", false}, {NULL, "127.0.0.1", false},
    {"box.lan", "127.0.0.1", true}, {"127.0.0.1:8080:9", "127.0.0.1", false}, {"127.0.0.1@evil.example", "127.0.0.1", false},
    {"[::1", "127.0.0.1", false}, {"[localhost]", "127.0.0.1", false}, {"localhost:", "127.0.0.1", false},
    {"localhost:80a", "127.0.0.1", false}, {"my.host", "my.host", true},
};

static const struct {
    const char *origin, *host;
    bool good;
} origins[] = {
    {NULL, "localhost", true}, {"http://localhost:8080", "localhost:8080", true}, {"https://box", "box", true},
    {"http://evil.example", "localhost", false}, {"null", "localhost", false}, {"http://localhost:80", "localhost", false},
    {"http://localhost", "localhost:8080", false}, {"ftp://localhost", "localhost", false}, {"", "localhost", false},
    {"http://localhost.evil.example", "localhost", false},
};

static void headers(void **state)
{
    static const char *const more[] = {"box.lan"};
    for (size_t i = 0; i < COUNT(hosts); i++)
        if (guard_host(hosts[i].host, hosts[i].bound, more, 1) != hosts[i].good)
            fail_msg("Host '%s' at %s", hosts[i].host ? hosts[i].host : "(none)", hosts[i].bound);
    for (size_t i = 0; i < COUNT(origins); i++)
        if (guard_origin(origins[i].origin, origins[i].host) != origins[i].good)
            fail_msg("Origin '%s'", origins[i].origin);
    assert_true(guard_key("Bearer secret", "secret"));
    assert_true(guard_key("bearer secret", "secret"));
    static const char *const wrong[] = {NULL, "", "Bearer ", "Bearer", "Bearer secre", "Bearer secrets", "Bearer Secret",
                                        "secret", "Basic secret", "Bearer  secret", "Bearer secretsecret"};
    for (size_t i = 0; i < COUNT(wrong); i++) assert_false(guard_key(wrong[i], "secret"));
    assert_true(guard_json("application/json"));
    assert_true(guard_json("Application/JSON; charset=utf-8"));
    static const char *const no_json[] = {NULL, "", "text/plain", "application/x-www-form-urlencoded", "application/jsonp",
                                          "multipart/form-data; boundary=application/json"};
    for (size_t i = 0; i < COUNT(no_json); i++) assert_false(guard_json(no_json[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_split), cmocka_unit_test(random_texts),
                                       cmocka_unit_test(headers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
