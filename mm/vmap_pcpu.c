/*
 * vmap_pcpu.c: the default design's small mappings: blocks with one owner, no lock and no atomic on
 * the owner's path.
 *
 * A block is 2 MiB of addresses and one page-table page. Its owner is a queue: one for each CPU's
 * task context, one for its interrupt handlers. Only the owner takes slots, and moves freed ones
 * through live -> pending (freed) -> waiting (stamped with a flush generation) -> free. Others
 * clear the entries, set one bit in the block's remote map, and put the block on the owner's
 * lock-free list once. Slots are taken upwards from the current free run: [cursor, limit).
 */
#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include "mm/vmap_pcpu.h"
#include <arch/smp.h>
#include <arch/tlb_gen.h>

DEFINE_PER_CPU(struct pqueues, vmap_pqueues);
DEFINE_PER_CPU(struct pqueue *, vmap_pqueue_self);
static struct cache *pblock_cache;
static uint64_t block_total; /* atomic */
/* Stands for "no active block": has no room. */
static struct pblock no_block;

err_t pblock_init(void)
{
    if (!pblock_cache)
        pblock_cache = cache_create("pblock", sizeof(struct pblock), CACHE_LINE);
    return pblock_cache ? OK : ERR_NOMEM;
}

err_t pblock_cpu_init(unsigned cpu)
{
    struct pqueues *qs = per_cpu_ptr(&vmap_pqueues, cpu);

    *per_cpu_ptr(&vmap_pqueue_self, cpu) = &qs->context[0];
    for (unsigned c = 0; c < ARRAY_SIZE(qs->context); c++) {
        struct pqueue *q = &qs->context[c];

        memset(q, 0, sizeof(*q));
        q->active = &no_block;
        q->cpu = cpu;
        list_init(&q->full);
        list_init(&q->partial);
        list_init(&q->empty);
        list_init(&q->dirty);
        list_init(&q->waiting);
    }
    return OK;
}

unsigned pblock_keep_empty(void)
{
    uint64_t fair = vmap_config.range_size / BLOCK_SIZE / 8 / smp_cpus();

    /* Of a small range others need their share. */
    return (unsigned)MIN((uint64_t)MAX(8u, MIN(64u, 4096 / smp_cpus())), fair);
}

uint64_t pblock_count(void)
{
    return READ_ONCE(block_total);
}

/* ---- making and giving back ---- */

static struct pblock *pblock_new(struct pqueue *q)
{
    struct pblock *b = cache_alloc(pblock_cache);
    struct page *slots;

    if (!b)
        return NULL;
    memset(b, 0, sizeof(*b));
    slots = alloc_page_zeroed();
    if (!slots)
        goto err_block;
    b->slots = page_address(slots);
    b->area = vmap_area_alloc(BLOCK_SIZE, BLOCK_SIZE, 0);
    if (!b->area)
        goto err_slots;
    b->start = b->area->start;
    b->table = ptmap_table_for(b->start);
    if (!b->table || table_reserve(b->start, b->start + BLOCK_SIZE) != OK)
        goto err_area;
    b->queue = b->home = q;
    b->owner_type = OWNER_BLOCK;
    b->free = BLOCK_PAGES;
    b->state = PBLOCK_EMPTY;
    b->area->kind = VM_KIND_PBLOCK_AREA;
    b->area->pblock = b;
    ATOMIC_ADD(block_total, 1);
    /* Whole before anyone can find it (case A4). */
    node_busy_insert(b->area);
    table_set(b->start, b->start + BLOCK_SIZE, (struct vmap_owner *)b);
    q->blocks++;
    return b;

err_area:
    vmap_area_free_unused(b->area);
err_slots:
    free_page(slots);
err_block:
    cache_free(pblock_cache, b);
    return NULL;
}

/* b has nothing live, pending or waiting, and is on no list: its addresses wait for a generation,
 * and its bookkeeping with them (lookups may still hold it). */
