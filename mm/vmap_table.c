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
#include "mm/vmap_pcpu.h"
#include <arch/atomic.h>
#include <arch/tlb_gen.h>

#define LEAF_SHIFT   30
#define LEAF_ENTRIES 512

struct vmap_owner ***vmap_table_top __read_mostly;
uintptr_t vmap_table_range __read_mostly;
static unsigned top_entries, top_order;
static uint64_t leaf_pages; /* atomic */
static unsigned leaves_end; /* atomic, only grows: no leaf was ever made from here on */

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
    leaves_end = 0;
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

/* Before the leaf is there: who finds one need not look whether walks over all reach it. */
static void leaves_reach(unsigned end)
{
    unsigned old = READ_ONCE(leaves_end);

    while (old < end && !ATOMIC_CAS(leaves_end, &old, end))
        ;
}

static err_t leaf_make(struct vmap_owner ***slot)
{
    struct vmap_owner **leaf, **expected = empty_leaf;

    if (LOAD_ACQUIRE(*slot) != empty_leaf)
        return OK;
    leaf = leaf_new();
    if (!leaf)
        return ERR_NOMEM;
    leaves_reach((unsigned)(slot - vmap_table_top) + 1);
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
    leaf = READ_ONCE(*slot);
    if (leaf == empty_leaf)
        return NULL;
    STORE_RELEASE(*slot, empty_leaf);
    ATOMIC_SUB(leaf_pages, 1);
    return virt_to_page(leaf);
}

void table_set(uintptr_t start, uintptr_t end, struct vmap_owner *owner)
{
    /* Downwards: who is found at its start is in the table as a whole. */
    for (uintptr_t a = end; a > start;) {
        struct vmap_owner **leaf;

        a -= BLOCK_SIZE;
        leaf = READ_ONCE(vmap_table_top[(a - vmap_start) >> LEAF_SHIFT]);
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

/* In a read section: the area that starts at addr. */
static struct vm_area *area_at(uintptr_t addr)
{
    struct vmap_owner *o = table_lookup(addr);

    return o->owner_type == OWNER_AREA && o->start == addr ? (struct vm_area *)o : NULL;
}

/* Of several who free one area, one gets it: the entry of its first unit is taken by
 * compare-and-swap. No other area can be found in it meanwhile: a's object is not used again while
 * this CPU reads. */
struct vm_area *table_claim(uintptr_t addr, bool (*match)(const struct vm_area *a, const void *arg),
                            const void *arg)
{
    uintptr_t offset = addr - vmap_start;
    struct vmap_owner **leaf, *expected;
    struct vm_area *a;

    if (offset >= vmap_end - vmap_start)
        return NULL;
    tlb_gen_read_begin();
    leaf = LOAD_ACQUIRE(vmap_table_top[offset >> LEAF_SHIFT]);
    a = area_at(addr);
    expected = (struct vmap_owner *)a;
    if (a && (!match(a, arg) ||
              !ATOMIC_CAS(leaf[offset / BLOCK_SIZE % LEAF_ENTRIES], &expected, &nobody)))
        a = NULL;
    tlb_gen_read_end();
    return a;
}

bool table_with(uintptr_t addr, bool (*fn)(struct vm_area *a, void *arg), void *arg)
{
    struct vm_area *a;
    bool done;

    if (addr - vmap_start >= vmap_end - vmap_start)
        return false;
    tlb_gen_read_begin();
    a = area_at(addr);
    done = a && fn(a, arg);
    tlb_gen_read_end();
    return done;
}

/* In a read section: what is constant while o is in use. */
static bool copy_owner(const struct vmap_owner *o, struct vm_area *copy)
{
    const struct vm_area *a = (const struct vm_area *)o;

    if (o->owner_type == OWNER_NOBODY)
        return false;
    if (o->owner_type == OWNER_BLOCK)
        a = ((const struct pblock *)o)->area;
    *copy = (struct vm_area){.start = a->start,
                             .end = a->end,
                             .nr_pages = READ_ONCE(a->nr_pages),
                             .kind = a->kind,
                             .flags = a->flags,
                             .page_offset = a->page_offset,
                             .caller = a->caller};
    return true;
}

bool table_find(uintptr_t addr, struct vm_area *copy)
{
    bool found;

    if (addr - vmap_start >= vmap_end - vmap_start)
        return false;
    tlb_gen_read_begin();
    found = copy_owner(table_lookup(addr), copy);
    tlb_gen_read_end();
    return found;
}

bool table_next(uintptr_t addr, struct vm_area *copy)
{
    uintptr_t offset = addr - vmap_start;
    uint64_t unit = (offset / BLOCK_SIZE) % LEAF_ENTRIES;
    bool found = false;

    for (uint64_t i = offset >> LEAF_SHIFT; !found && i < READ_ONCE(leaves_end); i++, unit = 0) {
        struct vmap_owner **leaf;

        if (READ_ONCE(vmap_table_top[i]) == empty_leaf)
            continue;
        tlb_gen_read_begin(); /* a leaf at a time, so that no generation waits for long */
        leaf = LOAD_ACQUIRE(vmap_table_top[i]);
        /* Of damaged ones, which selfcheck goes through, none ends where it was found. */
        for (; !found && unit < LEAF_ENTRIES; unit++)
            found = copy_owner(LOAD_ACQUIRE(leaf[unit]), copy) && copy->end > addr;
        tlb_gen_read_end();
    }
    return found;
}

/* The bytes of o, whose first unit is at addr; 0: it is not there as it says. */
static uint64_t check_owner(const struct vmap_owner *o, uintptr_t addr)
{
    uintptr_t end =
        o->owner_type == OWNER_BLOCK ? o->start + BLOCK_SIZE : ((const struct vm_area *)o)->end;

    if (o->start != addr || end <= addr || end > vmap_end)
        return 0;
    for (uintptr_t at = addr; at < end; at += BLOCK_SIZE)
        if (table_lookup(at) != o)
            return 0;
    return end - addr;
}

bool table_check(uint64_t *bytes, uint64_t *areas)
{
    uint64_t reached = (uint64_t)READ_ONCE(leaves_end) << LEAF_SHIFT;
    uintptr_t end = vmap_start + MIN(vmap_end - vmap_start, reached);

    for (uintptr_t addr = vmap_start; addr < end;) {
        struct vmap_owner *o = table_lookup(addr);
        uint64_t size = BLOCK_SIZE;

        if (READ_ONCE(vmap_table_top[(addr - vmap_start) >> LEAF_SHIFT]) == empty_leaf) {
            size = BIT(LEAF_SHIFT);
        } else if (o != &nobody) {
            size = check_owner(o, addr);
            if (!size)
                return false;
            *bytes += size;
            ++*areas;
        }
        addr += size;
    }
    return true;
}

void table_take_permanent(struct list_head *list)
{
    struct vm_area copy, *a;

    if (!vmap_table_top)
        return;
    for (uintptr_t addr = vmap_start; table_next(addr, &copy); addr = copy.end) {
        a = area_at(copy.start);
        if (!a || !(a->flags & VM_PERMANENT))
            continue;
        table_clear(a->start, a->end);
        list_add_tail(&a->list, list);
    }
}
