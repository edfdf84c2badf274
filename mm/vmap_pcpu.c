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
#include "mm/vmap_frames.h"
#include "mm/vmap_internal.h"
#include "mm/vmap_pcpu.h"
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>

DEFINE_PER_CPU(struct pqueues, vmap_pqueues);
DEFINE_PER_CPU(struct pqueue *, vmap_pqueue_self);
static struct cache *pblock_cache;
static uint64_t block_total; /* atomic */
/* Stands for "no active block": has no room. */
static struct pblock no_block;
/* Empty blocks that a queue keeps, at least and at most. Blocks that wait before the owner gives
 * way to CPUs that are late, before it does so at once, before they are interrupted, and before the
 * owner waits for them. */
static struct {
    unsigned least, most, late, crowd, soft, hard;
} keep __read_mostly;
/* When a queue last began a generation. */
static struct {
    uint64_t at;
} advanced __cacheline;

/* Rounds of giving up blocks, or the frames in them, for others so far. */
static struct {
    uint32_t rounds;
} shortage __cacheline;

err_t pblock_init(void)
{
    if (!pblock_cache)
        pblock_cache = cache_create("pblock", sizeof(struct pblock), CACHE_LINE);
    advanced.at = 0;
    shortage.rounds = 0;
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
        list_init(&q->waiting[0]);
        list_init(&q->waiting[1]);
    }
    return OK;
}

/* Their table pages and bookkeeping are memory that nobody else has, their addresses, of a small
 * range, what others need: all queues together keep at most an eighth of the range and a 32nd of
 * memory. */
void pblock_set_limits(void)
{
    unsigned cpus = smp_cpus();
    uint64_t addresses = vmap_config.range_size / BLOCK_SIZE / 8 / cpus;
    uint64_t memory = page_total() / 32 / PBLOCK_OWN_PAGES / cpus;
    uint64_t frames = MAX(purge_lazy_limit() / BLOCK_PAGES / cpus, 2 * PBLOCK_ADVANCE_BLOCKS);

    keep.most = (unsigned)MIN(MIN(addresses, memory), (uint64_t)PBLOCK_WAITING_HARD);
    keep.least = MIN(vmap_keep_each(), keep.most);
    keep.soft = PBLOCK_WAITING_SOFT;
    keep.hard = PBLOCK_WAITING_HARD;
    if (vmap_config.frames_safe) { /* their frames wait with them, and stay in empty ones */
        keep.soft = keep.hard = (unsigned)MIN(frames, (uint64_t)PBLOCK_WAITING_SOFT);
        keep.most = MIN(keep.most, keep.hard);
        keep.least = MIN(keep.least, keep.most);
    }
    keep.late = MIN(MAX(MIN(keep.most, keep.soft) / 4, 2u), PBLOCK_LATE);
    keep.crowd = MAX(MIN(keep.most, keep.soft) * 3 / 4, 2 * keep.late);
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
    ADD_ONCE(q->blocks, 1);
    return b;

err_area:
    vmap_area_free_unused(b->area);
err_slots:
    free_page(slots);
err_block:
    cache_free(pblock_cache, b);
    return NULL;
}

static bool is_task_queue(const struct pqueue *q)
{
    return q == &this_cpu_ptr(&vmap_pqueues)->context[0];
}

/* In frames=safe the entries of what was freed have kept its frames; they are taken when the slots
 * are used again. Deals with [at, at + n) of a block, or the first part of it: returns how much. */
static unsigned take_kept(struct pqueue *q, struct pblock *b, unsigned at, unsigned n)
{
    if (is_task_queue(q))
        return frames_take_kept(b->table, at, n);
    n = MIN(n, (unsigned)FRAMES_BATCH);
    ptmap_free_kept(b->start + at * PAGE_SIZE, b->start + (at + n) * PAGE_SIZE);
    return n;
}

static void take_all_kept(struct pqueue *q, struct pblock *b, unsigned at, unsigned end)
{
    while (at < end)
        at += take_kept(q, b, at, end - at);
}

/* b has nothing live, pending or waiting, and is on no list: its addresses wait for a generation,
 * and its bookkeeping with them (lookups may still hold it). */
