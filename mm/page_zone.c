/*
 * page_zone.c: the buddy lists: free blocks of 2^order pages per NUMA node, split on demand and
 * merged when both halves are free.
 *
 * Full batches that a CPU gives back are first kept as they are, a few for each zone, for a CPU
 * that needs one: one load and one store under the lock instead of merging and splitting 64 pages,
 * when frames are allocated here and freed there. They are merged when no block is large enough, or
 * single pages run out (Bonwick and Adams, "Magazines and Vmem", 2001, section 3: the depot).
 *
 * Everything here runs under the zone's lock with interrupts masked, for a bounded number of pages.
 * It knows nothing of per-CPU lists, poison contents or injection.
 */
#include "mm/page_internal.h"

#include "lib/assert.h"

static struct lock_class zone_lock_class = {.name = "page_zone"};
struct zone page_zones[MAX_NODES];

static struct page *buddy_of(struct page *p, unsigned order)
{
    uint64_t pfn = page_to_pfn(p);

    return p + ((int64_t)(pfn ^ (1ULL << order)) - (int64_t)pfn);
}

static void zone_link_locked(struct zone *z, struct page *p, unsigned order)
{
    page_set_state(p, STATE(PG_BUDDY, order) | page_poison_bit(p));
    list_add(&p->list, &z->lists[order]);
    z->orders |= 1u << order;
}

/* Leaves p in state 0. */
static void zone_unlink_locked(struct zone *z, struct page *p, unsigned order)
{
    ASSERT_DBG((page_state(p) & ~STATE(PG_POISON, 0)) == STATE(PG_BUDDY, order));
    list_del(&p->list);
    if (list_empty(&z->lists[order]))
        z->orders &= ~(1u << order);
    page_set_state(p, page_poison_bit(p));
}

/* Keeps the lower 2^want pages of the unlinked block p and links the rest as free blocks. */
static void zone_cut_locked(struct zone *z, struct page *p, unsigned order, unsigned want)
{
    while (order > want) {
        order--;
        page_inherit(p + (1u << order), p);
        zone_link_locked(z, p + (1u << order), order);
    }
}

static void zone_put_locked(struct zone *z, struct page *p, unsigned order)
{
    unsigned limit = page_limit(p);

    ASSERT_DBG((page_state(p) & ~STATE(PG_POISON, 0)) == STATE(PG_LISTED, order));
    ADD_ONCE(z->free, 1u << order);
    for (; order < limit; order++) {
        struct page *buddy = buddy_of(p, order);

        /* An owner on another CPU may change its page between HEAD and LISTED meanwhile; neither is
         * BUDDY, which only holders of this lock write. */
        if ((page_state(buddy) & ~STATE(PG_POISON, 0)) != STATE(PG_BUDDY, order))
            break;
        zone_unlink_locked(z, buddy, order);
        page_set_state(p, page_poison_bit(p));
        if (buddy < p)
            p = buddy;
    }
    zone_link_locked(z, p, order);
}

static struct page *zone_take_block_locked(struct zone *z, unsigned order)
{
    uint32_t fitting = z->orders >> order;
    struct page *p;
    unsigned found;

    if (fitting == 0)
        return NULL;
    found = order + (unsigned)__builtin_ctz(fitting);
    p = list_first_entry(&z->lists[found], struct page, list);
    zone_unlink_locked(z, p, found);
    zone_cut_locked(z, p, found, order);
    page_set_state(p, STATE(PG_LISTED, order) | page_poison_bit(p));
    SUB_ONCE(z->free, 1u << order);
    return p;
}

/*
 * Smallest blocks first, so that large ones last. A block's head comes out in state 0, and NULL for
 * each page after it: zone_split_singles() does the rest without the lock.
 */
static unsigned zone_take_singles_locked(struct zone *z, struct page **out, unsigned n)
{
    unsigned got = 0;

    while (got < n && z->orders != 0) {
        unsigned found = (unsigned)__builtin_ctz(z->orders);
        unsigned order = MIN(found, fls64(n - got) - 1);
        struct page *p = list_first_entry(&z->lists[found], struct page, list);

        zone_unlink_locked(z, p, found);
        zone_cut_locked(z, p, found, order);
        out[got] = p;
        for (unsigned i = 1; i < 1u << order; i++)
            out[got + i] = NULL;
        got += 1u << order;
    }
    SUB_ONCE(z->free, got);
    return got;
}

