/*
 * vmap_purge.c: freed addresses wait, and one flush serves all that wait.
 *
 * Entries are cleared when an area is freed; its addresses may be handed out again only after every
 * CPU has dropped them. The purge collects what waits, flushes once, and gives the ranges to the
 * pools or the tree. One purge at a time: `mutex` is not a spinlock, whoever waits for it answers
 * flush requests, and no lock is held while a flush waits. Source: Linux mm/vmalloc.c,
 * __purge_vmap_area_lazy().
 */
#include "lib/assert.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>

/* Empty table pages are looked for when there are more than this and twice what
 * live mappings need. */
#define TABLES_SLACK 256

static struct lock_class pending_class = {.name = "vmap_purge.pending"};
/* A CPU that waits for the mutex halted. From the push on the node belongs to the stack, and then
 * to the unlock that takes it, until that sets `woken`. */
struct purge_waiter {
    struct purge_waiter *next;
    uint32_t woken;
    uint32_t cpu;
    bool pushed; /* it was once: `woken` says whether it may be again; its CPU's */
};

static struct {
    uint32_t mutex;               /* CPU + 1 of who purges, 0: nobody */
    struct purge_waiter *waiters; /* lock-free stack, emptied by unlock */
    /* A pass that began after a request serves it, whoever runs it. */
    uint64_t begun; /* passes so far; with the mutex */
    /* Numbers of the last finished pass: any, one over the blocks too, a forced one. */
    uint64_t done_areas, done, done_full;
    uint64_t never;           /* 0: for who needs the mutex itself */
    uint64_t lazy_pages;      /* atomic: freed and not yet purged */
    struct list_head waiting; /* flush generations: with the mutex, stamped with `stamp` */
    uint64_t stamp;
    uint64_t purges;
    struct spinlock pending_lock;
    struct vmap_flush pending; /* unmapped, but the addresses stay with their area */
    struct vmap_purge_report last;
} purge = {.pending_lock = SPINLOCK_INIT(&pending_class)};

static DEFINE_PER_CPU(struct purge_waiter, purge_waiter);

static bool purge_trylock(void)
{
    uint32_t nobody = 0;

    return READ_ONCE(purge.mutex) == 0 && ATOMIC_CAS(purge.mutex, &nobody, this_cpu_id() + 1);
}

bool purge_is_mine(void)
{
    return READ_ONCE(purge.mutex) == this_cpu_id() + 1;
}

static void purge_unlock(void)
{
    struct purge_waiter *w;

    ATOMIC_XCHG(purge.mutex, 0); /* before the stack is read: who pushes later finds it free */
    w = ATOMIC_XCHG(purge.waiters, NULL);
    while (w) {
        struct purge_waiter *next = w->next;
        uint32_t cpu = w->cpu;

        STORE_RELEASE(w->woken, 1); /* w may be pushed again from here on: not read after it */
        if (cpu != this_cpu_id())
            smp_wake(cpu);
        w = next;
    }
}

/*
 * Task context with interrupts on: halts until the next unlock, unless the mutex is free.
 * Elsewhere: one turn of a spin loop. True: it has the mutex, and keeps it, so that of those who
 * find it free at once one gets on. Then the node stays where it is: the next push waits until it
 * is done with.
 */
static bool purge_wait(void)
{
    struct purge_waiter *w = this_cpu_ptr(&purge_waiter);

    if (in_irq() || !irqs_enabled()) {
        tlb_poll();
        cpu_relax();
        return false;
    }
    if (w->pushed)
        smp_wait_flag(&w->woken);
    w->pushed = true;
    w->cpu = this_cpu_id();
    WRITE_ONCE(w->woken, 0);
    w->next = READ_ONCE(purge.waiters);
    while (!ATOMIC_CAS(purge.waiters, &w->next, w))
        ;
    /* An unlock before the push did not see us; it has left the mutex free, or another one
     * follows. */
    if (purge_trylock())
        return true;
    smp_wait_flag(&w->woken);
    return false;
}

enum lock_result { LOCKED, SERVED, NOT_POSSIBLE };

/*
 * Gets the mutex, or waits until a pass that began after the call has ended (`done` is its
 * counter). NOT_POSSIBLE: in an interrupt handler that came over a pass of this CPU, or over a read
 * section that who has the mutex may wait for; waiting would be for ever.
 */
