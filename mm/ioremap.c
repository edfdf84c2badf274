/*
 * ioremap.c: device memory in the vmap range. RAM is refused: it would have two memory types at
 * once.
 */
#include "mm/early_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"

#define CALLER __builtin_return_address(0)

static bool match_ioremap(const struct vm_area *a, const void *arg)
{
    return a->kind == VM_KIND_IOREMAP && a->page_offset == *(const unsigned *)arg;
}

/* True if any of [pa, pa + size) is RAM that the kernel uses. */
static bool range_is_ram(phys_addr_t pa, uint64_t size)
{
    size_t n;
    const struct mem_range *r = early_map(&n);

    for (size_t i = 0; i < n; i++) {
        bool ram =
            r[i].kind == MEM_USABLE || r[i].kind == MEM_BOOT_RECLAIM || r[i].kind == MEM_LOADER;

        if (ram && pa < r[i].base + r[i].size && r[i].base < pa + size)
            return true;
    }
    return false;
}

void *ioremap(phys_addr_t pa, size_t size, enum cache_mode mode)
{
    unsigned offset = pa & (PAGE_SIZE - 1);
    phys_addr_t base = pa - offset;
    struct vm_area *a;
    uint64_t bytes;

    if (!vmap_usable())
        return NULL;
    if (size == 0 || size > SZ_512G || pa + size < pa || pa + size > BIT(52)) {
        vmap_alloc_failed(size, "impossible ioremap", CALLER);
        return NULL;
    }
    bytes = ALIGN_UP(size + offset, PAGE_SIZE);
    if (range_is_ram(base, bytes)) {
        vmap_alloc_failed(size, "ioremap of RAM", CALLER);
        return NULL;
    }
    a = vmap_area_alloc(bytes + PAGE_SIZE, bytes >= PMD_SIZE ? PMD_SIZE : PAGE_SIZE, VM_PERMANENT);
    if (!a) {
        vmap_alloc_failed(size, "no addresses", CALLER);
        return NULL;
    }
    a->page_offset = (uint16_t)offset;
    if (ptmap_map_phys(a->start, base, bytes, pgprot_cache(PAGE_KERNEL, mode)) != OK) {
        ptmap_unmap_noflush(a->start, a->start + bytes, PTMAP_MMIO);
        vmap_retire(a);
        vmap_alloc_failed(size, "no page table", CALLER);
        return NULL;
    }
    vmap_publish(a, bytes >> PAGE_SHIFT, VM_KIND_IOREMAP, CALLER);
    return (void *)(a->start + offset);
}

void iounmap(void *p)
{
    unsigned offset = (uintptr_t)p & (PAGE_SIZE - 1);

    vmap_free_area((void *)((uintptr_t)p & PAGE_MASK), match_ioremap, &offset, PTMAP_MMIO,
                   "iounmap of what ioremap did not return", CALLER);
}