/* Nobody else looks at these pages: who frees a neighbour looks at heads of blocks, for BUDDY. */
static void zone_split_singles(struct page **out, unsigned n)
{
    struct page *head = NULL;
    unsigned at = 0;

    for (unsigned i = 0; i < n; i++) {
        if (out[i] != NULL) {
            head = out[i];
            at = i;
        } else {
            out[i] = head + (i - at);
            page_inherit(out[i], head);
        }
        page_set_state(out[i], STATE(PG_LISTED, 0) | page_poison_bit(out[i]));
    }
}

/* Batches */

static bool is_batch(struct page *const *pages, unsigned n)
{
    if (n != PCP_BATCH)
        return false;
    for (unsigned i = 1; i < n; i++) {
        if (pages[i]->node != pages[0]->node)
            return false;
    }
    return true;
}

/* False: the zone has enough of them. The pages are a batch (is_batch()) of this zone. */
static bool zone_put_batch(struct zone *z, struct page **pages)
{
    unsigned long flags;
    bool room;

    if (READ_ONCE(z->batch_count) >= ZONE_BATCHES)
        return false;
    for (unsigned i = 0; i < PCP_BATCH; i++)
        pages[i]->list.next = i + 1 < PCP_BATCH ? &pages[i + 1]->list : NULL;
    flags = spin_lock_irqsave(&z->lock);
    room = z->batch_count < ZONE_BATCHES;
    if (room) {
        pages[0]->list.prev = z->batches != NULL ? &z->batches->list : NULL;
        WRITE_ONCE(z->batches, pages[0]);
        ADD_ONCE(z->batch_count, 1);
        ADD_ONCE(z->free, PCP_BATCH);
    }
    spin_unlock_irqrestore(&z->lock, flags);
    return room;
}

/* A batch's pages in the order in which they came; false if there is none. */
static bool zone_take_batch(struct zone *z, struct page **out)
{
    struct page *p;
    struct list_head *at;
    unsigned long flags;

    if (READ_ONCE(z->batches) == NULL)
        return false;
    flags = spin_lock_irqsave(&z->lock);
    p = z->batches;
    if (p != NULL) {
        at = p->list.prev;
        WRITE_ONCE(z->batches, at != NULL ? list_entry(at, struct page, list) : NULL);
        SUB_ONCE(z->batch_count, 1);
        SUB_ONCE(z->free, PCP_BATCH);
    }
    spin_unlock_irqrestore(&z->lock, flags);
    if (p == NULL)
        return false;
    for (at = &p->list; at != NULL; at = at->next)
        *out++ = list_entry(at, struct page, list);
    return true;
}

/* Pages of one zone. */
static void zone_merge(struct zone *z, struct page **pages, unsigned n)
{
    unsigned long flags = spin_lock_irqsave(&z->lock);

    for (unsigned i = 0; i < n; i++)
        zone_put_locked(z, pages[i], 0);
    spin_unlock_irqrestore(&z->lock, flags);
}

/* Merges all batches. True if there was one. */
static __cold __noinline bool zone_merge_batches(struct zone *z)
{
    struct page *pages[PCP_BATCH];
    bool any = false;

    /* As many as there may be, so that it ends whoever else brings more. */
    for (unsigned i = 0; i < ZONE_BATCHES && zone_take_batch(z, pages); i++) {
        zone_merge(z, pages, PCP_BATCH);
        any = true;
    }
    return any;
}

/* Blocks and single pages */

/* The zone that comes after `node` in the order of fallback. */
static unsigned zone_next(unsigned node)
{
    return node + 1 < page_config.nodes ? node + 1 : 0;
}

static unsigned zone_first(unsigned node)
{
    return node < page_config.nodes ? node : 0;
}

