/* test_recipe.c - settings by name: every key there and back, what is refused and in which words, the named recipes,
 * and structs filled by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/recipe.h"

static void must_be(const llada_recipe *r, const char *key, const char *want)
{
    char got[64];
    llada_err err;
    if (llada_recipe_get(r, key, got, sizeof got, &err)) fail_msg("%s: %s", key, err.text);
    if (strcmp(got, want)) fail_msg("%s is %s, %s expected", key, got, want);
}

/* The same number, however it is written. */
static void must_equal(const llada_recipe *r, const char *key, double want)
{
    char got[64];
    assert_int_equal(llada_recipe_get(r, key, got, sizeof got, NULL), LLADA_OK);
    if (strtod(got, NULL) != want) fail_msg("%s is %s, %.17g expected", key, got, want);
}

static void set(llada_recipe *r, const char *key, const char *value)
{
    llada_err err;
    if (llada_recipe_set(r, key, value, &err)) fail_msg("%s=%s: %s", key, value, err.text);
}

/* Refused by a sentence that names the key; nothing changed. */
static void refuse(llada_recipe *r, const char *key, const char *value)
{
    llada_err err = {0};
    llada_recipe before = *r;
    if (llada_recipe_set(r, key, value, &err) != LLADA_BAD_ARG) fail_msg("%s=%s was taken", key, value);
    if (!strstr(err.text, key)) fail_msg("%s=%s: %s", key, value, err.text);
    assert_int_equal(err.status, LLADA_BAD_ARG);
    assert_memory_equal(&before, r, sizeof before);
    assert_int_equal(llada_recipe_set(r, key, value, NULL), LLADA_BAD_ARG);
}

static bool is_range(const llada_recipe_key *k, double *lo, double *hi)
{
    const char *dots = strstr(k->values, "..");
    if (!dots) return false;
    *lo = strtod(k->values, NULL);
    *hi = strtod(dots + 2, NULL);
    return true;
}

/* Whole numbers print without a point whatever they are; only reals take a half. */
static bool is_whole(const llada_recipe_key *k)
{
    llada_recipe r;
    llada_recipe_defaults(&r);
    double lo = 0, hi = 0;
    is_range(k, &lo, &hi);
    char half[32];
    snprintf(half, sizeof half, "%.17g", lo + 0.5);
    return llada_recipe_set(&r, k->key, half, NULL) != LLADA_OK;
}

static void check_number(const llada_recipe_key *k, double lo, double hi)
{
    static const char *const junk[] = {"", " ", "128-t", "nan", "NaN", "inf", "-inf", "-1", "1e999", "0x10", "1 ", " 1",
                                       "1,5", "--1", ".", "e", "+", "1e", "one", "1;2", "99999999999999999999",
                                       "2147483648"};
    llada_recipe r;
    llada_recipe_defaults(&r);
    bool whole = is_whole(k);
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++) refuse(&r, k->key, junk[i]);
    const double good[] = {lo, hi, floor((lo + hi) / 2), lo + 1 < hi ? lo + 1 : hi};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[32], other[40];
        snprintf(text, sizeof text, "%.15g", good[i]);
        set(&r, k->key, text);
        must_equal(&r, k->key, good[i]);
        snprintf(other, sizeof other, "+%.1f", good[i]); /* another spelling of the same number */
        set(&r, k->key, other);
        must_equal(&r, k->key, good[i]);
    }
    char out[32];
    snprintf(out, sizeof out, "%.17g", hi + (whole ? 1 : 1e-9 * (1 + hi)));
    refuse(&r, k->key, out);
    snprintf(out, sizeof out, "%.17g", lo - (whole ? 1 : 1e-9));
    refuse(&r, k->key, out);
    if (whole) return;
    static const char *const exact[] = {"0.1", "0.30000000000000004", "0.3", "1e-05", "0.9990000000000001"};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        if (strtod(exact[i], NULL) > hi) continue;
        set(&r, k->key, exact[i]);
        must_be(&r, k->key, exact[i]);
    }
}

