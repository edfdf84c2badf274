/*
 * mm_machine_test.c: the simulated machine by itself: halted CPUs, faults planted in the machine,
 * locks, accesses, and the scheduler, whose runs must repeat.
 */
#include "tests/host/mm_oracle_lib.h"

/* ---- halted CPUs ---- */

static uint32_t wake, arrived;

static void halt_until_woken(void)
{
    unsigned long flags = irq_save();

    __atomic_store_n(&arrived, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&wake, __ATOMIC_ACQUIRE))
        cpu_idle_wait();
    irq_restore(flags);
}

static void wait_for_halt(void)
{
    while (!__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) ||
           !__atomic_load_n(&per_cpu_ptr(&tlb_gen_cpu, 1)->idle, __ATOMIC_ACQUIRE))
        cpu_relax();
}

/* CPU 1 is halted while CPU 0 reuses an address; arg: after a generation that CPU 0 alone has
 * flushed. */
static void reuse_while_halted(void *arg)
{
    if (this_cpu_id() == 1) {
        halt_until_woken();
        return;
    }
    wait_for_halt();
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    if (arg)
        tlb_gen_sync(tlb_gen_stamp());
    else
        tlb_flush_local_all();
    map_page(VA, FRAME_B, PAGE_KERNEL);
    __atomic_store_n(&wake, 1, __ATOMIC_RELEASE);
    smp_wake(1);
}
static void table_while_halted(void *arg)
{
    uint64_t table;

    if (this_cpu_id() == 1) {
        halt_until_woken();
        return;
    }
    wait_for_halt();
    oracle_frames_taken(TABLES, 8);
    entry_of(VA, 1);
    table = table_of(VA);
    pte_write(entry_of(VA, 2), 0);
    tlb_gen_sync(tlb_gen_stamp());
    if (arg)
        while (!tlb_gen_passed_all(tlb_gen_stamp() - 1)) {
            tlb_gen_kick(tlb_gen_stamp() - 1, true);
            cpu_relax();
        }
    oracle_frames_freed(table, 1);
    __atomic_store_n(&wake, 1, __ATOMIC_RELEASE);
    smp_wake(1);
}

static enum sim_rule run_halted(void (*fn)(void *), void *arg, enum sim_mutation mutation,
                                uint64_t seed)
{
    sim_machine(
        &(struct sim_options){.seed = seed, .ram = 16 * SZ_1M, .cpus = 2, .mutation = mutation});
    tables_used = 0;
    wake = arrived = 0;
    sim_quiet = true;
    sim_run(2, fn, arg);
    sim_quiet = false;
    return sim_failure();
}

/* A halted CPU may hold what is reused if it flushes before it goes on; tables must wait for it. */
static void test_halted(void **state)
{
    int flag = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        assert_int_equal(run_halted(reuse_while_halted, &flag, SIM_MUTATE_NONE, seed), SIM_OK);
        assert_int_equal(run_halted(reuse_while_halted, NULL, SIM_MUTATE_NONE, seed), SIM_REUSE);
        assert_int_equal(run_halted(reuse_while_halted, &flag, SIM_MUTATE_NO_FULL, seed),
                         SIM_REUSE);
        assert_int_equal(run_halted(table_while_halted, NULL, SIM_MUTATE_NONE, seed), SIM_TABLE);
        assert_int_equal(run_halted(table_while_halted, &flag, SIM_MUTATE_NONE, seed), SIM_OK);
    }
}

/* ---- faults of the machine itself ---- */

static void use_cycle(void *arg)
{
    struct oracle_promise p;

    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < 3; i++)
            map_page(VA + i * PAGE_SIZE, FRAME_A + round + i, PAGE_KERNEL);
        for (unsigned i = 0; i < 3; i++)
            unmap_page(VA + i * PAGE_SIZE);
        oracle_aliases_begin(&p);
        if (arg)
            tlb_shootdown_all();
        else
            tlb_shootdown_range(VA, VA + 3 * PAGE_SIZE);
        oracle_aliases_end(&p);
    }
}

