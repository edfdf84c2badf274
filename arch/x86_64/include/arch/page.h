/*
 * page.h: page sizes, the direct map, and struct page.
 *
 * All RAM is mapped at DIRECT_MAP_BASE, writable and not executable; struct page number pfn is
 * MEMMAP_BASE[pfn], mapped only where there is RAM. The layout is the same with 4 and 5 levels:
 * with 5 it is the top entry of the root.
 *
 *   0xffff888000000000  direct map, 64 TiB
 *   0xffffc90000000000  vmap range, up to 32 TiB
 *   0xffffea0000000000  struct page array, 1 TiB
 *   0xffffffff80000000  kernel image
 */
#ifndef ARCH_PAGE_H
#define ARCH_PAGE_H

#include "lib/base.h"
#include "lib/list.h"

#define PAGE_SHIFT 12
#define PAGE_SIZE  4096UL
#define PAGE_MASK  (~(PAGE_SIZE - 1))
#define PMD_SHIFT  21
#define PMD_SIZE   (1UL << PMD_SHIFT)
#define PUD_SHIFT  30
#define PTE_COUNT  512

#define DIRECT_MAP_BASE 0xffff888000000000UL
#define DIRECT_MAP_SIZE (64UL << 40)
#define VMAP_BASE       0xffffc90000000000UL
#define VMAP_SIZE_MAX   (32UL << 40)
#define MEMMAP_BASE     0xffffea0000000000UL
#define KERNEL_BASE     0xffffffff80000000UL

/* One per frame. */
struct page {
    struct list_head list; /* owner's use: free lists, batches */
    uint64_t private;      /* owner's use */
    uint8_t order;         /* of the free or allocated buddy block this page heads */
    uint8_t flags;         /* PG_* below, written by the page allocator only */
    uint8_t node;
    uint8_t reserved;
    int32_t mapcount; /* debug builds: how many vmap-range entries map it */
};
_Static_assert(sizeof(struct page) == 32, "struct page is a power of two");

static inline void *phys_to_virt(phys_addr_t pa)
{
    return (void *)(DIRECT_MAP_BASE + pa);
}
/* For direct-map addresses only. */
static inline phys_addr_t virt_to_phys(const void *va)
{
    return (phys_addr_t)((uintptr_t)va - DIRECT_MAP_BASE);
}
static inline struct page *pfn_to_page(uint64_t pfn)
{
    return (struct page *)MEMMAP_BASE + pfn;
}
static inline uint64_t page_to_pfn(const struct page *p)
{
    return (uint64_t)(p - (const struct page *)MEMMAP_BASE);
}
static inline phys_addr_t page_to_phys(const struct page *p)
{
    return page_to_pfn(p) << PAGE_SHIFT;
}
/* The page's bytes in the direct map. */
static inline void *page_address(const struct page *p)
{
    return phys_to_virt(page_to_phys(p));
}
static inline struct page *phys_to_page(phys_addr_t pa)
{
    return pfn_to_page(pa >> PAGE_SHIFT);
}
static inline struct page *virt_to_page(const void *va)
{
    return phys_to_page(virt_to_phys(va));
}

#endif
