/*
 * ptmap.c: page-table pages and entries of the vmap range. See ptmap.h for the rules.
 *
 * Levels: 4 = PML4 (the arch's, never freed), 3 = PUD, 2 = PMD, 1 = PTE tables.
 */
#include "mm/ptmap.h"

#include "lib/assert.h"
#include "lib/string.h"
#include "mm/inject.h"
#include "mm/page_alloc.h"
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/tlb.h>

#define UNMAP_BATCH 64 /* frames freed at once */

static uint64_t table_pages; /* atomic */
static struct inject table_inject;

void ptmap_init(void)
{
    table_inject = (struct inject){0};
}

uint64_t ptmap_pages(void)
{
    return READ_ONCE(table_pages);
}

void ptmap_inject(uint64_t after, uint64_t count)
{
    inject_arm(&table_inject, after, count);
}

/* The table below *entry, made if absent. Two CPUs may race here for neighbouring areas: the
 * loser's page goes back. */
static pte_t *table_below(pte_t *entry)
{
    pte_t e = pte_read(entry), expected = 0;
    struct page *page;

    if (likely(pte_present(e))) {
        ASSERT(!pte_leaf(e));
        return pte_table(e);
    }
    if (inject_hit(&table_inject))
        return NULL;
    page = alloc_page_zeroed();
    if (!page)
        return NULL;
    page->private = 0;
    if (!pte_cas(entry, &expected, page_to_phys(page) | PTE_TABLE)) {
        free_page(page);
        return pte_table(expected);
    }
    ATOMIC_ADD(table_pages, 1);
    return page_address(page);
}

/* The entry of va at `level`, tables above it made. */
static pte_t *entry_make(uintptr_t va, unsigned level)
{
    pte_t *table = kernel_pml4();

    for (unsigned l = 4; l > level; l--) {
        table = table_below(&table[pte_index(va, l)]);
        if (!table)
            return NULL;
    }
    return &table[pte_index(va, level)];
}

/* The entry of va at `level`, or NULL with *skip = bytes to the end of the absent or leaf slot; a
 * leaf above the wanted level is returned as *leaf. */
static pte_t *entry_find(uintptr_t va, unsigned level, pte_t **leaf, uintptr_t *skip)
{
    pte_t *table = kernel_pml4();

    for (unsigned l = 4; l > level; l--) {
        pte_t *entry = &table[pte_index(va, l)];
        pte_t e = pte_read(entry);
        uintptr_t span = 1UL << (PAGE_SHIFT + 9 * (l - 1));

        if (!pte_present(e) || (l < 4 && pte_leaf(e))) {
            *leaf = pte_present(e) ? entry : NULL;
            *skip = span - (va & (span - 1));
            return NULL;
        }
        table = pte_table(e);
    }
    return &table[pte_index(va, level)];
}

pte_t *ptmap_table_for(uintptr_t va)
{
    pte_t *entry = entry_make(va, 1);

    return entry ? (pte_t *)((uintptr_t)entry & PAGE_MASK) : NULL;
}

/* Debug builds count the mappings of each frame, also of frames that are only borrowed. */
#ifdef CONFIG_DEBUG
#define PTMAP_TRACKS_FRAMES 1
#else
#define PTMAP_TRACKS_FRAMES 0
#endif

static void count_mapped(struct page *page, int by)
{
#ifdef CONFIG_DEBUG
    ATOMIC_ADD(page->mapcount, by);
#else
    (void)page;
    (void)by;
#endif
}

err_t ptmap_map_pages(uintptr_t va, struct page *const *pages, unsigned n, pgprot_t prot,
                      unsigned *done)
{
    pte_t *entry = NULL;
    unsigned i;
    err_t err = OK;

    for (i = 0; i < n; i++, va += PAGE_SIZE) {
        if (!entry || pte_index(va, 1) == 0) {
            entry = entry_make(va, 1);
            if (!entry) {
                err = ERR_NOMEM;
                break;
            }
        }
        ASSERT_DBG(!pte_present(pte_read(entry)));
        count_mapped(pages[i], 1);
        pte_write(entry++, page_to_phys(pages[i]) | prot);
    }
    if (done)
        *done = i;
    return err;
}

