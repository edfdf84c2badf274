/*
 * mm_gen_test.c: flush generations (arch/x86_64/tlb_gen.c) on the simulated machine, by thousands
 * of schedules. MM_SEED=n replays one; MM_SCHEDULES=n runs that many.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/host/sim/gen_stress.h"
#include "tests/host/testlib.h"

#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/smp.h>
#include <arch/tlb_gen.h>

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

static uint32_t runs, ended;

/* CPU 1 never calls. A timer that is due before the time-out does not take its place. */
static void wait_in_vain(void *arg)
{
    (void)arg;
    if (this_cpu_id() == 1) {
        STORE_RELEASE(runs, 1);
        while (!LOAD_ACQUIRE(ended))
            cpu_relax();
        return;
    }
    while (!LOAD_ACQUIRE(runs))
        cpu_relax();
    timer_ensure(10);
    SIM_CHECK(!tlb_gen_wait(tlb_gen_stamp(), 1000), "CPU 1 has flushed");
    STORE_RELEASE(ended, 1);
}

static void test_wait_in_vain(void **state)
{
    (void)state;
    runs = ended = 0;
    sim_machine(&(struct sim_options){
        .seed = 1, .ram = 16 * SZ_1M, .cpus = 2, .turns = true, .hang_steps = 20000});
    if (!sim_run(2, wait_in_vain, NULL))
        fail_msg("%s: %s", sim_rule_names[sim_failure()], sim_failure_text());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_wait_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