static void pblock_release(struct pqueue *q, struct pblock *b)
{
    struct vm_area *a = b->area;

    table_clear(b->start, b->start + BLOCK_SIZE);
    node_busy_remove(a);
    q->blocks--;
    node_lazy_add(a);
    purge_lazy_added(BLOCK_PAGES);
}

bool pblock_is_queued(const struct pblock *b)
{
    return LOAD_ACQUIRE(b->remote_queued);
}

void pblock_delete(struct pblock *b)
{
    free_page(virt_to_page(b->slots));
    cache_free(pblock_cache, b);
    ATOMIC_SUB(block_total, 1);
}

/* ---- the owner's side ---- */

static void list_move_to(struct pblock *b, struct list_head *list, unsigned state)
{
    list_add_tail(&b->link, list);
    b->state = (uint8_t)state;
}

/* Ends the current run: what was taken of it is used, the rest stays free. */
static void leave_run(struct pqueue *q, struct pblock *b)
{
    unsigned taken = b->cursor - b->run_start;

    if (taken) {
        slot_bits_set(b->used, b->run_start, taken);
        b->free -= (uint16_t)taken;
        q->used_pages += taken;
    }
    b->run_start = b->cursor = b->limit = 0;
}

/* Starts the first run at or behind `from` with room for n pages at `align`; false if there is
 * none. */
static bool enter_run(struct pblock *b, unsigned from, unsigned n, unsigned align)
{
    unsigned at;

    if (b->free < n)
        return false;
    if (b->free == BLOCK_PAGES) { /* the usual one: no search */
        b->limit = BLOCK_PAGES;
        return true;
    }
    at = bitmap_find_clear_run(b->used, BLOCK_PAGES, from, n, align);
    if (at >= BLOCK_PAGES)
        return false;
    b->run_start = b->cursor = at;
    b->limit = bitmap_next_set(b->used, BLOCK_PAGES, at);
    return true;
}

static bool any_pending(const struct pblock *b)
{
    uint64_t any = 0;

    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++)
        any |= b->pending[w];
    return any != 0;
}

/* The active block has no room: where it goes, follows from what is in it. */
static void park(struct pqueue *q, struct pblock *b)
{
    leave_run(q, b);
    if (b->free >= PBLOCK_PARTIAL_MIN)
        list_move_to(b, &q->partial, PBLOCK_PARTIAL);
    else if (any_pending(b))
        list_move_to(b, &q->dirty, PBLOCK_DIRTY);
    else {
        list_move_to(b, &q->full, PBLOCK_FULL);
        b->queue = NULL;
    }
}

/* Frees of other contexts become pending ones. */
static void collect_remote(struct pqueue *q)
{
    struct pblock *b;

    if (!READ_ONCE(q->remote))
        return;
    b = ATOMIC_XCHG(q->remote, NULL);
    while (b) {
        struct pblock *next = b->remote_next;

        /* Down before the bits are taken: who sets a bit later puts the block on the list again. */
        ATOMIC_XCHG(b->remote_queued, 0);
        for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
            uint64_t bits = READ_ONCE(b->remote[w]) ? ATOMIC_XCHG(b->remote[w], 0) : 0;

            for (; bits; bits &= bits - 1) {
                unsigned slot = w * 64 + (unsigned)__builtin_ctzll(bits);

                pblock_note_free(q, b, slot, b->slots[slot].span);
            }
        }
        b = next;
    }
}

/* In frames=safe the entries have kept the frames of what was freed: they go back now. */
static void free_waiting_frames(struct pblock *b)
{
    unsigned slot;

    bitmap_for_each_set (slot, b->waiting, BLOCK_PAGES) {
        pte_t e = pte_read(&b->table[slot]);

        if (!e)
            continue;
        pte_write(&b->table[slot], 0);
        free_page(phys_to_page(pte_phys(e)));
    }
}

