/*
 * page_check.c: the page allocator's validator, and taking memory away for tests.
 *
 * Only when nobody allocates or frees on any CPU: it reads every list, other CPUs' too. The locks
 * are not taken, so that what it finds can be printed.
 */
#include "mm/page_internal.h"

#include <arch/smp.h>

#include "lib/assert.h"
#include "lib/printf.h"

struct check {
    uint64_t pages; /* found in the lists */
    bool sound;
};

static void complain(struct check *c, const struct page *p, const char *what)
{
    c->sound = false;
    kprintf_ratelimited("# page_alloc_check: frame %#llx: %s (order %u, flags %#x, node %u)\n",
                        (unsigned long long)page_to_phys(p), what, p->order, p->flags, p->node);
}

static uint16_t state_of(const struct page *p)
{
    return page_state(p) & ~STATE(PG_POISON, 0);
}

/* A free page or block must not lie inside of a larger free block. Every block that may enclose it
 * lies in the same range, so its struct page is there. */
static void check_enclosing(struct check *c, const struct page *p, unsigned order)
{
    uint64_t pfn = page_to_pfn(p);

    for (unsigned o = order + 1; o <= page_limit(p); o++) {
        const struct page *head = pfn_to_page(ALIGN_DOWN(pfn, 1ULL << o));
        uint16_t s = state_of(head);

        if (head != p && (s >> 8) == PG_BUDDY && (s & 0xff) >= o)
            complain(c, p, "lies inside of a free block");
    }
}

static void check_block(struct check *c, const struct page *p, unsigned order, unsigned node)
{
    uint64_t pfn = page_to_pfn(p);

    if (state_of(p) != STATE(PG_BUDDY, order))
        complain(c, p, "is in a zone's list with a wrong state");
    if (!IS_ALIGNED(pfn, 1ULL << order))
        complain(c, p, "is not aligned to its order");
    if (p->node != node)
        complain(c, p, "is in the list of another node");
    if (order > page_limit(p))
        complain(c, p, "reaches beyond its memory range");
    if (order < page_limit(p) &&
        state_of(pfn_to_page(pfn ^ (1ULL << order))) == STATE(PG_BUDDY, order))
        complain(c, p, "was not merged with its buddy");
    check_enclosing(c, p, order);
}

/* Free pages outside of the buddy lists are marked as HEAD when they are seen, so that a page that
 * is there twice shows. */
typedef void visit_t(struct check *c, struct page *p);

static void check_listed(struct check *c, struct page *p)
{
    if (state_of(p) != STATE(PG_LISTED, 0)) {
        complain(c, p, "is in a CPU's list or a batch twice, or with a wrong state");
        return;
    }
    if (p->node >= page_config.nodes)
        complain(c, p, "has no node");
    check_enclosing(c, p, 0);
    page_set_state(p, STATE(PG_LISTED | PG_HEAD, 0) | page_poison_bit(p));
}

static void unmark_listed(struct check *c, struct page *p)
{
    (void)c;
    if (state_of(p) == STATE(PG_LISTED | PG_HEAD, 0))
        page_set_state(p, STATE(PG_LISTED, 0) | page_poison_bit(p));
}

/* Pages in batches. */
static uint64_t visit_batches(struct check *c, const struct zone *z, visit_t *visit)
{
    struct page *head = z->batches;
    uint64_t pages = 0;
    unsigned batches = 0;

    for (; head != NULL && batches < ZONE_BATCHES; batches++) {
        struct list_head *before = head->list.prev, *at = &head->list;
        unsigned n = 0;

        for (; at != NULL && n < PCP_BATCH; at = at->next, n++) {
            struct page *p = list_entry(at, struct page, list);

            if (p->node != z - page_zones)
                complain(c, p, "is in a batch of another node");
            visit(c, p);
        }
        if (at != NULL || n != PCP_BATCH)
            complain(c, head, "heads a batch that is too long or too short");
        pages += n;
        head = before != NULL ? list_entry(before, struct page, list) : NULL;
    }
    if (head != NULL || batches != z->batch_count) {
        c->sound = false;
        kprintf("# page_alloc_check: %u batches, %u counted\n", batches, z->batch_count);
    }
    return pages;
}

static void check_zone(struct check *c, unsigned node)
{
    struct zone *z = &page_zones[node];
    uint64_t pages = 0;

    for (unsigned o = 0; o < ORDERS; o++) {
        struct list_head *at = &z->lists[o];

        if (list_empty(at) == (bool)(z->orders >> o & 1)) {
            c->sound = false;
            kprintf("# page_alloc_check: node %u: mask %#x is wrong for order %u\n", node,
                    z->orders, o);
        }
        do {
            if (at->next->prev != at) {
                c->sound = false;
                kprintf("# page_alloc_check: node %u, order %u: broken list\n", node, o);
                return;
            }
            at = at->next;
            if (at == &z->lists[o])
                break;
            check_block(c, list_entry(at, struct page, list), o, node);
            pages += 1u << o;
        } while (pages <= z->total);
    }
    pages += visit_batches(c, z, check_listed);
    if (pages != z->free || z->free > z->total) {
        c->sound = false;
        kprintf("# page_alloc_check: node %u: %llu pages in lists, %llu counted, %llu in all\n",
                node, (unsigned long long)pages, (unsigned long long)z->free,
                (unsigned long long)z->total);
    }
    c->pages += pages;
}

static void visit_pcp(struct check *c, unsigned cpu, visit_t *visit)
{
    struct pcp *pcp = per_cpu_ptr(&page_pcp, cpu);
    unsigned n = pcp->count;

    if (n > PCP_MAX || pcp->busy != 0) {
        c->sound = false;
        kprintf("# page_alloc_check: cpu %u: %u pages in its list, busy %u\n", cpu, n, pcp->busy);
        return;
    }
    for (unsigned i = 0; i < n; i++)
        visit(c, pcp->stack[i]);
    c->pages += n;
}

bool page_alloc_check(void)
{
    struct check c = {.sound = true};
    unsigned cpu;

    for (unsigned node = 0; node < page_config.nodes; node++)
        check_zone(&c, node);
    for_each_cpu (cpu)
        visit_pcp(&c, cpu, check_listed);
    if (c.pages != page_free_count()) {
        c.sound = false;
        kprintf("# page_alloc_check: %llu free pages found, %llu counted\n",
                (unsigned long long)c.pages, (unsigned long long)page_free_count());
    }
    for (unsigned node = 0; node < page_config.nodes; node++)
        visit_batches(&c, &page_zones[node], unmark_listed);
    for_each_cpu (cpu)
        visit_pcp(&c, cpu, unmark_listed);
    return c.sound;
}

static struct list_head hogged = LIST_HEAD_INIT(hogged);

void page_hog(uint64_t leave)
{
    uint64_t have;
    unsigned cpu;

    /* What is left must be within reach of every CPU. */
    for_each_cpu (cpu)
        pcp_drain(per_cpu_ptr(&page_pcp, cpu));
    while ((have = page_free_count()) > leave) {
        unsigned order = MIN(fls64(have - leave) - 1, (unsigned)PAGE_MAX_ORDER);
        struct page *p;

        while ((p = zone_take_block(order, 0)) == NULL && order > 0)
            order--;
        ASSERT(p != NULL);
        page_hand_out(p, order);
        list_add(&p->list, &hogged);
    }
}

void page_unhog(void)
{
    while (!list_empty(&hogged)) {
        struct page *p = list_first_entry(&hogged, struct page, list);

        list_del(&p->list);
        free_pages(p, p->order);
    }
}
