/* test_addresses.c - places of blocks over long sequences of random plans: nothing overlaps, nothing is lost that
 * should stay, holes do not grow, and what fits in bytes fits in fact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "graph/addresses.h"

enum { BLOCKS = 24, PLANS = 10000, BUFFERS = 3, MOST = 100 };

/* The buffers themselves: a byte is the number of its block and a stamp of when that was filled. */
typedef struct {
    uint16_t *bytes[BUFFERS];
    uint16_t stamp[BLOCKS]; /* 0: no contents */
} store;

static void fill(store *s, const addresses *a, int i, uint16_t stamp)
{
    uint16_t *p = s->bytes[a->at[i].buffer] + a->at[i].offset;
    for (size_t k = 0; k < a->at[i].bytes; k++) p[k] = (uint16_t)(stamp * BLOCKS + i);
    s->stamp[i] = stamp;
}

/* Does what a plan says, then checks every block's contents. */
static void follow(store *s, const addresses *a, const size_t *want, bool fresh, uint16_t stamp)
{
    for (int k = 0; k < a->n_moves; k++) {
        const address *at = &a->at[a->moves[k].block];
        uint16_t *base = s->bytes[at->buffer];
        assert_true(at->offset < a->moves[k].from && a->kept[a->moves[k].block]);
        memmove(base + at->offset, base + a->moves[k].from, at->bytes * sizeof *base);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (want[i] && !a->kept[i]) fill(s, a, i, stamp);
    for (int i = 0; i < BLOCKS; i++) {
        const address *at = &a->at[i];
        assert_int_equal(at->buffer >= 0, want[i] > 0);
        if (!want[i]) continue;
        assert_true(at->bytes == want[i] && at->offset + at->bytes <= a->used[at->buffer]);
        assert_true(a->used[at->buffer] <= a->buffer_bytes && !(fresh && a->kept[i]));
        for (size_t k = 0; k < at->bytes; k++)
            assert_int_equal(s->bytes[at->buffer][at->offset + k], (uint16_t)(s->stamp[i] * BLOCKS + i));
    }
}

static size_t holes(const addresses *a, int b)
{
    size_t sum = 0;
    for (int i = 0; i < BLOCKS; i++) sum += a->at[i].buffer == b ? a->at[i].bytes : 0;
    return a->used[b] - sum;
}

/* Plans that change a few blocks or all of them; `buffer` bytes in each of n buffers. */
static void many_plans(int n, size_t buffer, uint64_t seed, int *n_fresh, int *refused)
{
    addresses a;
    store s = {.stamp = {0}};
    rng r;
    size_t size[BLOCKS], want[BLOCKS] = {0};
    rng_seed(&r, seed);
    for (int b = 0; b < n; b++) s.bytes[b] = calloc(buffer, sizeof *s.bytes[b]);
    assert_int_equal(addresses_open(&a, BLOCKS, n, buffer, NULL), LLADA_OK);
    for (int i = 0; i < BLOCKS; i++) size[i] = 1 + rng_below(&r, MOST);
    *n_fresh = *refused = 0;
    for (int k = 1; k <= PLANS; k++) {
        int changes = rng_below(&r, 10) ? 1 + (int)rng_below(&r, 4) : BLOCKS;
        size_t sum = 0, largest = 0;
        bool fresh;
        for (int c = 0; c < changes; c++) {
            int i = (int)rng_below(&r, BLOCKS);
            if (rng_below(&r, 8) == 0) size[i] = 1 + rng_below(&r, MOST);
            want[i] = want[i] ? 0 : size[i];
        }
        for (int i = 0; i < BLOCKS; i++) {
            sum += want[i];
            largest = want[i] > largest ? want[i] : largest;
        }
        llada_err err;
        llada_status st = addresses_plan(&a, want, &fresh, &err);
        *n_fresh += fresh;
        if (st) { /* only what does not fit; with several buffers, an unlucky cut may cost up to a block in each */
            assert_int_equal(st, LLADA_NO_MEMORY);
            assert_true(sum + (size_t)(n - 1) * largest > (size_t)n * buffer);
            memset(want, 0, sizeof want);
            (*refused)++;
            assert_int_equal(addresses_plan(&a, want, &fresh, NULL), LLADA_OK);
        }
        follow(&s, &a, want, fresh, (uint16_t)(k % 2000 + 1));
        for (int b = 0; b < n; b++) assert_true(holes(&a, b) <= a.used[b] / ADDRESS_HOLES);
    }
    addresses_free(&a);
    for (int b = 0; b < n; b++) free(s.bytes[b]);
}

/* One buffer, as on a CPU: all that fits in bytes is placed, and contents are never lost. */
static void test_one_buffer(void **state)
{
    int fresh, refused;
    many_plans(1, BLOCKS * MOST * 11 / 40, 3, &fresh, &refused);
    assert_int_equal(fresh, refused);
    assert_true(refused > 100);
}

/* Several, as on a device with windows. */
static void test_buffers(void **state)
{
    int fresh, refused;
    many_plans(3, BLOCKS * MOST / 9, 4, &fresh, &refused);
    assert_true(fresh < PLANS / 4);
    print_message("%d of %d plans placed everything anew, %d refused\n", fresh, PLANS, refused);
}

static void test_no_memory(void **state)
{
    addresses a;
    for (uint64_t k = 1; k <= 5; k++) {
        mem_fail_at(k);
        assert_int_equal(addresses_open(&a, 4, 1, 100, NULL), LLADA_NO_MEMORY);
        addresses_free(&a);
    }
    mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_buffer),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