/* b's generation has passed: its waiting slots are free. */
static void recycle(struct pqueue *q, struct pblock *b)
{
    if (vmap_config.frames_safe)
        free_waiting_frames(b);
#pragma GCC unroll 8
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
        uint64_t keep = ~b->waiting[w];

        b->used[w] &= keep;
        WRITE_ONCE(b->starts[w], b->starts[w] & keep);
    }
    b->free += b->waiting_pages; /* what `waiting` says no longer counts */
    q->used_pages -= b->waiting_pages;
    b->waiting_pages = 0;
    q->waiting_blocks--;
    if (b->free == BLOCK_PAGES) {
        list_move_to(b, &q->empty, PBLOCK_EMPTY);
        q->empty_blocks++;
    } else {
        park(q, b);
    }
}

static void recycle_passed(struct pqueue *q, unsigned most)
{
    while (most-- && !list_empty(&q->waiting)) {
        struct pblock *b = list_first_entry(&q->waiting, struct pblock, link);

        if (!tlb_gen_passed(b->stamp))
            break;
        list_del(&b->link);
        recycle(q, b);
    }
}

/* Freed slots of b wait for generation `stamp`. */
static void stamp_block(struct pqueue *q, struct pblock *b, unsigned pages, uint64_t stamp)
{
#pragma GCC unroll 8
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
        b->waiting[w] = b->pending[w];
        b->pending[w] = 0;
    }
    b->waiting_pages = (uint16_t)pages;
    b->stamp = stamp;
    list_move_to(b, &q->waiting, PBLOCK_WAITING);
    q->waiting_blocks++;
    if (q->last_stamp != stamp) {
        q->last_stamp = stamp;
        q->stamped_pages = 0;
    }
    q->stamped_pages += b->waiting_pages;
}

/* Freed pages of b that wait for a stamp. Mostly all that were taken of it are. */
static unsigned pending_pages(const struct pblock *b)
{
    uint64_t differ = 0;

#pragma GCC unroll 8
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++)
        differ |= b->pending[w] ^ b->used[w];
    if (differ)
        return bitmap_weight(b->pending, BLOCK_PAGES);
    return BLOCK_PAGES - b->free;
}

/* Stamps dirty blocks, one fence for all; begins the generation when enough waits for it. */
static void stamp_dirty(struct pqueue *q, unsigned most, bool all)
{
    uint64_t stamp = 0;

    while (most-- && !list_empty(&q->dirty)) {
        struct pblock *b = list_first_entry(&q->dirty, struct pblock, link);

        unsigned pages = pending_pages(b);

        list_del(&b->link);
        if (!all && pages < PBLOCK_STAMP_MIN && pages + b->free != BLOCK_PAGES) {
            list_move_to(b, &q->dirty, PBLOCK_DIRTY);
            continue;
        }
        if (!stamp)
            stamp = tlb_gen_stamp();
        stamp_block(q, b, pages, stamp);
    }
    if (stamp && (all || q->stamped_pages >= PBLOCK_ADVANCE_PAGES)) {
        tlb_gen_advance(stamp);
        q->advanced_at = rdtsc();
    }
}

/* Empty blocks above the bound go back to the tree. */
static void trim_empty(struct pqueue *q, unsigned keep, unsigned most)
{
    while (q->empty_blocks > keep && most--) {
        struct pblock *b = list_first_entry(&q->empty, struct pblock, link);

        /* One that a late remote free has queued is still to be collected: a purge could delete it
         * meanwhile. */
        if (LOAD_ACQUIRE(b->remote_queued))
            break;
        list_del(&b->link);
        q->empty_blocks--;
        pblock_release(q, b);
    }
}

/* A free run for n pages, in one of the first partly used blocks. */
static struct pblock *pick_partial(struct pqueue *q, unsigned n, unsigned align)
{
    for (unsigned tries = 0; tries < PBLOCK_PARTIAL_TRIES && !list_empty(&q->partial); tries++) {
        struct pblock *b = list_first_entry(&q->partial, struct pblock, link);

        list_del(&b->link);
        if (enter_run(b, 0, n, align))
            return b;
        if (any_pending(b))
            list_move_to(b, &q->dirty, PBLOCK_DIRTY);
        else
            list_move_to(b, &q->partial, PBLOCK_PARTIAL);
    }
    return NULL;
}

