/*
 * vmap_block.c: per-CPU queues of blocks, for the short-lived mappings of vm_map_ram.
 *
 * A block is 2 MiB of addresses and one page-table page. Its pages are handed out upwards, in
 * powers of two, and used once: freed ones are dirty until the whole block goes. Blocks with room
 * are on the free list of the CPU that made them; all blocks of that CPU are on its all list, so
 * that the purge sees full ones too (case A1). Lock order: queue, then block. The index takes a
 * block's lock inside its own. Source: Linux mm/vmalloc.c, vb_alloc() and its kin, since 2.6.28.
 */
#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include <arch/atomic.h>
#include <arch/smp.h>

/* A block with this much never used is worth keeping (Linux's VMAP_PURGE_THRESHOLD). */
#define KEEP_FREE (BLOCK_PAGES / 4)

struct block_queue {
    struct spinlock lock;
    struct list_head free_list; /* blocks with free > 0 */
    struct list_head all_list;
    bool up;
};

static struct lock_class queue_class = {.name = "vmap_block.queue"};
static struct lock_class block_class = {.name = "vmap_block.lock"};
static DEFINE_PER_CPU(struct block_queue, block_queue);
static struct cache *block_cache;
static uint64_t blocks; /* atomic */

err_t block_init(void)
{
    if (!block_cache)
        block_cache = cache_create("vmap_block", sizeof(struct vmap_block), CACHE_LINE);
    return block_cache ? OK : ERR_NOMEM;
}

err_t block_cpu_init(unsigned cpu)
{
    struct block_queue *q = per_cpu_ptr(&block_queue, cpu);

    spin_init(&q->lock, &queue_class);
    list_init(&q->free_list);
    list_init(&q->all_list);
    q->up = true;
    return OK;
}

bool block_exit(void)
{
    unsigned cpu;

    for_each_cpu (cpu)
        per_cpu_ptr(&block_queue, cpu)->up = false;
    return READ_ONCE(blocks) == 0;
}

uint64_t block_count(void)
{
    return READ_ONCE(blocks);
}

/* A block with all pages free, on no list yet. */
static struct vmap_block *block_new(void)
{
    struct vmap_block *b = cache_alloc(block_cache);
    struct page *slots;

    if (!b)
        return NULL;
    memset(b, 0, sizeof(*b));
    slots = alloc_page();
    if (!slots)
        goto err_block;
    b->slots = page_address(slots);
    b->area = vmap_area_alloc(BLOCK_SIZE, BLOCK_SIZE, 0);
    if (!b->area)
        goto err_slots;
    b->table = ptmap_table_for(b->area->start);
    if (!b->table)
        goto err_area;
    spin_init(&b->lock, &block_class);
    b->free = BLOCK_PAGES;
    b->dirty_min = BLOCK_PAGES;
    b->cpu = this_cpu_id();
    b->area->kind = VM_KIND_BLOCK_AREA;
    b->area->queue = NULL;
    b->area->owner_type = OWNER_AREA;
    b->area->block = b;
    ATOMIC_ADD(blocks, 1);
    return b;

err_area:
    vmap_area_free_unused(b->area);
err_slots:
    free_page(slots);
err_block:
    cache_free(block_cache, b);
    return NULL;
}

/* b is dead, and on no list: takes it out of sight and gives everything back,
 * its addresses lazily. */
static void block_free(struct vmap_block *b)
{
    struct vm_area *a = b->area;
    unsigned long flags;

    if (vmap_config.index_table)
        table_clear(a->start, a->end);
    index_erase(b);
    /* Whoever found it before holds, or waits for nothing but, its lock. */
    flags = spin_lock_irqsave(&b->lock);
    spin_unlock_irqrestore(&b->lock, flags);
    node_busy_remove(a);
    free_page(virt_to_page(b->slots));
    cache_free(block_cache, b);
    ATOMIC_SUB(blocks, 1);
    a->block = NULL;
    node_lazy_add(a);
}

static bool block_room(const struct vmap_block *b, unsigned pages)
{
    return !b->dead && b->free >= pages;
}

/* With the block's lock: takes `size` pages (a power of two, at least count). */
static unsigned block_take(struct vmap_block *b, unsigned size, unsigned count, void *caller)
{
    unsigned slot = BLOCK_PAGES - b->free;

    b->free -= size;
    b->slots[slot] = (struct block_slot){
        .caller = (int32_t)((intptr_t)caller - (intptr_t)vmalloc),
        .pages = (uint16_t)count,
        .kind = VM_KIND_RAM,
    };
    bitmap_set_bit(b->starts, slot);
    return slot;
}

