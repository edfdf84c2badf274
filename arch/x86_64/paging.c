/*
 * paging.c: the kernel's own page tables, W^X from the first one on.
 *
 * Built by the boot CPU through the front door's identity mapping, out of early memory; constant
 * afterwards but for the vmap range (mm/) and the page that other CPUs start through.
 */
#include <arch/cpu.h>
#include <arch/paging.h>
#include <arch/ptbuild.h>

#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"

#define KIND(k)      (1u << (k))
#define KINDS_RAM    (KIND(MEM_USABLE) | KIND(MEM_BOOT_RECLAIM) | KIND(MEM_LOADER))
#define KINDS_DIRECT (KINDS_RAM | KIND(MEM_ACPI_RECLAIM) | KIND(MEM_ACPI_NVS))

/* The largest buddy block: the page allocator may look at any struct page of one that has RAM. */
#define MEMMAP_GRAIN (4UL << 20)

/* alloc may split ranges while the map is copied. */
#define MAP_SLACK 16

#define PROT_RX (PAGE_KERNEL_RX | PTE_G)
#define PROT_RO (PAGE_KERNEL_RO | PTE_G)
#define PROT_RW (PAGE_KERNEL | PTE_G)

#define LOW_TABLES 4 /* with 5 levels: one each for levels 4 to 1 */

extern char __image_start[], __image_end[], __text_start[], __text_end[], __rodata_start[],
    __rodata_end[], __data_start[], __bss_end[];

struct extent {
    uint64_t start, end; /* bytes, whole pages */
};

/* Constant after paging_init(). */
static struct pt_build kernel_tables;
static phys_addr_t kernel_phys_base;
static pte_t *pml4;
static phys_addr_t low_tables; /* LOW_TABLES pages */
static bool switched;

void *(*arch_ioremap)(phys_addr_t pa, size_t size, enum cache_mode mode);

void *early_virt(phys_addr_t pa)
{
    return switched ? phys_to_virt(pa) : (void *)pa;
}

/* The next run of neighbouring ranges whose kinds are in `kinds`, from *i on, cut to whole pages
 * and to what the direct map can hold. */
static bool next_extent(const struct mem_range *map, size_t n, size_t *i, unsigned kinds,
                        struct extent *out)
{
    while (*i < n) {
        const struct mem_range *r = &map[(*i)++];
        uint64_t end = r->base + r->size;

        if (!(kinds & KIND(r->kind)))
            continue;
        while (*i < n && map[*i].base == end && (kinds & KIND(map[*i].kind)))
            end += map[(*i)++].size;
        out->start = ALIGN_UP(r->base, PAGE_SIZE);
        out->end = ALIGN_DOWN(MIN(end, DIRECT_MAP_SIZE), PAGE_SIZE);
        if (out->start < out->end)
            return true;
    }
    return false;
}

static err_t map_kernel(phys_addr_t phys)
{
    const struct {
        char *start, *end;
        pgprot_t prot;
    } parts[] = {
        {__text_start, __text_end, PROT_RX},
        {__rodata_start, __rodata_end, PROT_RO},
        {__data_start, __bss_end, PROT_RW},
    };
    size_t i;

    for (i = 0; i < ARRAY_SIZE(parts); i++) {
        uintptr_t va = ALIGN_DOWN((uintptr_t)parts[i].start, PAGE_SIZE);
        size_t size = ALIGN_UP((uintptr_t)parts[i].end, PAGE_SIZE) - va;
        err_t err =
            pt_map(&kernel_tables, va, phys + (va - (uintptr_t)__image_start), size, parts[i].prot);

        if (err != OK)
            return err;
    }
    return OK;
}

static err_t map_direct(const struct mem_range *map, size_t n)
{
    struct extent e;
    size_t i = 0;

    while (next_extent(map, n, &i, KINDS_DIRECT, &e)) {
        err_t err =
            pt_map(&kernel_tables, DIRECT_MAP_BASE + e.start, e.start, e.end - e.start, PROT_RW);

        if (err != OK)
            return err;
    }
    return OK;
}

