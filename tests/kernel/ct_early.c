/*
 * Calls before the allocator is up (C7).
 *
 * Lookups come early: from a fault handler, a stack walk, a list for people. Every call must fail
 * cleanly. The state "not up yet" is had again by taking the allocator down; then it is built anew,
 * and works.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

static void check_all_refused(const void *addr, struct page *page)
{
    size_t offset = 0, size = PAGE_SIZE;
    struct vm_area_info info;
    uint64_t buffer[2];

    KT_EXPECT(!vmalloc(PAGE_SIZE));
    KT_EXPECT(!vzalloc(PAGE_SIZE));
    KT_EXPECT(!vmalloc_huge(PMD_SIZE));
    KT_EXPECT(!vrealloc(NULL, PAGE_SIZE));
    KT_EXPECT(!vmap(&page, 1, 0, PAGE_KERNEL));
    KT_EXPECT(!vm_map_ram(&page, 1, VM_ANY_NODE));
    KT_EXPECT(!ioremap(0xfed00000, PAGE_SIZE, CACHE_UC));
    KT_EXPECT(!pcpu_get_vm_areas(&offset, &size, 1, PAGE_SIZE));
    KT_EXPECT(!kvmalloc(100000));
    KT_EXPECT(!find_vm_area(addr, &info));
    KT_EXPECT_EQ(vread(buffer, addr, sizeof(buffer)), 0);
    KT_EXPECT(!vmalloc_to_page(addr));
    vfree(NULL);
    vunmap(NULL);
    vm_unmap_ram(NULL, 1);
    vm_unmap_aliases();
    vmap_quiesce();
}

KTEST(before_init, "C7: before the allocator is up every call fails cleanly")
{
    struct vmap_config config = vmap_config;
    struct page *page = alloc_page();
    void *p = vmalloc(PAGE_SIZE);
    uint64_t *q;

    KT_ASSERT(page && p);
    vfree(p);
    kt_quiesce();
    KT_ASSERT(kt_vmap_exit());
    check_all_refused(p, page);
    KT_ASSERT(kt_rebuild_from_nothing(&config));
    q = vmalloc(PAGE_SIZE);
    KT_ASSERT(q);
    *q = 1;
    vfree(q);
    free_page(page);
}

KTEST(rebuild, "the allocator is taken down and built again, several times")
{
    struct vmap_config config = vmap_config;
    uint64_t used, rounds = MIN(kt_scaled(3), 10UL) / (1 + kt_cpus() / 16);

    kt_quiesce();
    used = kt_counter("va_used");
    for (uint64_t i = 0; i < MAX(rounds, 1UL); i++) {
        void *p[16];

        for (unsigned j = 0; j < ARRAY_SIZE(p); j++) {
            p[j] = vmalloc((j + 1) * PAGE_SIZE);
            KT_EXPECT(p[j]);
        }
        for (unsigned j = 0; j < ARRAY_SIZE(p); j++)
            vfree(p[j]);
        KT_ASSERT(kt_rebuild(&config));
        KT_EXPECT_EQ(kt_counter("va_used"), used);
        KT_EXPECT(kt_selfcheck());
    }
}
