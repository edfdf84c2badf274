/*
 * page.h (host): the machine's header; the direct map and the struct page array are where the
 * simulation put them. Addresses of the vmap range stay what they are: numbers that nothing
 * dereferences.
 */
#ifndef SIM_ARCH_PAGE_H
#define SIM_ARCH_PAGE_H

#define phys_to_virt machine_phys_to_virt
#define virt_to_phys machine_virt_to_phys
#define pfn_to_page  machine_pfn_to_page
#define page_to_pfn  machine_page_to_pfn
#define page_to_phys machine_page_to_phys
#define page_address machine_page_address
#define phys_to_page machine_phys_to_page
#define virt_to_page machine_virt_to_page
#include_next <arch/page.h>
#undef phys_to_virt
#undef virt_to_phys
#undef pfn_to_page
#undef page_to_pfn
#undef page_to_phys
#undef page_address
#undef phys_to_page
#undef virt_to_page

extern char *sim_ram;           /* physical address 0 */
extern struct page *sim_memmap; /* frame 0 */

static inline void *phys_to_virt(phys_addr_t pa)
{
    return (void *)((uintptr_t)sim_ram + pa);
}
static inline phys_addr_t virt_to_phys(const void *va)
{
    return (uintptr_t)va - (uintptr_t)sim_ram;
}
static inline struct page *pfn_to_page(uint64_t pfn)
{
    return (struct page *)((uintptr_t)sim_memmap + pfn * sizeof(struct page));
}
static inline uint64_t page_to_pfn(const struct page *p)
{
    return ((uintptr_t)p - (uintptr_t)sim_memmap) / sizeof(struct page);
}
static inline phys_addr_t page_to_phys(const struct page *p)
{
    return page_to_pfn(p) << PAGE_SHIFT;
}
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