static struct page *zone_take_merged_block(struct zone *z, unsigned order)
{
    unsigned long flags = spin_lock_irqsave(&z->lock);
    struct page *p = zone_take_block_locked(z, order);

    spin_unlock_irqrestore(&z->lock, flags);
    return p;
}

struct page *zone_take_block(unsigned order, unsigned node)
{
    node = zone_first(node);
    for (unsigned i = 0; i < page_config.nodes; i++, node = zone_next(node)) {
        struct zone *z = &page_zones[node];
        struct page *p;

        /* A hint without the lock: a zone that is empty now may be skipped. */
        if (READ_ONCE(z->free) >> order == 0)
            continue;
        p = zone_take_merged_block(z, order);
        if (unlikely(p == NULL) && zone_merge_batches(z))
            p = zone_take_merged_block(z, order);
        if (p != NULL)
            return p;
    }
    return NULL;
}

static unsigned zone_take_merged_singles(struct zone *z, struct page **out, unsigned n)
{
    unsigned long flags = spin_lock_irqsave(&z->lock);
    unsigned got = zone_take_singles_locked(z, out, n);

    spin_unlock_irqrestore(&z->lock, flags);
    zone_split_singles(out, got);
    return got;
}

unsigned zone_take_singles(struct page **out, unsigned n, unsigned node)
{
    unsigned got = 0;

    node = zone_first(node);
    for (unsigned i = 0; i < page_config.nodes && got < n; i++, node = zone_next(node)) {
        struct zone *z = &page_zones[node];

        if (READ_ONCE(z->free) == 0)
            continue;
        if (n - got == PCP_BATCH && zone_take_batch(z, out + got))
            return n;
        got += zone_take_merged_singles(z, out + got, n - got);
        if (unlikely(got < n) && zone_merge_batches(z))
            got += zone_take_merged_singles(z, out + got, n - got);
    }
    return got;
}

void zone_put_block(struct page *page, unsigned order)
{
    struct zone *z = &page_zones[page->node];
    unsigned long flags = spin_lock_irqsave(&z->lock);

    zone_put_locked(z, page, order);
    spin_unlock_irqrestore(&z->lock, flags);
}

void zone_put_singles(struct page **pages, unsigned n)
{
    if (is_batch(pages, n) && zone_put_batch(&page_zones[pages[0]->node], pages))
        return;
    for (unsigned i = 0, end; i < n; i = end) {
        unsigned node = pages[i]->node;

        for (end = i + 1; end < n && pages[end]->node == node;)
            end++;
        zone_merge(&page_zones[node], pages + i, end - i);
    }
}

uint64_t zone_free_pages(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < page_config.nodes; i++)
        sum += READ_ONCE(page_zones[i].free);
    return sum;
}

void zone_init_all(void)
{
    for (unsigned i = 0; i < MAX_NODES; i++) {
        struct zone *z = &page_zones[i];

        spin_init(&z->lock, &zone_lock_class);
        z->orders = 0;
        z->free = 0;
        z->total = 0;
        z->batches = NULL;
        z->batch_count = 0;
        for (unsigned o = 0; o < ORDERS; o++)
            list_init(&z->lists[o]);
    }
}

/*
 * Cuts [pfn, end) into the largest aligned blocks. Each is as large as it can get inside the range,
 * so its order is the limit for merging; only one struct page per block is touched. Other CPUs do
 * not run yet.
 */
void zone_add_range(uint64_t pfn, uint64_t end, unsigned node)
{
    struct zone *z = &page_zones[node];

    if (pfn >= end)
        return;
    z->total += end - pfn;
    z->free += end - pfn;
    while (pfn < end) {
        unsigned order = MIN(fls64(end - pfn) - 1, (unsigned)PAGE_MAX_ORDER);
        struct page *p = pfn_to_page(pfn);

        if (pfn != 0)
            order = MIN(order, (unsigned)__builtin_ctzll(pfn));
        p->node = (uint8_t)node;
        p->reserved = order < PAGE_MAX_ORDER ? (uint8_t)(order + 1) : 0;
        zone_link_locked(z, p, order);
        pfn += 1ULL << order;
    }
}