static enum lock_result purge_lock(const uint64_t *done)
{
    uint64_t begun;

    smp_mb(); /* what the caller has cleared is visible before a pass that may serve it can begin */
    begun = READ_ONCE(purge.begun);
    while (!purge_trylock()) {
        if (in_irq() && (purge_is_mine() || PERCPU_READ_(tlb_gen_readers)))
            return NOT_POSSIBLE;
        if (purge_wait())
            break;
        if (LOAD_ACQUIRE(*done) > begun)
            return SERVED;
    }
    return LOCKED;
}

void flush_add(struct vmap_flush *f, uintptr_t start, uintptr_t end)
{
    if (f->start >= f->end) {
        f->start = start;
        f->end = end;
        return;
    }
    f->start = MIN(f->start, start);
    f->end = MAX(f->end, end);
}

void purge_note_pending(uintptr_t start, uintptr_t end)
{
    unsigned long flags;

    if (vmap_config.flush_gen)
        return; /* every generation covers all that was cleared before it */
    flags = spin_lock_irqsave(&purge.pending_lock);
    flush_add(&purge.pending, start, end);
    spin_unlock_irqrestore(&purge.pending_lock, flags);
}

void purge_flush_now(uintptr_t start, uintptr_t end)
{
    if (vmap_config.blocks_all)
        tlb_gen_sync(tlb_gen_stamp());
    else
        tlb_shootdown_range(start, end);
}

static void take_pending(struct vmap_flush *f)
{
    unsigned long flags = spin_lock_irqsave(&purge.pending_lock);

    if (purge.pending.start < purge.pending.end)
        flush_add(f, purge.pending.start, purge.pending.end);
    purge.pending = (struct vmap_flush){0};
    spin_unlock_irqrestore(&purge.pending_lock, flags);
}

static uint64_t list_pages(struct list_head *list, uint64_t *areas)
{
    uint64_t pages = 0;
    struct vm_area *a;

    list_for_each_entry (a, list, list) {
        pages += (a->end - a->start) >> PAGE_SHIFT;
        ++*areas;
    }
    return pages;
}

uint64_t purge_lazy_pages(void)
{
    return READ_ONCE(purge.lazy_pages);
}

uint64_t purge_waiting_bytes(void)
{
    uint64_t areas = 0;

    return list_pages(&purge.waiting, &areas) << PAGE_SHIFT;
}

static uint64_t lazy_limit __read_mostly; /* pages */

uint64_t purge_lazy_limit(void)
{
    return lazy_limit;
}

void purge_set_limit(void)
{
    if (vmap_config.purge_eager)
        lazy_limit = 0;
    else if (vmap_config.lazy_max)
        lazy_limit = vmap_config.lazy_max;
    else
        lazy_limit = (32 * SZ_1M >> PAGE_SHIFT) * fls64(smp_cpus());
}

uint64_t purge_count(void)
{
    return READ_ONCE(purge.purges);
}

/* The flush is done: what the areas kept for it goes back, then the addresses. */
static void settle(struct list_head *list, uint64_t pages)
{
    struct vm_area *a, *tmp;

    list_for_each_entry_safe (a, tmp, list, list) {
        if (a->kind == VM_KIND_PBLOCK_AREA && pblock_is_queued(a->pblock)) {
            list_del(&a->list); /* its owner takes it off the list: next time */
            pages -= (a->end - a->start) >> PAGE_SHIFT;
            node_lazy_add(a);
            continue;
        }
        if (likely(!a->keeps_frames && a->kind != VM_KIND_PBLOCK_AREA))
            continue;
        if (a->keeps_frames)
            ptmap_free_kept(a->start, a->end);
        a->keeps_frames = false;
        if (a->kind == VM_KIND_PBLOCK_AREA)
            pblock_delete(a->pblock);
        a->kind = VM_KIND_NONE;
    }
    node_pool_decay(false);
    node_settle(list);
    ATOMIC_SUB(purge.lazy_pages, pages);
}

static void report_pass(uint64_t begin, uint64_t areas, uint64_t pages)
{
    ADD_ONCE(purge.purges, 1);
    purge.last.areas = areas;
    purge.last.pages = pages;
    purge.last.cycles = rdtsc() - begin;
    purge.last.worst_cycles = MAX(purge.last.worst_cycles, purge.last.cycles);
    purge.last.locked_worst = area_longest_hold();
}

