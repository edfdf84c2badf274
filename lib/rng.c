/*
 * rng.c: xoshiro256** and splitmix64, as described by Blackman and Vigna, "Scrambled linear
 * pseudorandom number generators" (2018). One struct per user; no locks, no other state.
 */
#include "lib/rng.h"

static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15ULL;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, unsigned k)
{
    return (x << k) | (x >> (64 - k));
}

void rng_seed(struct rng *r, uint64_t seed)
{
    /* splitmix64 is a bijection of a counter: the four words cannot all be 0, which is the one
     * state that the generator never leaves. */
    for (unsigned i = 0; i < 4; i++)
        r->s[i] = splitmix64(&seed);
}

uint64_t rng_next(struct rng *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)rng_next(r) * n) >> 64);
}

uint64_t rng_range(struct rng *r, uint64_t lo, uint64_t hi)
{
    uint64_t span = hi - lo + 1; /* 0 when the range is all 64-bit numbers */

    return span ? lo + rng_below(r, span) : rng_next(r);
}
