/* test_npu_residency.c - which buffer goes when another must be mapped: against the best of all choices, which is found
 * by trying every set of buffers that can be mapped after each step of a pass. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "device/npu/inside.h"

enum { MOST = 8, SETS = 1 << MOST, PASSES = 12 };

typedef struct {
    int n;
    uint32_t bytes[MOST], budget;
} shape;

static uint32_t bytes_of(const shape *s, int set)
{
    uint32_t sum = 0;
    for (int i = 0; i < s->n; i++) sum += set >> i & 1 ? s->bytes[i] : 0;
    return sum;
}

/* Maps that so many passes take from the beginning, when every buffer is mapped where it is needed. */
static int by_rule(const shape *s, int passes)
{
    device_weights *w = calloc(1, sizeof *w);
    npu_transport t = { .budget = s->budget };
    int maps = 0;
    w->t = &t;
    w->n_groups = s->n;
    for (int i = 0; i < s->n; i++) {
        w->groups[i] = (npu_region){ .s.bytes = s->bytes[i], .turn = i, .next = w->all };
        w->all = &w->groups[i];
    }
    for (int k = 0; k < passes * s->n; k++) {
        npu_region *r = &w->groups[k % s->n];
        if (r->mapped) continue;
        for (npu_region *v; (v = npu_victim(w, r, NULL, 0));) v->mapped = false;
        r->mapped = true;
        maps++;
        assert_true(npu_mapped_bytes(w) <= s->budget);
    }
    free(w);
    return maps;
}

/* The fewest maps: cost[set] is the least that leads to these buffers being mapped. */
static int at_best(const shape *s, int passes)
{
    int cost[SETS], next[SETS], least = INT32_MAX;
    for (int set = 0; set < 1 << s->n; set++) cost[set] = set ? INT32_MAX : 0;
    for (int k = 0; k < passes * s->n; k++) {
        const int need = 1 << k % s->n;
        for (int set = 0; set < 1 << s->n; set++) next[set] = INT32_MAX;
        for (int set = 0; set < 1 << s->n; set++) {
            if (cost[set] == INT32_MAX) continue;
            const int price = cost[set] + !(set & need), all = set | need;
            for (int left = all;; left = (left - 1) & all) { /* what stays: any part of it that fits */
                if ((left & need) && bytes_of(s, left) <= s->budget && price < next[left]) next[left] = price;
                if (left == 0) break;
            }
        }
        memcpy(cost, next, sizeof cost);
    }
    for (int set = 0; set < 1 << s->n; set++) least = cost[set] < least ? cost[set] : least;
    return least;
}

/* Buffers of one size: never a map more than the best, and per pass n (n - m) / (n - 1) when m of n fit. */
static void optimal_when_uniform(void **state)
{
    for (int n = 1; n <= MOST; n++)
        for (int m = 1; m <= n; m++) {
            shape s = { .n = n, .budget = (uint32_t)m * 10 + 3 };
            for (int i = 0; i < n; i++) s.bytes[i] = 10;
            for (int passes = 1; passes <= PASSES; passes++) assert_int_equal(by_rule(&s, passes), at_best(&s, passes));
            const int period = n > 1 ? n - 1 : 1; /* passes */
            assert_int_equal(by_rule(&s, 2 * period) - by_rule(&s, period), n > 1 ? n * (n - m) : 0);
        }
}

/* As layers are shared out: the last buffer has fewer. */
static void optimal_when_the_last_is_smaller(void **state)
{
    for (int n = 2; n <= MOST; n++)
        for (uint32_t last = 1; last < 10; last++)
            for (uint32_t budget = 10; budget < (uint32_t)n * 10; budget++) {
                shape s = { .n = n, .budget = budget };
                for (int i = 0; i < n; i++) s.bytes[i] = i < n - 1 ? 10 : last;
                assert_int_equal(by_rule(&s, PASSES), at_best(&s, PASSES));
            }
}

/* Buffers of any sizes, where nothing simple is optimal: never far from it. */
static void near_the_best(void **state)
{
    enum { TRIALS = 1000 };
    double worst = 1, sum = 0;
    rng r;
    rng_seed(&r, 4);
    for (int i = 0; i < TRIALS; i++) {
        shape s = { .n = 2 + (int)rng_below(&r, MOST - 1) };
        uint32_t most = 0;
        for (int k = 0; k < s.n; k++) {
            s.bytes[k] = 1 + (uint32_t)rng_below(&r, 10);
            most = s.bytes[k] > most ? s.bytes[k] : most;
        }
        s.budget = most + (uint32_t)rng_below(&r, bytes_of(&s, SETS - 1) - most + 1);
        const double ratio = (double)by_rule(&s, PASSES) / at_best(&s, PASSES);
        worst = fmax(worst, ratio);
        sum += ratio;
    }
    print_message("buffers of any sizes: %.3f times the fewest maps, at most %.2f times\n", sum / TRIALS, worst);
    assert_true(sum / TRIALS < 1.02 && worst < 1.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimal_when_uniform),
        cmocka_unit_test(optimal_when_the_last_is_smaller),
        cmocka_unit_test(near_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
