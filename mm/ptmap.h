/*
 * ptmap.h: page-table pages and entries of the vmap range.
 *
 * Callers own the addresses they pass (no two map or unmap the same page at once); table pages are
 * shared, and put in place by compare-and-swap. Nothing here flushes a TLB: names end in _noflush.
 * Walks run with interrupts masked, so a table page that is unlinked and then flushed everywhere is
 * no longer being walked (a shootdown cannot be answered in the middle of a walk).
 */
#ifndef MM_PTMAP_H
#define MM_PTMAP_H

#include <arch/pte.h>

/* What an unmap does with the frames it finds. */
enum ptmap_frames {
    PTMAP_KEEP, /* the caller's */
    PTMAP_FREE, /* to the page allocator, at once */
    PTMAP_MMIO, /* not RAM: there is no struct page */
    PTMAP_SAFE, /* the entry keeps the frame, not present, until ptmap_free_kept() */
};

void ptmap_init(void);

/* Maps n pages at va with 4 KiB entries. Error: ERR_NOMEM; then *done entries are in place, which
 * the caller unmaps. done may be NULL for n that cannot fail half-way. */
err_t ptmap_map_pages(uintptr_t va, struct page *const *pages, unsigned n, pgprot_t prot,
                      unsigned *done);
/* Maps [pa, pa + size) at va, whole pages; 2 MiB leaves where both are aligned. ERR_NOMEM: the
 * caller unmaps the whole range. */
err_t ptmap_map_phys(uintptr_t va, phys_addr_t pa, size_t size, pgprot_t prot);
/* One 2 MiB leaf; an empty table in the way is flushed everywhere and freed first. Not in NMI, no
 * lock held. ERR_BUSY: the slot has live entries. */
err_t ptmap_map_leaf(uintptr_t va, struct page *head, pgprot_t prot);

/* Clears [start, end); absent parts are skipped by whole tables. A 2 MiB leaf must be covered whole
 * (asserted). Returns the number of 4 KiB pages that were mapped. */
unsigned long ptmap_unmap_noflush(uintptr_t start, uintptr_t end, enum ptmap_frames frames);
/* Turns the leaf that maps va into 512 entries of the same frames. OK if there is no leaf.
 * ERR_NOMEM: nothing changed. Frees one by one afterwards. */
err_t ptmap_split_leaf(uintptr_t va);

/* The entry that maps va: its frame's address with the offset inside a leaf; 0 if none. Any
 * context, NMI included. `level` (may be NULL): 1 or 2. */
phys_addr_t ptmap_translate(uintptr_t va, pte_t *entry, unsigned *level);

/* The entry of va's last-level table, made if absent; NULL when out of memory. For blocks, which
 * keep the table page's address. */
pte_t *ptmap_table_for(uintptr_t va);

/* Writes and clears n entries from `slot` of such a table; the frames stay the caller's. */
void ptmap_table_map(pte_t *table, unsigned slot, struct page *const *pages, unsigned n,
                     pgprot_t prot);
void ptmap_table_unmap(pte_t *table, unsigned slot, unsigned n, enum ptmap_frames frames);
/* Frees the frames that PTMAP_SAFE left in [start, end), after the flush; returns how many. */
unsigned long ptmap_free_kept(uintptr_t start, uintptr_t end);

/* Tables of a level (1: PTE, 2: PMD, 3: PUD) map 2 MiB, 1 GiB, 512 GiB. */
/* True if the 2 MiB slot of va (aligned) has a last-level table. */
bool ptmap_has_table(uintptr_t va);
/* The first address at or above va (aligned to what a table of that level maps) that has one, or
 * `end`. */
uintptr_t ptmap_next_table(uintptr_t va, uintptr_t end, unsigned level);
/* Unlinks the table of va, and returns its page for freeing after a flush of all CPUs; NULL if
 * there is none or it is not empty. The caller owns all addresses that the table maps. */
struct page *ptmap_unlink_table(uintptr_t va, unsigned level);
/* Frees a page from ptmap_unlink_table after the flush. */
void ptmap_free_table(struct page *table);

uint64_t ptmap_pages(void); /* table pages of the vmap range, all levels */
void ptmap_inject(uint64_t after, uint64_t count);

/* Calls fn for each present leaf of the vmap range: (va, entry, level). Only when nobody maps. */
void ptmap_for_each(void (*fn)(uintptr_t va, pte_t entry, unsigned level, void *arg), void *arg);
/* Counts table pages by walking; for selfcheck. */
uint64_t ptmap_count_tables(void);

#endif
