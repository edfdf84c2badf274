/*
 * lib_histogram_test.c: percentiles against the sorted values: never below the true one, at most
 * 1/16 above it; exact below 16, clipped to the maximum; merging equals adding; counters saturate.
 */
#include "tests/host/testlib.h"
#include <stdlib.h>
#include "lib/histogram.h"

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Values of every magnitude, or close together. */
static uint64_t any_value(struct rng *r, unsigned shape)
{
    switch (shape) {
    case 0:
        return rng_next(r) >> rng_below(r, 64);
    case 1:
        return rng_below(r, 40);
    case 2:
        return 1000 + rng_below(r, 100);
    default:
        return BIT(rng_below(r, 64)) - rng_below(r, 2);
    }
}

static void check_percentiles(const struct histogram *h, const uint64_t *sorted, size_t n)
{
    static const unsigned p[] = {0, 1, 100, 2500, 5000, 9000, 9900, 9990, 9999, 10000, 20000};

    for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
        size_t rank = (n * MIN(p[i], 10000u) + 9999) / 10000;
        uint64_t truth = sorted[rank ? rank - 1 : 0];
        uint64_t got = hist_percentile(h, p[i]);
        CHECK_MSG(got >= truth && got - truth <= truth / 16 && got <= sorted[n - 1],
                  "p%u of %zu: got %llu, true %llu", p[i], n, (unsigned long long)got,
                  (unsigned long long)truth);
        if (truth < 16)
            assert_true(got == truth);
    }
    assert_true(hist_percentile(h, 10000) == sorted[n - 1]);
}

static void percentiles(void **state)
{
    static uint64_t values[5000];
    struct rng r = test_rng(1);
    struct histogram h;

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        size_t n = 1 + rng_below(&r, round % 10 ? 300 : ARRAY_SIZE(values));
        unsigned shape = round % 4;
        unsigned __int128 sum = 0;
        hist_init(&h);
        for (size_t i = 0; i < n; i++) {
            values[i] = any_value(&r, shape);
            sum += values[i];
            hist_add(&h, values[i]);
        }
        qsort(values, n, sizeof(values[0]), compare);
        check_percentiles(&h, values, n);
        assert_true(h.n == n && h.min == values[0] && h.max == values[n - 1]);
        if (sum <= UINT64_MAX)
            assert_true(hist_mean(&h) == (uint64_t)(sum / n));
        else
            assert_true(h.sum == UINT64_MAX);
    }
}

/* Every bucket's bound, seen through a percentile that the maximum does not clip. */
static void bounds_of_all_magnitudes(void **state)
{
    struct histogram h;

    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int step = -1; step <= 17; step++) {
            uint64_t v = BIT(bit) + (uint64_t)(int64_t)step * (BIT(bit) / 16);
            hist_init(&h);
            hist_add(&h, v);
            hist_add(&h, UINT64_MAX);
            uint64_t bound = hist_percentile(&h, 5000);
            CHECK_MSG(bound >= v && bound - v <= v / 16, "%llu", (unsigned long long)v);
            /* The bound is in its own bucket, and the next value is not. */
            hist_add(&h, bound);
            assert_true(hist_percentile(&h, 6600) == bound);
        }
    }
}

static void empty(void **state)
{
    struct histogram h;

    (void)state;
    hist_init(&h);
    assert_true(hist_percentile(&h, 5000) == 0);
    assert_true(hist_mean(&h) == 0);
    assert_true(h.min == UINT64_MAX && h.max == 0);
}

static void merging_equals_adding(void **state)
{
    struct rng r = test_rng(2);
    struct histogram part[3], all, merged;

    (void)state;
    hist_init(&all);
    hist_init(&merged);
    for (int i = 0; i < 3; i++)
        hist_init(&part[i]);
    for (int i = 0; i < 3000; i++) {
        uint64_t v = any_value(&r, 0) >> 16;
        hist_add(&part[rng_below(&r, 2)], v); /* the third stays empty */
        hist_add(&all, v);
    }
    for (int i = 0; i < 3; i++)
        hist_merge(&merged, &part[i]);
    assert_memory_equal(&merged, &all, sizeof(all));
}

static void counters_saturate(void **state)
{
    struct histogram h, h2;

    (void)state;
    hist_init(&h);
    hist_add(&h, 5);
    h.bucket[5] = UINT32_MAX - 1;
    h.n = UINT32_MAX - 1;
    for (int i = 0; i < 3; i++)
        hist_add(&h, 5);
    assert_int_equal(h.bucket[5], UINT32_MAX);
    assert_true(hist_percentile(&h, 10000) == 5); /* n is larger than what the buckets hold */
    h2 = h;
    hist_merge(&h2, &h);
    assert_int_equal(h2.bucket[5], UINT32_MAX);

    hist_init(&h);
    hist_add(&h, UINT64_MAX);
    hist_add(&h, UINT64_MAX);
    assert_true(h.sum == UINT64_MAX);
    /* n * per_10000 would not fit in 64 bits */
    h.n = 1ULL << 60;
    assert_true(hist_percentile(&h, 9999) == UINT64_MAX);
    /* and here it would wrap to 0, which would give the first value */
    hist_init(&h);
    hist_add(&h, 3);
    hist_add(&h, 9);
    h.n = 1ULL << 62;
    assert_true(hist_percentile(&h, 4) == 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles),
        cmocka_unit_test(bounds_of_all_magnitudes),
        cmocka_unit_test(empty),
        cmocka_unit_test(merging_equals_adding),
        cmocka_unit_test(counters_saturate),
    };
    return cmocka_run_group_tests_name("histogram", tests, NULL, NULL);
}
