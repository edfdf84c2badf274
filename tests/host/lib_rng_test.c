/*
 * lib_rng_test.c: the generator gives the published sequence, its ranges hold their ends, and it is
 * even enough for the tests that use it.
 */
#include "tests/host/testlib.h"
#include "lib/rng.h"

/* From the state {1, 2, 3, 4}, as the reference implementation prints it. */
static void reference_sequence(void **state)
{
    static const uint64_t expected[] = {
        11520,
        0,
        1509978240,
        1215971899390074240,
        1216172134540287360,
        607988272756665600,
        16172922978634559625u,
        8476171486693032832,
        10595114339597558777u,
        2904607092377533576,
    };
    struct rng r = {{1, 2, 3, 4}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(expected); i++)
        assert_true(rng_next(&r) == expected[i]);
}

/* splitmix64 from 1234567: its first four outputs are the state. */
static void reference_seeding(void **state)
{
    struct rng r;

    (void)state;
    rng_seed(&r, 1234567);
    assert_true(r.s[0] == 6457827717110365317u);
    assert_true(r.s[1] == 3203168211198807973u);
    assert_true(r.s[2] == 9817491932198370423u);
    assert_true(r.s[3] == 4593380528125082431u);
    rng_seed(&r, 0);
    assert_true(r.s[0] | r.s[1] | r.s[2] | r.s[3]);
}

static void ranges(void **state)
{
    struct rng r = test_rng(1);

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t n = (rng_next(&r) >> rng_below(&r, 64)) | 1;
        assert_true(rng_below(&r, n) < n);
        uint64_t lo = rng_next(&r) >> rng_below(&r, 64), hi = lo + rng_below(&r, UINT64_MAX - lo);
        uint64_t v = rng_range(&r, lo, hi);
        assert_true(v >= lo && v <= hi);
    }
    assert_true(rng_below(&r, 1) == 0);
    assert_true(rng_range(&r, 7, 7) == 7);
    assert_true(rng_range(&r, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    /* All of 64 bits: the span does not fit, and both halves must come up. */
    bool low = false, high = false;
    for (int i = 0; i < 200; i++) {
        uint64_t v = rng_range(&r, 0, UINT64_MAX);
        low |= v < BIT(63);
        high |= v >= BIT(63);
    }
    assert_true(low && high);
}

/* Ten cells, 100000 draws: each within 5 % (more than five standard deviations) of its share. */
static void even(void **state)
{
    struct rng r = test_rng(2);
    unsigned cell[10] = {0};

    (void)state;
    for (int i = 0; i < 100000; i++)
        cell[rng_range(&r, 5, 14) - 5]++;
    for (int i = 0; i < 10; i++)
        assert_in_range(cell[i], 9500, 10500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_sequence),
        cmocka_unit_test(reference_seeding),
        cmocka_unit_test(ranges),
        cmocka_unit_test(even),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
