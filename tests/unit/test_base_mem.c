/* Error sentences, the allocator and the arena. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---------------------------------------------------------------- errors */

static const struct {
    const char *what, *in, *out;
} cleaned[] = {
    { "plain", "tensor 7 has 3 rows", "tensor 7 has 3 rows" },
    { "empty", "", "" },
    { "good UTF-8 of every length",
      "a \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "a \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80" },
    { "first and last of each length", "\xc2\xa0\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
      "\xc2\xa0\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf" },
    { "control bytes", "a\nb\tc\x1b[31m\x7f", "a?b?c?[31m?" },
    { "C1 controls in UTF-8", "\xc2\x9b" "31m\xc2\x80", "?31m?" },
    { "bytes that begin nothing", "\x80\xbf\xfe\xff", "????" },
    { "overlong", "\xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf", "?? ??? ????" },
    { "surrogate", "\xed\xa0\x80", "???" },
    { "past U+10FFFF", "\xf4\x90\x80\x80\xf5\x80\x80\x80", "????????" },
    { "cut characters", "\xc3x\xe2\x82y\xf0\x9f\x98z\xe2", "?x??y???z?" },
};

static void test_err_clean(void **state)
{
    for (size_t i = 0; i < COUNT(cleaned); i++) {
        llada_err err = { .status = LLADA_OK };
        assert_int_equal(llada_fail(&err, LLADA_BAD_MODEL, "%s", cleaned[i].in), LLADA_BAD_MODEL);
        assert_int_equal(err.status, LLADA_BAD_MODEL);
        if (strcmp(err.text, cleaned[i].out) != 0)
            fail_msg("%s: \"%s\"", cleaned[i].what, err.text);
    }
}

/* A sentence of `lead` plain bytes and then characters of n bytes: never cut inside one, and as long as can be. */
static void test_err_cut(void **state)
{
    static const char *const chars[] = { "x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80" };
    for (size_t n = 1; n <= COUNT(chars); n++) {
        for (size_t lead = 0; lead < 5; lead++) {
            char in[1024] = "aaaaa";
            size_t len = lead;
            while (len + n < sizeof in) {
                memcpy(in + len, chars[n - 1], n);
                len += n;
            }
            in[len] = 0;
            llada_err err;
            memset(&err, 0x5a, sizeof err);
            llada_fail(&err, LLADA_IO, "%s", in);
            size_t most = sizeof err.text - 1, whole = lead + (most - lead) / n * n;
            assert_int_equal(strlen(err.text), whole);
            assert_memory_equal(err.text, in, whole);
        }
    }
}

static void test_err_misc(void **state)
{
    llada_err err;
    assert_int_equal(llada_fail(NULL, LLADA_NO_MEMORY, "%d", 1), LLADA_NO_MEMORY);
    llada_fail(&err, LLADA_IO, "inner %d", 1);
    llada_fail(&err, LLADA_BAD_MODEL, "outer: %s", err.text);
    assert_string_equal(err.text, "outer: inner 1");
    assert_int_equal(err.status, LLADA_BAD_MODEL);
}

/* ---------------------------------------------------------------- sizes */

static void test_size(void **state)
{
    const size_t top = SIZE_MAX, half = SIZE_MAX / 2 + 1;
    size_t r;
    assert_true(size_add(top, 0, &r) && r == top);
    assert_false(size_add(top, 1, &r));
    assert_false(size_add(half, half, &r));
    assert_true(size_mul(half, 1, &r) && r == half);
    assert_false(size_mul(half, 2, &r));
    assert_true(size_mul(top, 0, &r) && r == 0);
    assert_true(size_mul((size_t)1 << 31, (size_t)1 << 31, &r) && r == (size_t)1 << 62);
    assert_false(size_mul((size_t)1 << 32, (size_t)1 << 32, &r));
}

/* ---------------------------------------------------------------- blocks */

static bool all_zero(const void *p, size_t n)
{
    const unsigned char *c = p;
    return n == 0 || (c[0] == 0 && memcmp(c, c + 1, n - 1) == 0);
}

/* Each size twice, soiled before it is freed, so that memory that comes back must be cleared again. */
static void test_mem_zero_aligned(void **state)
{
    static const size_t sizes[] = { 0, 1, 7, 8, 15, 16, 63, 64, 65, 127, 4095, 4096, 4097, 100000, (1 << 20) - 1,
                                    1 << 20, (1 << 20) + 1, 3 << 20 };
    for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
        size_t n = sizes[i / 2];
        uint64_t before = mem_count();
        unsigned char *p = mem_new(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_true(all_zero(p, n));
        assert_int_equal(mem_count(), before + 1);
        memset(p, 0xa5, n);
        mem_free(p);
        assert_int_equal(mem_count(), before + 1);
    }
    mem_free(NULL);
}

static void test_mem_too_large(void **state)
{
    static const struct {
        size_t n, each;
    } bad[] = {
        { SIZE_MAX, 1 }, { SIZE_MAX - 63, 1 }, { SIZE_MAX - 128, 1 }, { SIZE_MAX / 2 + 1, 1 }, { SIZE_MAX / 2, 1 },
        { SIZE_MAX / 2 + 1, 2 }, { (size_t)1 << 32, (size_t)1 << 32 }, { 3, SIZE_MAX / 2 },
    };
    uint64_t before = mem_count();
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_null(mem_array(bad[i].n, bad[i].each));
    assert_null(mem_strdup("x", SIZE_MAX));
    assert_int_equal(mem_count(), before);
}

static void test_mem_array(void **state)
{
    unsigned char *p = mem_array(1000, 24);
    assert_non_null(p);
    assert_true(all_zero(p, 24000));
    memset(p, 1, 24000); /* a memory checker sees a block that is too short */
    mem_free(p);
    p = mem_array(0, 24);
    assert_non_null(p);
    mem_free(p);
}

static long most_memory(void) /* KiB */
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_maxrss;
}