/* The bytes of the struct page array for an extent, widened to whole MEMMAP_GRAINs of memory. */
static struct extent memmap_bytes(struct extent e)
{
    uint64_t first = ALIGN_DOWN(e.start, MEMMAP_GRAIN) >> PAGE_SHIFT;
    uint64_t last = ALIGN_UP(e.end, MEMMAP_GRAIN) >> PAGE_SHIFT;

    return (struct extent){
        ALIGN_DOWN(MEMMAP_BASE + first * sizeof(struct page), PAGE_SIZE),
        ALIGN_UP(MEMMAP_BASE + last * sizeof(struct page), PAGE_SIZE),
    };
}

/* Backs the array's bytes [va, end), at most one 2 MiB slot, with as few pieces as memory allows.
 */
static err_t back_memmap(uintptr_t va, uintptr_t end)
{
    size_t size = end - va;

    while (va < end) {
        phys_addr_t pa = kernel_tables.alloc(size, size == PMD_SIZE ? PMD_SIZE : PAGE_SIZE, 0);
        err_t err;

        if (!pa && size == PAGE_SIZE)
            return ERR_NOMEM;
        if (!pa) {
            size = ALIGN_UP(size / 2, PAGE_SIZE);
            continue;
        }
        err = pt_map(&kernel_tables, va, pa, size, PROT_RW);
        if (err != OK)
            return err;
        va += size;
        size = MIN(size, end - va);
    }
    return OK;
}

static err_t map_memmap(const struct mem_range *map, size_t n)
{
    struct extent e;
    uintptr_t done = 0; /* neighbours share pages of the array: mapped up to here */
    size_t i = 0;

    while (next_extent(map, n, &i, KINDS_RAM, &e)) {
        struct extent m = memmap_bytes(e);
        uintptr_t va = MAX(m.start, done);

        while (va < m.end) {
            uintptr_t end = MIN(ALIGN_DOWN(va, PMD_SIZE) + PMD_SIZE, m.end);
            err_t err = back_memmap(va, end);

            if (err != OK)
                return err;
            va = end;
        }
        done = MAX(done, m.end);
    }
    return OK;
}

/* Through the new tables, which reach all of it. */
static uint64_t zero_memmap(const struct mem_range *map, size_t n)
{
    struct extent e;
    uintptr_t done = 0;
    uint64_t bytes = 0;
    size_t i = 0;

    while (next_extent(map, n, &i, KINDS_RAM, &e)) {
        struct extent m = memmap_bytes(e);
        uintptr_t va = MAX(m.start, done);

        if (va < m.end) {
            memset((void *)va, 0, m.end - va);
            bytes += m.end - va;
        }
        done = MAX(done, m.end);
    }
    return bytes;
}

/* The level-4 table of the kernel half; all its entries but those in use stay empty. */
static void find_pml4(void)
{
    pte_t *root = (pte_t *)kernel_tables.root;

    /* map_kernel() has made the top entry. */
    pml4 = phys_to_virt(kernel_tables.levels == 4 ? kernel_tables.root
                                                  : pte_phys(pte_read(&root[PTE_COUNT - 1])));
}

/* Also drops global entries that the front door may have left (case E14): a CR3 load alone does
 * not. */
static void switch_tables(void)
{
    uint64_t cr4 = READ_CR(4);

    WRITE_CR(3, kernel_tables.root);
    WRITE_CR(4, cr4 & ~CR4_PGE);
    if (cpu_features.pge)
        WRITE_CR(4, cr4 | CR4_PGE);
    switched = true;
}

/* Copies the map to early memory, since taking memory changes the original. */
static struct mem_range *copy_map(const struct paging_config *c, size_t *n)
{
    const struct mem_range *map = c->map(n);
    size_t cap = *n + MAP_SLACK;
    phys_addr_t pa =
        c->alloc(ALIGN_UP(cap * sizeof(*map), PAGE_SIZE), PAGE_SIZE, c->identity_limit);

    map = c->map(n);
    if (!pa || *n > cap)
        return NULL;
    memcpy((void *)pa, map, *n * sizeof(*map));
    return (struct mem_range *)pa;
}