static void test_machine_mutations(void **state)
{
    static const struct {
        enum sim_mutation mutation;
        bool full;
        enum sim_rule rule;
    } cases[] = {
        {SIM_MUTATE_NONE, false, SIM_OK},        {SIM_MUTATE_NONE, true, SIM_OK},
        {SIM_MUTATE_SKIP_CPU, false, SIM_COVER}, {SIM_MUTATE_SKIP_CPU, true, SIM_COVER},
        {SIM_MUTATE_LOCAL, false, SIM_COVER},    {SIM_MUTATE_SHORT, false, SIM_COVER},
        {SIM_MUTATE_NO_FULL, true, SIM_COVER},   {SIM_MUTATE_GLOBAL, false, SIM_GLOBAL},
        {SIM_MUTATE_WX, false, SIM_WX},          {SIM_MUTATE_LOST_CLEAR, false, SIM_OVERWRITE},
    };
    int flag = 0;

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        sim_machine(&(struct sim_options){
            .seed = i, .ram = 16 * SZ_1M, .cpus = 4, .mutation = cases[i].mutation});
        tables_used = 0;
        run_quietly(use_cycle, cases[i].full ? &flag : NULL);
        if (sim_failure() != cases[i].rule)
            fail_msg("mutation %u: found \"%s\" (%s), expected \"%s\"", cases[i].mutation,
                     sim_rule_names[sim_failure()], sim_failure_text(),
                     sim_rule_names[cases[i].rule]);
    }
}

/* ---- locks ---- */

static struct lock_class class_a = {.name = "a"}, class_b = {.name = "b"};
static struct spinlock lock_a, lock_b;

static void shootdown_locked(void *arg)
{
    spin_lock(&lock_a);
    tlb_shootdown_all();
    (void)arg;
}
static void lock_order(void *arg)
{
    spin_lock(&lock_a);
    spin_lock(&lock_b);
    spin_unlock(&lock_a);
    spin_unlock(&lock_b);
    spin_lock(&lock_b);
    spin_lock(&lock_a);
    (void)arg;
}
static void lock_twice(void *arg)
{
    spin_lock(&lock_a);
    spin_lock(&lock_a);
    (void)arg;
}
static void lock_left(void *arg)
{
    spin_lock(&lock_a);
    (void)arg;
}
static void lock_not_mine(void *arg)
{
    spin_unlock(&lock_a);
    (void)arg;
}
static void take_a(void *arg)
{
    spin_lock(&lock_a);
    spin_unlock(&lock_a);
    (void)arg;
}
static void lock_in_handler(void *arg)
{
    take_a(arg);
    smp_interrupt(this_cpu_id(), take_a, NULL);
    sim_point();
}
static void lock_waits_for_nobody(void *arg)
{
    (void)arg;
    if (this_cpu_id() == 0) {
        spin_lock(&lock_a);
        spin_lock(&lock_b);
    } else {
        spin_lock(&lock_b);
    }
    for (;;)
        cpu_relax();
}
static void irqs_off_storm(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 20; i++) {
        unsigned long flags = spin_lock_irqsave(&lock_a);

        irq_restore(0);
        spin_unlock(&lock_a);
        tlb_shootdown_all(); /* interrupts are off on all CPUs: they must answer each other */
        irq_restore(flags);
    }
}

static void locks_fresh(unsigned cpus)
{
    machine(cpus, SIM_CACHE_WORST);
    spin_init(&lock_a, &class_a);
    spin_init(&lock_b, &class_b);
}

static void test_locks(void **state)
{
    static const struct {
        void (*fn)(void *);
        enum sim_rule rule;
    } cases[] = {
        {shootdown_locked, SIM_LOCK_HELD}, {lock_order, SIM_LOCK_ORDER},
        {lock_twice, SIM_LOCK_ORDER},      {lock_left, SIM_CONTEXT},
        {lock_not_mine, SIM_LOCK_ORDER},   {take_a, SIM_OK},
        {lock_in_handler, SIM_LOCK_IRQ},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        locks_fresh(1);
        expect(cases[i].rule, cases[i].fn);
    }
    sim_machine(
        &(struct sim_options){.seed = 1, .ram = 16 * SZ_1M, .cpus = 2, .hang_steps = 10000});
    spin_init(&lock_a, &class_a);
    spin_init(&lock_b, &class_b);
    sim_quiet = true;
    assert_false(sim_run(2, lock_waits_for_nobody, NULL));
    sim_quiet = false;
    assert_int_equal(sim_failure(), SIM_HANG);
    locks_fresh(8);
    assert_true(sim_run(8, irqs_off_storm, NULL));
}

/* ---- accesses ---- */

