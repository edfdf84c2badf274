/*
 * ioremap: device memory, at any offset in its page, in the cache mode asked for; never RAM.
 *
 * The address is that of the local APICs, which every PC has; it is mapped and not touched.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define DEVICE 0xfee00000UL

KTEST(ioremap_basic, "ioremap: offset, cache mode, guard; RAM is refused")
{
    struct page *page = alloc_page();
    struct vm_area_info info;
    uint64_t used, value;
    unsigned level;
    char *p;

    KT_ASSERT(page);
    kt_quiesce();
    used = kt_counter("va_used");
    p = ioremap(DEVICE + 0x320, 8, CACHE_UC);
    KT_ASSERT(p);
    KT_EXPECT_EQ((uintptr_t)p % PAGE_SIZE, 0x320);
    KT_EXPECT_EQ(pte_phys(kt_entry(p, &level)), DEVICE);
    KT_EXPECT_EQ(kt_entry(p, &level) & (PTE_PWT | PTE_PCD | PTE_NX), PTE_PWT | PTE_PCD | PTE_NX);
    KT_EXPECT(find_vm_area(p, &info) && info.kind == VM_KIND_IOREMAP && info.size == PAGE_SIZE);
    KT_EXPECT(!kt_read((void *)(((uintptr_t)p & PAGE_MASK) + PAGE_SIZE), &value));
    kt_expect_bad_frees(3);
    vfree(p);
    vunmap(p);
    iounmap(p + 1);
    KT_EXPECT(find_vm_area(p, &info));
    iounmap(p);
    KT_EXPECT(!find_vm_area(p, &info));

    p = ioremap(DEVICE + PAGE_SIZE - 4, 8, CACHE_WC); /* over two pages */
    KT_ASSERT(p);
    KT_EXPECT(find_vm_area(p, &info) && info.size == 2 * PAGE_SIZE);
    KT_EXPECT_EQ(kt_entry(p, &level) & (PTE_PWT | PTE_PCD), pgprot_cache(0, CACHE_WC));
    iounmap(p);

    KT_EXPECT(!ioremap(page_to_phys(page), PAGE_SIZE, CACHE_UC));
    KT_EXPECT(!ioremap(page_to_phys(page) + 100, 1, CACHE_WB));
    KT_EXPECT(!ioremap(DEVICE, 0, CACHE_UC));
    kt_quiesce();
    KT_EXPECT_EQ(kt_counter("va_used"), used);
    free_page(page);
}
