/*
 * mm_oracle_test.c: the oracle by itself: entries are written here, one rule at a time: what breaks
 * it is found and named, and what comes close without breaking it is not.
 */
#include <string.h>

#include "tests/host/sim/sim.h"
#include "tests/host/testlib.h"
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/spinlock.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>

/* The functions behind the hooks, called here as the page allocator's callers would cause them. */
#include "tests/host/sim/internal.h"

#define VA      (VMAP_BASE + 64 * PMD_SIZE)
#define FRAME_A 1000UL
#define FRAME_B 1001UL
#define FRAME_L 1024UL /* first of 512, aligned */
#define TABLES  2000UL /* frames used as tables */

static unsigned tables_used;

static void machine(unsigned cpus, enum sim_caching caching)
{
    sim_machine(&(struct sim_options){
        .seed = test_seed(), .ram = 16 * SZ_1M, .cpus = cpus, .caching = caching});
    tables_used = 0;
}

static pte_t *entry_of(uintptr_t va, unsigned level)
{
    pte_t *table = kernel_pml4();

    for (unsigned l = 4; l > level; l--) {
        pte_t *e = &table[pte_index(va, l)];

        if (!pte_present(pte_read(e))) {
            phys_addr_t pa = (TABLES + tables_used++) << PAGE_SHIFT;

            memset(phys_to_virt(pa), 0, PAGE_SIZE);
            pte_write(e, pa | PTE_TABLE);
        }
        table = pte_table(pte_read(e));
    }
    return &table[pte_index(va, level)];
}

static void map_page(uintptr_t va, uint64_t frame, pgprot_t prot)
{
    pte_write(entry_of(va, 1), frame << PAGE_SHIFT | prot);
}

static void unmap_page(uintptr_t va)
{
    pte_write(entry_of(va, 1), 0);
}

struct job {
    void (*fn)(void *);
    void *arg;
    uint32_t arrived, done;
};

/* CPU 0 works, the others wait for it and answer: halted ones would be another case. */
static void work_or_wait(void *arg)
{
    struct job *j = arg;

    __atomic_fetch_add(&j->arrived, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&j->arrived, __ATOMIC_ACQUIRE) < sim_options()->cpus)
        cpu_relax();
    if (this_cpu_id() == 0) {
        j->fn(j->arg);
        __atomic_store_n(&j->done, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&j->done, __ATOMIC_ACQUIRE))
        cpu_relax();
}

static bool run_quietly(void (*fn)(void *), void *arg)
{
    struct job j = {.fn = fn, .arg = arg};
    bool ok;

    sim_quiet = true;
    ok = sim_run(sim_options()->cpus, work_or_wait, &j);
    sim_quiet = false;
    return ok;
}

static void expect(enum sim_rule rule, void (*fn)(void *))
{
    bool ok = run_quietly(fn, NULL);

    if (sim_failure() != rule)
        fail_msg("found \"%s\" (%s), expected \"%s\"", sim_rule_names[sim_failure()],
                 sim_failure_text(), sim_rule_names[rule]);
    assert_int_equal(ok, rule == SIM_OK);
}

/* On a fresh machine of 4 CPUs. */
static void expect_fresh(enum sim_rule rule, void (*fn)(void *))
{
    machine(4, SIM_CACHE_WORST);
    expect(rule, fn);
}

/* ---- address reuse ---- */

