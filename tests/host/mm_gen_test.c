/*
 * mm_gen_test.c: flush generations (arch/x86_64/tlb_gen.c) on the simulated machine, by thousands
 * of schedules. MM_SEED=n replays one; MM_SCHEDULES=n runs that many.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/host/sim/gen_stress.h"
#include "tests/host/testlib.h"

static void test_generations(void **state)
{
    const char *replay = getenv("MM_SEED"), *n = getenv("MM_SCHEDULES");
    unsigned count = replay && *replay ? 1 : n && *n ? (unsigned)atoi(n) : 4000;

    (void)state;
    for (unsigned i = 0; i < count; i++)
        if (!gen_stress_run(test_seed() + i) || (i % 4 == 0 && !gen_wait_run(test_seed() + i)))
            fail_msg("replay with MM_SEED=0x%lx: %s: %s", (unsigned long)(test_seed() + i),
                     sim_rule_names[sim_failure()], sim_failure_text());
    fprintf(stderr, "generations: %u schedules, %lu switches, %lu entries written, %lu flushes\n",
            count, (unsigned long)sim_stats.switches, (unsigned long)sim_stats.pte_writes,
            (unsigned long)sim_stats.flushes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