err_t ptmap_map_phys(uintptr_t va, phys_addr_t pa, size_t size, pgprot_t prot)
{
    /* In a leaf the PAT bit moves to bit 12; the modes used here need PWT and PCD only. */
    while (size) {
        if (IS_ALIGNED(va | pa, PMD_SIZE) && size >= PMD_SIZE && !ptmap_has_table(va)) {
            pte_t *pmd = entry_make(va, 2);

            if (!pmd)
                return ERR_NOMEM;
            pte_write(pmd, pa | prot | PTE_PS);
            va += PMD_SIZE;
            pa += PMD_SIZE;
            size -= PMD_SIZE;
            continue;
        }
        pte_t *pte = entry_make(va, 1);

        if (!pte)
            return ERR_NOMEM;
        pte_write(pte, pa | prot);
        va += PAGE_SIZE;
        pa += PAGE_SIZE;
        size -= PAGE_SIZE;
    }
    return OK;
}

static bool table_is_empty(const pte_t *table)
{
    for (unsigned i = 0; i < PTE_COUNT; i++)
        if (pte_read(&table[i]))
            return false;
    return true;
}

err_t ptmap_map_leaf(uintptr_t va, struct page *head, pgprot_t prot)
{
    pte_t *pmd = entry_make(va, 2);

    ASSERT(IS_ALIGNED(va, PMD_SIZE));
    if (!pmd)
        return ERR_NOMEM;
    if (pte_present(pte_read(pmd))) {
        struct page *old;

        if (pte_leaf(pte_read(pmd)) || !table_is_empty(pte_table(pte_read(pmd))))
            return ERR_BUSY;
        /* A CPU may hold the old table in its paging-structure cache and would walk it past the new
         * leaf (SDM 3A 4.10.3): flush before anything else takes its place. */
        old = ptmap_unlink_table(va, 1);
        tlb_shootdown_all();
        ptmap_free_table(old);
    }
    for (unsigned i = 0; i < PTE_COUNT; i++)
        count_mapped(head + i, 1);
    pte_write(pmd, page_to_phys(head) | prot | PTE_PS);
    return OK;
}

err_t ptmap_split_leaf(uintptr_t va)
{
    pte_t *pmd, *leaf = NULL, *table, e;
    struct page *page;
    uintptr_t skip;

    pmd = entry_find(va, 2, &leaf, &skip);
    if (!pmd || !pte_present(pte_read(pmd)) || !pte_leaf(pte_read(pmd)))
        return OK;
    e = pte_read(pmd);
    page = inject_hit(&table_inject) ? NULL : alloc_page();
    if (!page)
        return ERR_NOMEM;
    page->private = 0;
    table = page_address(page);
    for (unsigned i = 0; i < PTE_COUNT; i++)
        pte_write(&table[i], (pde_leaf_phys(e) + i * PAGE_SIZE) | (e & ~(PTE_ADDR | PTE_PS)));
    ATOMIC_ADD(table_pages, 1);
    /* Same translation before and after: mixed sizes in a TLB agree on the frames (SDM
     * 3A 4.10.2.3). */
    pte_write(pmd, page_to_phys(page) | PTE_TABLE);
    page_split(phys_to_page(pde_leaf_phys(e)), PMD_SHIFT - PAGE_SHIFT);
    return OK;
}

static void unmap_leaf(pte_t *pmd, uintptr_t va, uintptr_t end, enum ptmap_frames frames)
{
    struct page *head = phys_to_page(pde_leaf_phys(pte_read(pmd)));

    ASSERT(IS_ALIGNED(va, PMD_SIZE) && end - va >= PMD_SIZE);
    pte_write(pmd, frames == PTMAP_SAFE ? pte_read(pmd) & ~PTE_P : 0);
    if (frames != PTMAP_FREE && frames != PTMAP_SAFE)
        return;
    for (unsigned i = 0; i < PTE_COUNT; i++)
        count_mapped(head + i, -1);
    if (frames == PTMAP_FREE)
        free_pages(head, PMD_SHIFT - PAGE_SHIFT);
}