/* With the mutex: flushes f and all that waits, at most one shootdown, and settles the ranges. True
 * if any addresses came back. */
static bool purge_by_ipi(struct vmap_flush *f)
{
    uint64_t begin = rdtsc(), areas = 0, pages;
    struct list_head list;
    struct vm_area *a;

    list_init(&list);
    pages = node_lazy_take_all(&list);
    take_pending(f);
    list_for_each_entry (a, &list, list) {
        flush_add(f, a->start, a->end);
        areas++;
    }
    if (f->start < f->end)
        tlb_shootdown_range(f->start, f->end);
    if (!areas)
        return false;
    settle(&list, pages);
    report_pass(begin, areas, pages);
    return true;
}

/*
 * With the mutex: what waits for a generation that has passed is settled; what is new gets a stamp.
 * `sync` waits for all of it. True if any addresses came back.
 */
static bool purge_by_generation(bool sync)
{
    uint64_t begin = rdtsc(), areas = 0, pages;
    struct list_head ready;

    list_init(&ready);
    if (sync || list_empty(&purge.waiting)) {
        node_lazy_take_all(&purge.waiting);
        purge.stamp = tlb_gen_stamp();
        tlb_gen_advance(purge.stamp);
    }
    if (sync)
        tlb_gen_sync(purge.stamp);
    else
        tlb_gen_check();
    if (tlb_gen_passed(purge.stamp))
        list_splice_tail_init(&purge.waiting, &ready);
    pages = list_pages(&ready, &areas);
    if (!areas)
        return false;
    settle(&ready, pages);
    report_pass(begin, areas, pages);
    return true;
}

static bool purge_locked(struct vmap_flush *f, bool sync)
{
    return vmap_config.flush_gen ? purge_by_generation(sync) : purge_by_ipi(f);
}

void purge_lazy_count(uint64_t pages)
{
    ATOMIC_ADD(purge.lazy_pages, pages);
}

/* With the mutex: one pass over the areas that wait. */
static bool purge_areas(struct vmap_flush *f, uint64_t number)
{
    bool some;

    WRITE_ONCE(purge.begun, number);
    smp_mb(); /* what was unmapped before a request that saw the old number is seen below */
    some = purge_locked(f, true);
    STORE_RELEASE(purge.done_areas, number);
    return some;
}

/* purge=eager: a free ends when its own pages are flushed everywhere and settled, by this CPU or by
 * another one's pass that began later. Only a handler that came over a pass leaves them to the next
 * one. */
static void purge_at_once(void)
{
    struct vmap_flush f = {0};

    if (purge_lock(&purge.done_areas) != LOCKED)
        return;
    purge_areas(&f, purge.begun + 1);
    purge_unlock();
    if (!in_irq())
        purge_reclaim_tables_if_many();
}

void purge_lazy_added(uint64_t pages)
{
    uint64_t now = ATOMIC_ADD(purge.lazy_pages, pages) + pages, limit = lazy_limit;
    struct vmap_flush f = {0};

    if (likely(now <= limit))
        return;
    if (vmap_config.purge_eager) {
        purge_at_once();
        return;
    }
    /* A purge is long: an interrupt handler leaves it to the next task, up to twice the limit. */
    if (in_irq() && now <= 2 * limit)
        return;
    if (!purge_trylock())
        return; /* somebody is at it */
    purge_locked(&f, false);
    purge_unlock();
    if (!in_irq())
        purge_reclaim_tables_if_many();
}

/* With the mutex: one pass over everything that waits, counted for those who wait for it. */
static bool purge_pass(bool force)
{
    uint64_t number = purge.begun + 1;
    struct vmap_flush f = {0};
    bool some;

    WRITE_ONCE(purge.begun, number);
    smp_mb(); /* what was unmapped before a request that saw the old number is seen below */
    block_purge(&f, force);
    if (force)
        units_drain_all();
    some = purge_areas(&f, number);
    if (!force)
        units_recycle_all();
    if (force) {
        node_pool_decay(true);
        STORE_RELEASE(purge.done_full, number);
    }
    STORE_RELEASE(purge.done, number);
    return some;
}