/* A large block costs no memory until it is touched: no more than one of calloc, whatever a checker adds to both. */
static void test_mem_large_untouched(void **state)
{
    const size_t bytes = (size_t)1 << 27;
    long before = most_memory();
    void *volatile plain = calloc(1, bytes);
    long after_plain = most_memory();
    void *ours = mem_new(bytes);
    long after_ours = most_memory();
    assert_true(plain && ours);
    free(plain);
    mem_free(ours);
    assert_true(after_ours - after_plain < after_plain - before + 16 * 1024);
}

static void test_mem_grow(void **state)
{
    static const size_t sizes[] = { 0, 1, 64, 100, 5000, 1 << 20, (1 << 20) + 5, 70, 3, 0 };
    unsigned char *p = mem_grow(NULL, 0, 0);
    assert_non_null(p);
    for (size_t i = 1; i < COUNT(sizes); i++) {
        size_t old = sizes[i - 1], new = sizes[i], both = old < new ? old : new;
        p = mem_grow(p, old, new);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < both; k++)
            assert_int_equal(p[k], k * 7 & 255);
        assert_true(all_zero(p + both, new - both));
        for (size_t k = 0; k < new; k++)
            p[k] = (unsigned char)(k * 7);
    }
    mem_free(p);
}

static void test_mem_grow_keeps(void **state)
{
    char *p = mem_strdup("kept", 4);
    mem_fail_at(1);
    assert_null(mem_grow(p, 5, 100));
    assert_string_equal(p, "kept");
    assert_null(mem_grow(p, 5, SIZE_MAX));
    assert_string_equal(p, "kept");
    mem_free(p);
}

static void test_mem_strdup(void **state)
{
    char *p = mem_strdup("abc\0def", 7);
    assert_memory_equal(p, "abc\0def", 8);
    mem_free(p);
    p = mem_strdup(NULL, 0);
    assert_string_equal(p, "");
    mem_free(p);
}

static void test_mem_fail_at(void **state)
{
    for (uint64_t k = 1; k <= 5; k++) {
        mem_fail_at(k);
        for (uint64_t i = 1; i <= 8; i++) {
            uint64_t before = mem_count();
            void *p = mem_new(10);
            assert_int_equal(p == NULL, i == k);
            assert_int_equal(mem_count() - before, i != k);
            mem_free(p);
        }
    }
    mem_fail_at(1);
    mem_fail_at(0);
    void *p = mem_new(1);
    assert_non_null(p);
    mem_free(p);
}

