/*
 * mm_mutant_test.c: linked with one file of mm/ that was deliberately broken (tests/host/mutants): the driver must fail, and
 * by a rule that the mutant's first line names. A mutant that survives is a hole in the tests.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/string.h"
#include "tests/host/sim/driver.h"
#include "tests/host/testlib.h"

#define SCHEDULES 600

extern const char mutant_name[], mutant_rules[];

static void test_mutant(void **state)
{
    struct driver_plan p;

    (void)state;
    sim_quiet = true;
    for (unsigned i = 0; i < SCHEDULES; i++) {
        driver_plan_for(&p, test_seed() + i);
        if (driver_run(&p))
            continue;
        fprintf(stderr, "mutant %s: found by \"%s\" in schedule %u: %s\n", mutant_name, sim_rule_names[sim_failure()], i,
                sim_failure_text());
        if (!str_in_list(mutant_rules, sim_rule_names[sim_failure()]))
            fail_msg("expected %s", mutant_rules);
        return;
    }
    fail_msg("%s survived %u schedules, expected %s", mutant_name, SCHEDULES, mutant_rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