static void check_words(const llada_recipe_key *k)
{
    llada_recipe r;
    llada_recipe_defaults(&r);
    char list[256];
    snprintf(list, sizeof list, "%s", k->values);
    char *brace = strchr(list, '('); /* other spellings */
    if (brace) *brace = 0;
    int n = 0;
    char *rest = NULL;
    for (char *w = strtok_r(list, ", ", &rest); w; w = strtok_r(NULL, ", ", &rest), n++) {
        set(&r, k->key, w);
        char got[64];
        assert_int_equal(llada_recipe_get(&r, k->key, got, sizeof got, NULL), LLADA_OK);
        if (strcmp(got, w) && strcmp(got, "true") && strcmp(got, "false")) fail_msg("%s=%s became %s", k->key, w, got);
        llada_recipe again = r;
        set(&again, k->key, got);
        assert_memory_equal(&again, &r, sizeof r);
    }
    assert_true(n >= 2);
    static const char *const junk[] = {"", " ", "nan", "128-t", "2", "maybe", "ON ", "block,never", "-1"};
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++) refuse(&r, k->key, junk[i]);
}

static void test_keys(void **state)
{
    size_t n;
    const llada_recipe_key *k = llada_recipe_keys(&n);
    assert_true(n >= 36);
    for (size_t i = 0; i < n; i++) {
        double lo, hi;
        assert_true(k[i].key[0] && k[i].values[0] && k[i].help[0]);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(k[i].key, k[j].key);
        if (is_range(&k[i], &lo, &hi))
            check_number(&k[i], lo, hi);
        else
            check_words(&k[i]);
    }
}

static void test_unknown(void **state)
{
    static const char *const keys[] = {"", "nope", "Tau", "tau ", "name", "size", "taus"};
    llada_recipe r;
    char buf[64];
    llada_recipe_defaults(&r);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        refuse(&r, keys[i], "1");
        assert_int_equal(llada_recipe_get(&r, keys[i], buf, sizeof buf, NULL), LLADA_BAD_ARG);
    }
    assert_int_equal(llada_recipe_set(&r, NULL, "1", NULL), LLADA_BAD_ARG);
    assert_int_equal(llada_recipe_set(&r, "tau", NULL, NULL), LLADA_BAD_ARG);
    assert_int_equal(llada_recipe_set(NULL, "tau", "1", NULL), LLADA_BAD_ARG);
    assert_int_equal(llada_recipe_get(NULL, "tau", buf, sizeof buf, NULL), LLADA_BAD_ARG);
    assert_int_equal(llada_recipe_get(&r, "tau", NULL, 8, NULL), LLADA_BAD_ARG);
}

/* A value that does not fit is not cut short: half a number is another number. */
static void test_room(void **state)
{
    llada_recipe r;
    llada_err err;
    char buf[8] = "untold";
    llada_recipe_defaults(&r);
    set(&r, "tau", "0.125");
    assert_int_equal(llada_recipe_get(&r, "tau", buf, 5, &err), LLADA_BAD_ARG);
    assert_string_equal(buf, "untold");
    assert_int_equal(llada_recipe_get(&r, "tau", NULL, 0, NULL), LLADA_BAD_ARG);
    assert_int_equal(llada_recipe_get(&r, "tau", buf, 6, &err), LLADA_OK);
    assert_string_equal(buf, "0.125");
}

/* Spellings that stand for another word. */
static void test_spellings(void **state)
{
    static const struct {
        const char *key, *value, *is;
    } t[] = {
        {"mbsd", "on", "show"},     {"mbsd", "true", "show"}, {"mbsd", "false", "off"}, {"dppr", "yes", "true"},
        {"dppr", "0", "false"},     {"early", "off", "false"}, {"early", "1", "true"},  {"gen", "1e2", "100"},
        {"rmax", "-0", "0"},        {"tau", "5e-1", "0.5"},    {"tau", "1.000", "1"},
    };
    llada_recipe r;
    llada_recipe_defaults(&r);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        set(&r, t[i].key, t[i].value);
        must_be(&r, t[i].key, t[i].is);
    }
}

