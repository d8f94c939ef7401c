/* Half floats against a formula of their own, for every value; random numbers against known sequences. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* ---------------------------------------------------------------- half floats */

typedef struct {
    const char *name;
    int exp_bits, man_bits;
    float (*to)(uint16_t);
    uint16_t (*from)(float);
} format;

static const format formats[] = {
    { "half", 5, 10, half_to_float, half_from_float },
    { "bf16", 8, 7, bf16_to_float, bf16_from_float },
};

/* The definition of IEEE 754 interchange formats: (-1)^s 2^(e - bias) (m / 2^p), in double. */
static double meaning(const format *f, unsigned h)
{
    int e = (int)(h >> f->man_bits) & ((1 << f->exp_bits) - 1), m = (int)h & ((1 << f->man_bits) - 1);
    int bias = (1 << (f->exp_bits - 1)) - 1;
    double v;
    if (e == (1 << f->exp_bits) - 1)
        v = m ? NAN : INFINITY;
    else if (e == 0)
        v = ldexp(m, 1 - bias - f->man_bits);
    else
        v = ldexp(m + (1 << f->man_bits), e - bias - f->man_bits);
    return h & 0x8000 ? -v : v;
}

static void test_half_every_value(void **state)
{
    for (size_t i = 0; i < COUNT(formats); i++) {
        const format *f = &formats[i];
        unsigned quiet = 1u << (f->man_bits - 1);
        for (unsigned h = 0; h < 65536; h++) {
            double want = meaning(f, h);
            float got = f->to((uint16_t)h);
            assert_int_equal(bits(got) >> 31, h >> 15);
            if (isnan(want)) {
                assert_true(isnan(got));
                assert_int_equal(f->from(got), h | quiet);
            } else {
                assert_true((double)got == want);
                assert_int_equal(f->from(got), h);
            }
        }
    }
}

/* Between two neighbours a < b: the middle goes to the even one, anything nearer to the nearer.  Above the largest
 * finite value the neighbour is infinity, as far away as the next step would be. */
static void test_half_ties(void **state)
{
    for (size_t i = 0; i < COUNT(formats); i++) {
        const format *f = &formats[i];
        unsigned inf = ((1u << f->exp_bits) - 1) << f->man_bits;
        for (unsigned h = 0; h < inf; h++) {
            double a = meaning(f, h), step = h + 1 == inf ? a - meaning(f, h - 1) : meaning(f, h + 1) - a;
            float mid = (float)(a + step / 2);
            assert_true((double)mid == a + step / 2); /* exact: float has more bits than both */
            for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
                float s = sign ? -1.0f : 1.0f;
                assert_int_equal(f->from(s * mid), sign | (h + (h & 1)));
                assert_int_equal(f->from(s * nextafterf(mid, 0)), sign | h);
                assert_int_equal(f->from(s * nextafterf(mid, INFINITY)), sign | (h + 1));
            }
        }
    }
}

static void test_half_edges(void **state)
{
    static const struct {
        uint32_t in;
        uint16_t half, bf16;
    } t[] = {
        { 0x00000000, 0x0000, 0x0000 }, { 0x80000000, 0x8000, 0x8000 },
        { 0x00000001, 0x0000, 0x0000 }, { 0x807fffff, 0x8000, 0x8080 },
        { 0x7f7fffff, 0x7c00, 0x7f80 }, { 0xff7fffff, 0xfc00, 0xff80 }, /* FLT_MAX */
        { 0x7f800000, 0x7c00, 0x7f80 }, { 0xff800000, 0xfc00, 0xff80 },
        { 0x477fefff, 0x7bff, 0x4780 }, { 0x477ff000, 0x7c00, 0x4780 }, /* 65520 - 1 bit, 65520 */
        { 0x33000000, 0x0000, 0x3300 }, { 0x33000001, 0x0001, 0x3300 }, /* 2^-25, + 1 bit */
        { 0x387fffff, 0x0400, 0x3880 },                                 /* just below 2^-14 */
        { 0x7fc00000, 0x7e00, 0x7fc0 }, { 0x7f800001, 0x7e00, 0x7fc0 }, /* payload below what fits */
        { 0xffffffff, 0xffff, 0xffff }, { 0x7fa00000, 0x7f00, 0x7fe0 },
    };
    for (size_t i = 0; i < COUNT(t); i++) {
        assert_int_equal(half_from_float(from_bits(t[i].in)), t[i].half);
        assert_int_equal(bf16_from_float(from_bits(t[i].in)), t[i].bf16);
    }
}

/* ---------------------------------------------------------------- random numbers */

/* xoshiro256++ from the state 1, 2, 3, 4: the sequence of the authors' program. */
static void test_rng_sequence(void **state)
{
    static const uint64_t want[] = {
        UINT64_C(41943041),            UINT64_C(58720359),            UINT64_C(3588806011781223),
        UINT64_C(3591011842654386),    UINT64_C(9228616714210784205), UINT64_C(9973669472204895162),
        UINT64_C(14011001112246962877), UINT64_C(12406186145184390807), UINT64_C(15849039046786891736),
        UINT64_C(10450023813501588000),
    };
    rng r = { { 1, 2, 3, 4 } };
    for (size_t i = 0; i < COUNT(want); i++)
        assert_true(rng_next(&r) == want[i]);
}

