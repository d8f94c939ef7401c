/* test_kv.c - the slot map against a model that is too simple to be wrong: every slot has a set of owners.  Random
 * writes, snapshots, job results and merges; after each step no slot is lost, shared, or free while somebody reads it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "decode/kv.h"

enum { POS = 9, SLOTS = 40, SNAPS = 3, TAKEN = 6 };

/* What everybody believes. */
typedef struct {
    kv_map k;
    int content[SLOTS];      /* what was last written there: a number never used twice */
    int of_pos[POS];         /* content of each position's K,V */
    int next;
    int32_t snap[SNAPS][POS]; /* slots of a snapshot in use */
    int snap_content[SNAPS][POS];
    int snap_n[SNAPS];       /* 0: none */
    int32_t taken[TAKEN];    /* slots of results that wait */
    int n_taken;
} world;

static void check(const world *w)
{
    int owners[SLOTS] = {0}, pins[SLOTS] = {0};
    for (int i = 0; i < POS; i++) {
        owners[w->k.current[i]]++;
        assert_int_equal(w->content[w->k.current[i]], w->of_pos[i]);
    }
    for (int i = 0; i < w->n_taken; i++) owners[w->taken[i]]++;
    for (int i = 0; i < w->k.n_spare; i++) owners[w->k.spare[i]]++;
    for (int s = 0; s < SNAPS; s++) {
        for (int i = 0; i < w->snap_n[s]; i++) {
            pins[w->snap[s][i]]++;
            assert_int_equal(w->content[w->snap[s][i]], w->snap_content[s][i]); /* nobody wrote into a snapshot */
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(w->k.pins[i], pins[i]);
        assert_int_equal(owners[i] + (w->k.orphan[i] != 0), 1);
        if (w->k.orphan[i]) assert_true(pins[i] > 0);
    }
    for (int i = 0; i < w->k.n_spare; i++) assert_int_equal(pins[w->k.spare[i]], 0);
}

static void write_pos(world *w, int pos)
{
    int32_t s = kv_write(&w->k, pos);
    if (s < 0) { /* full: nothing may have changed */
        assert_int_equal(w->k.n_spare, 0);
        assert_true(w->k.pins[w->k.current[pos]] > 0);
        return;
    }
    assert_int_equal(w->k.current[pos], s);
    w->content[s] = w->of_pos[pos] = w->next++;
}

static void take_snapshot(world *w, int s, int n)
{
    if (w->snap_n[s]) return;
    memcpy(w->snap[s], w->k.current, (size_t)n * sizeof *w->snap[s]);
    memcpy(w->snap_content[s], w->of_pos, (size_t)n * sizeof *w->snap_content[s]);
    w->snap_n[s] = n;
    kv_pin(&w->k, w->snap[s], n);
}

static void take(world *w)
{
    if (w->n_taken == TAKEN) return;
    int32_t s = kv_take(&w->k);
    if (s < 0) return;
    w->content[s] = w->next++;
    w->taken[w->n_taken++] = s;
}

static void step(world *w, rng *r)
{
    int pos = (int)rng_below(r, POS), s = (int)rng_below(r, SNAPS);
    switch (rng_below(r, 6)) {
    case 0:
    case 1: write_pos(w, pos); break;
    case 2: take_snapshot(w, s, 1 + pos); break;
    case 3:
        if (w->snap_n[s]) kv_unpin(&w->k, w->snap[s], w->snap_n[s]);
        w->snap_n[s] = 0;
        break;
    case 4: take(w); break;
    case 5:
        if (!w->n_taken) break;
        w->n_taken--;
        if (rng_below(r, 2)) {
            kv_give(&w->k, w->taken[w->n_taken]);
            break;
        }
        kv_replace(&w->k, pos, w->taken[w->n_taken]);
        w->of_pos[pos] = w->content[w->taken[w->n_taken]];
        break;
    }
}

static void test_random(void **state)
{
    llada_err err;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        world w = {.next = 1};
        rng r;
        rng_seed(&r, seed);
        assert_int_equal(kv_open(&w.k, POS, SLOTS, &err), LLADA_OK);
        for (int i = 0; i < 1000; i++) {
            step(&w, &r);
            check(&w);
        }
        for (int s = 0; s < SNAPS; s++) {
            if (w.snap_n[s]) kv_unpin(&w.k, w.snap[s], w.snap_n[s]);
            w.snap_n[s] = 0;
        }
        while (w.n_taken) kv_give(&w.k, w.taken[--w.n_taken]);
        check(&w);
        assert_int_equal(w.k.n_spare, SLOTS - POS);
        kv_free(&w.k);
    }
}

/* A store that can run out: the map says so and stays whole. */
static void test_full(void **state)
{
    llada_err err;
    kv_map k;
    int32_t snap[3];
    assert_int_equal(kv_open(&k, 3, 5, &err), LLADA_OK);
    memcpy(snap, k.current, sizeof snap);
    kv_pin(&k, snap, 3);
    assert_true(kv_write(&k, 0) >= 3);
    assert_true(kv_write(&k, 1) >= 3);
    assert_int_equal(kv_write(&k, 2), -1);
    assert_int_equal(k.current[2], 2);
    assert_int_equal(kv_take(&k), -1);
    assert_true(kv_write(&k, 0) >= 3); /* its new slot is nobody's snapshot */
    kv_unpin(&k, snap, 3);
    assert_int_equal(k.n_spare, 2);
    assert_int_equal(kv_write(&k, 2), 2);
    kv_reset(&k);
    for (int i = 0; i < 3; i++) assert_int_equal(k.current[i], i);
    assert_int_equal(k.n_spare, 2);
    kv_free(&k);
}

/* Two snapshots of one slot: it is free when both are gone, not before. */
static void test_two_snapshots(void **state)
{
    llada_err err;
    kv_map k;
    int32_t a[1], b[1];
    assert_int_equal(kv_open(&k, 1, 3, &err), LLADA_OK);
    a[0] = b[0] = k.current[0];
    kv_pin(&k, a, 1);
    kv_pin(&k, b, 1);
    assert_int_not_equal(kv_write(&k, 0), a[0]);
    kv_unpin(&k, a, 1);
    assert_int_equal(k.n_spare, 1);
    kv_unpin(&k, b, 1);
    assert_int_equal(k.n_spare, 2);
    kv_free(&k);
}

static void test_no_memory(void **state)
{
    llada_err err;
    for (uint64_t at = 1; at <= 4; at++) {
        kv_map k;
        mem_fail_at(at);
        assert_int_equal(kv_open(&k, 4, 8, &err), LLADA_NO_MEMORY);
        mem_fail_at(0);
        kv_free(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_two_snapshots),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
