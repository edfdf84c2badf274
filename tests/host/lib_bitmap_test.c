/*
 * lib_bitmap_test.c: every bitmap function against an array of bool, on random maps of every length
 * around the word size. Bits above the length are garbage, which no result may depend on, and which
 * no function may change.
 */
#include "tests/host/testlib.h"
#include <string.h>
#include "lib/bitmap.h"

#define MAX_BITS 700

struct model {
    unsigned nbits;
    bool bit[BITMAP_WORDS(MAX_BITS) * 64]; /* with those above nbits */
    uint64_t map[BITMAP_WORDS(MAX_BITS)];
};

static void same(const struct model *m)
{
    for (unsigned i = 0; i < BITMAP_WORDS(m->nbits) * 64; i++)
        CHECK_MSG(bitmap_test(m->map, i) == m->bit[i], "bit %u of %u", i, m->nbits);
}

/* Few or many set bits, in runs, so that searches cross words in both states. */
static void fill(struct model *m, struct rng *r, unsigned nbits)
{
    bool value = rng_below(r, 2);
    unsigned left = 0, mean = 1u << rng_below(r, 9);

    memset(m, 0, sizeof(*m));
    m->nbits = nbits;
    for (unsigned i = 0; i < BITMAP_WORDS(nbits) * 64; i++) {
        if (left == 0) {
            value = !value;
            left = 1 + (unsigned)rng_below(r, 2 * mean);
        }
        left--;
        m->bit[i] = value;
        if (value)
            bitmap_set_bit(m->map, i);
    }
}

static unsigned any_length(struct rng *r)
{
    static const unsigned edges[] = {1, 2, 63, 64, 65, 127, 128, 129, 511, 512, 513};

    if (rng_below(r, 2))
        return edges[rng_below(r, ARRAY_SIZE(edges))];
    return 1 + (unsigned)rng_below(r, MAX_BITS);
}

static void ranges(void **state)
{
    struct rng r = test_rng(1);

    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct model m;
        fill(&m, &r, any_length(&r));
        unsigned start = (unsigned)rng_below(&r, m.nbits + 1);
        unsigned n = (unsigned)rng_below(&r, m.nbits - start + 1);
        bool all_set = true, all_clear = true;
        for (unsigned i = start; i < start + n; i++) {
            all_set &= m.bit[i];
            all_clear &= !m.bit[i];
        }
        CHECK_MSG(bitmap_all_set(m.map, start, n) == all_set, "[%u, +%u)", start, n);
        CHECK_MSG(bitmap_all_clear(m.map, start, n) == all_clear, "[%u, +%u)", start, n);

        bool value = rng_below(&r, 2);
        (value ? bitmap_set : bitmap_clear)(m.map, start, n);
        for (unsigned i = start; i < start + n; i++)
            m.bit[i] = value;
        same(&m);
        assert_true((value ? bitmap_all_set : bitmap_all_clear)(m.map, start, n));
        if (n && m.nbits) {
            unsigned one = start + (unsigned)rng_below(&r, n);
            (value ? bitmap_clear_bit : bitmap_set_bit)(m.map, one);
            m.bit[one] = !value;
            same(&m);
            assert_false((value ? bitmap_all_set : bitmap_all_clear)(m.map, start, n));
        }
    }
}

static void single_searches(void **state)
{
    struct rng r = test_rng(2);

    (void)state;
    for (int round = 0; round < 400; round++) {
        struct model m;
        fill(&m, &r, any_length(&r));
        unsigned weight = 0, set = m.nbits, clear = m.nbits, seen = 0, bit;
        for (unsigned i = m.nbits; i-- > 0;) {
            if (m.bit[i])
                set = i;
            else
                clear = i;
            weight += m.bit[i];
            CHECK_MSG(bitmap_next_set(m.map, m.nbits, i) == set, "from %u of %u", i, m.nbits);
            CHECK_MSG(bitmap_next_clear(m.map, m.nbits, i) == clear, "from %u of %u", i, m.nbits);
        }
        assert_int_equal(bitmap_weight(m.map, m.nbits), weight);
        unsigned prev = m.nbits;
        for (unsigned i = 0; i < m.nbits; i++) {
            if (m.bit[i])
                prev = i;
            CHECK_MSG(bitmap_prev_set(m.map, m.nbits, i) == prev, "from %u of %u", i, m.nbits);
        }
        /* beyond the end */
        assert_int_equal(bitmap_next_set(m.map, m.nbits, m.nbits), m.nbits);
        assert_int_equal(bitmap_next_clear(m.map, m.nbits, m.nbits + 5), m.nbits);
        assert_int_equal(bitmap_prev_set(m.map, m.nbits, m.nbits), prev);
        assert_int_equal(bitmap_prev_set(m.map, m.nbits, UINT_MAX), prev);

        unsigned last = 0;
        bitmap_for_each_set (bit, m.map, m.nbits) {
            assert_true(m.bit[bit]);
            assert_true(seen == 0 || bit > last);
            last = bit;
            seen++;
        }
        assert_int_equal(seen, weight);
    }
}

static unsigned model_run(const struct model *m, unsigned from, unsigned n, unsigned align)
{
    for (uint64_t s = ALIGN_UP((uint64_t)from, align); s < m->nbits; s += align) {
        bool ok = s + n <= m->nbits;
        for (unsigned i = 0; ok && i < n; i++)
            ok = !m->bit[s + i];
        if (ok)
            return (unsigned)s;
    }
    return m->nbits;
}

static void clear_runs(void **state)
{
    struct rng r = test_rng(3);

    (void)state;
    for (int round = 0; round < 1000; round++) {
        struct model m;
        fill(&m, &r, any_length(&r));
        for (int i = 0; i < 20; i++) {
            unsigned from = (unsigned)rng_below(&r, m.nbits + 2);
            unsigned n = 1 + (unsigned)rng_below(&r, rng_below(&r, 2) ? 8 : m.nbits + 1);
            unsigned align = 1u << rng_below(&r, 10);
            CHECK_MSG(bitmap_find_clear_run(m.map, m.nbits, from, n, align) ==
                          model_run(&m, from, n, align),
                      "nbits %u from %u n %u align %u", m.nbits, from, n, align);
        }
    }
}

/* Sums near 2^32 must not wrap round to a run at the start. */
static void huge_arguments(void **state)
{
    uint64_t map[2] = {0, 0};

    (void)state;
    assert_int_equal(bitmap_find_clear_run(map, 128, 64, UINT_MAX, 1), 128);
    assert_int_equal(bitmap_find_clear_run(map, 128, 64, UINT_MAX - 63, 1), 128);
    assert_int_equal(bitmap_find_clear_run(map, 128, UINT_MAX, 1, 1), 128);
    assert_int_equal(bitmap_find_clear_run(map, 128, 1, 1, 1u << 31), 128);
    assert_int_equal(bitmap_find_clear_run(map, 128, 0, 1, 1u << 31), 0);
    assert_int_equal(bitmap_next_set(map, 0, 0), 0);
    assert_int_equal(bitmap_prev_set(map, 0, 0), 0);
    assert_int_equal(bitmap_weight(map, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(single_searches),
        cmocka_unit_test(clear_runs),
        cmocka_unit_test(huge_arguments),
    };
    return cmocka_run_group_tests_name("bitmap", tests, NULL, NULL);
}
