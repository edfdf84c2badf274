/*
 * vmap_table.c: from an address to its owner without a lock, an atomic or a store that others see:
 * the index of the default design.
 *
 * table[(addr - start) >> 21] in two levels: a leaf page holds 1 GiB of addresses and is made when
 * first needed. An entry is a block, an area, or nobody: never NULL, so that the common path tests
 * nothing but the owner. What it points to lives until every CPU has passed the generation in which
 * the entry was cleared; a reader is in a read section (arch/tlb_gen.h) from the load to its last
 * use. Legal in NMI.
 */
#include "lib/assert.h"
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmap_internal.h"
#include <arch/atomic.h>

#define LEAF_SHIFT   30
#define LEAF_ENTRIES 512

struct vmap_owner ***vmap_table_top __read_mostly;
uintptr_t vmap_table_range __read_mostly;
static unsigned top_entries, top_order;
static uint64_t leaf_pages; /* atomic */

static struct vmap_owner nobody;
/* Stands for every leaf that was not made yet: nobody owns anything there. */
static struct vmap_owner **empty_leaf __read_mostly;

static struct vmap_owner **leaf_new(void)
{
    struct page *page = alloc_page();
    struct vmap_owner **leaf;

    if (!page)
        return NULL;
    leaf = page_address(page);
    for (unsigned i = 0; i < LEAF_ENTRIES; i++)
        leaf[i] = &nobody;
    return leaf;
}

err_t table_init(uint64_t range_size)
{
    struct vmap_owner ***top;
    struct page *page;

    top_entries = (unsigned)DIV_ROUND_UP(range_size, BIT(LEAF_SHIFT));
    for (top_order = 0; (PAGE_SIZE << top_order) < top_entries * sizeof(*top);)
        top_order++;
    page = alloc_pages(top_order);
    if (!page)
        return ERR_NOMEM;
    empty_leaf = leaf_new();
    if (!empty_leaf) {
        free_pages(page, top_order);
        return ERR_NOMEM;
    }
    top = page_address(page);
    for (unsigned i = 0; i < top_entries; i++)
        top[i] = empty_leaf;
    vmap_table_top = top;
    STORE_RELEASE(vmap_table_range, range_size);
    return OK;
}

void table_exit(void)
{
    if (!vmap_table_top)
        return;
    for (unsigned i = 0; i < top_entries; i++)
        if (vmap_table_top[i] != empty_leaf)
            free_page(virt_to_page(vmap_table_top[i]));
    free_page(virt_to_page(empty_leaf));
    free_pages(virt_to_page(vmap_table_top), top_order);
    vmap_table_range = 0;
    vmap_table_top = NULL;
    leaf_pages = 0;
}

static err_t leaf_make(struct vmap_owner ***slot)
{
    struct vmap_owner **leaf, **expected = empty_leaf;

    if (LOAD_ACQUIRE(*slot) != empty_leaf)
        return OK;
    leaf = leaf_new();
    if (!leaf)
        return ERR_NOMEM;
    if (ATOMIC_CAS(*slot, &expected, leaf))
        ATOMIC_ADD(leaf_pages, 1);
    else
        free_page(virt_to_page(leaf)); /* another CPU was first */
    return OK;
}

err_t table_reserve(uintptr_t start, uintptr_t end)
{
    uint64_t last = (end - 1 - vmap_start) >> LEAF_SHIFT;

    for (uint64_t i = (start - vmap_start) >> LEAF_SHIFT; i <= last; i++)
        if (leaf_make(&vmap_table_top[i]) != OK)
            return ERR_NOMEM;
    return OK;
}

struct page *table_unlink_leaf(uintptr_t addr)
{
    struct vmap_owner ***slot, **leaf;

    if (!vmap_table_top)
        return NULL;
    slot = &vmap_table_top[(addr - vmap_start) >> LEAF_SHIFT];
    leaf = *slot;
    if (leaf == empty_leaf)
        return NULL;
    STORE_RELEASE(*slot, empty_leaf);
    ATOMIC_SUB(leaf_pages, 1);
    return virt_to_page(leaf);
}

void table_set(uintptr_t start, uintptr_t end, struct vmap_owner *owner)
{
    for (uintptr_t a = start; a < end; a += BLOCK_SIZE) {
        struct vmap_owner **leaf = vmap_table_top[(a - vmap_start) >> LEAF_SHIFT];

        ASSERT(leaf != empty_leaf);
        STORE_RELEASE(leaf[(a - vmap_start) / BLOCK_SIZE % LEAF_ENTRIES], owner);
    }
}

void table_set_area(struct vm_area *a)
{
    table_set(a->start, a->end, (struct vmap_owner *)a);
}

void table_clear(uintptr_t start, uintptr_t end)
{
    table_set(start, end, &nobody);
}

uint64_t table_pages(void)
{
    return vmap_table_top ? 1 + (1UL << top_order) + READ_ONCE(leaf_pages) : 0;
}