static void pblock_release(struct pqueue *q, struct pblock *b, bool may_purge)
{
    struct vm_area *a = b->area;

    ASSERT_DBG(!READ_ONCE(b->remote_queued)); /* nor on the list of remote frees */
    if (vmap_config.frames_safe)
        take_all_kept(q, b, 0, BLOCK_PAGES);
    table_clear(b->start, b->start + BLOCK_SIZE);
    node_busy_remove(a);
    SUB_ONCE(q->blocks, 1);
    node_lazy_add(a);
    if (may_purge)
        purge_lazy_added(BLOCK_PAGES);
    else
        purge_lazy_count(BLOCK_PAGES);
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

static void add_empty(struct pqueue *q, struct pblock *b)
{
    list_move_to(b, &q->empty, PBLOCK_EMPTY);
    ADD_ONCE(q->empty_blocks, 1);
}

/* Ends the current run: what was taken of it is used, the rest stays free. */
static void leave_run(struct pqueue *q, struct pblock *b)
{
    unsigned taken = b->cursor - b->run_start;

    if (taken == BLOCK_PAGES) {
#pragma GCC unroll 8
        for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++)
            b->used[w] = ~0ULL;
    } else if (taken) {
        slot_bits_set(b->used, b->run_start, taken);
    }
    b->free -= (uint16_t)taken;
    q->used_pages += taken;
    b->run_start = b->run_end = b->cursor = b->limit = 0;
}

/* Where the short way ends once [.., end) is taken. The larger the operations the fewer they are,
 * and the smaller a part of them upkeep is. */
static void open_chapter(struct pblock *b, unsigned end, unsigned n)
{
    unsigned chapter = n <= 8 ? PBLOCK_CHAPTER : n <= 32 ? 2 * PBLOCK_CHAPTER : BLOCK_PAGES;

    b->limit = MIN(ALIGN_UP(end, chapter), b->run_end);
}

/* Starts the first run at or behind `from` with room for n pages at `align`; false if there is
 * none. */
static bool enter_run(struct pqueue *q, struct pblock *b, unsigned from, unsigned n, unsigned align)
{
    unsigned at = 0;

    if (b->free < n)
        return false;
    if (likely(b->free == BLOCK_PAGES)) { /* the usual one: no search */
        b->run_end = BLOCK_PAGES;
    } else {
        at = bitmap_find_clear_run(b->used, BLOCK_PAGES, from, n, align);
        if (at >= BLOCK_PAGES)
            return false;
        b->run_end = bitmap_next_set(b->used, BLOCK_PAGES, at);
    }
    if (unlikely(vmap_config.frames_safe)) {
        unsigned end = at;

        while (end < at + n)
            end += take_kept(q, b, end, b->run_end - end);
        b->run_end = end;
    }
    b->run_start = b->cursor = at;
    open_chapter(b, at + n, n);
    return true;
}

static bool any_pending(const struct pblock *b)
{
    uint64_t any = 0;

#pragma GCC unroll 8
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++)
        any |= b->pending[w];
    return any != 0;
}

/* The active block has no room: where it goes, follows from what is in it. */
static void park(struct pqueue *q, struct pblock *b)
{
    leave_run(q, b);
    if (any_pending(b)) {
        list_add(&b->link, &q->dirty); /* first: it is still in the caches */
        b->state = PBLOCK_DIRTY;
        ADD_ONCE(q->dirty_blocks, 1);
        return;
    }
    if (unlikely(b->free == BLOCK_PAGES)) { /* nothing was taken, for want of frames */
        add_empty(q, b);
        return;
    }
    if (b->free >= PBLOCK_PARTIAL_MIN)
        list_move_to(b, &q->partial, PBLOCK_PARTIAL);
    else
        list_move_to(b, &q->full, PBLOCK_FULL);
    WRITE_ONCE(b->queue, NULL);
}

/* Those of b that others have freed become pending ones. Returns how many. */
static unsigned collect_block(struct pqueue *q, struct pblock *b)
{
    unsigned n = 0;

    /* Down before the bits are taken: who sets a bit later puts the block on the list again. */
    ATOMIC_XCHG(b->remote_queued, 0);
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
        uint64_t bits = READ_ONCE(b->remote[w]) ? ATOMIC_XCHG(b->remote[w], 0) : 0;

        for (; bits; bits &= bits - 1) {
            unsigned slot = w * 64 + (unsigned)__builtin_ctzll(bits);

            pblock_note_free(q, b, slot, b->slots[slot].span);
            n++;
        }
    }
    return n;
}

