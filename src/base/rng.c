/* rng.c - xoshiro256++ 1.0 as its authors describe it: D. Blackman, S. Vigna, "Scrambled Linear Pseudorandom Number
 * Generators" (2019, arXiv 1805.01407).  Period 2^256 - 1; the all-zero state can't come out of the seeding, because
 * splitmix64 maps four different inputs to four different outputs. */
#include "base/rng.h"

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

void rng_seed(rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        r->s[i] = rng_mix(seed + (uint64_t)i * 0x9e3779b97f4a7c15u);
}

uint64_t rng_next(rng *r)
{
    uint64_t *s = r->s, out = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

double rng_unit(rng *r)
{
    /* 0 is drawn again rather than shifted by half a unit: 1 - 2^-54 is not a double, it would round to 1 */
    uint64_t x;
    do
        x = rng_next(r) >> 11;
    while (x == 0);
    return (double)x * 0x1p-53;
}

uint64_t rng_below(rng *r, uint64_t n)
{
    if (n == 0)
        return 0;
    /* 2^64 mod n values at the bottom are refused; the rest is a whole number of runs of n */
    uint64_t skip = (0 - n) % n, x;
    do
        x = rng_next(r);
    while (x < skip);
    return x % n;
}
