/* rng.h - random numbers: xoshiro256++ (Blackman and Vigna, 2019), seeded by splitmix64.  One stream per request. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

typedef struct {
    uint64_t s[4];
} rng;

void rng_seed(rng *r, uint64_t seed);
uint64_t rng_next(rng *r);
double rng_unit(rng *r);                     /* in (0, 1): 53 bits, never 0 */
uint64_t rng_below(rng *r, uint64_t n);      /* in [0, n), without bias; n > 0 */
static inline uint64_t rng_mix(uint64_t x)   /* one splitmix64 output: a seed for a sub-stream */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