/* Addresses are short: any run that is long enough, wherever it is. */
static struct pblock *pick_scraps(struct pqueue *q, unsigned n, unsigned align)
{
    struct list_head *lists[] = {&q->partial, &q->full};
    struct pblock *b;

    for (unsigned i = 0; i < ARRAY_SIZE(lists); i++) {
        list_for_each_entry (b, lists[i], link) {
            if (enter_run(b, 0, n, align)) {
                list_del(&b->link);
                b->queue = q;
                return b;
            }
        }
    }
    return NULL;
}

static struct pblock *pick_empty(struct pqueue *q)
{
    struct pblock *b;

    if (list_empty(&q->empty))
        return NULL;
    b = list_first_entry(&q->empty, struct pblock, link);
    list_del(&b->link);
    q->empty_blocks--;
    return b;
}

/* Too many blocks wait: remind who is late, and in the end wait for it. */
static void press_laggards(struct pqueue *q)
{
    if (q->waiting_blocks < PBLOCK_WAITING_SOFT)
        return;
    tlb_gen_advance(q->last_stamp);
    if (q->waiting_blocks >= PBLOCK_WAITING_HARD) {
        tlb_gen_sync(list_first_entry(&q->waiting, struct pblock, link)->stamp);
    } else if (rdtsc() - q->advanced_at > clock_us_to_cycles(PBLOCK_DEADLINE_US)) {
        tlb_gen_kick(list_first_entry(&q->waiting, struct pblock, link)->stamp, false);
        q->advanced_at = rdtsc();
    }
}

/* Makes a block with room for n pages active. Bounded work: a few blocks of each list. */
static __noinline struct pblock *refill(struct pqueue *q, unsigned n, unsigned align)
{
    struct pblock *b = q->active;

    if (b != &no_block) {
        unsigned behind = b->limit;

        leave_run(q, b);
        if (enter_run(b, behind, n, align))
            return b;
        q->active = &no_block;
        park(q, b);
    }
    collect_remote(q);
    stamp_dirty(q, PBLOCK_STEP, false);
    tlb_gen_check();
    recycle_passed(q, PBLOCK_STEP);
    trim_empty(q, pblock_keep_empty(), 1);
    press_laggards(q);
    /* Whole blocks are cheaper to fill than holes; holes are used when they are most of what there
     * is. */
    b = pick_empty(q);
    if (!b &&
        (uint64_t)q->blocks * BLOCK_PAGES > PBLOCK_SPARSE * q->used_pages + PBLOCK_SLACK_PAGES)
        b = pick_partial(q, n, align);
    if (!b)
        b = pblock_new(q);
    if (!b) {
        /* No addresses or no memory: wait for everything of this queue that can come back. */
        pblock_drain(q);
        b = pick_empty(q);
        if (!b)
            b = pick_scraps(q, n, align);
        if (!b)
            return NULL;
    }
    if (b->limit == b->cursor && !enter_run(b, 0, n, align))
        ASSERT(!"an empty block without room");
    b->state = PBLOCK_ACTIVE;
    q->active = b;
    return b;
}

bool pblock_room(unsigned n)
{
    struct pqueue *q = &this_cpu_ptr(&vmap_pqueues)->context[0];

    return q->active->cursor + n <= q->active->limit || refill(q, n, 1);
}

void pblock_note_free_long(struct pblock *b, unsigned slot, unsigned span)
{
    pblock_note_free(b->home, b, slot, span);
}

