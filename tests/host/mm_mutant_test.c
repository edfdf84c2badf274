/*
 * mm_mutant_test.c: linked with one file that was deliberately broken (tests/host/mutants): the
 * driver, or the stress that the file has for itself, must fail, and by a rule that the mutant's
 * first line names. In some schedules another rule may see the damage first; those are counted, and
 * the right one must come soon. A mutant that survives is a hole in the tests. The schedules are
 * the same in each run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/string.h"
#include "tests/host/sim/driver.h"
#include "tests/host/sim/gen_stress.h"
#include "tests/host/sim/remote_stress.h"
#include "tests/host/testlib.h"

#define SCHEDULES     1500
#define GEN_SCHEDULES 60000
#define END_SCHEDULES 20000
/* Schedules in which another rule was first, before the right one must have been. */
#define OTHERS_MAX 40
#define FIRST_SEED 0x6d6d

extern const char mutant_name[], mutant_file[], mutant_rules[];

static bool in_file(const char *name)
{
    return strstr(mutant_file, name) != NULL;
}

/* A block that is used after its end has no rule of its own: a sanitizer meets its poison. */
void __sanitizer_set_death_callback(void (*callback)(void)) __weak;

static void crashed(void)
{
    fprintf(stderr, "mutant %s: found by a crash\n", mutant_name);
    _exit(0);
}

static bool run(uint64_t seed)
{
    struct driver_plan p;

    if (in_file("tlb_gen.c"))
        return seed % 7 ? gen_stress_run(seed) : gen_wait_run(seed);
    if (str_in_list(mutant_rules, "crash"))
        return remote_stress_run(seed);
    driver_plan_for(&p, seed);
    return driver_run(&p);
}

static void test_mutant(void **state)
{
    bool crash = str_in_list(mutant_rules, "crash");
    unsigned count = in_file("tlb_gen.c") ? GEN_SCHEDULES : crash ? END_SCHEDULES : SCHEDULES;
    unsigned others = 0;
    uint64_t first = getenv("MM_SEED") ? test_seed() : FIRST_SEED;

    (void)state;
    sim_quiet = true;
    if (crash && __sanitizer_set_death_callback)
        __sanitizer_set_death_callback(crashed);
    for (unsigned i = 0; i < count; i++) {
        if (run(first + i))
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