/* With the queue's lock: leaves the free list when full. */
static void block_settle(struct vmap_block *b)
{
    if (b->free == 0 && b->on_free_list) {
        list_del(&b->free_list);
        b->on_free_list = false;
    }
}

static struct vmap_block *queue_take(struct block_queue *q, unsigned size, unsigned count,
                                     void *caller, unsigned *slot)
{
    unsigned long flags = spin_lock_irqsave(&q->lock);
    struct vmap_block *b, *found = NULL;

    list_for_each_entry (b, &q->free_list, free_list) {
        spin_lock(&b->lock);
        if (block_room(b, size)) {
            *slot = block_take(b, size, count, caller);
            found = b;
        }
        spin_unlock(&b->lock);
        if (found)
            break;
    }
    if (found)
        block_settle(found);
    spin_unlock_irqrestore(&q->lock, flags);
    return found;
}

void *block_map(struct page **pages, unsigned count, void *caller)
{
    struct block_queue *q = this_cpu_ptr(&block_queue);
    unsigned size = 1u << (count > 1 ? fls64(count - 1) : 0), slot;
    struct vmap_block *b;
    unsigned long flags;

    if (!q->up)
        return NULL;
    b = queue_take(q, size, count, caller, &slot);
    if (!b) {
        b = block_new();
        if (!b)
            return NULL;
        slot = block_take(b, size, count, caller);
        /* Complete before anyone can see it (case A4): the locks below publish it. */
        node_busy_insert(b->area);
        if (vmap_config.index_table)
            table_set_area(b->area);
        index_insert(b);
        flags = spin_lock_irqsave(&q->lock);
        list_add(&b->all_list, &q->all_list);
        list_add(&b->free_list, &q->free_list);
        b->on_free_list = true;
        spin_unlock_irqrestore(&q->lock, flags);
    }
    ptmap_table_map(b->table, slot, pages, count, PAGE_KERNEL);
    return (void *)(b->area->start + slot * PAGE_SIZE);
}

/* With the block's lock: the mapping that covers `slot`, or BLOCK_PAGES. */
static unsigned mapping_at(const struct vmap_block *b, unsigned slot)
{
    unsigned start = bitmap_prev_set(b->starts, BLOCK_PAGES, slot);

    if (start == BLOCK_PAGES || slot - start >= b->slots[start].pages)
        return BLOCK_PAGES;
    return start;
}