static void test_rng_mix(void **state)
{
    static const uint64_t want[] = { /* splitmix64 from 1234567 */
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431), UINT64_C(16408922859458223821),
    };
    for (size_t i = 0; i < COUNT(want); i++)
        assert_true(rng_mix(1234567 + i * UINT64_C(0x9e3779b97f4a7c15)) == want[i]);
}

/* Values 1 to 4 and 1000 of a seed, computed with integers of any size. */
static void test_rng_seed(void **state)
{
    static const struct {
        uint64_t seed, first[4], last;
    } t[] = {
        { 0,
          { UINT64_C(0x53175d61490b23df), UINT64_C(0x61da6f3dc380d507), UINT64_C(0x5c0fdf91ec9a7bfc),
            UINT64_C(0x02eebf8c3bbe5e1a) },
          UINT64_C(0x376300fa032f6483) },
        { 1,
          { UINT64_C(0xcfc5d07f6f03c29b), UINT64_C(0xbf424132963fe08d), UINT64_C(0x19a37d5757aaf520),
            UINT64_C(0xbf08119f05cd56d6) },
          UINT64_C(0x92d52100f9e1da0d) },
        { UINT64_MAX,
          { UINT64_C(0x56ccf8ce948e27b2), UINT64_C(0xe68588432e5a5b90), UINT64_C(0xe3e9b5a48119ca8b),
            UINT64_C(0x460f19495532ae73) },
          UINT64_C(0x6e67f58f11f35060) },
    };
    for (size_t i = 0; i < COUNT(t); i++) {
        rng r;
        rng_seed(&r, t[i].seed);
        uint64_t x = 0;
        for (int k = 0; k < 1000; k++) {
            x = rng_next(&r);
            assert_true(k >= 4 || x == t[i].first[k]);
        }
        assert_true(x == t[i].last);
    }
}

static void test_rng_unit(void **state)
{
    static const double want[] = { 0x1.c583400555d20p-5, 0x1.607e46efd274cp-3, 0x1.6f66236761a8bp-1,
                                   0x1.b5767da98c600p-2 };
    rng r;
    rng_seed(&r, 7);
    for (size_t i = 0; i < COUNT(want); i++)
        assert_true(rng_unit(&r) == want[i]);

    rng zero = { { 0, 1, 2, 0 } }, same = zero; /* whose next output is 0: it must be drawn again */
    assert_true(rng_next(&same) == 0);
    assert_true(rng_unit(&zero) > 0);
    rng ones = { { 0, 1, 2, UINT64_MAX } };
    assert_true(rng_unit(&ones) == 1 - 0x1p-53);

    double sum = 0, square = 0;
    for (int i = 0; i < 100000; i++) {
        double u = rng_unit(&r);
        assert_true(u > 0 && u < 1);
        sum += u;
        square += u * u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.005); /* 5.5 standard errors */
    assert_true(fabs(square / 100000 - 1.0 / 3) < 0.005);
}

static void test_rng_below(void **state)
{
    static const int want[] = { 1, 3, 0, 4, 1, 5, 8, 0, 5, 8, 4, 9, 6, 9, 9, 6, 6, 2, 8, 1 };
    rng r;
    rng_seed(&r, 42);
    for (size_t i = 0; i < COUNT(want); i++)
        assert_int_equal(rng_below(&r, 10), want[i]);

    /* Half of all draws are refused here. */
    static const uint64_t refused[] = {
        UINT64_C(5797906573132458142), UINT64_C(8926271879130705291), UINT64_C(3710296902904329655),
        UINT64_C(5414202205828049522), UINT64_C(1625129864213356156), UINT64_C(1939166906780535621),
    };
    rng_seed(&r, 42);
    for (size_t i = 0; i < COUNT(refused); i++)
        assert_true(rng_below(&r, (UINT64_C(1) << 63) + 1) == refused[i]);

    int seen[7] = { 0 };
    for (int i = 0; i < 70000; i++)
        seen[rng_below(&r, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_true(seen[i] > 9500 && seen[i] < 10500); /* 5.4 standard deviations */
    assert_int_equal(rng_below(&r, 1), 0);
    assert_int_equal(rng_below(&r, 0), 0);
    for (int i = 0; i < 100; i++)
        assert_true(rng_below(&r, UINT64_MAX) < UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_every_value), cmocka_unit_test(test_half_ties), cmocka_unit_test(test_half_edges),
        cmocka_unit_test(test_rng_sequence),     cmocka_unit_test(test_rng_mix),   cmocka_unit_test(test_rng_seed),
        cmocka_unit_test(test_rng_unit),         cmocka_unit_test(test_rng_below),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
