/*
 * bitmap.c: ranges and searches in bitmaps of 64-bit words, a word at a time.
 *
 * Bits above nbits in the last word may have any value: no function looks at them. Callers lock.
 */
#include "lib/bitmap.h"

#define WORD_BITS 64u

/* Bits [from, 64) and [0, count) of a word; from < 64, 0 < count <= 64. */
static inline uint64_t mask_from(unsigned from)
{
    return ~0ULL << from;
}

static inline uint64_t mask_count(unsigned count)
{
    return ~0ULL >> (WORD_BITS - count);
}

/* The part of [start, start + n) that lies in start's word, as a mask; *len gets its length. */
static inline uint64_t first_part(unsigned start, unsigned n, unsigned *len)
{
    unsigned bit = start % WORD_BITS;

    *len = MIN(n, WORD_BITS - bit);
    return mask_count(*len) << bit;
}

void bitmap_set(uint64_t *map, unsigned start, unsigned n)
{
    for (unsigned len; n; start += len, n -= len)
        map[start / WORD_BITS] |= first_part(start, n, &len);
}

void bitmap_clear(uint64_t *map, unsigned start, unsigned n)
{
    for (unsigned len; n; start += len, n -= len)
        map[start / WORD_BITS] &= ~first_part(start, n, &len);
}

bool bitmap_all_set(const uint64_t *map, unsigned start, unsigned n)
{
    for (unsigned len; n; start += len, n -= len) {
        if (~map[start / WORD_BITS] & first_part(start, n, &len))
            return false;
    }
    return true;
}

bool bitmap_all_clear(const uint64_t *map, unsigned start, unsigned n)
{
    for (unsigned len; n; start += len, n -= len) {
        if (map[start / WORD_BITS] & first_part(start, n, &len))
            return false;
    }
    return true;
}

/* Set bits of a word, added up in ever wider fields. The compiler's builtin may become a call into
 * its own library, which a kernel does not link, since POPCNT is not in the base instruction set.
 */
static inline unsigned word_weight(uint64_t w)
{
    w -= (w >> 1) & 0x5555555555555555ULL;
    w = (w & 0x3333333333333333ULL) + ((w >> 2) & 0x3333333333333333ULL);
    w = (w + (w >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
    return (unsigned)((w * 0x0101010101010101ULL) >> 56);
}

unsigned bitmap_weight(const uint64_t *map, unsigned nbits)
{
    unsigned weight = 0, i;

    for (i = 0; i < nbits / WORD_BITS; i++)
        weight += word_weight(map[i]);
    if (nbits % WORD_BITS)
        weight += word_weight(map[i] & mask_count(nbits % WORD_BITS));
    return weight;
}

/* First bit at or after `from` in map XOR flip. */
static __always_inline unsigned next_bit(const uint64_t *map, unsigned nbits, unsigned from,
                                         uint64_t flip)
{
    if (from >= nbits)
        return nbits;
    unsigned i = from / WORD_BITS, last = (nbits - 1) / WORD_BITS;
    uint64_t word = (map[i] ^ flip) & mask_from(from % WORD_BITS);

    while (!word) {
        if (i == last)
            return nbits;
        word = map[++i] ^ flip;
    }
    return MIN(i * WORD_BITS + (unsigned)__builtin_ctzll(word), nbits);
}

unsigned bitmap_next_set(const uint64_t *map, unsigned nbits, unsigned from)
{
    return next_bit(map, nbits, from, 0);
}

unsigned bitmap_next_clear(const uint64_t *map, unsigned nbits, unsigned from)
{
    return next_bit(map, nbits, from, ~0ULL);
}

unsigned bitmap_prev_set(const uint64_t *map, unsigned nbits, unsigned from)
{
    if (nbits == 0)
        return 0;
    from = MIN(from, nbits - 1);
    unsigned i = from / WORD_BITS;
    uint64_t word = map[i] & mask_count(from % WORD_BITS + 1);

    while (!word) {
        if (i == 0)
            return nbits;
        word = map[--i];
    }
    return i * WORD_BITS + fls64(word) - 1;
}

unsigned bitmap_find_clear_run(const uint64_t *map, unsigned nbits, unsigned from, unsigned n,
                               unsigned align)
{
    uint64_t start = from; /* 64 bits: start + n and rounding up cannot wrap */

    for (;;) {
        start = ALIGN_UP(start, align);
        if (start + n > nbits || start >= nbits)
            return nbits;
        unsigned set = bitmap_next_set(map, (unsigned)(start + n), (unsigned)start);
        if (set == start + n)
            return (unsigned)start;
        start = bitmap_next_clear(map, nbits, set);
    }
}
