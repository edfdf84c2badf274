/*
 * mm_remote_test.c: how blocks of the default design end (mm/vmap_pcpu.c), and the purge's mutex,
 * on the simulated machine. MM_SEED=n replays one schedule; MM_SCHEDULES=n runs that many.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/host/sim/remote_stress.h"
#include "tests/host/testlib.h"

static void test_remote(void **state)
{
    const char *replay = getenv("MM_SEED"), *n = getenv("MM_SCHEDULES");
    unsigned count = replay && *replay ? 1 : n && *n ? (unsigned)atoi(n) : 500;

    (void)state;
    for (unsigned i = 0; i < count; i++)
        if (!remote_stress_run(test_seed() + i))
            fail_msg("replay with MM_SEED=0x%lx: %s: %s", (unsigned long)(test_seed() + i),
                     sim_rule_names[sim_failure()], sim_failure_text());
    fprintf(stderr, "remote frees: %u schedules, %lu switches, %lu API calls, %lu interrupts\n",
            count, (unsigned long)sim_stats.switches, (unsigned long)sim_stats.calls,
            (unsigned long)sim_stats.interrupts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remote),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
