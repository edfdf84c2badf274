/*
 * pte.h: page-table entries (SDM 3A 4.5), and the one root that all CPUs share.
 *
 * Entries are read with pte_read and written with pte_write only, so that the host build can watch
 * them. A write of a non-present entry needs no flush; clearing or changing a present one does.
 */
#ifndef ARCH_PTE_H
#define ARCH_PTE_H

#include "arch/page.h"

typedef uint64_t pte_t;
typedef uint64_t pgprot_t;

#define PTE_P    BIT(0)
#define PTE_W    BIT(1)
#define PTE_U    BIT(2)
#define PTE_PWT  BIT(3)
#define PTE_PCD  BIT(4)
#define PTE_A    BIT(5)
#define PTE_D    BIT(6)
#define PTE_PS   BIT(7) /* leaf at level 2 or 3 */
#define PTE_PAT  BIT(7) /* in a 4 KiB entry */
#define PTE_G    BIT(8)
#define PTE_NX   BIT(63)
#define PTE_ADDR 0x000ffffffffff000UL
#define PDE_PAT  BIT(12) /* PAT bit of a 2 MiB or 1 GiB leaf */

/* Cache modes, as indices of the PAT that cpu_init_this programs (0 WB, 1 WC, 2 UC-, 3 UC). */
enum cache_mode { CACHE_WB, CACHE_WC, CACHE_UC_MINUS, CACHE_UC };

/* Leaf protections of the vmap range: A and D are set so that no walk writes them; never global. */
#define PAGE_KERNEL    ((pgprot_t)(PTE_P | PTE_W | PTE_A | PTE_D | PTE_NX))
#define PAGE_KERNEL_RO ((pgprot_t)(PTE_P | PTE_A | PTE_D | PTE_NX))
#define PAGE_KERNEL_RX ((pgprot_t)(PTE_P | PTE_A | PTE_D))
#define PTE_TABLE      ((pte_t)(PTE_P | PTE_W | PTE_A))

static inline pgprot_t pgprot_cache(pgprot_t prot, enum cache_mode mode)
{
    return prot | ((mode & 1) ? PTE_PWT : 0) | ((mode & 2) ? PTE_PCD : 0);
}
static inline pte_t pte_read(const pte_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
static inline void pte_write(pte_t *p, pte_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
/* Puts v in place of *expected; false, and *expected = what is there, if something else is. */
static inline bool pte_cas(pte_t *p, pte_t *expected, pte_t v)
{
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
/* The entry that maps a page: its frame's address is the struct page's, scaled, less a constant. */
static inline pte_t page_to_pte(const struct page *p, pgprot_t prot)
{
    _Static_assert(PAGE_SIZE / sizeof(struct page) == 1 << 7, "the scale");
    return ((uintptr_t)p << 7) + (prot - (MEMMAP_BASE << 7));
}
static inline bool pte_present(pte_t v)
{
    return v & PTE_P;
}
static inline bool pte_leaf(pte_t v)
{
    return v & PTE_PS;
}
static inline phys_addr_t pte_phys(pte_t v)
{
    return v & PTE_ADDR;
}
static inline phys_addr_t pde_leaf_phys(pte_t v)
{
    return v & PTE_ADDR & ~(phys_addr_t)PDE_PAT;
}
/* The table that a non-leaf entry points to. */
static inline pte_t *pte_table(pte_t v)
{
    return phys_to_virt(v & PTE_ADDR);
}
/* Index of va at a level: 1 = PTE, 2 = PMD, 3 = PUD, 4 = PML4. */
static inline unsigned pte_index(uintptr_t va, unsigned level)
{
    return (va >> (PAGE_SHIFT + 9 * (level - 1))) & (PTE_COUNT - 1);
}
/* The level-4 table that holds the kernel half (with 5 levels: the one below the root's top entry).
 * One for all CPUs, constant after paging_init(). */
pte_t *kernel_pml4(void);

#endif
