/*
 * histogram.h: log-linear histogram of 64-bit values: 16 linear steps per power of two, so that any
 * reported percentile is at most 1/16 (6.25 %) above the true value; values below 16 are exact.
 *
 * hist_add is for one writer; merge when the writers are done. Source: HdrHistogram's scheme.
 */
#ifndef LIB_HISTOGRAM_H
#define LIB_HISTOGRAM_H

#include "lib/base.h"

#define HIST_SUB_BITS 4
#define HIST_BUCKETS  ((64 - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct histogram {
    uint64_t n;
    uint64_t sum;
    uint64_t min; /* UINT64_MAX when empty */
    uint64_t max;
    uint32_t bucket[HIST_BUCKETS];
};

void hist_init(struct histogram *h);
void hist_add(struct histogram *h, uint64_t value);
void hist_merge(struct histogram *into, const struct histogram *from);
/* The smallest bucket bound that at least `per_10000` / 10000 of the values do not exceed, clipped
 * to max; e.g. 5000 = p50, 9990 = p99.9. 0 when empty. */
uint64_t hist_percentile(const struct histogram *h, unsigned per_10000);
uint64_t hist_mean(const struct histogram *h);

#endif
