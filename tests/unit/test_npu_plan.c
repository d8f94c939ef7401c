/* test_npu_plan.c - how products are cut: what is planned fits, and nothing that fits is cheaper by the same model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "device/npu/dsp/plan.h"

enum { TRIALS = 400, MOST_CHUNK = 64, WORKERS = 7 };

static uint32_t upto(rng *r, uint32_t n) { return 1 + (uint32_t)rng_below(r, n); }

static plan_shape any_shape(rng *r)
{
    return (plan_shape){ .row_tiles = upto(r, 12),
                         .stripes = upto(r, 400),
                         .k_tiles = upto(r, 400),
                         .type = NPU_T32_F16 + (uint32_t)rng_below(r, 3) };
}

static uint32_t any_vtcm(rng *r) { return upto(r, 8 << 20); }

static void fits_or_cannot(void **state)
{
    rng r;
    int fits = 0;
    rng_seed(&r, 1);
    for (int i = 0; i < TRIALS; i++) {
        const plan_shape s = any_shape(&r);
        const uint32_t vtcm = any_vtcm(&r);
        const plan_cut c = plan_product(&s, vtcm, (uint32_t)rng_below(&r, WORKERS + 1));
        assert_int_equal(c.row_tiles > 0, plan_bytes(&s, 1, 1) <= vtcm);
        if (!c.row_tiles) continue;
        fits++;
        assert_true(plan_bytes(&s, c.row_tiles, c.chunk) <= vtcm);
        assert_in_range(c.row_tiles, 1, s.row_tiles);
        assert_in_range(c.chunk, 1, s.stripes);
        assert_true(c.readings * c.row_tiles >= s.row_tiles && (c.readings - 1) * c.row_tiles < s.row_tiles);
    }
    assert_in_range(fits, TRIALS / 4, TRIALS - 1);
}

/* The least that any tiles of rows and workers cost with this chunk; none fit: as much as there is. */
static uint64_t least_with(const plan_shape *s, uint32_t vtcm, uint32_t chunk, uint32_t workers)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t rows = 1; rows <= s->row_tiles && plan_bytes(s, rows, chunk) <= vtcm; rows++)
        for (uint32_t w = 0; w <= workers; w++) {
            const uint64_t ps = plan_ps(s, rows, chunk, w);
            least = ps < least ? ps : least;
        }
    return least;
}

/* Against every cut there is.  Chunks are tried in steps of a quarter, which may miss a little. */
static void nothing_is_cheaper(void **state)
{
    rng r;
    double worst = 0;
    rng_seed(&r, 2);
    for (int i = 0; i < TRIALS; i++) {
        const plan_shape s = any_shape(&r);
        const uint32_t vtcm = any_vtcm(&r), workers = (uint32_t)rng_below(&r, WORKERS + 1);
        const plan_cut c = plan_product(&s, vtcm, workers);
        if (!c.row_tiles) continue;
        assert_true(c.ps == plan_ps(&s, c.row_tiles, c.chunk, c.workers));
        for (uint32_t chunk = 1; chunk <= MOST_CHUNK && chunk <= s.stripes; chunk++) {
            const uint64_t least = least_with(&s, vtcm, chunk, workers);
            const double more = (double)c.ps / (double)least - 1;
            worst = more > worst ? more : worst;
            if (more > (chunk == c.chunk ? 1e-4 : 0.12))
                fail_msg("%u rows, %u stripes, %u k, type %u, %u bytes: chunk %u, not %u, is cheaper by %g",
                         s.row_tiles, s.stripes, s.k_tiles, s.type, vtcm, chunk, c.chunk, more);
        }
    }
    print_message("at most %.1f %% above the cheapest cut, by the model\n", 100 * worst);
}

static void more_never_hurts(void **state)
{
    rng r;
    rng_seed(&r, 3);
    for (int i = 0; i < TRIALS; i++) {
        const plan_shape s = any_shape(&r);
        const uint32_t vtcm = any_vtcm(&r);
        const plan_cut c = plan_product(&s, vtcm, 1);
        if (!c.row_tiles) continue;
        assert_true(plan_product(&s, vtcm, WORKERS).ps <= c.ps);
        assert_true((double)plan_product(&s, vtcm + any_vtcm(&r), 1).ps <= (double)c.ps * 1.0001);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_or_cannot),
        cmocka_unit_test(nothing_is_cheaper),
        cmocka_unit_test(more_never_hurts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