bool purge_until(bool own, bool (*fn)(void *arg), void *arg)
{
    enum lock_result r = purge_lock(own ? &purge.never : &purge.done_full);
    bool done = fn(arg); /* others' passes may have been enough meanwhile */

    if (r != LOCKED)
        return done;
    if (!done) {
        purge_pass(true);
        done = fn(arg);
    }
    purge_unlock();
    return done;
}

static bool never_enough(void *arg)
{
    (void)arg;
    return false;
}

void purge_everything(void)
{
    purge_until(false, never_enough, NULL);
}

void vm_unmap_aliases(void)
{
    if (!READ_ONCE(vmap_up))
        return;
    if (!in_irq())
        kvfree_drain();
    switch (purge_lock(&purge.done)) {
    case LOCKED:
        purge_pass(false);
        purge_unlock();
        break;
    case NOT_POSSIBLE:
        /* What is unmapped is unmapped: one flush of all keeps the promise. */
        if (vmap_config.flush_gen)
            tlb_gen_sync(tlb_gen_stamp());
        else
            tlb_shootdown_all();
        break;
    case SERVED:
        break;
    }
}

void vmap_force_purge(void)
{
    vm_unmap_aliases();
}

#define RECLAIM_BATCH 64

/* Takes up to RECLAIM_BATCH free ranges of `span` bytes that have a table of `level` out of the
 * tree, from *from on. */
static unsigned take_slots(uintptr_t *from, struct vm_area **slots, unsigned level, uintptr_t span)
{
    unsigned n = 0;
    uintptr_t start, end;

    while (n < RECLAIM_BATCH && area_space_next_free(*from, &start, &end)) {
        uintptr_t slot = ALIGN_UP(start, span);

        if (slot < start || slot >= end || end - slot < span) {
            *from = end;
            continue;
        }
        slot = ptmap_next_table(slot, ALIGN_DOWN(end, span), level);
        *from = MIN(slot + span, end);
        if (slot >= ALIGN_DOWN(end, span)) {
            *from = end;
            continue;
        }
        slots[n] = area_new();
        if (!slots[n])
            break;
        if (area_space_take_at(slots[n], slot, slot + span) == OK)
            n++;
        else
            area_delete(slots[n]);
    }
    return n;
}

static void reclaim_level(unsigned level)
{
    uintptr_t span = 1UL << (PAGE_SHIFT + 9 * level), from = vmap_start;
    struct vm_area *slots[RECLAIM_BATCH];
    struct page *tables[RECLAIM_BATCH], *leaves[RECLAIM_BATCH];
    unsigned n;

    while ((n = take_slots(&from, slots, level, span)) != 0) {
        for (unsigned i = 0; i < n; i++) {
            tables[i] = ptmap_unlink_table(slots[i]->start, level);
            leaves[i] = level == 2 ? table_unlink_leaf(slots[i]->start) : NULL;
        }
        tlb_shootdown_all();
        /* A reader of the index may have answered in the middle of a read section. */
        if (vmap_table_top)
            tlb_gen_sync(tlb_gen_stamp());
        for (unsigned i = 0; i < n; i++) {
            ptmap_free_table(tables[i]);
            if (leaves[i])
                free_page(leaves[i]);
            area_space_give(slots[i]);
        }
    }
}

/*
 * A table goes back only while its addresses belong to nobody, and after a flush that drops it from
 * every paging-structure cache (SDM 3A 4.10.2.2; case E3): so they are taken out of the tree
 * meanwhile. From the last level up.
 */
void purge_reclaim_tables(void)
{
    if (purge_lock(&purge.never) != LOCKED)
        return;
    for (unsigned level = 1; level <= 3; level++)
        reclaim_level(level);
    purge_unlock();
}

void purge_reclaim_tables_if_many(void)
{
    uint64_t used = (vmap_end - vmap_start) - area_space_free();

    if (ptmap_pages() > TABLES_SLACK + 2 * (used / BLOCK_SIZE))
        purge_reclaim_tables();
}

void vmap_last_purge(struct vmap_purge_report *r)
{
    *r = purge.last;
}

void purge_init(void)
{
    spin_init(&purge.pending_lock, &pending_class);
    purge_set_limit();
    purge.lazy_pages = 0;
    list_init(&purge.waiting);
    purge.purges = 0;
    purge.pending = (struct vmap_flush){0};
    purge.last = (struct vmap_purge_report){0};
}
