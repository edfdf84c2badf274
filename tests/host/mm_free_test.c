/*
 * mm_free_test.c: the random driver with a thread per CPU, all running at once: for ThreadSanitizer
 * (then without the oracle, whose lock would order everything), and elsewhere with the oracle, for
 * what no schedule of marked points shows. The seed fixes the operations, not the interleaving.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/host/sim/driver.h"
#include "tests/host/testlib.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN true
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN false
#endif

/* The seed's plan, for CPUs that run at once. */
static void run_free(uint64_t seed, unsigned cpus_min, bool brief)
{
    struct driver_plan p;

    driver_plan_for(&p, seed);
    p.machine.free_running = true;
    p.machine.no_oracle = UNDER_TSAN;
    p.machine.cpus = MAX(p.machine.cpus, cpus_min);
    p.ops = brief ? 1 + p.ops % 4 : 4 * p.ops;
    if (!driver_run(&p)) {
        driver_print_plan(&p);
        fail_msg("%s: %s", sim_rule_names[sim_failure()], sim_failure_text());
    }
}

static unsigned schedules(unsigned otherwise)
{
    const char *n = getenv("MM_SCHEDULES");

    return n && *n ? (unsigned)atoi(n) : otherwise;
}

static void test_free_running(void **state)
{
    unsigned runs = schedules(40);

    (void)state;
    for (unsigned i = 0; i < runs; i++)
        run_free(test_seed() + i, 3, false);
}

/* What is made when first needed is made by several at once only at the start. */
static void test_first_uses(void **state)
{
    unsigned runs = schedules(UNDER_TSAN ? 100 : 30);

    (void)state;
    for (unsigned i = 0; i < runs; i++)
        run_free(test_seed() + i, 8, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_running),
        cmocka_unit_test(test_first_uses),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    fprintf(stderr, "free: %lu runs, %lu API calls (%lu operations), %lu interrupts, oracle %s\n",
            (unsigned long)sim_stats.schedules, (unsigned long)sim_stats.calls,
            (unsigned long)driver_stats.operations, (unsigned long)sim_stats.interrupts,
            UNDER_TSAN ? "off" : "on");
    return failed;
}
