/*
 * lib_base_test.c: the arithmetic macros at their edges, above all at 2^64, where addresses live.
 */
#include "tests/host/testlib.h"

static void aligning(void **state)
{
    (void)state;
    assert_int_equal(ALIGN_UP(0, 4096), 0);
    assert_int_equal(ALIGN_UP(1, 4096), 4096);
    assert_int_equal(ALIGN_UP(4096, 4096), 4096);
    assert_int_equal(ALIGN_DOWN(4095, 4096), 0);
    /* A narrow alignment must not cut a wide value. */
    assert_true(ALIGN_DOWN(0xffffc90000001234ULL, 4096u) == 0xffffc90000001000ULL);
    assert_true(ALIGN_UP(0xffffc90000001234ULL, 4096) == 0xffffc90000002000ULL);
    assert_true(IS_ALIGNED(0xffffc90000200000ULL, SZ_2M));
    assert_false(IS_ALIGNED(0xffffc90000201000ULL, SZ_2M));
}

static void powers_and_divisions(void **state)
{
    (void)state;
    assert_false(IS_POWER_OF_2(0ULL));
    assert_true(IS_POWER_OF_2(1ULL));
    assert_true(IS_POWER_OF_2(1ULL << 63));
    assert_false(IS_POWER_OF_2((1ULL << 63) + 1));
    assert_int_equal(DIV_ROUND_UP(0, 8), 0);
    assert_int_equal(DIV_ROUND_UP(1, 8), 1);
    assert_int_equal(DIV_ROUND_UP(8, 8), 1);
    assert_true(BIT(63) == 0x8000000000000000ULL);
}

static void highest_bit(void **state)
{
    (void)state;
    assert_int_equal(fls64(0), 0);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(fls64(BIT(i)), i + 1);
        assert_int_equal(fls64(BIT(i) | 1), i + 1);
        assert_int_equal(fls64(BIT(i) | (BIT(i) - 1)), i + 1);
    }
}

static void min_max_evaluate_once(void **state)
{
    int a = 1, b = 5;

    (void)state;
    assert_int_equal(MIN(a++, b++), 1);
    assert_int_equal(a, 2);
    assert_int_equal(b, 6);
    assert_int_equal(MAX(MIN(a, b), 3), 3);
    assert_true(MAX(-1, 0) == 0);
}

static void container(void **state)
{
    struct outer {
        int before;
        int member;
    } o;

    (void)state;
    assert_ptr_equal(CONTAINER_OF(&o.member, struct outer, member), &o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligning),    cmocka_unit_test(powers_and_divisions),
        cmocka_unit_test(highest_bit), cmocka_unit_test(min_max_evaluate_once),
        cmocka_unit_test(container),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
