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

static void test_free_running(void **state)
{
    const char *n = getenv("MM_SCHEDULES");
    unsigned runs = n && *n ? (unsigned)atoi(n) : 40;

    (void)state;
    for (unsigned i = 0; i < runs; i++) {
        struct driver_plan p;

        driver_plan_for(&p, test_seed() + i);
        p.machine.free_running = true;
        p.machine.no_oracle = UNDER_TSAN;
        if (p.machine.cpus < 3)
            p.machine.cpus += 2;
        p.ops *= 4;
        if (!driver_run(&p)) {
            driver_print_plan(&p);
            fail_msg("%s: %s", sim_rule_names[sim_failure()], sim_failure_text());
        }
    }
    fprintf(stderr, "free: %u runs, %lu API calls (%lu operations), %lu interrupts, oracle %s\n",
            runs, (unsigned long)sim_stats.calls, (unsigned long)driver_stats.operations,
            (unsigned long)sim_stats.interrupts, UNDER_TSAN ? "off" : "on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_running),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
