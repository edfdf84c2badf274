/*
 * Protections: what is writable does not execute, what executes or is read-only cannot be written,
 * NULL and the guard of the kernel's own pages fault. Also for supervisor writes: CR0.WP is on.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/cpu.h>

#define RET 0xc3

static const char read_only[] = "not to be written";

KTEST(protections, "NX, write protection and NULL, by access")
{
    struct page *page = alloc_page();
    uint64_t value;
    void *p;

    KT_ASSERT(page);
    memset(page_address(page), RET, PAGE_SIZE);
    KT_EXPECT(!kt_exec(page_address(page))); /* the direct map */
    p = vmap(&page, 1, 0, PAGE_KERNEL);
    KT_ASSERT(p);
    KT_EXPECT(!kt_exec(p) && kt_write(p, RET));
    vunmap(p);
    p = vmap(&page, 1, 0, PAGE_KERNEL_RX);
    KT_ASSERT(p);
    KT_EXPECT(kt_exec(p));
    KT_EXPECT(!kt_write(p, 0));
    KT_EXPECT(kt_read(p, &value));
    vunmap(p);
    p = vmap(&page, 1, 0, PAGE_KERNEL_RO);
    KT_ASSERT(p);
    KT_EXPECT(!kt_write(p, 0) && kt_read(p, &value) && !kt_exec(p));
    vunmap(p);
    p = vm_map_ram(&page, 1, VM_ANY_NODE);
    KT_ASSERT(p);
    KT_EXPECT(!kt_exec(p) && kt_write(p, RET));
    vm_unmap_ram(p, 1);
    KT_EXPECT(!kt_read(NULL, &value));
    KT_EXPECT(!kt_read((void *)0x1000, &value));
    KT_EXPECT(!kt_write((void *)(uintptr_t)kt_fail, 0));
    KT_EXPECT(!kt_write((void *)(uintptr_t)read_only, 0));
    KT_EXPECT(!kt_exec(read_only));
    free_page(page);
}

KTEST(protection_flags,
      "flags of __vmalloc: executable, read-only, and never both writable and executable")
{
    struct page *page = alloc_page();
    unsigned level;
    uint64_t value;
    void *p;

    KT_ASSERT(page);
    p = vmalloc(PAGE_SIZE);
    KT_ASSERT(p);
    KT_EXPECT_EQ(kt_entry(p, &level) & (PTE_W | PTE_NX | PTE_U | PTE_G), PTE_W | PTE_NX);
    KT_EXPECT(!kt_exec(p));
    vfree(p);
    p = __vmalloc(PAGE_SIZE, PAGE_SIZE, VM_EXEC, VM_ANY_NODE);
    KT_ASSERT(p);
    memset(page_address(vmalloc_to_page(p)), RET, PAGE_SIZE);
    KT_EXPECT(kt_exec(p) && !kt_write(p, 0));
    vfree(p);
    p = __vmalloc(PAGE_SIZE, PAGE_SIZE, VM_READONLY | VM_ZERO, VM_ANY_NODE);
    KT_ASSERT(p);
    KT_EXPECT(kt_read(p, &value) && value == 0);
    KT_EXPECT(!kt_write(p, 1) && !kt_exec(p));
    vfree(p);
    KT_EXPECT(!vmap(&page, 1, 0, PTE_P | PTE_W));
    KT_EXPECT(!vmap(&page, 1, 0, PAGE_KERNEL & ~PTE_NX));
    KT_EXPECT(!vmap(&page, 1, 1U << 20, PAGE_KERNEL));
    KT_EXPECT(!__vmalloc(PAGE_SIZE, PAGE_SIZE, 1U << 20, VM_ANY_NODE));
    KT_EXPECT(READ_CR(0) & CR0_WP);
    free_page(page);
}
