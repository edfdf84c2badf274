/*
 * Which blocks a purge keeps (A7).
 *
 * A block whose pages are all free or dirty could be given back. Doing so with every purge throws
 * away blocks that are as good as new, and the next vm_map_ram has to build one. Kept are those
 * with at least a quarter never used; when addresses are short, none.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

static uintptr_t slot_of(const void *p)
{
    return (uintptr_t)p >> PMD_SHIFT;
}

/* Maps and unmaps n times `count` pages; the slot of the last one. */
static uintptr_t use(struct kt_pages *pages, unsigned n, unsigned count)
{
    uintptr_t slot = 0;

    for (unsigned i = 0; i < n; i++) {
        void *p = vm_map_ram(pages->page, count, VM_ANY_NODE);

        if (!p)
            KT_FAIL("no mapping");
        slot = slot_of(p);
        vm_unmap_ram(p, count);
    }
    return slot;
}

KTEST(purge_usable_block, "A7: a purge keeps blocks that are still usable")
{
    struct kt_pages pages;
    uintptr_t slot;
    uint64_t before;

    if (vmap_config.blocks_all)
        KT_SKIP("this design uses freed slots of a block again");
    kt_quiesce();
    before = kt_counter("vmap_blocks");
    if (!kt_pages_get(&pages, KT_BLOCK_ALLOC, 1))
        return;
    /* 208 of 512 pages dirty, 304 free: stays, and is used on. */
    slot = use(&pages, 3, 64);
    KT_EXPECT_EQ(use(&pages, 1, 16), slot);
    vm_unmap_aliases();
    KT_EXPECT_EQ(kt_counter("vmap_blocks"), before + 1);
    KT_EXPECT_EQ(use(&pages, 1, 64), slot);
    /* 400 dirty, 112 free, less than a quarter: goes. */
    KT_EXPECT_EQ(use(&pages, 2, 64), slot);
    vm_unmap_aliases();
    KT_EXPECT_EQ(kt_counter("vmap_blocks"), before);
    /* Nearly all free, but addresses are short: goes. */
    use(&pages, 1, 1);
    vm_unmap_aliases();
    KT_EXPECT_EQ(kt_counter("vmap_blocks"), before + 1);
    vmap_quiesce();
    KT_EXPECT_EQ(kt_counter("vmap_blocks"), before);
    kt_pages_put(&pages);
}
