/*
 * lib_assert_test.c: ASSERT evaluates once, passes silently, and stops with expression, file and
 * line. ASSERT_DBG and ASSERT_FULL do not even evaluate unless their configuration is on.
 */
#include "tests/host/testlib.h"
#include <string.h>
#include "lib/assert.h"

static int evaluated;

static int count_and_return(int v)
{
    evaluated++;
    return v;
}

static void passes_silently(void **state)
{
    (void)state;
    evaluated = 0;
    ASSERT(count_and_return(1));
    assert_int_equal(evaluated, 1);
    ASSERT(count_and_return(2) == 2 && evaluated == 2);
}

static void stops_with_the_place(void **state)
{
    (void)state;
    EXPECT_PANIC(ASSERT(evaluated < 0), "assertion failed: evaluated < 0 (");
    EXPECT_PANIC(ASSERT(!"reached"), "lib_assert_test.c:");
}

static void debug_levels_are_off_by_default(void **state)
{
    (void)state;
#if !defined(CONFIG_DEBUG) && !defined(CONFIG_DEBUG_FULL)
    evaluated = 0;
    ASSERT_DBG(count_and_return(0));
    ASSERT_FULL(count_and_return(0));
    assert_int_equal(evaluated, 0);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_silently),
        cmocka_unit_test(stops_with_the_place),
        cmocka_unit_test(debug_levels_are_off_by_default),
    };
    return cmocka_run_group_tests_name("assert", tests, NULL, NULL);
}
