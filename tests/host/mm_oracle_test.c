/*
 * mm_oracle_test.c: the oracle by itself: entries are written here, one rule at a time: what breaks
 * it is found and named, and what comes close without breaking it is not.
 */
#include "tests/host/mm_oracle_lib.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),   cmocka_unit_test(test_caching_modes),
        cmocka_unit_test(test_frames),  cmocka_unit_test(test_tables),
        cmocka_unit_test(test_entries), cmocka_unit_test(test_aliases),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