enum { WORKERS = 4, EACH = 500 };

static void *allocate_many(void *failures)
{
    for (int i = 0; i < EACH; i++) {
        void *p = mem_new((size_t)i);
        *(int *)failures += p == NULL;
        mem_free(p);
    }
    return NULL;
}

/* However the threads interleave, exactly one allocation fails and all others are counted. */
static void test_mem_threads(void **state)
{
    pthread_t id[WORKERS];
    int failures[WORKERS] = { 0 }, sum = 0;
    uint64_t before = mem_count();
    mem_fail_at(WORKERS * EACH / 2);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&id[i], NULL, allocate_many, &failures[i]), 0);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(id[i], NULL);
        sum += failures[i];
    }
    assert_int_equal(sum, 1);
    assert_int_equal(mem_count() - before, WORKERS * EACH - 1);
}

/* ---------------------------------------------------------------- arena */

/* Sizes around the chunk size; every block keeps its own bytes while later ones are given out. */
static void test_arena(void **state)
{
    static const size_t chunks[] = { 0, 1, 256, 1000, 4096 };
    enum { BLOCKS = 300 };
    for (size_t c = 0; c < COUNT(chunks); c++) {
        unsigned char *p[BLOCKS];
        size_t len[BLOCKS];
        arena *a = arena_new(chunks[c]);
        assert_non_null(a);
        for (size_t i = 0; i < BLOCKS; i++) {
            len[i] = i % 50 == 7 ? 5000 : i * 37 % 300;
            p[i] = arena_alloc(a, len[i]);
            assert_non_null(p[i]);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            assert_true(all_zero(p[i], len[i]));
            memset(p[i], (int)(i % 251) + 1, len[i]);
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            for (size_t k = 0; k < len[i]; k++)
                assert_int_equal(p[i][k], i % 251 + 1);
        }
        arena_free(a);
    }
    arena_free(NULL);
}

/* Small blocks share a chunk, also when a large one comes between them. */
static void test_arena_shares(void **state)
{
    uint64_t before = mem_count();
    arena *a = arena_new(4096);
    char *x = arena_strdup(a, "x", 1), *large = arena_alloc(a, 100000), *y = arena_strdup(a, NULL, 0);
    assert_true(x && large && y && x != y);
    assert_string_equal(x, "x");
    assert_string_equal(y, "");
    for (int i = 0; i < 100; i++)
        assert_ptr_not_equal(arena_alloc(a, 0), arena_alloc(a, 16));
    assert_int_equal(mem_count() - before, 3);
    arena_free(a);
}

static void test_arena_faults(void **state)
{
    for (uint64_t k = 1;; k++) {
        mem_fail_at(k);
        arena *a = arena_new(256);
        bool good = a != NULL;
        for (size_t i = 0; good && i < 40; i++) {
            char *s = i % 2 ? arena_strdup(a, "some text", 9) : arena_alloc(a, i * 20);
            good = s != NULL;
        }
        if (a) {
            mem_fail_at(0);
            assert_non_null(arena_alloc(a, 500)); /* a refused request does no harm */
        }
        arena_free(a);
        if (good)
            break;
        assert_true(k < 100);
    }
    mem_fail_at(0);
    arena *a = arena_new(256);
    assert_null(arena_alloc(a, SIZE_MAX));
    assert_null(arena_alloc(a, SIZE_MAX - 15));
    assert_null(arena_alloc(a, SIZE_MAX - 31));
    assert_null(arena_strdup(a, "x", SIZE_MAX));
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_clean),        cmocka_unit_test(test_err_cut),
        cmocka_unit_test(test_err_misc),         cmocka_unit_test(test_size),
        cmocka_unit_test(test_mem_zero_aligned), cmocka_unit_test(test_mem_too_large),
        cmocka_unit_test(test_mem_array),        cmocka_unit_test(test_mem_large_untouched),
        cmocka_unit_test(test_mem_grow),         cmocka_unit_test(test_mem_grow_keeps),
        cmocka_unit_test(test_mem_strdup),       cmocka_unit_test(test_mem_fail_at),
        cmocka_unit_test(test_mem_threads),      cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_shares),     cmocka_unit_test(test_arena_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
