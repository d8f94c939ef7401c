/* test_residency.c - the residency plan against brute force, least-recently-used and naive streaming, each simulated
 * here on its own, on random graphs; budgets that cannot work; failing allocations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "graph/residency.h"

enum { GRAPHS = 1000, MOST = 9, LARGE = 600 };

static int random_graph(rng *r, residency_part *p, bool uniform)
{
    int n = 2 + (int)rng_below(r, MOST - 1);
    double rate = 1e-3 * (double)(1 + rng_below(r, 40)), each = (double)rng_below(r, 20) * 1e-2,
           work = (double)(1 + rng_below(r, 40));
    for (int i = 0; i < n; i++) {
        p[i].bytes = uniform ? 50 : 1 + rng_below(r, 100);
        p[i].read = each + rate * (double)p[i].bytes;
        p[i].compute = 0.02 * work * (uniform ? 1 : (double)(1 + rng_below(r, 100)) / 50);
    }
    return n;
}

static size_t total(const residency_part *p, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += p[i].bytes;
    return sum;
}

static size_t need(const residency_part *p, int n, unsigned held, int slots)
{
    size_t sum = 0, largest = 0;
    for (int i = 0; i < n; i++) {
        if (held >> i & 1) sum += p[i].bytes;
        else if (p[i].bytes > largest) largest = p[i].bytes;
    }
    return sum + (size_t)slots * largest;
}

/* The pipeline by events: explicit times of every transfer and every use over many passes, looked up by number. */
static double by_events(const residency_part *p, int n, unsigned held, int slots)
{
    enum { PASSES = 40, HALF = 20 };
    double read_end[PASSES * MOST] = {0}, used[PASSES * MOST] = {0}, now = 0, half = 0;
    int k = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        if (pass == HALF) half = now;
        for (int i = 0; i < n; i++) {
            bool streams = !(held >> i & 1);
            if (streams) {
                double begin = k > 0 ? read_end[k - 1] : 0;
                if (k >= slots) begin = fmax(begin, used[k - slots]);
                read_end[k] = begin + p[i].read;
                now = fmax(now, read_end[k]);
            }
            now += p[i].compute;
            if (streams) used[k++] = now;
        }
    }
    return (now - half) / (PASSES - HALF);
}

static double brute_force(const residency_part *p, int n, size_t budget, int slots)
{
    double best = INFINITY;
    for (unsigned held = 0; held < 1u << n; held++)
        if (need(p, n, held, slots) <= budget) best = fmin(best, by_events(p, n, held, slots));
    return best;
}

/* Each part is brought in when it is used, and forgotten. */
static double naive(const residency_part *p, int n)
{
    double t = 0;
    for (int i = 0; i < n; i++) t += p[i].read + p[i].compute;
    return t;
}

/* A cache of `budget` bytes that drops what was not used for longest; the second half of many passes counts. */
static double least_recently_used(const residency_part *p, int n, size_t budget)
{
    int list[MOST], kept = 0; /* the latest first */
    size_t bytes = 0;
    double t = 0;
    for (int pass = 0; pass < 20; pass++) {
        if (pass == 10) t = 0;
        for (int i = 0; i < n; i++) {
            int at = 0;
            while (at < kept && list[at] != i) at++;
            bool hit = at < kept;
            t += (hit ? 0 : p[i].read) + p[i].compute;
            if (hit) {
                memmove(list + at, list + at + 1, (size_t)(kept - at - 1) * sizeof *list);
                kept--;
                bytes -= p[i].bytes;
            }
            while (kept > 0 && bytes + p[i].bytes > budget) bytes -= p[list[--kept]].bytes;
            memmove(list + 1, list, (size_t)kept * sizeof *list);
            list[0] = i;
            kept++;
            bytes += p[i].bytes;
        }
    }
    return t / 10;
}

static void check_plan(const residency *r, const residency_part *p, int n, size_t budget)
{
    size_t held = 0, streams = 0;
    int count = 0;
    for (int i = 0; i < n; i++) {
        *(r->held[i] ? &held : &streams) += p[i].bytes;
        count += r->held[i];
    }
    assert_true(r->bytes <= budget);
    assert_int_equal(held, r->held_bytes);
    assert_int_equal(streams, r->stream_bytes);
    assert_int_equal(count, r->n_held);
    assert_int_equal(r->slots == 0, streams == 0);
    assert_true(r->seconds >= r->compute * (1 - 1e-9) && r->seconds >= r->read * (1 - 1e-9));
}

