/*
 * What vm_unmap_aliases flushes of the blocks of vm_map_ram.
 *
 * A1: a block with no room left is on no free list. If some of its pages are unmapped while others
 * live, a flush that walks free lists only never sees them, and another CPU goes on reading through
 * the unmapped address. A8: a range that was flushed must not be flushed again for as long as the
 * block lives.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define MAPPINGS  (KT_BLOCK_PAGES / KT_BLOCK_ALLOC) /* that fill a block */
#define TRIES     (3 * MAPPINGS)
#define VICTIM    3
#define NEW_VALUE 0x1122334455667788UL

/* Maps until MAPPINGS of them fill one 2 MiB slot; their indices begin at *first. */
static bool fill_block(struct kt_pages *pages, void **m, unsigned *first)
{
    unsigned run = 0;

    for (unsigned i = 0; i < TRIES; i++) {
        m[i] = vm_map_ram(pages->page, KT_BLOCK_ALLOC, VM_ANY_NODE);
        if (!m[i])
            return false;
        if (run && (uintptr_t)m[i] >> PMD_SHIFT != (uintptr_t)m[i - 1] >> PMD_SHIFT)
            run = 0;
        if (++run == MAPPINGS) {
            *first = i + 1 - MAPPINGS;
            return true;
        }
    }
    return false;
}

/* One flush drops it, there is no second one, and the other CPU faults. */
static void check_full_block(struct kt_pages *pages, void **m, unsigned cpu)
{
    uint64_t value = 0;

    KT_EXPECT(kt_read_on(cpu, m[VICTIM], &value));
    KT_EXPECT_EQ(value, kt_tag(1, 0));
    vm_unmap_ram(m[VICTIM], KT_BLOCK_ALLOC);
    *kt_word(pages->page[0]) = NEW_VALUE;
    kt_flush_log_start();
    vm_unmap_aliases();
    KT_EXPECT_EQ(kt_flush_log_stop(), 1);
    KT_EXPECT(
        kt_flush_covers((uintptr_t)m[VICTIM], (uintptr_t)m[VICTIM] + KT_BLOCK_ALLOC * PAGE_SIZE));
    if (kt_read_on(cpu, m[VICTIM], &value))
        KT_FAIL("a stale translation: cpu %u read %lx", cpu, (unsigned long)value);
    kt_flush_log_start();
    vm_unmap_aliases();
    /* A generation covers all that was cleared before it, so each call may begin one; nobody waits
     * for it or is interrupted. A shootdown must not be repeated. */
    KT_EXPECT(kt_flush_log_stop() <= (vmap_config.flush_gen ? 1 : 0));
    m[VICTIM] = NULL;
}

KTEST(flush_full_block, "A1: unmapped pages of a full block are flushed")
{
    struct kt_pages pages;
    void *m[TRIES] = {NULL};
    unsigned first = 0;

    kt_quiesce();
    if (!kt_pages_get(&pages, KT_BLOCK_ALLOC, 1))
        return;
    if (fill_block(&pages, m, &first))
        check_full_block(&pages, m + first, kt_other_cpu());
    else
        KT_FAIL("no block could be filled");
    for (unsigned i = 0; i < TRIES; i++)
        vm_unmap_ram(m[i], KT_BLOCK_ALLOC);
    vm_unmap_aliases();
    kt_pages_put(&pages);
}

/* After unmapping p: exactly one flush in three calls, of that page only. */
static void check_one_flush(const void *p)
{
    const struct kt_flush *f = kt_flush_at(0);
    uint64_t ipis;

    vm_unmap_ram(p, 1);
    ipis = kt_counter("tlb_ipis");
    kt_flush_log_start();
    for (unsigned i = 0; i < 3; i++)
        vm_unmap_aliases();
    if (vmap_config.flush_gen) {
        /* One generation a call, and the halted CPUs are left alone. */
        KT_EXPECT(kt_flush_log_stop() <= 3);
        KT_EXPECT(f->full);
        KT_EXPECT(kt_counter("tlb_ipis") - ipis < kt_cpus());
        return;
    }
    KT_EXPECT_EQ(kt_flush_log_stop(), 1);
    KT_EXPECT(!f->full);
    KT_EXPECT_EQ(f->start, (uintptr_t)p);
    KT_EXPECT_EQ(f->end, (uintptr_t)p + PAGE_SIZE);
}

KTEST(flush_once, "A8: a dirty range is flushed once")
{
    struct kt_pages pages;
    void *live, *a, *b;

    kt_quiesce();
    if (!kt_pages_get(&pages, 1, 1))
        return;
    live = vm_map_ram(pages.page, 1, VM_ANY_NODE);
    a = vm_map_ram(pages.page, 1, VM_ANY_NODE);
    b = vm_map_ram(pages.page, 1, VM_ANY_NODE);
    if (live && a && b) {
        check_one_flush(a);
        check_one_flush(b);
    } else {
        KT_FAIL("no mappings");
    }
    vm_unmap_ram(live, 1);
    kt_pages_put(&pages);
}