/* Frees of other contexts, about `most` of them. */
static void collect_remote(struct pqueue *q, unsigned most)
{
    unsigned n = 0;

    while (n < most) {
        struct pblock *b = q->collecting;

        if (!b) {
            if (!READ_ONCE(q->remote))
                return;
            b = ATOMIC_XCHG(q->remote, NULL);
        }
        WRITE_ONCE(q->collecting, b->remote_next); /* while it is queued nobody else writes that */
        n += collect_block(q, b);
    }
}

/* b's generation has passed: its waiting slots are free. */
static void recycle(struct pqueue *q, struct pblock *b)
{
    q->used_pages -= b->waiting_pages;
    SUB_ONCE(q->waiting_blocks, 1);
    b->free += b->waiting_pages;
    b->waiting_pages = 0; /* what `waiting` says no longer counts */
    if (likely(b->whole)) {
        b->whole = false;
#pragma GCC unroll 8
        for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
            b->pending[w] = b->used[w] = 0;
            WRITE_ONCE(b->starts[w], 0);
        }
    } else {
        q->waiting_parts--;
#pragma GCC unroll 8
        for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
            uint64_t still = ~b->waiting[w];

            b->used[w] &= still;
            WRITE_ONCE(b->starts[w], b->starts[w] & still);
        }
    }
    if (b->free == BLOCK_PAGES)
        add_empty(q, b);
    else
        park(q, b);
}

static void recycle_passed(struct pqueue *q, struct list_head *list, unsigned most)
{
    while (most-- && !list_empty(list)) {
        struct pblock *b = list_first_entry(list, struct pblock, link);

        if (!tlb_gen_passed(b->stamp))
            break;
        list_del(&b->link);
        recycle(q, b);
    }
}

/* Up to `most` of either list. */
static void recycle_both(struct pqueue *q, unsigned most)
{
    recycle_passed(q, &q->waiting[1], most);
    recycle_passed(q, &q->waiting[0], most);
}

/* The stamp that some block of q has waited for longest; q has one that waits. */
static uint64_t oldest_stamp(struct pqueue *q)
{
    uint64_t oldest = q->last_stamp;

    for (unsigned i = 0; i < ARRAY_SIZE(q->waiting); i++)
        if (!list_empty(&q->waiting[i]))
            oldest = MIN(oldest, list_first_entry(&q->waiting[i], struct pblock, link)->stamp);
    return oldest;
}

/* Freed slots of b, `pages` of them, wait for generation `stamp`. */
static void stamp_block(struct pqueue *q, struct pblock *b, unsigned pages, uint64_t stamp)
{
    b->whole = pages + b->free == BLOCK_PAGES;
    if (unlikely(!b->whole)) {
        q->waiting_parts++;
#pragma GCC unroll 8
        for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
            b->waiting[w] = b->pending[w];
            b->pending[w] = 0;
        }
    }
    b->waiting_pages = (uint16_t)pages;
    b->stamp = stamp;
    list_move_to(b, &q->waiting[b->whole], PBLOCK_WAITING);
    SUB_ONCE(q->dirty_blocks, 1);
    ADD_ONCE(q->waiting_blocks, 1);
    q->peak = MAX(q->peak, q->waiting_blocks);
    if (q->last_stamp != stamp) {
        q->last_stamp = stamp;
        q->stamped_pages = 0;
    }
    q->stamped_pages += pages;
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

/* Enough waits for a generation, and the last one is long enough ago. */
static bool worth_a_generation(struct pqueue *q)
{
    if (q->stamped_pages < PBLOCK_ADVANCE_PAGES)
        return false;
    return q->stamped_pages >= 8 * PBLOCK_ADVANCE_PAGES ||
           rdtsc() - READ_ONCE(advanced.at) >= clock_us_to_cycles(PBLOCK_ADVANCE_US);
}

static void advance(struct pqueue *q)
{
    tlb_gen_advance(q->last_stamp);
    q->advanced_at = rdtsc();
    WRITE_ONCE(advanced.at, q->advanced_at);
}

/* Blocks that one operation moves: more of them the more there are, so that no list grows. */
static unsigned step(unsigned blocks)
{
    return MIN(1 + blocks / PBLOCK_STEP_BACKLOG, PBLOCK_STEP_MAX);
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
    if (stamp && (all || worth_a_generation(q)))
        advance(q);
}