void ptmap_table_map(pte_t *table, unsigned slot, struct page *const *pages, unsigned n,
                     pgprot_t prot)
{
    for (unsigned i = 0; i < n; i++) {
        ASSERT_DBG(!pte_present(pte_read(&table[slot + i])));
        count_mapped(pages[i], 1);
        pte_write(&table[slot + i], page_to_phys(pages[i]) | prot);
    }
}

/* Clears one present 4 KiB entry. Returns its frame if that is to be freed now. */
static inline struct page *clear_entry(pte_t *entry, pte_t e, enum ptmap_frames frames)
{
    pte_write(entry, frames == PTMAP_SAFE ? e & ~PTE_P : 0);
    if (PTMAP_TRACKS_FRAMES && frames != PTMAP_MMIO)
        count_mapped(phys_to_page(pte_phys(e)), -1);
    return frames == PTMAP_FREE ? phys_to_page(pte_phys(e)) : NULL;
}

void ptmap_table_unmap(pte_t *table, unsigned slot, unsigned n, enum ptmap_frames frames)
{
    struct page *batch[UNMAP_BATCH];
    unsigned pending = 0;

    for (unsigned i = 0; i < n; i++) {
        struct page *page = clear_entry(&table[slot + i], pte_read(&table[slot + i]), frames);

        if (page)
            batch[pending++] = page;
        if (pending == UNMAP_BATCH) {
            page_free_bulk(batch, pending);
            pending = 0;
        }
    }
    page_free_bulk(batch, pending);
}

unsigned long ptmap_unmap_noflush(uintptr_t start, uintptr_t end, enum ptmap_frames frames)
{
    struct page *batch[UNMAP_BATCH];
    unsigned n = 0;
    unsigned long total = 0;
    uintptr_t va = start;

    while (va < end) {
        pte_t *leaf = NULL, *entry;
        uintptr_t skip = 0, stop;

        entry = entry_find(va, 1, &leaf, &skip);
        if (!entry) {
            if (leaf) {
                unmap_leaf(leaf, va, end, frames);
                total += PTE_COUNT;
            }
            if (end - va <= skip)
                break;
            va += skip;
            continue;
        }
        stop = MIN(end, (va | (PMD_SIZE - 1)) + 1);
        for (; va != stop; va += PAGE_SIZE, entry++) {
            pte_t e = pte_read(entry);

            struct page *page;

            if (!pte_present(e))
                continue;
            page = clear_entry(entry, e, frames);
            total++;
            if (!page)
                continue;
            batch[n++] = page;
            if (n == UNMAP_BATCH) {
                page_free_bulk(batch, n);
                n = 0;
            }
        }
    }
    page_free_bulk(batch, n);
    return total;
}

/* The PMD entry of va, whatever is in it; NULL if no table reaches that far. */
static pte_t *pmd_of(uintptr_t va, uintptr_t *skip)
{
    pte_t *leaf;

    return entry_find(va, 2, &leaf, skip);
}

unsigned long ptmap_free_kept(uintptr_t start, uintptr_t end)
{
    unsigned long total = 0;
    uintptr_t va = start;

    while (va < end) {
        uintptr_t skip = 0, stop = MIN(end, (va | (PMD_SIZE - 1)) + 1);
        pte_t *pmd = pmd_of(va, &skip), *entry, e = pmd ? pte_read(pmd) : 0;

        if (!pmd) {
            if (end - va <= skip)
                break;
            va += skip;
            continue;
        }
        if (e && !pte_present(e)) { /* a kept leaf */
            pte_write(pmd, 0);
            free_pages(phys_to_page(pde_leaf_phys(e)), PMD_SHIFT - PAGE_SHIFT);
            total += PTE_COUNT;
        }
        if (!pte_present(e) || pte_leaf(e)) {
            va = stop;
            continue;
        }
        entry = &pte_table(e)[pte_index(va, 1)];
        for (; va != stop; va += PAGE_SIZE, entry++) {
            e = pte_read(entry);
            if (!e || pte_present(e))
                continue;
            pte_write(entry, 0);
            free_page(phys_to_page(pte_phys(e)));
            total++;
        }
    }
    return total;
}