static err_t build(const struct paging_config *c, const struct mem_range *map, size_t n)
{
    err_t err = pt_init(&kernel_tables, MIN(c->identity_limit, SZ_4G));

    if (err == OK)
        err = map_kernel(c->kernel_phys);
    if (err == OK)
        err = map_direct(map, n);
    if (err == OK)
        err = map_memmap(map, n);
    if (err == OK) {
        low_tables = c->alloc(LOW_TABLES * PAGE_SIZE, PAGE_SIZE, c->identity_limit);
        err = low_tables ? OK : ERR_NOMEM;
    }
    if (err != OK)
        return err;
    memset((void *)low_tables, 0, LOW_TABLES * PAGE_SIZE);
    find_pml4();
    return OK;
}

err_t paging_init(const struct paging_config *c)
{
    struct mem_range *map;
    uint64_t memmap_size;
    size_t n;
    err_t err;

    if (!cpu_features.nx || !(rdmsr(MSR_EFER) & EFER_NXE)) {
        kprintf("# paging: this CPU has no NX, or the firmware has disabled it\n");
        return ERR_INVAL;
    }
    ASSERT(READ_CR(0) & CR0_WP);
    ASSERT((uintptr_t)__builtin_frame_address(0) >= (uintptr_t)__image_start);
    kernel_tables = (struct pt_build){
        .levels = READ_CR(4) & CR4_LA57 ? 5 : 4,
        .gbpages = cpu_features.gbpages,
        .alloc = c->alloc,
        .table_max = c->identity_limit,
        .to_virt = early_virt,
    };
    kernel_phys_base = c->kernel_phys;
    map = copy_map(c, &n);
    err = map ? build(c, map, n) : ERR_NOMEM;
    if (err != OK) {
        kprintf("# paging: no page tables: %s\n", err == ERR_NOMEM ? "out of memory" : "bad map");
        return err;
    }
    switch_tables();
    memmap_size = zero_memmap(phys_to_virt((phys_addr_t)map), n);
    kprintf("# paging levels=%u tables=%lu leaves_1g=%lu leaves_2m=%lu leaves_4k=%lu "
            "page_array_kib=%lu\n",
            kernel_tables.levels, kernel_tables.tables, kernel_tables.leaves[3],
            kernel_tables.leaves[2], kernel_tables.leaves[1], memmap_size >> 10);
    return OK;
}

pte_t *kernel_pml4(void)
{
    return pml4;
}

unsigned paging_levels(void)
{
    return kernel_tables.levels;
}

phys_addr_t paging_root(void)
{
    return kernel_tables.root;
}

phys_addr_t kernel_virt_to_phys(const void *va)
{
    return kernel_phys_base + ((uintptr_t)va - (uintptr_t)__image_start);
}

bool paging_walk(uintptr_t va, pte_t *leaf, unsigned *level)
{
    /* Bits above the tree's reach must be copies of its top bit (canonical form). */
    unsigned top = PAGE_SHIFT + 9 * kernel_tables.levels - 1;

    if ((uint64_t)((int64_t)va >> top) + 1 > 1)
        return false;
    return pt_walk(&kernel_tables, va, leaf, level);
}

static void report_wx(uintptr_t va, pte_t leaf)
{
    kprintf("# paging: writable and executable: %#lx entry %#lx\n", va, leaf);
}

uint64_t paging_check_wx(void)
{
    return pt_count_wx(&kernel_tables, report_wx);
}

/* The tables for it are there from the start, so that nothing can fail here. */
void paging_map_low(phys_addr_t page, pgprot_t prot)
{
    phys_addr_t pa = low_tables;
    pte_t *table = phys_to_virt(kernel_tables.root);
    unsigned level;

    ASSERT(page < SZ_1M && IS_ALIGNED(page, PAGE_SIZE));
    for (level = kernel_tables.levels; level > 1; level--, pa += PAGE_SIZE) {
        pte_write(&table[pte_index(page, level)], pa | PTE_TABLE);
        table = phys_to_virt(pa);
    }
    pte_write(&table[pte_index(page, 1)], page | prot);
    __asm__ volatile("invlpg (%0)" ::"r"(page) : "memory");
}

void paging_unmap_low(void)
{
    pte_t *root = phys_to_virt(kernel_tables.root);

    pte_write(&root[0], 0);
    memset(phys_to_virt(low_tables), 0, LOW_TABLES * PAGE_SIZE);
}