void *pblock_map_slow(struct page *const *pages, unsigned count, unsigned align, struct pslot slot,
                      pgprot_t prot)
{
    struct pqueue *q = pqueue_mine();
    struct pblock *b = q->active;
    unsigned at = ALIGN_UP(b->cursor, align);

    if (at + slot.span > b->limit) {
        b = refill(q, slot.span, align);
        if (!b)
            return NULL;
        at = ALIGN_UP(b->cursor, align);
    }
    if (at != b->cursor) {
        /* The gap stays free: it is not part of the run that begins behind it. */
        unsigned limit = b->limit;

        leave_run(q, b);
        b->run_start = b->cursor = at;
        b->limit = limit;
    }
    return pblock_take(b, at, pages, count, slot, prot);
}

/* ---- everybody's side ---- */

void pblock_free_remote(struct pblock *b, unsigned slot)
{
    struct pqueue *q = b->home;
    struct pblock *first;

    /* Once the bit is set the owner may collect it, empty the block and let go of it: the block
     * must outlive the push. */
    tlb_gen_read_begin();
    /* The cleared entries are visible before the bit is: a locked operation. */
    ATOMIC_OR(b->remote[slot / 64], 1ULL << (slot % 64));
    if (!READ_ONCE(b->remote_queued) && !ATOMIC_XCHG(b->remote_queued, 1)) {
        first = READ_ONCE(q->remote);
        do
            b->remote_next = first;
        while (!ATOMIC_CAS(q->remote, &first, b));
    }
    tlb_gen_read_end();
}

static unsigned mapping_at(const struct pblock *b, unsigned slot, struct pslot *d)
{
    uint64_t starts[BITMAP_WORDS(BLOCK_PAGES)];
    unsigned at;

    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++)
        starts[w] = LOAD_ACQUIRE(b->starts[w]); /* partner: pblock_describe() */
    at = bitmap_prev_set(starts, BLOCK_PAGES, slot);
    if (at == BLOCK_PAGES)
        return BLOCK_PAGES;
    *d = pslot_read(&b->slots[at]);
    return d->kind && slot - at < d->pages ? at : BLOCK_PAGES;
}

static void describe(const struct pblock *b, unsigned at, struct pslot d, struct vm_area_info *out)
{
    out->start = (void *)(b->start + at * PAGE_SIZE);
    out->size = d.pages * PAGE_SIZE;
    out->kind = d.kind == VM_KIND_MAP_OWNED ? VM_KIND_MAP : d.kind;
    out->caller = pslot_caller(d);
}

