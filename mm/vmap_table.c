/*
 * vmap_table.c: from an address to its owner without a lock, an atomic or a store: the index of the default
 * design.
 *
 * table[(addr - start) >> 21] in two levels: a leaf page holds 1 GiB of addresses and is made when first needed. An
 * entry is 0, a block, or an area (tag in bit 0). What an entry points to lives until every CPU has passed the
 * generation in which the entry was cleared; a reader masks interrupts from the load to its last use, and so
 * cannot publish a generation in between. Legal in NMI.
 */
#include "lib/assert.h"
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmap_internal.h"
#include <arch/atomic.h>

#define LEAF_SHIFT   30
#define LEAF_ENTRIES 512

uintptr_t **vmap_table_top;
static unsigned top_entries, top_order;
static uint64_t leaf_pages; /* atomic */

err_t table_init(uint64_t range_size)
{
    struct page *page;

    top_entries = (unsigned)DIV_ROUND_UP(range_size, BIT(LEAF_SHIFT));
    for (top_order = 0; (PAGE_SIZE << top_order) < top_entries * sizeof(uintptr_t);)
        top_order++;
    page = alloc_pages(top_order);
    if (!page)
        return ERR_NOMEM;
    memset(page_address(page), 0, PAGE_SIZE << top_order);
    WRITE_ONCE(vmap_table_top, page_address(page));
    return OK;
}

void table_exit(void)
{
    if (!vmap_table_top)
        return;
    for (unsigned i = 0; i < top_entries; i++)
        if (vmap_table_top[i])
            free_page(virt_to_page(vmap_table_top[i]));
    free_pages(virt_to_page(vmap_table_top), top_order);
    vmap_table_top = NULL;
    leaf_pages = 0;
}

static uintptr_t *leaf_of(uintptr_t addr, bool make)
{
    uintptr_t **slot = &vmap_table_top[(addr - vmap_start) >> LEAF_SHIFT];
    uintptr_t *leaf = LOAD_ACQUIRE(*slot), *expected = NULL;
    struct page *page;

    if (leaf || !make)
        return leaf;
    page = alloc_page_zeroed();
    if (!page)
        return NULL;
    leaf = page_address(page);
    if (ATOMIC_CAS(*slot, &expected, leaf)) {
        ATOMIC_ADD(leaf_pages, 1);
        return leaf;
    }
    free_page(page);
    return expected;
}

err_t table_reserve(uintptr_t start, uintptr_t end)
{
    for (uintptr_t a = ALIGN_DOWN(start, BIT(LEAF_SHIFT)); a < end; a += BIT(LEAF_SHIFT))
        if (!leaf_of(MAX(a, start), true))
            return ERR_NOMEM;
    return OK;
}

void table_set(uintptr_t start, uintptr_t end, uintptr_t entry)
{
    for (uintptr_t a = start; a < end; a += BLOCK_SIZE) {
        uintptr_t *leaf = leaf_of(a, false);

        ASSERT(leaf);
        STORE_RELEASE(leaf[(a - vmap_start) / BLOCK_SIZE % LEAF_ENTRIES], entry);
    }
}

uint64_t table_pages(void)
{
    return vmap_table_top ? (1UL << top_order) + READ_ONCE(leaf_pages) : 0;
}
