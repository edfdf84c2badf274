/*
 * rng.h: seeded random numbers, xoshiro256** seeded by splitmix64 (Blackman and Vigna, 2018, public
 * domain reference at prng.di.unimi.it). Not for secrets. One struct per CPU or test.
 */
#ifndef LIB_RNG_H
#define LIB_RNG_H

#include "lib/base.h"

struct rng {
    uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
/* Uniform in [0, n) without modulo bias worth measuring (Lemire's multiply-shift); n > 0. */
uint64_t rng_below(struct rng *r, uint64_t n);
/* Uniform in [lo, hi], both included. */
uint64_t rng_range(struct rng *r, uint64_t lo, uint64_t hi);

#endif