static void compare(bool uniform, uint64_t seed)
{
    rng r;
    double worst = 1;
    int exact = 0;
    rng_seed(&r, seed);
    for (int g = 0; g < GRAPHS; g++) {
        residency_part p[MOST];
        residency plan;
        llada_err err;
        int n = random_graph(&r, p, uniform), slots = 2 + (int)rng_below(&r, 2);
        size_t least = residency_least(p, n, slots), all = total(p, n),
               budget = least + rng_below(&r, all - least + 10);
        if (residency_plan(&plan, p, n, budget, slots, &err)) fail_msg("graph %d: %s", g, err.text);
        check_plan(&plan, p, n, budget);
        unsigned held = 0;
        for (int i = 0; i < n; i++) held |= (unsigned)plan.held[i] << i;
        double mine = by_events(p, n, held, slots), best = brute_force(p, n, budget, slots);
        assert_true(fabs(mine - plan.seconds) <= 0.02 * mine); /* the model settles within its few passes */
        if (mine > best * 1.05) fail_msg("graph %d: %.4f s, brute force %.4f s", g, mine, best);
        if (uniform && mine > best * 1.0001) fail_msg("uniform graph %d: %.4f s, the optimum is %.4f s", g, mine, best);
        if (mine > naive(p, n) * (1 + 1e-9)) fail_msg("graph %d: worse than naive streaming", g);
        if (mine > least_recently_used(p, n, budget) * (1 + 1e-9)) fail_msg("graph %d: worse than LRU", g);
        worst = fmax(worst, mine / best);
        exact += mine <= best * 1.000001;
        residency_free(&plan);
    }
    print_message("%d graphs: %d optimal, the worst %.2f %% above\n", GRAPHS, exact, 100 * (worst - 1));
}

static void test_random(void **state) { compare(false, 7); }
static void test_uniform(void **state) { compare(true, 8); }

/* A budget of one byte less than the smallest is refused, by name; the smallest works. */
static void test_least(void **state)
{
    rng r;
    rng_seed(&r, 9);
    for (int g = 0; g < GRAPHS; g++) {
        residency_part p[MOST];
        residency plan;
        llada_err err;
        char number[32];
        int n = random_graph(&r, p, false), slots = 2 + (int)rng_below(&r, 3);
        size_t least = residency_least(p, n, slots), found = SIZE_MAX;
        for (unsigned held = 0; held < 1u << n; held++)
            if (need(p, n, held, slots) < found) found = need(p, n, held, slots);
        assert_int_equal(least, found);
        assert_int_equal(residency_plan(&plan, p, n, least - 1, slots, &err), LLADA_BAD_ARG);
        snprintf(number, sizeof number, "%zu", least);
        assert_non_null(strstr(err.text, number));
        assert_null(plan.held);
        assert_int_equal(residency_plan(&plan, p, n, least, slots, &err), LLADA_OK);
        residency_free(&plan);
    }
}

/* Hundreds of parts: planned quickly, near the bound, and what stays is spread over the pass. */
static void test_large(void **state)
{
    static residency_part p[LARGE];
    residency plan;
    llada_err err;
    for (int i = 0; i < LARGE; i++) p[i] = (residency_part){8 << 20, 0.02, 0.02};
    size_t budget = total(p, LARGE) / 2;
    assert_int_equal(residency_plan(&plan, p, LARGE, budget, 4, &err), LLADA_OK);
    check_plan(&plan, p, LARGE, budget);
    assert_true(plan.seconds <= 1.01 * fmax(plan.read, plan.compute));
    int quarter[4] = {0};
    for (int i = 0; i < LARGE; i++) quarter[i * 4 / LARGE] += plan.held[i];
    for (int k = 0; k < 4; k++) assert_in_range(quarter[k], plan.n_held / 4 - 2, plan.n_held / 4 + 2);
    residency_free(&plan);
}

/* What is read several times a pass stays before all else. */
static void test_dense_first(void **state)
{
    residency_part p[10];
    residency plan;
    for (int i = 0; i < 10; i++) p[i] = (residency_part){100, i >= 8 ? 3.0 : 1.0, 0.1};
    assert_int_equal(residency_plan(&plan, p, 10, 500, 2, NULL), LLADA_OK);
    assert_true(plan.held[8] && plan.held[9]);
    assert_int_equal(plan.n_held, 3);
    residency_free(&plan);
}

static void test_no_memory(void **state)
{
    residency_part p[3] = {{10, 1, 1}, {10, 1, 1}, {10, 1, 1}};
    residency plan;
    int failed = 0;
    for (uint64_t k = 1; k < 20; k++) {
        mem_fail_at(k);
        llada_status st = residency_plan(&plan, p, 3, 25, 2, NULL);
        mem_fail_at(0);
        assert_true(st == LLADA_OK || (st == LLADA_NO_MEMORY && !plan.held));
        failed += st != LLADA_OK;
        residency_free(&plan);
    }
    assert_int_equal(failed, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_uniform),     cmocka_unit_test(test_least),
        cmocka_unit_test(test_large),  cmocka_unit_test(test_dense_first), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
