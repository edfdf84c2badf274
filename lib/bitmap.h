/*
 * bitmap.h: bitmaps of 64-bit words. Not synchronised unless a name says atomic.
 *
 * Ranges are [start, start + n). Searches return `nbits` when nothing was found.
 */
#ifndef LIB_BITMAP_H
#define LIB_BITMAP_H

#include "lib/base.h"

#define BITMAP_WORDS(nbits) (((nbits) + 63) / 64)

static inline bool bitmap_test(const uint64_t *map, unsigned bit)
{
    return (map[bit / 64] >> (bit % 64)) & 1;
}
static inline void bitmap_set_bit(uint64_t *map, unsigned bit)
{
    map[bit / 64] |= 1ULL << (bit % 64);
}
static inline void bitmap_clear_bit(uint64_t *map, unsigned bit)
{
    map[bit / 64] &= ~(1ULL << (bit % 64));
}
void bitmap_set(uint64_t *map, unsigned start, unsigned n);
void bitmap_clear(uint64_t *map, unsigned start, unsigned n);
/* True if all of [start, start + n) are set (all_set) or clear (all_clear). */
bool bitmap_all_set(const uint64_t *map, unsigned start, unsigned n);
bool bitmap_all_clear(const uint64_t *map, unsigned start, unsigned n);
unsigned bitmap_weight(const uint64_t *map, unsigned nbits);
/* First set or clear bit at or after `from`. */
unsigned bitmap_next_set(const uint64_t *map, unsigned nbits, unsigned from);
unsigned bitmap_next_clear(const uint64_t *map, unsigned nbits, unsigned from);
/* Last set bit at or before `from`; `nbits` (given for the result only) if none. */
unsigned bitmap_prev_set(const uint64_t *map, unsigned nbits, unsigned from);
/* First run of n clear bits whose start is a multiple of align (a power of two), at or after
 * `from`. */
unsigned bitmap_find_clear_run(const uint64_t *map, unsigned nbits, unsigned from, unsigned n,
                               unsigned align);

#define bitmap_for_each_set(bit, map, nbits)                                                       \
    for (bit = bitmap_next_set(map, nbits, 0); bit < (nbits);                                      \
         bit = bitmap_next_set(map, nbits, bit + 1))

#endif
