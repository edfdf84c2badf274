/*
 * histogram.c: log-linear histograms. A value's bucket is found by its highest bit and the four
 * bits below it, with no loop and no table. One writer; counts and sums saturate instead of
 * wrapping.
 */
#include "lib/histogram.h"
#include "lib/string.h"

#define SUB_COUNT (1u << HIST_SUB_BITS)

static unsigned bucket_of(uint64_t v)
{
    if (v < SUB_COUNT)
        return (unsigned)v;
    unsigned shift = fls64(v) - 1 - HIST_SUB_BITS;
    return ((shift + 1) << HIST_SUB_BITS) + (unsigned)((v >> shift) & (SUB_COUNT - 1));
}

/* The largest value that falls into bucket i. */
static uint64_t bucket_bound(unsigned i)
{
    if (i < SUB_COUNT)
        return i;
    unsigned shift = (i >> HIST_SUB_BITS) - 1;
    uint64_t low = (uint64_t)(SUB_COUNT + (i & (SUB_COUNT - 1))) << shift;
    return low + (1ULL << shift) - 1;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

void hist_init(struct histogram *h)
{
    memset(h, 0, sizeof(*h));
    h->min = UINT64_MAX;
}

void hist_add(struct histogram *h, uint64_t value)
{
    uint32_t *bucket = &h->bucket[bucket_of(value)];

    h->n++;
    h->sum = add_saturated(h->sum, value);
    h->min = MIN(h->min, value);
    h->max = MAX(h->max, value);
    if (likely(*bucket != UINT32_MAX))
        (*bucket)++;
}

void hist_merge(struct histogram *into, const struct histogram *from)
{
    into->n += from->n;
    into->sum = add_saturated(into->sum, from->sum);
    into->min = MIN(into->min, from->min);
    into->max = MAX(into->max, from->max);
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        uint64_t sum = (uint64_t)into->bucket[i] + from->bucket[i];
        into->bucket[i] = sum > UINT32_MAX ? UINT32_MAX : (uint32_t)sum;
    }
}

uint64_t hist_percentile(const struct histogram *h, unsigned per_10000)
{
    uint64_t seen = 0;

    if (h->n == 0)
        return 0;
    uint64_t p = MIN(per_10000, 10000u);
    /* ceil(n * p / 10000) without overflow, and at least the first value */
    uint64_t rank = h->n / 10000 * p + DIV_ROUND_UP(h->n % 10000 * p, 10000);
    rank = MAX(rank, 1ULL);
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= rank)
            return MIN(bucket_bound(i), h->max);
    }
    return h->max; /* only after a bucket has saturated */
}

uint64_t hist_mean(const struct histogram *h)
{
    return h->n ? h->sum / h->n : 0;
}