bool pblock_find(struct pblock *b, uintptr_t addr, struct vm_area_info *out)
{
    struct pslot d;
    unsigned at = mapping_at(b, (addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT, &d);

    if (at == BLOCK_PAGES)
        return false;
    describe(b, at, d, out);
    return true;
}

bool pblock_next(struct pblock *b, uintptr_t addr, struct vm_area_info *out)
{
    unsigned slot = (addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT;
    struct pslot d;
    unsigned at = mapping_at(b, slot, &d);

    while (at == BLOCK_PAGES) {
        if (++slot == BLOCK_PAGES)
            return false;
        if (LOAD_ACQUIRE(b->starts[slot / 64]) >> (slot % 64) & 1)
            at = mapping_at(b, slot, &d);
    }
    describe(b, at, d, out);
    return true;
}

/* ---- draining and checking ---- */

void pblock_drain(struct pqueue *q)
{
    struct pblock *b = q->active;

    if (b != &no_block) {
        q->active = &no_block;
        park(q, b);
    }
    collect_remote(q);
    for (unsigned pass = 0; pass < 2; pass++) {
        /* Partly used blocks with freed slots go through a generation, too. */
        struct pblock *tmp;

        list_for_each_entry_safe (b, tmp, &q->partial, link) {
            if (any_pending(b)) {
                list_del(&b->link);
                list_move_to(b, &q->dirty, PBLOCK_DIRTY);
            }
        }
        stamp_dirty(q, UINT32_MAX, true);
        if (!list_empty(&q->waiting))
            tlb_gen_sync(list_last_entry(&q->waiting, struct pblock, link)->stamp);
        recycle_passed(q, UINT32_MAX);
    }
}

void pblock_drain_local(void)
{
    struct pqueues *qs = this_cpu_ptr(&vmap_pqueues);

    for (unsigned c = 0; c < ARRAY_SIZE(qs->context); c++) {
        /* The handlers' queue belongs to handlers: they are kept out meanwhile. */
        unsigned long flags = c ? irq_save() : 0;
        struct pqueue *q = &qs->context[c];

        pblock_drain(q);
        trim_empty(q, 0, UINT32_MAX);
        if (c)
            irq_restore(flags);
    }
}

bool pblock_exit(void)
{
    return READ_ONCE(block_total) == 0;
}

static const char *check_block(const struct pblock *b, const struct pqueue *q)
{
    unsigned live = 0, slot, taken = b->cursor - b->run_start;

    if (b->home != q)
        return "a block on another queue";
    bitmap_for_each_set (slot, b->starts, BLOCK_PAGES) {
        struct pslot d = b->slots[slot];

        if (!d.kind)
            continue;
        live += d.span;
        for (unsigned i = 0; i < d.pages; i++)
            if (!pte_present(pte_read(&b->table[slot + i])))
                return "a mapping without an entry";
    }
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++)
        if (b->waiting_pages && (b->pending[w] & b->waiting[w] || b->waiting[w] & ~b->used[w]))
            return "a slot in two states";
    if (b->waiting_pages && bitmap_weight(b->waiting, BLOCK_PAGES) != b->waiting_pages)
        return "freed slots miscounted";
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
        uint64_t bits = b->remote[w];

        for (; bits; bits &= bits - 1)
            live += b->slots[w * 64 + (unsigned)__builtin_ctzll(bits)].span;
    }
    if (bitmap_weight(b->used, BLOCK_PAGES) + b->free != BLOCK_PAGES)
        return "used and free slots that are not all";
    if (live + bitmap_weight(b->pending, BLOCK_PAGES) + b->waiting_pages + b->free !=
        BLOCK_PAGES + taken)
        return "slots that are neither live, freed nor free";
    return NULL;
}

static const char *check_list(const struct pqueue *q, struct list_head *list, unsigned state,
                              uint64_t *seen)
{
    const char *wrong = NULL;
    struct pblock *b;

    list_for_each_entry (b, list, link) {
        const char *w = b->state == state ? check_block(b, q) : "a block in the wrong list";

        wrong = w ? w : wrong;
        ++*seen;
    }
    return wrong;
}

static const char *check_queue(struct pqueue *q)
{
    const char *wrong = NULL, *w;
    uint64_t seen = 0;

    if (q->active != &no_block) {
        wrong = check_block(q->active, q);
        seen++;
    }
    w = check_list(q, &q->partial, PBLOCK_PARTIAL, &seen);
    wrong = w ? w : wrong;
    w = check_list(q, &q->full, PBLOCK_FULL, &seen);
    wrong = w ? w : wrong;
    w = check_list(q, &q->empty, PBLOCK_EMPTY, &seen);
    wrong = w ? w : wrong;
    w = check_list(q, &q->dirty, PBLOCK_DIRTY, &seen);
    wrong = w ? w : wrong;
    w = check_list(q, &q->waiting, PBLOCK_WAITING, &seen);
    wrong = w ? w : wrong;
    return seen != q->blocks ? "a wrong number of blocks" : wrong;
}

bool pblock_check(void)
{
    const char *wrong = NULL;
    unsigned cpu;

    for_each_cpu (cpu) {
        struct pqueues *qs = per_cpu_ptr(&vmap_pqueues, cpu);

        for (unsigned c = 0; c < ARRAY_SIZE(qs->context); c++) {
            const char *w = qs->context[c].active ? check_queue(&qs->context[c]) : NULL;

            wrong = w ? w : wrong;
        }
    }
    if (wrong)
        kprintf("# selfcheck: per-CPU blocks: %s\n", wrong);
    return !wrong;
}
