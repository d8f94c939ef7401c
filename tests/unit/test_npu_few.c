/* test_npu_few.c - products of few rows in 8-bit integers, as plain C has them: rows become integers, integers times tiles
 * of weights, and which products go this way. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "device/npu/dsp/lanes.h"
#include "format/t32.h"

enum { K_TILES = 5, K = K_TILES * TILE };

/* Blocks of every size a half can have; the last is zero. */
static void fill(half *x, rng *r)
{
    for (int i = 0; i < K; i++)
        x[i] = half_from_float((float)(rng_unit(r) - 0.5) * powf(10, (float)(3 - i / TILE * 2)));
    for (int i = K - TILE; i < K; i++) x[i] = 0;
}

static int byte_of(const few_row *x, int i) { return (int8_t)(x->word[i / 4] >> 8 * (i % 4)); }

static void rows_become_integers(void **state)
{
    few_row *to = malloc(sizeof *to);
    half x[K];
    rng r;
    rng_seed(&r, 3);
    for (int again = 0; again < 20; again++) {
        fill(x, &r);
        memset(to, 0xff, sizeof *to);
        lanes_to_integers(to, x, K_TILES);
        for (int t = 0; t < K_TILES; t++) {
            int sum = 0, most = 0;
            for (int i = t * TILE; i < (t + 1) * TILE; i++) {
                const double off = half_to_float(x[i]) - (double)to->scale[t] * byte_of(to, i);
                if (fabs(off) > 0.50001 * to->scale[t]) fail_msg("value %d is off by %g steps", i, off / to->scale[t]);
                sum += byte_of(to, i);
                most = abs(byte_of(to, i)) > most ? abs(byte_of(to, i)) : most;
            }
            assert_int_equal(sum, to->sum[t]);
            assert_int_equal(most, t < K_TILES - 1 ? 127 : 0);
        }
    }
    free(to);
}

typedef void product(float *acc, const few_row *x, uint32_t rows, const uint8_t *packed, uint32_t n);

/* A stripe of weights of a type in tiles, and the same as floats [column][k]. */
static uint8_t *stripe(uint32_t type, float *plain, rng *r)
{
    const quant_info *q = quant_get(type);
    t32_shape s;
    assert_true(t32_shape_of(&s, type, TILE, K));
    uint8_t *packed = malloc(s.bytes), *rows = malloc(s.bytes);
    for (int i = 0; i < TILE * K; i++) plain[i] = (float)(rng_unit(r) - 0.5);
    q->encode(rows, plain, TILE * K);
    q->decode(plain, rows, TILE * K);
    t32_pack(&s, packed, rows, 0, 1);
    free(rows);
    return packed;
}

static void check_product(product *run, uint32_t type)
{
    few_row *x = calloc(PLAN_FEW_ROWS, sizeof *x);
    float *w = malloc(sizeof(float) * TILE * K), acc[PLAN_FEW_ROWS * TILE];
    half in[K];
    rng r;
    rng_seed(&r, type);
    uint8_t *packed = stripe(type, w, &r);
    for (uint32_t rows = 1; rows <= PLAN_FEW_ROWS; rows++) {
        fill(in, &r);
        lanes_to_integers(&x[rows - 1], in, K_TILES);
        for (uint32_t i = 0; i < PLAN_FEW_ROWS * TILE; i++) acc[i] = (float)i;
        run(acc, x, rows, packed, K_TILES);
        for (uint32_t i = 0; i < PLAN_FEW_ROWS * TILE; i++) {
            double want = i, size = i;
            for (int k = 0; k < K && i / TILE < rows; k++) {
                const double p = (double)x[i / TILE].scale[k / TILE] * byte_of(&x[i / TILE], k) * w[i % TILE * K + k];
                want += p;
                size += fabs(p);
            }
            if (fabs(acc[i] - want) > 1e-6 * size) fail_msg("%u rows, sum %u: %g, not %g", rows, i, acc[i], want);
        }
    }
    free(packed);
    free(w);
    free(x);
}

static void integers_times_tiles(void **state)
{
    check_product(lanes_few_q8_0, QT_Q8_0);
    check_product(lanes_few_q4_0, QT_Q4_0);
}

/* What HMX would answer to infinity and NaN is seen here as well: nothing finite. */
static void no_end_no_number(void **state)
{
    static const half odd[] = { 0x7c00, 0xfc00, 0x7e00 };
    few_row *x = calloc(1, sizeof *x);
    float w[TILE * K], acc[TILE] = { 0 };
    rng r;
    rng_seed(&r, 1);
    uint8_t *packed = stripe(QT_Q8_0, w, &r);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        half in[K];
        fill(in, &r);
        in[TILE + 7] = odd[i];
        lanes_to_integers(x, in, K_TILES);
        lanes_few_q8_0(acc, x, 1, packed, K_TILES);
        for (int c = 0; c < TILE; c++) assert_false(isfinite(acc[c]));
    }
    free(packed);
    free(x);
}

/* By the model of plan.h: one row and two with weights that are integers, and never rows that there is no room for. */
static void which_products(void **state)
{
    static const uint32_t types[] = { NPU_T32_Q8_0, NPU_T32_Q4_0 };
    for (int i = 0; i < 2; i++) {
        for (uint32_t rows = 1; rows <= 40; rows++) assert_int_equal(plan_in_integers(rows, 128, types[i]), rows <= 2);
        assert_true(plan_in_integers(1, PLAN_FEW_K / 32, types[i]));
        assert_false(plan_in_integers(1, PLAN_FEW_K / 32 + 1, types[i]));
    }
    assert_false(plan_in_integers(1, 1, NPU_T32_F16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_integers),
        cmocka_unit_test(integers_times_tiles),
        cmocka_unit_test(no_end_no_number),
        cmocka_unit_test(which_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