static void test_named(void **state)
{
    static const struct {
        const char *recipe, *key, *value;
    } t[] = {
        {"vanilla", "cache", "none"}, {"vanilla", "rule", "quota"},      {"vanilla", "steps", "0"},
        {"vanilla", "temp", "0"},     {"prefix", "cache", "prefix"},     {"prefix", "rule", "quota"},
        {"dual", "cache", "dual"},    {"parallel", "rule", "threshold"}, {"parallel", "tau", "0.9"},
        {"parallel", "mbsd", "off"},  {"speculate", "mbsd", "show"},     {"speculate", "dppr", "false"},
        {"llada-v1", "lag", "1"},     {"llada-v1", "dppr", "true"},      {"llada-v1", "vis", "0.9"},
        {"llada-v1", "remask", "0.9"}, {"llada", "dppr", "true"},        {"llada", "mbsd", "show"},
    };
    size_t n, n_keys;
    llada_recipe r, def;
    llada_err err;
    const char *const *names = llada_recipe_names(&n);
    const llada_recipe_key *keys = llada_recipe_keys(&n_keys);
    assert_true(n >= 7);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(llada_recipe_named(&r, names[i], &err), LLADA_OK);
        assert_string_equal(r.name, names[i]);
        assert_int_equal(recipe_check(&r, &err), LLADA_OK);
        /* all its settings can be written down and read back */
        llada_recipe_defaults(&def);
        snprintf(def.name, sizeof def.name, "%s", names[i]);
        for (size_t k = 0; k < n_keys; k++) {
            char value[64];
            assert_int_equal(llada_recipe_get(&r, keys[k].key, value, sizeof value, &err), LLADA_OK);
            set(&def, keys[k].key, value);
            must_be(&def, keys[k].key, value);
        }
    }
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(llada_recipe_named(&r, t[i].recipe, &err), LLADA_OK);
        must_be(&r, t[i].key, t[i].value);
    }
    llada_recipe before = r;
    assert_int_equal(llada_recipe_named(&r, "pancake", &err), LLADA_BAD_ARG);
    assert_non_null(strstr(err.text, "pancake"));
    assert_non_null(strstr(err.text, "vanilla"));
    assert_memory_equal(&before, &r, sizeof r);
    assert_int_equal(llada_recipe_named(&r, NULL, NULL), LLADA_BAD_ARG);
    assert_int_equal(llada_recipe_named(NULL, "vanilla", NULL), LLADA_BAD_ARG);
    llada_recipe_defaults(&def);
    assert_int_equal(def.size, sizeof def);
    assert_int_equal(llada_recipe_named(&r, def.name, &err), LLADA_OK);
}

/* A struct filled by hand: the first setting out of range is named.  NaN is no number to compare with, so it is not out
 * of range: decoding has to end all the same, and does (test_session.c). */
static void test_by_hand(void **state)
{
    llada_recipe good, r;
    llada_err err;
    llada_recipe_defaults(&good);
    r = good;
    r.size = 8;
    assert_int_equal(recipe_check(&r, &err), LLADA_BAD_ARG);
    assert_non_null(strstr(err.text, "size"));
#define BAD(field, value)                                        \
    r = good;                                                    \
    r.field = value;                                             \
    assert_int_equal(recipe_check(&r, &err), LLADA_BAD_ARG);     \
    if (strncmp(err.text, #field, strlen(#field))) fail_msg("%s", err.text)
    BAD(gen, -1);
    BAD(gen, INT32_MAX);
    BAD(block, 0);
    BAD(steps, RECIPE_MAX_GEN + 1);
    BAD(cache, (llada_cache)9);
    BAD(rule, (llada_rule)99);
    BAD(tau, -0.5);
    BAD(tau, INFINITY);
    BAD(temp, -1);
    BAD(cfg, 101);
    BAD(mbsd, (llada_mbsd)-1);
    BAD(rev, 0);
    BAD(rmax, 101);
    BAD(lag, RECIPE_MAX_LAG + 1);
    BAD(lag, 0);
    BAD(refresh_n, 0);
    BAD(exec, (llada_exec)4);
    r = good;
    r.tau = NAN;
    assert_int_equal(recipe_check(&r, &err), LLADA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),      cmocka_unit_test(test_unknown), cmocka_unit_test(test_room),
        cmocka_unit_test(test_spellings), cmocka_unit_test(test_named),   cmocka_unit_test(test_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
