/*
 * paging.h: the kernel's own page tables.
 *
 * paging_init() builds them once and switches to them; after that only the vmap range changes
 * (mm/), and the one low page that other CPUs start through (smp.c). One root for all CPUs.
 */
#ifndef ARCH_PAGING_H
#define ARCH_PAGING_H

#include "arch/early.h"
#include "arch/pte.h"
#include "lib/memrange.h"

struct paging_config {
    phys_addr_t kernel_phys;    /* where the image lies, contiguous */
    phys_addr_t identity_limit; /* RAM below it is mapped to itself now */
    early_alloc_fn alloc;
    /* The sanitised memory map. `alloc` may split its ranges, but not change what is RAM. */
    const struct mem_range *(*map)(size_t *count);
};

/*
 * Boot CPU, once, with EFER.NXE and CR0.WP set, on a stack, GDT and IDT inside the kernel image:
 * the identity mapping is gone afterwards. Maps
 *   - the kernel image: text RX, rodata RO, the rest RW, all but text NX, global,
 *   - RAM and ACPI tables into the direct map, RW NX, global; reserved ranges never,
 *   - struct page for RAM, zeroed, and for the rest of each 4 MiB of addresses that has some.
 * The vmap range is left empty. Prints one line. ERR_NOMEM or ERR_INVAL (a line says why): the old
 * tables are still in use.
 */
err_t paging_init(const struct paging_config *c);

/* 4 or 5, as CR4.LA57 is. */
unsigned paging_levels(void);
/* What CR3 holds on every CPU; below 4 GiB, for the 32-bit load of a starting CPU. */
phys_addr_t paging_root(void);
/* Physical address of an object of the kernel image. */
phys_addr_t kernel_virt_to_phys(const void *va);

/* The leaf that maps va and its level (1 to 3), from the root; false if there is none. Any context.
 */
bool paging_walk(uintptr_t va, pte_t *leaf, unsigned *level);
/* Number of leaves that are writable and executable; prints the first few. */
uint64_t paging_check_wx(void);

/* Maps the page below 1 MiB to itself, PAGE_KERNEL* as protection, or changes that; and takes it
 * away again. Boot CPU. The caller drops other CPUs' translations. */
void paging_map_low(phys_addr_t page, pgprot_t prot);
void paging_unmap_low(void);

/* Maps MMIO; set at boot once mm/ is up, which arch/ may not include. NULL before. May return NULL.
 */
extern void *(*arch_ioremap)(phys_addr_t pa, size_t size, enum cache_mode mode);

#endif
