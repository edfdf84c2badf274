/*
 * Questions about addresses, right ones and wrong ones.
 *
 * D4: read-only queries get what a confused caller or a dump tool has: NULL, user addresses,
 * non-canonical ones, the direct map, the edges of the range, freed addresses. They answer no, and
 * never fault. And for live areas of every kind the answer is right for every byte, and no for the
 * guard.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

static void check_nothing(const void *addr)
{
    struct vm_area_info info;
    uint64_t buffer[2];

    if (find_vm_area(addr, &info))
        KT_FAIL("find_vm_area(%p) found %p", addr, info.start);
    if (vmalloc_to_page(addr) || vmalloc_to_pfn(addr))
        KT_FAIL("vmalloc_to_page(%p)", addr);
    if (vread(buffer, addr, sizeof(buffer)) != 0)
        KT_FAIL("vread(%p)", addr);
    vmalloc_dump_obj(addr);
}

KTEST(query_odd_addresses, "D4: queries about addresses that are nothing")
{
    const uintptr_t range_end = VMAP_BASE + vmap_config.range_size;
    const uintptr_t outside[] = {
        0,
        1,
        0x1000,
        0x00007fffffffe000,
        0x0000800000000000,
        0x8000000000000000,
        VMAP_BASE - 1,
        VMAP_BASE - PAGE_SIZE,
        range_end,
        range_end + PAGE_SIZE - 1,
        DIRECT_MAP_BASE + 0x200000,
        (uintptr_t)check_nothing,
        UINTPTR_MAX,
        UINTPTR_MAX - 15,
    };
    char *p = vmalloc(PAGE_SIZE);

    KT_ASSERT(p);
    for (unsigned i = 0; i < ARRAY_SIZE(outside); i++)
        check_nothing((const void *)outside[i]);
    KT_EXPECT(!is_vmalloc_addr(NULL));
    KT_EXPECT(!is_vmalloc_addr((void *)(VMAP_BASE - 1)));
    KT_EXPECT(!is_vmalloc_addr((void *)check_nothing));
    KT_EXPECT(is_vmalloc_addr(p));
    KT_EXPECT(is_vmalloc_addr((void *)VMAP_BASE));
    vfree(p);
    check_nothing(p);
    check_nothing(p + PAGE_SIZE - 1);
    vm_unmap_aliases();
    check_nothing(p);
    check_nothing((void *)(range_end - 1));
    check_nothing((void *)(VMAP_BASE + vmap_config.range_size / 2));
}

KTEST(query_overflow, "D11: address and length that overflow are clipped or refused")
{
    static char buffer[2 * PAGE_SIZE];
    char *p = vmalloc(PAGE_SIZE);
    struct page *page = alloc_page();

    KT_ASSERT(p && page);
    memset(p, 0x5a, PAGE_SIZE);
    KT_EXPECT_EQ(vread(buffer, p, 0), 0);
    KT_EXPECT_EQ(vread(buffer, (void *)(UINTPTR_MAX - 7), 64), 0);
    KT_EXPECT(!vmap(&page, UINT_MAX, 0, PAGE_KERNEL));
    KT_EXPECT(!vmap(&page, 0, 0, PAGE_KERNEL));
    KT_EXPECT(!vmap(NULL, 1, 0, PAGE_KERNEL));
    KT_EXPECT(!vm_map_ram(&page, UINT_MAX, VM_ANY_NODE));
    KT_EXPECT(!vm_map_ram(&page, 0, VM_ANY_NODE));
    KT_EXPECT(!ioremap(UINT64_MAX - PAGE_SIZE, 2 * PAGE_SIZE, CACHE_UC));
    KT_EXPECT(!ioremap(0xfed00000, SIZE_MAX, CACHE_UC));
    KT_EXPECT(!ioremap(BIT(52), PAGE_SIZE, CACHE_UC));
    vfree(p);
    free_page(page);
}

/* Right at every page's first and last byte and in between; no before and behind. */
static void check_area(const char *p, size_t size, enum vm_kind kind, struct rng *rng)
{
    struct vm_area_info info;

    KT_ASSERT(p);
    for (unsigned i = 0; i < 4 * size / PAGE_SIZE; i++) {
        size_t page = i / 4 * PAGE_SIZE;
        size_t in_page[4] = {0, PAGE_SIZE - 1, PAGE_SIZE / 2, rng_below(rng, PAGE_SIZE)};
        const char *at = p + page + in_page[i % 4];

        memset(&info, 0, sizeof(info));
        if (!find_vm_area(at, &info) || info.start != p || info.size != size || info.kind != kind ||
            !info.caller)
            KT_FAIL("%p: start %p size 0x%lx kind %u caller %p instead of %p 0x%lx %u", at,
                    info.start, (unsigned long)info.size, info.kind, info.caller, p,
                    (unsigned long)size, kind);
    }
    if (find_vm_area(p + size, &info) && info.start == p)
        KT_FAIL("%p is behind the area at %p", p + size, p);
    if (find_vm_area(p - 1, &info) && info.start == p)
        KT_FAIL("%p is before the area at %p", p - 1, p);
}

KTEST(find_every_byte, "find_vm_area is right for every byte of every kind of area")
{
    struct kt_pages pages;
    struct rng rng;
    char *p;

    rng_seed(&rng, kt_seed());
    if (!kt_pages_get(&pages, 80, 1))
        return;
    p = vmalloc(3 * PAGE_SIZE);
    check_area(p, 3 * PAGE_SIZE, VM_KIND_ALLOC, &rng);
    vfree(p);
    p = vmalloc(40 * PAGE_SIZE - 5); /* rounded up to pages; longer than a node's zone */
    check_area(p, 40 * PAGE_SIZE, VM_KIND_ALLOC, &rng);
    vfree(p);
    p = vmap(pages.page, 2, 0, PAGE_KERNEL);
    check_area(p, 2 * PAGE_SIZE, VM_KIND_MAP, &rng);
    vunmap(p);
    p = vm_map_ram(pages.page, 5, VM_ANY_NODE);
    check_area(p, 5 * PAGE_SIZE, VM_KIND_RAM, &rng);
    vm_unmap_ram(p, 5);
    p = vm_map_ram(pages.page, 80, VM_ANY_NODE); /* too long for a block */
    check_area(p, 80 * PAGE_SIZE, VM_KIND_RAM, &rng);
    vm_unmap_ram(p, 80);
    p = vmalloc_huge(PMD_SIZE);
    check_area(p, PMD_SIZE, VM_KIND_ALLOC, &rng);
    vfree(p);
    kt_pages_put(&pages);
}
