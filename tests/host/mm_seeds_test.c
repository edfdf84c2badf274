/*
 * mm_seeds_test.c: the random driver by schedule: one machine, plan and interleaving per seed.
 *
 * MM_SEED=n replays the schedule n and no other. MM_SCHEDULES=n runs that many, MM_SECONDS=n as many as fit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/host/sim/driver.h"
#include "tests/host/testlib.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t env(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);

    return s && *s ? strtoull(s, NULL, 0) : otherwise;
}

static void run_one(uint64_t seed)
{
    struct driver_plan p;

    driver_plan_for(&p, seed);
    if (driver_run(&p))
        return;
    driver_print_plan(&p);
    fprintf(stderr, "replay: MM_SEED=0x%lx\n", (unsigned long)seed);
    fail_msg("seed 0x%lx: %s: %s", (unsigned long)seed, sim_rule_names[sim_failure()], sim_failure_text());
}

static void test_seeds(void **state)
{
    bool replay = getenv("MM_SEED") && *getenv("MM_SEED");
    uint64_t seed = test_seed(), count = replay ? 1 : env("MM_SCHEDULES", 1000), done;
    double begin = now(), limit = (double)env("MM_SECONDS", 0), took;

    (void)state;
    for (done = 0; limit > 0 ? now() - begin < limit : done < count; done++)
        run_one(seed + done);
    took = now() - begin;
    fprintf(stderr,
            "seeds: %lu schedules, %lu API calls (%lu operations, %lu failed, %lu bad; %lu pages verified), %lu switches, "
            "%lu interrupts, %lu stale translations, %lu flushes; %.0f schedules/s, %.0f calls/s\n",
            (unsigned long)done, (unsigned long)sim_stats.calls, (unsigned long)driver_stats.operations, (unsigned long)driver_stats.failed_calls,
            (unsigned long)driver_stats.bad_calls, (unsigned long)driver_stats.verified_pages,
            (unsigned long)sim_stats.switches, (unsigned long)sim_stats.interrupts, (unsigned long)sim_stats.stale_made,
            (unsigned long)sim_stats.flushes, (double)done / took, (double)sim_stats.calls / took);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
