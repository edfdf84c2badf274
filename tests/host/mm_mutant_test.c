/*
 * mm_mutant_test.c: linked with one file that was deliberately broken (tests/host/mutants): the
 * driver, or the stress of the flush generations, must fail, and by a rule that the mutant's first
 * line names. A mutant that survives is a hole in the tests.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/string.h"
#include "tests/host/sim/driver.h"
#include "tests/host/sim/gen_stress.h"
#include "tests/host/testlib.h"

#define SCHEDULES     1500
#define GEN_SCHEDULES 60000

extern const char mutant_name[], mutant_file[], mutant_rules[];

static bool run(uint64_t seed, bool generations)
{
    struct driver_plan p;

    if (generations)
        return gen_stress_run(seed);
    driver_plan_for(&p, seed);
    return driver_run(&p);
}

static void test_mutant(void **state)
{
    bool generations = strstr(mutant_file, "tlb_gen.c") != NULL;
    unsigned count = generations ? GEN_SCHEDULES : SCHEDULES;

    (void)state;
    sim_quiet = true;
    for (unsigned i = 0; i < count; i++) {
        if (run(test_seed() + i, generations))
            continue;
        fprintf(stderr, "mutant %s: found by \"%s\" in schedule %u: %s\n", mutant_name,
                sim_rule_names[sim_failure()], i, sim_failure_text());
        if (!str_in_list(mutant_rules, sim_rule_names[sim_failure()]))
            fail_msg("expected %s", mutant_rules);
        return;
    }
    fail_msg("%s survived %u schedules, expected %s", mutant_name, count, mutant_rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