enum block_result block_unmap(uintptr_t addr, unsigned count)
{
    unsigned slot = (addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT;
    unsigned size = 1u << (count > 1 ? fls64(count - 1) : 0);
    unsigned long flags;
    struct block_queue *q;
    struct vmap_block *b = index_lock_block(addr, &flags);
    bool last;

    if (!b)
        return BLOCK_NOT_A_BLOCK;
    if (b->dead || !IS_ALIGNED(addr, PAGE_SIZE) || !bitmap_test(b->starts, slot) ||
        b->slots[slot].pages != count) {
        spin_unlock_irqrestore(&b->lock, flags);
        return BLOCK_BAD;
    }
    bitmap_clear_bit(b->starts, slot); /* ours from here on */
    spin_unlock_irqrestore(&b->lock, flags);

    ptmap_table_unmap(b->table, slot, count, PTMAP_KEEP);

    flags = spin_lock_irqsave(&b->lock);
    b->dirty_min = (uint16_t)MIN((unsigned)b->dirty_min, slot);
    b->dirty_max = (uint16_t)MAX((unsigned)b->dirty_max, slot + count);
    b->dirty += size;
    last = b->dirty == BLOCK_PAGES;
    if (last) {
        /* On no list until it is a freed area: what waits in it must not be missed meanwhile. */
        purge_note_pending(b->area->start + b->dirty_min * PAGE_SIZE,
                           b->area->start + b->dirty_max * PAGE_SIZE);
        b->dead = true;
    }
    spin_unlock_irqrestore(&b->lock, flags);
    if (!last)
        return BLOCK_OK;

    q = per_cpu_ptr(&block_queue, b->cpu);
    flags = spin_lock_irqsave(&q->lock);
    list_del(&b->all_list);
    if (b->on_free_list)
        list_del(&b->free_list);
    spin_unlock_irqrestore(&q->lock, flags);
    block_free(b);
    purge_lazy_added(BLOCK_PAGES);
    return BLOCK_OK;
}

static void describe(const struct vmap_block *b, unsigned slot, struct vm_area_info *out)
{
    out->start = (void *)(b->area->start + slot * PAGE_SIZE);
    out->size = b->slots[slot].pages * PAGE_SIZE;
    out->kind = b->slots[slot].kind;
    out->caller = (void *)((intptr_t)vmalloc + b->slots[slot].caller);
}

bool block_find(uintptr_t addr, struct vm_area_info *out)
{
    unsigned slot = (addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT;
    unsigned long flags;
    struct vmap_block *b = index_lock_block(addr, &flags);

    if (!b)
        return false;
    slot = mapping_at(b, slot);
    if (slot != BLOCK_PAGES)
        describe(b, slot, out);
    spin_unlock_irqrestore(&b->lock, flags);
    return slot != BLOCK_PAGES;
}

bool block_next(uintptr_t addr, struct vm_area_info *out)
{
    unsigned first = (addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT, slot;
    unsigned long flags;
    struct vmap_block *b = index_lock_block(addr, &flags);

    if (!b)
        return false;
    slot = mapping_at(b, first);
    if (slot == BLOCK_PAGES)
        slot = bitmap_next_set(b->starts, BLOCK_PAGES, first);
    if (slot != BLOCK_PAGES)
        describe(b, slot, out);
    spin_unlock_irqrestore(&b->lock, flags);
    return slot != BLOCK_PAGES;
}

/* With queue and block locked: flushes its dirty range; true if the block is to be freed. */
static bool block_purge_one(struct vmap_block *b, struct vmap_flush *f, bool force)
{
    if (b->dead)
        return false;
    if (b->dirty_min < b->dirty_max)
        flush_add(f, b->area->start + b->dirty_min * PAGE_SIZE,
                  b->area->start + b->dirty_max * PAGE_SIZE);
    b->dirty_min = BLOCK_PAGES; /* flushed by who asked: not again (case A8) */
    b->dirty_max = 0;
    if (b->free + b->dirty != BLOCK_PAGES || (!force && b->free >= KEEP_FREE))
        return false; /* live pages, or still useful (case A7) */
    b->dead = true;
    return true;
}

void block_purge(struct vmap_flush *f, bool force)
{
    unsigned cpu;

    for_each_cpu (cpu) {
        struct block_queue *q = per_cpu_ptr(&block_queue, cpu);
        struct vmap_block *b, *tmp;
        struct list_head dead;
        unsigned long flags;

        if (!READ_ONCE(q->up))
            continue;
        list_init(&dead);
        flags = spin_lock_irqsave(&q->lock);
        list_for_each_entry_safe (b, tmp, &q->all_list, all_list) {
            bool goes;

            spin_lock(&b->lock);
            goes = block_purge_one(b, f, force);
            spin_unlock(&b->lock);
            if (!goes)
                continue;
            list_del(&b->all_list);
            if (b->on_free_list)
                list_del(&b->free_list);
            list_add(&b->all_list, &dead);
        }
        spin_unlock_irqrestore(&q->lock, flags);
        list_for_each_entry_safe (b, tmp, &dead, all_list) {
            block_free(b);
            purge_lazy_count(BLOCK_PAGES);
        }
    }
}

static const char *check_one(const struct vmap_block *b, unsigned cpu)
{
    unsigned live = 0, slot;

    bitmap_for_each_set (slot, b->starts, BLOCK_PAGES) {
        unsigned pages = b->slots[slot].pages;

        if (slot + pages + b->free > BLOCK_PAGES)
            return "a mapping in the never used part";
        live += 1u << (pages > 1 ? fls64(pages - 1) : 0);
        for (unsigned i = 0; i < pages; i++)
            if (!pte_present(pte_read(&b->table[slot + i])))
                return "a mapping without an entry";
    }
    if (b->cpu != cpu)
        return "a block on another CPU's queue";
    if (b->dead)
        return "a dead block on a queue";
    if (live + b->free + b->dirty != BLOCK_PAGES)
        return "pages that are neither live, free nor dirty";
    if (b->on_free_list != (b->free != 0))
        return "a block on the wrong list";
    if (b->area->block != b || b->area->kind != VM_KIND_BLOCK_AREA)
        return "an area that does not know its block";
    return NULL;
}

bool block_check(void)
{
    const char *wrong = NULL;
    uint64_t seen = 0;
    unsigned cpu;

    for_each_cpu (cpu) {
        struct block_queue *q = per_cpu_ptr(&block_queue, cpu);
        struct vmap_block *b;

        if (!q->up)
            continue;
        list_for_each_entry (b, &q->all_list, all_list) {
            const char *w = check_one(b, cpu);

            seen++;
            wrong = w ? w : wrong;
        }
    }
    if (seen != READ_ONCE(blocks))
        wrong = "a wrong number of blocks";
    if (wrong)
        kprintf("# selfcheck: blocks: %s\n", wrong);
    return !wrong;
}
