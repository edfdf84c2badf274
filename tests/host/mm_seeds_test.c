/*
 * mm_seeds_test.c: the random driver by schedule: one machine, plan and interleaving per seed.
 *
 * MM_SEED=n replays the schedule n and no other. MM_SCHEDULES=n runs that many, MM_SECONDS=n as
 * many as fit, MM_CALLS=n until the API has been called that often.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lib/string.h"
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

static void run_plan(struct driver_plan *p, uint64_t seed)
{
    if (driver_run(p))
        return;
    driver_print_plan(p);
    fail_msg("replay with MM_SEED=0x%lx: %s: %s", (unsigned long)seed,
             sim_rule_names[sim_failure()], sim_failure_text());
}

static void run_one(uint64_t seed)
{
    struct driver_plan p;

    driver_plan_for(&p, seed);
    run_plan(&p, seed);
}

/* Schedules that have shown a fault. */
static void test_found(void **state)
{
    static const uint64_t found[] = {
        0x5522001e77, /* a walk over all areas: a leaf of the table that another CPU had just made
                       */
        0x662940890f564, /* vm_unmap_aliases in a handler over the free that empties a block */
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(found); i++)
        run_one(found[i]);
}

static void test_seeds(void **state)
{
    bool replay = getenv("MM_SEED") && *getenv("MM_SEED");
    uint64_t seed = test_seed(), count = replay ? 1 : env("MM_SCHEDULES", 600), done;
    uint64_t calls = replay ? 0 : env("MM_CALLS", 0);
    double begin = now(), limit = (double)env("MM_SECONDS", 0), took;

    (void)state;
    for (done = 0;; done++) {
        if (calls ? sim_stats.calls >= calls : limit > 0 ? now() - begin >= limit : done >= count)
            break;
        run_one(seed + done);
    }
    took = now() - begin;
    fprintf(stderr,
            "seeds: %lu schedules, %lu API calls (%lu operations, %lu failed, %lu bad; %lu pages "
            "verified), %lu switches, "
            "%lu interrupts, %lu stale translations, %lu flushes, %lu runs calmed; %.0f "
            "schedules/s, %.0f calls/s\n",
            (unsigned long)done, (unsigned long)sim_stats.calls,
            (unsigned long)driver_stats.operations, (unsigned long)driver_stats.failed_calls,
            (unsigned long)driver_stats.bad_calls, (unsigned long)driver_stats.verified_pages,
            (unsigned long)sim_stats.switches, (unsigned long)sim_stats.interrupts,
            (unsigned long)sim_stats.stale_made, (unsigned long)sim_stats.flushes,
            (unsigned long)sim_stats.calmed, (double)done / took, (double)sim_stats.calls / took);
}

/* What a design is with some options turned round, without its name. */
static const char *options_of(unsigned design, uint32_t mix)
{
    static char text[300];
    struct vmap_config c;
    char msg[128];

    if (!vmap_config_for(&c, design, msg, sizeof(msg)))
        fail_msg("%s", msg);
    sim_mix(&c, mix);
    vmap_config_print(&c, text, sizeof(text));
    /* Behind "design=NAME". */
    return text + strlen("design=") + strlen(vmap_design_names[design]);
}

/* Every design, and every combination of options that is not refused, once. */
static void test_combinations(void **state)
{
    static char seen[DESIGNS << SIM_MIXES][300];
    unsigned n = 0;

    (void)state;
    for (uint32_t i = 0; i < DESIGNS << SIM_MIXES; i++) {
        unsigned design = i % DESIGNS, k = 0;
        struct driver_plan p;

        snprintf(seen[n], sizeof(seen[n]), "%s", options_of(design, i / DESIGNS));
        while (strcmp(seen[k], seen[n]) != 0)
            k++;
        if (k < n)
            continue;
        n++;
        driver_plan_for(&p, test_seed() + i);
        p.boot.design = design;
        p.boot.mix = i / DESIGNS;
        if (design == DESIGN_2010 || design == DESIGN_2023)
            p.boot.nodes = 1;
        run_plan(&p, test_seed()); /* the first combination's seed repeats all */
    }
    fprintf(stderr, "seeds: %u combinations of options\n", n);
    assert_true(n >= 200);
}

/* The same seed gives the same run, whatever ran before. */
static void test_replay(void **state)
{
    uint64_t first[12];

    (void)state;
    for (unsigned i = 0; i < 2 * ARRAY_SIZE(first); i++) {
        unsigned k = i < ARRAY_SIZE(first) ? i : 2 * ARRAY_SIZE(first) - 1 - i;
        uint64_t trail;

        run_one(test_seed() + k);
        trail = sim_trail();
        if (i < ARRAY_SIZE(first))
            first[k] = trail;
        else if (trail != first[k])
            fail_msg("seed 0x%lx ran differently the second time",
                     (unsigned long)(test_seed() + k));
    }
}

/* lock=rw, and everybody short of addresses: who purges must not stand in the lock's queue behind
 * one whose handler waits for that purge. */
static void test_rw_queue(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        struct driver_plan p;

        driver_plan_for(&p, test_seed() + i);
        p.machine.cpus = 8;
        p.machine.ram = 12 * SZ_1M;
        p.machine.frames_safe = false;
        p.machine.hang_steps = 200000;
        p.boot = (struct sim_boot){.design = i % 2 ? DESIGN_2010 : DESIGN_2024,
                                   .range_size = 16 * SZ_1M,
                                   .nodes = 1,
                                   .lazy_max = 16,
                                   .no_pools = true,
                                   .mix = 1u << SIM_MIX_LOCK};
        p.ops = 80;
        p.storm = 400;
        p.nmis = 0;
        p.inject = false;
        if (driver_run(&p))
            continue;
        driver_print_plan(&p);
        fail_msg("MM_SEED=0x%lx: %s: %s", (unsigned long)p.machine.seed,
                 sim_rule_names[sim_failure()], sim_failure_text());
    }
}

/* Faults of the machine itself, each of which the driver must notice in a few schedules. */
static void test_machine_faults(void **state)
{
    static const struct {
        enum sim_mutation mutation;
        const char *rules;
    } cases[] = {
        {SIM_MUTATE_SKIP_CPU, "flush-cover,address-reuse,table-reuse,frame-owner-stale,hang"},
        {SIM_MUTATE_SHORT, "flush-cover,address-reuse,table-reuse,frame-owner-stale"},
        {SIM_MUTATE_LOCAL, "flush-cover,address-reuse,table-reuse,frame-owner-stale"},
        {SIM_MUTATE_NO_FULL, "flush-cover,address-reuse,table-reuse,frame-owner-stale"},
        {SIM_MUTATE_GLOBAL, "global-entry"},
        {SIM_MUTATE_WX, "write-execute"},
        {SIM_MUTATE_LOST_CLEAR, "overwrite,mapped-free,panic,test"},
    };

    (void)state;
    sim_quiet = true;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned tries = 0;
        struct driver_plan p;

        do {
            driver_plan_for(&p, test_seed() + tries);
            p.machine.mutation = cases[i].mutation;
        } while (driver_run(&p) && ++tries < 100);
        if (tries == 100 || !str_in_list(cases[i].rules, sim_rule_names[sim_failure()]))
            fail_msg("fault %u: found \"%s\" (%s) after %u schedules, expected %s",
                     cases[i].mutation, sim_rule_names[sim_failure()], sim_failure_text(), tries,
                     cases[i].rules);
    }
    sim_quiet = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_combinations), cmocka_unit_test(test_replay),
        cmocka_unit_test(test_rw_queue),     cmocka_unit_test(test_machine_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
