/*
 * mm_mutant_test.c: linked with one file that was deliberately broken (tests/host/mutants): the
 * driver, or the stress of the flush generations, must fail, and by a rule that the mutant's first
 * line names. In some schedules another rule may see the damage first; those are counted, and the
 * right one must come soon. A mutant that survives is a hole in the tests. The schedules are the
 * same in each run.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/string.h"
#include "tests/host/sim/driver.h"
#include "tests/host/sim/gen_stress.h"
#include "tests/host/testlib.h"

#define SCHEDULES     1500
#define GEN_SCHEDULES 60000
/* Schedules in which another rule was first, before the right one must have been. */
#define OTHERS_MAX 40
#define FIRST_SEED 0x6d6d

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
    unsigned count = generations ? GEN_SCHEDULES : SCHEDULES, others = 0;
    uint64_t first = getenv("MM_SEED") ? test_seed() : FIRST_SEED;

    (void)state;
    sim_quiet = true;
    for (unsigned i = 0; i < count; i++) {
        if (run(first + i, generations))
            continue;
        fprintf(stderr, "mutant %s: found by \"%s\" in schedule %u: %s\n", mutant_name,
                sim_rule_names[sim_failure()], i, sim_failure_text());
        if (str_in_list(mutant_rules, sim_rule_names[sim_failure()]))
            return;
        if (++others > OTHERS_MAX)
            fail_msg("%u schedules found by other rules, expected %s", others, mutant_rules);
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