static void reuse_without_flush(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    map_page(VA, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void reuse_same_frame(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL_RO);
    unmap_page(VA);
    map_page(VA, FRAME_A, PAGE_KERNEL);
    (void)arg;
}
static void reuse_after_local_flush(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    tlb_flush_local_all();
    map_page(VA, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void reuse_after_range(void *arg)
{
    for (unsigned i = 0; i < 3; i++)
        map_page(VA + i * PAGE_SIZE, FRAME_A, PAGE_KERNEL);
    for (unsigned i = 0; i < 3; i++)
        unmap_page(VA + i * PAGE_SIZE);
    tlb_shootdown_range(VA, VA + 3 * PAGE_SIZE);
    for (unsigned i = 0; i < 3; i++)
        map_page(VA + i * PAGE_SIZE, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void reuse_after_short_range(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    map_page(VA + PAGE_SIZE, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    unmap_page(VA + PAGE_SIZE);
    tlb_shootdown_range(VA, VA + PAGE_SIZE);
    map_page(VA, FRAME_B, PAGE_KERNEL);
    map_page(VA + PAGE_SIZE, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void reuse_after_flush_before_clear(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    tlb_shootdown_all();
    unmap_page(VA);
    map_page(VA, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void reuse_after_full(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    tlb_shootdown_all();
    map_page(VA, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void other_address(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    map_page(VA + PAGE_SIZE, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void large_over_small(void *arg)
{
    map_page(VA + 5 * PAGE_SIZE, FRAME_A, PAGE_KERNEL);
    unmap_page(VA + 5 * PAGE_SIZE);
    pte_write(entry_of(VA, 2), 0);
    tlb_shootdown_range(VA, VA + PAGE_SIZE); /* paging-structure caches, but not that page */
    pte_write(entry_of(VA, 2), FRAME_L << PAGE_SHIFT | PAGE_KERNEL | PTE_PS);
    (void)arg;
}
static void small_over_large(void *arg)
{
    pte_write(entry_of(VA, 2), FRAME_L << PAGE_SHIFT | PAGE_KERNEL | PTE_PS);
    pte_write(entry_of(VA, 2), 0);
    map_page(VA + 100 * PAGE_SIZE, FRAME_A, PAGE_KERNEL);
    (void)arg;
}
static void small_over_large_flushed(void *arg)
{
    pte_write(entry_of(VA, 2), FRAME_L << PAGE_SHIFT | PAGE_KERNEL | PTE_PS);
    pte_write(entry_of(VA, 2), 0);
    tlb_shootdown_range(VA + 7 * PAGE_SIZE, VA + 8 * PAGE_SIZE); /* INVLPG of any address of it */
    map_page(VA + 100 * PAGE_SIZE, FRAME_A, PAGE_KERNEL);
    (void)arg;
}
static void handed_out_as_guard(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    sim_check_handed_out(VA - PAGE_SIZE, 2 * PAGE_SIZE);
    (void)arg;
}

static void test_reuse(void **state)
{
    (void)state;
    expect_fresh(SIM_REUSE, reuse_without_flush);
    expect_fresh(SIM_REUSE, reuse_same_frame);
    expect_fresh(SIM_REUSE, reuse_after_local_flush);
    expect_fresh(SIM_REUSE, reuse_after_short_range);
    expect_fresh(SIM_REUSE, reuse_after_flush_before_clear);
    expect_fresh(SIM_REUSE, large_over_small);
    expect_fresh(SIM_REUSE, small_over_large);
    expect_fresh(SIM_REUSE, handed_out_as_guard);
    expect_fresh(SIM_OK, reuse_after_range);
    expect_fresh(SIM_OK, reuse_after_full);
    expect_fresh(SIM_OK, small_over_large_flushed);
    expect_fresh(SIM_OK, other_address);
}

/* ---- caching modes ---- */

static void touch_reuse(void *arg)
{
    uint64_t v;

    map_page(VA, FRAME_A, PAGE_KERNEL);
    if (arg)
        SIM_CHECK(sim_read8(VA, &v), "cannot read a mapped page");
    unmap_page(VA);
    map_page(VA, FRAME_B, PAGE_KERNEL);
}

static void test_caching_modes(void **state)
{
    unsigned found = 0;

    (void)state;
    machine(1, SIM_CACHE_USED);
    expect(SIM_OK, touch_reuse);
    machine(1, SIM_CACHE_USED);
    assert_false(run_quietly(touch_reuse, &found));
    assert_int_equal(sim_failure(), SIM_REUSE);
    for (unsigned i = 0; i < 64; i++) {
        sim_machine(&(struct sim_options){
            .seed = test_seed() + i, .ram = 16 * SZ_1M, .cpus = 1, .caching = SIM_CACHE_RANDOM});
        tables_used = 0;
        found += !run_quietly(touch_reuse, NULL);
    }
    assert_in_range(found, 10, 54);
}

/* ---- frames ---- */

static void frame_freed_stale(void *arg)
{
    oracle_frames_taken(FRAME_A, 1);
    oracle_frames_taken(TABLES, 3);
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    if (arg)
        tlb_shootdown_range(VA, VA + PAGE_SIZE);
    oracle_frames_freed(FRAME_A, 1);
}
static void frame_of_leaf_freed_stale(void *arg)
{
    oracle_frames_taken(FRAME_L, 512);
    oracle_frames_taken(TABLES, 3);
    pte_write(entry_of(VA, 2), FRAME_L << PAGE_SHIFT | PAGE_KERNEL | PTE_PS);
    pte_write(entry_of(VA, 2), 0);
    oracle_frames_freed(FRAME_L + 77, 1);
    (void)arg;
}
static void frame_callers_own(void *arg)
{
    oracle_frames_taken(FRAME_A, 1);
    oracle_frames_taken(TABLES, 3);
    sim_frame_callers_own(pfn_to_page(FRAME_A));
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    oracle_frames_freed(FRAME_A, 1);
    (void)arg;
}
static void frame_freed_mapped(void *arg)
{
    oracle_frames_taken(FRAME_A, 1);
    oracle_frames_taken(TABLES, 3);
    map_page(VA, FRAME_A, PAGE_KERNEL);
    oracle_frames_freed(FRAME_A, 1);
    (void)arg;
}
static void frame_mapped_free(void *arg)
{
    oracle_frames_taken(TABLES, 3);
    map_page(VA, FRAME_A, PAGE_KERNEL);
    (void)arg;
}
static void frame_taken_twice(void *arg)
{
    oracle_frames_taken(FRAME_A, 1);
    oracle_frames_taken(FRAME_A, 1);
    (void)arg;
}
static void frame_freed_twice(void *arg)
{
    oracle_frames_taken(FRAME_A, 1);
    oracle_frames_freed(FRAME_A, 1);
    oracle_frames_freed(FRAME_A, 1);
    (void)arg;
}

static void machine_safe(void)
{
    sim_machine(
        &(struct sim_options){.seed = 1, .ram = 16 * SZ_1M, .cpus = 4, .frames_safe = true});
    tables_used = 0;
}

static void test_frames(void **state)
{
    (void)state;
    expect_fresh(SIM_OK, frame_freed_stale); /* frames=early allows it */
    machine_safe();
    expect(SIM_FRAME, frame_freed_stale);
    machine_safe();
    expect(SIM_FRAME, frame_of_leaf_freed_stale);
    machine_safe();
    expect(SIM_OK, frame_callers_own);
    machine_safe();
    assert_true(run_quietly(frame_freed_stale, &tables_used));
    expect_fresh(SIM_MAPPED, frame_freed_mapped);
    expect_fresh(SIM_OWNER, frame_mapped_free);
    expect_fresh(SIM_OWNER, frame_taken_twice);
    expect_fresh(SIM_OWNER, frame_freed_twice);
}

/* ---- page-table pages ---- */

static uint64_t table_of(uintptr_t va)
{
    return pte_phys(pte_read(entry_of(va, 2))) >> PAGE_SHIFT;
}

static void table_freed(void (*between)(void))
{
    uint64_t table;

    oracle_frames_taken(FRAME_A, 1);
    oracle_frames_taken(TABLES, 8);
    map_page(VA, FRAME_A, PAGE_KERNEL);
    table = table_of(VA);
    unmap_page(VA);
    tlb_shootdown_all();
    pte_write(entry_of(VA, 2), 0);
    if (between)
        between();
    oracle_frames_freed(table, 1);
}
static void flush_one_page_elsewhere(void)
{
    tlb_shootdown_range(VA + SZ_1G, VA + SZ_1G + PAGE_SIZE);
}
static void table_freed_unflushed(void *arg)
{
    table_freed(NULL);
    (void)arg;
}
static void table_freed_local(void *arg)
{
    table_freed(tlb_flush_local_all);
    (void)arg;
}
static void table_freed_flushed(void *arg)
{
    table_freed(tlb_shootdown_all);
    (void)arg;
}
static void table_freed_invlpg(void *arg)
{
    table_freed(flush_one_page_elsewhere);
    (void)arg;
}
static void table_freed_linked(void *arg)
{
    oracle_frames_taken(TABLES, 8);
    entry_of(VA, 1);
    oracle_frames_freed(table_of(VA), 1);
    (void)arg;
}
static void table_moved(void *arg)
{
    pte_t pde;

    entry_of(VA, 1);
    pde = pte_read(entry_of(VA, 2));
    pte_write(entry_of(VA, 2), 0);
    pte_write(entry_of(VA + PMD_SIZE, 2), pde);
    (void)arg;
}
static void table_put_back(void *arg)
{
    pte_t pde;

    entry_of(VA, 1);
    pde = pte_read(entry_of(VA, 2));
    pte_write(entry_of(VA, 2), 0);
    pte_write(entry_of(VA, 2), pde);
    (void)arg;
}
static void table_replaced(void *arg)
{
    entry_of(VA, 1);
    pte_write(entry_of(VA, 2), 0);
    entry_of(VA, 1);
    (void)arg;
}
static void leaf_over_table(void *arg)
{
    entry_of(VA, 1);
    pte_write(entry_of(VA, 2), 0);
    pte_write(entry_of(VA, 2), FRAME_L << PAGE_SHIFT | PAGE_KERNEL | PTE_PS);
    (void)arg;
}
static void table_twice(void *arg)
{
    entry_of(VA, 1);
    pte_write(entry_of(VA + PMD_SIZE, 2), pte_read(entry_of(VA, 2)));
    (void)arg;
}
static void table_unlinked_with_entries(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    pte_write(entry_of(VA, 2), 0);
    tlb_shootdown_range(VA + PMD_SIZE, VA + PMD_SIZE + PAGE_SIZE);
    map_page(VA, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void table_walked_after_free(void *arg)
{
    pte_t *e = entry_of(VA, 1);

    oracle_frames_taken(TABLES, 8);
    pte_write(entry_of(VA, 2), 0);
    tlb_shootdown_all();
    oracle_frames_freed(virt_to_phys(e) >> PAGE_SHIFT, 1);
    pte_read(e);
    (void)arg;
}

static void test_tables(void **state)
{
    (void)state;
    expect_fresh(SIM_TABLE, table_freed_unflushed);
    expect_fresh(SIM_TABLE, table_freed_local);
    expect_fresh(SIM_TABLE, table_freed_linked);
    expect_fresh(SIM_TABLE, table_moved);
    expect_fresh(SIM_TABLE, table_replaced);
    expect_fresh(SIM_TABLE, table_twice);
    expect_fresh(SIM_TABLE, leaf_over_table);
    expect_fresh(SIM_TABLE, table_walked_after_free);
    expect_fresh(SIM_REUSE, table_unlinked_with_entries);
    expect_fresh(SIM_OK, table_freed_flushed);
    expect_fresh(SIM_OK, table_freed_invlpg);
    expect_fresh(SIM_OK, table_put_back);
}

/* ---- entries ---- */

static void entry_global(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL | PTE_G);
    (void)arg;
}
static void entry_wx(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL & ~PTE_NX);
    (void)arg;
}
static void entry_rx(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL_RX);
    (void)arg;
}
static void entry_overwritten(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    map_page(VA, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void entry_protected_and_reused(void *arg)
{
    map_page(VA, FRAME_A, PAGE_KERNEL);
    map_page(VA, FRAME_A, PAGE_KERNEL_RO);
    unmap_page(VA);
    tlb_shootdown_range(VA, VA + PAGE_SIZE);
    map_page(VA, FRAME_B, PAGE_KERNEL);
    (void)arg;
}
static void entry_outside(void *arg)
{
    map_page(DIRECT_MAP_BASE, FRAME_A, PAGE_KERNEL);
    (void)arg;
}
static void leaf_split(void *arg)
{
    phys_addr_t pa = (TABLES + 50) << PAGE_SHIFT;
    pte_t *table = phys_to_virt(pa);

    pte_write(entry_of(VA, 2), FRAME_L << PAGE_SHIFT | PAGE_KERNEL | PTE_PS);
    for (unsigned i = 0; i < PTE_COUNT; i++)
        pte_write(&table[i], (FRAME_L + i) << PAGE_SHIFT | PAGE_KERNEL);
    if (arg)
        pte_write(&table[9], 0);
    pte_write(entry_of(VA, 2), pa | PTE_TABLE);
    unmap_page(VA + 3 * PAGE_SIZE);
    tlb_shootdown_range(VA + 3 * PAGE_SIZE, VA + 4 * PAGE_SIZE);
    map_page(VA + 3 * PAGE_SIZE, FRAME_A, PAGE_KERNEL);
}

static void test_entries(void **state)
{
    (void)state;
    expect_fresh(SIM_GLOBAL, entry_global);
    expect_fresh(SIM_WX, entry_wx);
    expect_fresh(SIM_OK, entry_rx);
    expect_fresh(SIM_OVERWRITE, entry_overwritten);
    expect_fresh(SIM_OK, entry_protected_and_reused);
    expect_fresh(SIM_TEST, entry_outside);
    expect_fresh(SIM_OK, leaf_split);
    machine(4, SIM_CACHE_WORST);
    assert_false(run_quietly(leaf_split, &tables_used));
    assert_int_equal(sim_failure(), SIM_OVERWRITE);
}

/* ---- vm_unmap_aliases ---- */

static void aliases(bool unmapped_before, bool flush)
{
    struct oracle_promise p;
    bool outermost = oracle_call_begin();

    map_page(VA, FRAME_A, PAGE_KERNEL);
    if (unmapped_before) {
        unmap_page(VA);
        oracle_call_end(outermost);
    }
    oracle_aliases_begin(&p);
    if (flush)
        tlb_shootdown_range(VA, VA + PAGE_SIZE);
    if (!unmapped_before)
        unmap_page(VA);
    oracle_aliases_end(&p);
}
static void aliases_missed(void *arg)
{
    aliases(true, false);
    (void)arg;
}
static void aliases_kept(void *arg)
{
    aliases(true, true);
    (void)arg;
}
/* Unmapped while the call runs: no promise. */
static void aliases_later(void *arg)
{
    aliases(false, false);
    (void)arg;
}
/* Unmapped by a call that has not returned: no promise. */
static void aliases_concurrent(void *arg)
{
    struct oracle_promise p;

    oracle_call_begin();
    map_page(VA, FRAME_A, PAGE_KERNEL);
    unmap_page(VA);
    oracle_aliases_begin(&p);
    oracle_aliases_end(&p);
    (void)arg;
}

static void test_aliases(void **state)
{
    (void)state;
    expect_fresh(SIM_COVER, aliases_missed);
    expect_fresh(SIM_OK, aliases_kept);
    expect_fresh(SIM_OK, aliases_later);
    expect_fresh(SIM_OK, aliases_concurrent);
}

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

/* CPU 1 is halted while CPU 0 reuses an address; arg: after a generation that CPU 0 alone has flushed. */
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

static enum sim_rule run_halted(void (*fn)(void *), void *arg, enum sim_mutation mutation, uint64_t seed)
{
    sim_machine(&(struct sim_options){.seed = seed, .ram = 16 * SZ_1M, .cpus = 2, .mutation = mutation});
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
        assert_int_equal(run_halted(reuse_while_halted, &flag, SIM_MUTATE_NO_FULL, seed), SIM_REUSE);
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

static struct lock_class class_a = {"a"}, class_b = {"b"};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),      cmocka_unit_test(test_caching_modes),
        cmocka_unit_test(test_frames),     cmocka_unit_test(test_tables),
        cmocka_unit_test(test_entries),    cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_locks),      cmocka_unit_test(test_machine_mutations),
        cmocka_unit_test(test_accesses),   cmocka_unit_test(test_replay),
        cmocka_unit_test(test_interrupts), cmocka_unit_test(test_halted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