/* Empty blocks that are worth keeping: as many as were in flight at once lately, so that a steady
 * load makes no new ones, whatever the time that a generation takes. */
static unsigned worth_keeping(struct pqueue *q)
{
    uint64_t now = q->advanced_at; /* recent enough, and needs no look at the clock */

    if (unlikely(now - q->epoch > clock_us_to_cycles(PBLOCK_EPOCH_US))) {
        q->keep = MAX(q->peak, q->keep - q->keep / 4);
        q->peak = q->waiting_blocks;
        q->epoch = now;
    }
    return MIN(MAX(q->peak, q->keep) + keep.least, keep.most);
}

/* Empty blocks above the bound go back to the tree. */
static void trim_empty(struct pqueue *q, unsigned bound, unsigned most, bool may_purge)
{
    while (q->empty_blocks > bound && most--) {
        struct pblock *b = list_first_entry(&q->empty, struct pblock, link);

        /* One that a late remote free has queued is still to be collected: a purge could delete it
         * meanwhile. */
        if (pblock_is_queued(b))
            break;
        list_del(&b->link);
        SUB_ONCE(q->empty_blocks, 1);
        pblock_release(q, b, may_purge);
    }
}

/* A free run for n pages, in one of the first partly used blocks. */
static struct pblock *pick_partial(struct pqueue *q, unsigned n, unsigned align)
{
    for (unsigned tries = 0; tries < PBLOCK_PARTIAL_TRIES && !list_empty(&q->partial); tries++) {
        struct pblock *b = list_first_entry(&q->partial, struct pblock, link);

        list_del(&b->link);
        if (enter_run(q, b, 0, n, align))
            return b;
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
            if (enter_run(q, b, 0, n, align)) {
                list_del(&b->link);
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
    SUB_ONCE(q->empty_blocks, 1);
    return b;
}

/* Too many blocks wait: remind who is late, and in the end wait for it. */
static void press_laggards(struct pqueue *q)
{
    tlb_gen_advance(q->last_stamp);
    if (q->waiting_blocks >= keep.hard) {
        ADD_ONCE(q->busy, 1);
        tlb_gen_sync(oldest_stamp(q));
        SUB_ONCE(q->busy, 1);
        recycle_both(q, PBLOCK_STEP_MAX);
    } else if (rdtsc() - q->advanced_at > clock_us_to_cycles(PBLOCK_DEADLINE_US)) {
        tlb_gen_kick(oldest_stamp(q), false);
        q->advanced_at = rdtsc();
    }
}

/*
 * Many blocks wait, and others have not flushed for a while: where CPUs take turns they most likely
 * do not run because this one does, and more addresses would only spread over more memory. True: it
 * has waited for them.
 */
static bool give_way(struct pqueue *q)
{
    uint64_t oldest = oldest_stamp(q), now = rdtsc();

    if ((int64_t)(now - q->impatient) < 0)
        return false;
    if (q->waiting_blocks < keep.crowd) {
        if (q->late_stamp != oldest) {
            q->late_stamp = oldest;
            q->late_since = now;
            return false;
        }
        if (now - q->late_since < clock_us_to_cycles(PBLOCK_LATE_US))
            return false;
    }
    ADD_ONCE(q->busy, 1);
    if (!tlb_gen_wait(q->last_stamp, PBLOCK_DEADLINE_US))
        q->impatient = rdtsc() + clock_us_to_cycles(PBLOCK_IMPATIENT_US);
    SUB_ONCE(q->busy, 1);
    recycle_both(q, PBLOCK_STEP_MAX);
    return true;
}

/*
 * What each block's worth of operations must do, in three bits, of which the first `until` are done
 * on return. The block that was parked last, most likely wholly freed, is at the head of the dirty
 * list; another one is stamped after it, so that the others come back, too.
 */
#define UPKEEP_PHASES 3
static void upkeep(struct pqueue *q, unsigned until)
{
    if (q->phase == 0 && until > 0) {
        if (q->collecting || READ_ONCE(q->remote))
            collect_remote(q, PBLOCK_COLLECT);
        if (q->dirty_blocks)
            stamp_dirty(q, 1, false);
        q->phase = 1;
    }
    if (q->phase == 1 && until > 1) {
        if (q->dirty_blocks)
            stamp_dirty(q, step(q->dirty_blocks), false);
        else if (q->waiting_blocks)
            recycle_passed(q, &q->waiting[!q->waiting_parts], 1);
        q->phase = 2;
    }
    tlb_gen_check();
    if (q->phase == 2 && until > 2) {
        recycle_passed(q, &q->waiting[1], step(q->waiting_blocks - q->waiting_parts));
        if (unlikely(q->waiting_parts >= PBLOCK_STEP_BACKLOG))
            recycle_passed(q, &q->waiting[0], step(q->waiting_parts) - 1);
        q->phase = 3;
    }
}

/* Waits for everything of q that can come back. No lock held. */
static void drain(struct pqueue *q)
{
    struct pblock *b = q->active;

    ADD_ONCE(q->busy, 1);
    if (b != &no_block) {
        q->active = &no_block;
        park(q, b);
    }
    collect_remote(q, UINT_MAX);
    for (unsigned pass = 0; pass < 2; pass++) {
        stamp_dirty(q, UINT32_MAX, true);
        if (q->waiting_blocks)
            tlb_gen_sync(q->last_stamp);
        recycle_both(q, UINT32_MAX);
    }
    SUB_ONCE(q->busy, 1);
}

/* Every frame that an entry of q's free slots has kept goes to the page allocator. */
static void give_kept(struct pqueue *q)
{
    struct list_head *lists[] = {&q->partial, &q->full, &q->dirty, &q->empty};
    struct pblock *b;

    for (unsigned i = 0; i < ARRAY_SIZE(lists); i++) {
        list_for_each_entry (b, lists[i], link) {
            unsigned at = bitmap_next_clear(b->used, BLOCK_PAGES, 0), end;

            for (; at < BLOCK_PAGES; at = bitmap_next_clear(b->used, BLOCK_PAGES, end)) {
                end = bitmap_next_set(b->used, BLOCK_PAGES, at);
                take_all_kept(q, b, at, end);
            }
        }
    }
    if (is_task_queue(q))
        frames_drain_local();
}

/* Without a wait, so that it can be done wherever q is at rest: what waits for a generation is
 * given in the next round. */
static void answer(struct pqueue *q)
{
    uint32_t round = LOAD_ACQUIRE(shortage.rounds);

    collect_remote(q, UINT_MAX);
    stamp_dirty(q, UINT32_MAX, true);
    tlb_gen_check();
    recycle_both(q, UINT32_MAX);
    trim_empty(q, 0, UINT32_MAX, false);
    if (vmap_config.frames_safe)
        give_kept(q);
    STORE_RELEASE(q->answered, round);
}

void pblock_idle_hook(void)
{
    struct pqueues *qs = this_cpu_ptr(&vmap_pqueues);

    if (in_irq()) /* over who knows what */
        return;
    for (unsigned c = 0; c < ARRAY_SIZE(qs->context); c++)
        if (qs->context[c].answered != READ_ONCE(shortage.rounds) && !qs->context[c].busy)
            answer(&qs->context[c]);
}

/* Looked at from elsewhere: a guess. */
static bool may_spare(struct pqueue *q)
{
    return READ_ONCE(q->empty_blocks) || READ_ONCE(q->waiting_blocks) ||
           READ_ONCE(q->dirty_blocks) || READ_ONCE(q->collecting) || READ_ONCE(q->remote) ||
           (vmap_config.frames_safe && READ_ONCE(q->blocks));
}

static bool all_answered(uint32_t round)
{
    unsigned cpu;

    for_each_cpu (cpu) {
        struct pqueue *q = per_cpu_ptr(&vmap_pqueues, cpu)->context;

        for (unsigned c = 0; c < 2; c++)
            if ((int32_t)(LOAD_ACQUIRE(q[c].answered) - round) < 0 && may_spare(&q[c]) &&
                !READ_ONCE(q[c].busy))
                return false;
    }
    return true;
}

void pblock_shortage(void)
{
    uint32_t round = ATOMIC_ADD(shortage.rounds, 1) + 1;
    struct clock_limit limit;
    unsigned cpu;

    for_each_cpu (cpu) {
        struct pqueue *q = per_cpu_ptr(&vmap_pqueues, cpu)->context;

        if (cpu != this_cpu_id() && (may_spare(&q[0]) || may_spare(&q[1])))
            smp_wake(cpu);
    }
    if (in_irq() || !irqs_enabled())
        return;
    clock_limit_start(&limit, PBLOCK_SHORTAGE_US);
    do {
        irq_disable();
        pblock_idle_hook(); /* others may be short, too, and wait for this CPU */
        irq_enable();
        tlb_poll();
        cpu_relax();
    } while (!all_answered(round) && !clock_limit_over(&limit));
}

/* A block with room for n pages, on no list, its run entered. Whole blocks are cheaper to fill than
 * holes; holes are used when they are most of what there is. */
static struct pblock *pick(struct pqueue *q, unsigned n, unsigned align)
{
    struct pblock *b = pick_empty(q);

    if (!b && q->waiting_blocks >= keep.late && tlb_gen_may_wait() && give_way(q))
        b = pick_empty(q);
    if (!b &&
        (uint64_t)q->blocks * BLOCK_PAGES > PBLOCK_SPARSE * q->used_pages + PBLOCK_SLACK_PAGES) {
        b = pick_partial(q, n, align);
        if (b)
            return b;
    }
    if (!b) {
        ADD_ONCE(q->busy, 1);
        b = pblock_new(q);
        SUB_ONCE(q->busy, 1);
    }
    if (!b) {
        /* No addresses or no memory: wait for everything of this queue that can come back. */
        drain(q);
        b = pick_empty(q);
        if (!b)
            return pick_scraps(q, n, align);
    }
    if (!enter_run(q, b, 0, n, align))
        ASSERT(!"an empty block without room");
    return b;
}

/* Makes a block with room for n pages active. Bounded work. */
static __noinline struct pblock *refill(struct pqueue *q, unsigned n, unsigned align)
{
    struct pblock *b = q->active;
    unsigned at = ALIGN_UP(b->cursor, align);

    if (at + n <= b->run_end) { /* the end of a chapter */
        upkeep(q, at / PBLOCK_CHAPTER);
        open_chapter(b, at + n, n);
        return b;
    }
    if (b != &no_block) {
        unsigned behind = b->run_end;

        leave_run(q, b);
        if (enter_run(q, b, behind, n, align))
            return b;
        q->active = &no_block;
        park(q, b);
    }
    upkeep(q, UPKEEP_PHASES);
    q->phase = 0;
    if (unlikely(q->empty_blocks > keep.least)) {
        ADD_ONCE(q->busy, 1);
        trim_empty(q, worth_keeping(q), 1, true);
        SUB_ONCE(q->busy, 1);
    }
    if (unlikely(q->waiting_blocks >= keep.soft))
        press_laggards(q);
    if (unlikely(q->answered != READ_ONCE(shortage.rounds)))
        answer(q);
    b = pick(q, n, align);
    if (!b)
        return NULL;
    WRITE_ONCE(b->queue, q); /* partner: own_block() */
    b->state = PBLOCK_ACTIVE;
    q->active = b;
    return b;
}

bool pblock_refill(unsigned n)
{
    return refill(&this_cpu_ptr(&vmap_pqueues)->context[0], n, 1) != NULL;
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
        unsigned limit = b->limit, end = b->run_end;

        leave_run(q, b);
        b->run_start = b->cursor = at;
        b->limit = limit;
        b->run_end = end;
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
    out->kind = d.kind & VM_KIND_SEEN;
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

/* ---- draining ---- */

void pblock_release_frames(void)
{
    struct pqueue *q = pqueue_mine();

    drain(q);
    give_kept(q);
}

void pblock_drain_local(void)
{
    struct pqueues *qs = this_cpu_ptr(&vmap_pqueues);

    for (unsigned c = 0; c < ARRAY_SIZE(qs->context); c++) {
        /* The handlers' queue belongs to handlers: they are kept out meanwhile. */
        unsigned long flags = c ? irq_save() : 0;
        struct pqueue *q = &qs->context[c];

        ADD_ONCE(q->busy, 1);
        drain(q);
        if (vmap_config.frames_safe)
            give_kept(q);
        trim_empty(q, 0, UINT32_MAX, true);
        SUB_ONCE(q->busy, 1);
        if (c)
            irq_restore(flags);
    }
}

bool pblock_exit(void)
{
    return READ_ONCE(block_total) == 0;
}