static void accesses(void *arg)
{
    uint64_t v = 0;

    (void)arg;
    map_page(VA, FRAME_A, PAGE_KERNEL);
    map_page(VA + PAGE_SIZE, FRAME_B, PAGE_KERNEL_RO);
    SIM_CHECK(sim_write8(VA + 8, 42), "write failed");
    SIM_CHECK(((uint64_t *)phys_to_virt(FRAME_A << PAGE_SHIFT))[1] == 42, "written elsewhere");
    SIM_CHECK(sim_read8(VA + 8, &v) && v == 42, "read %lu", (unsigned long)v);
    SIM_CHECK(!sim_write8(VA + PAGE_SIZE, 1), "a read-only page was written");
    SIM_CHECK(sim_read8(VA + PAGE_SIZE, &v), "a read-only page was not read");
    SIM_CHECK(!sim_read8(VA + 2 * PAGE_SIZE, &v), "a hole was read");
    SIM_CHECK(!sim_read8(VA + SZ_512G, &v), "a hole without tables was read");
    SIM_CHECK(!sim_stale_here(VA, PAGE_SIZE), "stale while mapped");
    unmap_page(VA);
    SIM_CHECK(sim_stale_here(VA, PAGE_SIZE) && sim_stale_count() == 1, "not stale");
    tlb_flush_local_range(VA, VA + PAGE_SIZE);
    SIM_CHECK(!sim_stale_here(VA, PAGE_SIZE) && sim_stale_count() == 1,
              "stale after the flush here");
    SIM_CHECK(!sim_read8(VA, &v), "an unmapped page was read");
    tlb_shootdown_range(VA, VA + PAGE_SIZE);
    SIM_CHECK(sim_stale_count() == 0, "stale after the shootdown");
}
static void access_stale(void *arg)
{
    uint64_t v;

    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    sim_read8(VA, &v);
    (void)arg;
}

static void test_accesses(void **state)
{
    (void)state;
    expect_fresh(SIM_OK, accesses);
    expect_fresh(SIM_STALE_ACCESS, access_stale);
}

/* ---- the scheduler ---- */

static uint64_t trail;

static void leave_trail(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 100; i++) {
        sim_point();
        trail = trail * 31 + this_cpu_id() + 1;
    }
}

/* The same seed gives the same interleaving, different seeds different ones. */
static void test_replay(void **state)
{
    uint64_t first[50];
    unsigned different = 0;

    (void)state;
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < ARRAY_SIZE(first); i++) {
            sim_machine(&(struct sim_options){.seed = i, .ram = 16 * SZ_1M, .cpus = 5});
            trail = 0;
            assert_true(sim_run(5, leave_trail, NULL));
            if (pass == 0)
                first[i] = trail;
            else
                assert_int_equal(first[i], trail);
            different += pass == 0 && i > 0 && first[i] != first[i - 1];
        }
    assert_in_range(different, 40, 49);
}

static uint32_t interrupts[8];

static void count_interrupt(void *arg)
{
    SIM_CHECK(in_irq() && !irqs_enabled(), "a handler with interrupts on");
    interrupts[this_cpu_id()]++;
    (void)arg;
}
static void send_interrupts(void *arg)
{
    unsigned next = (this_cpu_id() + 1) % 8;

    (void)arg;
    for (unsigned i = 0; i < 100; i++)
        while (!smp_interrupt(next, count_interrupt, NULL))
            cpu_relax();
}

static void test_interrupts(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        sim_machine(&(struct sim_options){
            .seed = seed, .ram = 16 * SZ_1M, .cpus = 8, .free_running = seed % 2});
        memset(interrupts, 0, sizeof(interrupts));
        assert_true(sim_run(8, send_interrupts, NULL));
        for (unsigned i = 0; i < 8; i++)
            assert_int_equal(interrupts[i], 100);
    }
}

/* ---- storms that leave no time ---- */

static uint32_t handled;

static void long_handler(void)
{
    for (unsigned i = 0; i < 1000; i++)
        (void)READ_ONCE(handled);
    ATOMIC_ADD(handled, 1);
}
static void short_task(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 20000; i++)
        (void)READ_ONCE(handled);
}

static void test_calm(void **state)
{
    static const uint64_t limits[] = {0, 1000};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(limits); i++) {
        uint64_t calmed = sim_stats.calmed;

        sim_machine(&(struct sim_options){
            .seed = 1, .ram = 16 * SZ_1M, .cpus = 2, .storm_steps = limits[i]});
        handled = 0;
        sim_irq_storm(long_handler, 20);
        assert_true(sim_run(2, short_task, NULL));
        sim_irq_storm(NULL, 0);
        assert_int_equal(sim_stats.calmed - calmed, limits[i] != 0);
        assert_true(limits[i] ? handled > 0 && handled < 1000 : handled > 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halted), cmocka_unit_test(test_machine_mutations),
        cmocka_unit_test(test_locks),  cmocka_unit_test(test_accesses),
        cmocka_unit_test(test_replay), cmocka_unit_test(test_interrupts),
        cmocka_unit_test(test_calm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