phys_addr_t ptmap_translate(uintptr_t va, pte_t *entry, unsigned *level)
{
    unsigned long flags = irq_save();
    pte_t *leaf = NULL, *pte, e = 0;
    phys_addr_t pa = 0;
    uintptr_t skip;

    pte = entry_find(va, 1, &leaf, &skip);
    if (pte) {
        e = pte_read(pte);
        if (pte_present(e))
            pa = pte_phys(e) | (va & (PAGE_SIZE - 1));
    } else if (leaf) {
        e = pte_read(leaf);
        if (pte_present(e))
            pa = pde_leaf_phys(e) | (va & (PMD_SIZE - 1));
    }
    irq_restore(flags);
    if (entry)
        *entry = e;
    if (level)
        *level = pte ? 1 : 2;
    return pa;
}

bool ptmap_has_table(uintptr_t va)
{
    return ptmap_next_table(va, va + PMD_SIZE, 1) == va;
}

/* Bytes that one table of `level` maps. */
static uintptr_t table_span(unsigned level)
{
    return 1UL << (PAGE_SHIFT + 9 * level);
}

uintptr_t ptmap_next_table(uintptr_t va, uintptr_t end, unsigned level)
{
    uintptr_t span = table_span(level);

    while (va < end) {
        unsigned long flags = irq_save();
        uintptr_t skip = span;
        pte_t *leaf, *above, e;

        above = entry_find(va, level + 1, &leaf, &skip);
        e = above ? pte_read(above) : 0;
        irq_restore(flags);
        if (above && pte_present(e) && !(level < 3 && pte_leaf(e)))
            return va;
        if (end - va <= skip)
            break;
        va += above ? span : skip;
    }
    return end;
}

struct page *ptmap_unlink_table(uintptr_t va, unsigned level)
{
    pte_t *leaf, *above, e;
    uintptr_t skip;

    above = entry_find(va, level + 1, &leaf, &skip);
    if (!above)
        return NULL;
    e = pte_read(above);
    if (!pte_present(e) || (level < 3 && pte_leaf(e)) || !table_is_empty(pte_table(e)))
        return NULL;
    pte_write(above, 0);
    return phys_to_page(pte_phys(e));
}

void ptmap_free_table(struct page *table)
{
    if (!table)
        return;
    ATOMIC_SUB(table_pages, 1);
    free_page(table);
}

struct walk {
    void (*fn)(uintptr_t va, pte_t entry, unsigned level, void *arg);
    void *arg;
    uint64_t tables;
};

static void walk_table(struct walk *w, pte_t *table, unsigned level, uintptr_t base)
{
    uintptr_t span = 1UL << (PAGE_SHIFT + 9 * (level - 1));

    w->tables++;
    for (unsigned i = 0; i < PTE_COUNT; i++, base += span) {
        pte_t e = pte_read(&table[i]);

        if (!pte_present(e))
            continue;
        if (level == 1 || pte_leaf(e)) {
            if (w->fn)
                w->fn(base, e, level, w->arg);
        } else {
            walk_table(w, pte_table(e), level - 1, base);
        }
    }
}

static void walk_range(struct walk *w)
{
    uintptr_t va = VMAP_BASE;

    for (unsigned i = 0; i < VMAP_SIZE_MAX / SZ_512G; i++, va += SZ_512G) {
        pte_t e = pte_read(&kernel_pml4()[pte_index(va, 4)]);

        if (pte_present(e))
            walk_table(w, pte_table(e), 3, va);
    }
}

void ptmap_for_each(void (*fn)(uintptr_t va, pte_t entry, unsigned level, void *arg), void *arg)
{
    struct walk w = {.fn = fn, .arg = arg};

    walk_range(&w);
}

uint64_t ptmap_count_tables(void)
{
    struct walk w = {0};

    walk_range(&w);
    return w.tables;
}
