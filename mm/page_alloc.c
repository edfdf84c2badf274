/*
 * page_alloc.c: the page allocator's front: per-CPU lists of single pages before the zones' buddy
 * lists.
 *
 * Any context but NMI. The common path of alloc_page() and free_page() touches the CPU's own list
 * and the page's struct page: no lock, no atomic, no interrupt masking (struct pcp says how). Lists
 * are filled and emptied in batches, one acquisition of a zone's lock each; above its limit a list
 * gives its oldest pages back, so pages that one CPU allocates and another frees do not pile up.
 * Debug builds fill free pages and check the filling when they are given out.
 */
#include "mm/page_internal.h"

#include <arch/smp.h>
#include <arch/tlb_gen.h>

#include "lib/assert.h"
#include "lib/memrange.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/early_alloc.h"
#include "mm/inject.h"

#define HEAD0   STATE(PG_HEAD, 0)
#define LISTED0 STATE(PG_LISTED, 0)

struct page_config page_config __cacheline;
DEFINE_PER_CPU(struct pcp, page_pcp);

static struct inject page_injection;
static uint64_t bad_frees, damaged;

void page_alloc_inject(uint64_t after, uint64_t count)
{
    inject_arm(&page_injection, after, count);
    tlb_gen_forbid_fast(TLB_GEN_NO_FAST_INJECT, count != 0);
}

/* Debug: filling and checking free pages */

#ifdef CONFIG_DEBUG
static void page_fill(struct page *page, unsigned order)
{
    for (unsigned i = 0; i < 1u << order; i++) {
        uint64_t *w = page_address(page + i);

        for (unsigned j = 0; j < PAGE_SIZE / sizeof(*w); j++)
            w[j] = PAGE_POISON;
        page_set_state(page + i, page_state(page + i) | STATE(PG_POISON, 0));
    }
}

static void page_check_fill(struct page *page)
{
    const uint8_t *b = page_address(page);
    const uint64_t *w = page_address(page);
    unsigned j = 0;

    while (j < PAGE_SIZE / sizeof(*w) && w[j] == PAGE_POISON)
        j++;
    if (j == PAGE_SIZE / sizeof(*w))
        return;
    j *= sizeof(*w);
    while (b[j] == (uint8_t)PAGE_POISON)
        j++;
    ATOMIC_ADD(damaged, 1);
    kprintf_ratelimited(
        "# page_alloc: frame %#llx was written while free: byte %u is %#x, not %#x\n",
        (unsigned long long)page_to_phys(page), j, b[j], (unsigned)(uint8_t)PAGE_POISON);
}
#endif

void page_hand_out(struct page *page, unsigned order)
{
#ifdef CONFIG_DEBUG
    for (unsigned i = 0; i < 1u << order; i++) {
        if (page_poison_bit(page + i) != 0)
            page_check_fill(page + i);
        ASSERT_DBG(page[i].mapcount == 0);
        page_set_state(page + i, 0);
    }
#endif
    page_set_state(page, STATE(PG_HEAD, order));
}

/* Freeing: checks, and the way from HEAD to LISTED */

/* Tail-called, so that the return address is that of whoever called the allocator. */
static __noinline __cold void report_bad_free(const struct page *page, unsigned order)
{
    uint16_t state = page_state(page);
    const char *what = "is not the first page of an allocated block";

    ATOMIC_ADD(bad_frees, 1);
    if (state & STATE(PG_LISTED | PG_BUDDY, 0))
        what = "is free already";
    else if (state == STATE(PG_HEAD, order))
        what = "is still mapped";
    else if (state & STATE(PG_HEAD, 0))
        what = "was allocated with another order";
    kprintf_ratelimited("# page_alloc: bad free of frame %#llx, order %u by %pS: it %s (order %u, "
                        "mapcount %d)\n",
                        (unsigned long long)page_to_phys(page), order, __builtin_return_address(0),
                        what, page->order, page->mapcount);
}

/* Takes the page from its owner. False if it is not allocated with that order, or still mapped. */
static __always_inline bool page_take_back(struct page *page, unsigned order)
{
#ifdef CONFIG_DEBUG
    /* Atomic, so that of two CPUs that free the same page at once one is told. */
    uint16_t expected = STATE(PG_HEAD, order);
    bool mapped = false;

    for (unsigned i = 0; i < 1u << order && page_state(page) == expected; i++)
        mapped |= READ_ONCE(page[i].mapcount) != 0;
    if (mapped || !ATOMIC_CAS(*(page_state_t *)&page->order, &expected, STATE(PG_LISTED, order)))
        return false;
    page_fill(page, order);
#else
    if (unlikely(page_state(page) != STATE(PG_HEAD, order)))
        return false;
    page_set_state(page, STATE(PG_LISTED, order));
#endif
    return true;
}

/* Per-CPU lists. All but pcp_enter() are called with pcp->busy held. */

/* False: we are in an interrupt handler that came in the middle of something. */
static __always_inline bool pcp_enter(struct pcp *pcp)
{
    if (unlikely(pcp->busy != 0))
        return false;
    WRITE_ONCE(pcp->busy, 1);
    barrier(); /* the list is touched only between the two stores to busy, by this CPU alone */
    return true;
}
static __always_inline void pcp_leave(struct pcp *pcp)
{
    barrier();
    WRITE_ONCE(pcp->busy, 0);
}
static __always_inline struct page *pcp_pop(struct pcp *pcp)
{
    uint32_t count = pcp->count - 1;

    WRITE_ONCE(pcp->count, count);
    return pcp->stack[count];
}
static __always_inline void pcp_push(struct pcp *pcp, struct page *page)
{
    uint32_t count = pcp->count;

    pcp->stack[count] = page;
    WRITE_ONCE(pcp->count, count + 1);
}

/* The list must be empty. Pops will give rising addresses. */
static void pcp_fill(struct pcp *pcp)
{
    struct page *batch[PCP_BATCH];
    unsigned n = zone_take_singles(batch, page_config.batch, pcp->home);

    ASSERT_DBG(pcp->count == 0);
    while (n > 0)
        pcp_push(pcp, batch[--n]);
}

/* Gives the oldest n pages back. */
static void pcp_give_back(struct pcp *pcp, unsigned n)
{
    unsigned left = pcp->count - n;

    for (unsigned i = 0; i < n; i += PCP_BATCH)
        zone_put_singles(&pcp->stack[i], MIN(n - i, PCP_BATCH));
    for (unsigned i = 0; i < left; i++)
        pcp->stack[i] = pcp->stack[n + i];
    WRITE_ONCE(pcp->count, left);
}

void pcp_drain(struct pcp *pcp)
{
    pcp_give_back(pcp, pcp->count);
}

/* Makes room for one more page, by a batch at most. A limit of 0 is new, or asks for everything: it
 * stays until all that was in the list is given back. */
static void pcp_make_room(struct pcp *pcp)
{
    uint32_t batch = MIN(pcp->count, page_config.batch);

    if (READ_ONCE(pcp->limit) == 0 && batch == pcp->count)
        WRITE_ONCE(pcp->limit, page_config.limit);
    pcp_give_back(pcp, batch);
}

/*
 * Memory ran out: merges this CPU's pages back and asks the other CPUs for theirs; they answer at
 * their next free. True if something came back here.
 */
static __cold bool page_relieve(void)
{
    struct pcp *own = this_cpu_ptr(&page_pcp);
    bool got = false;
    unsigned cpu;

    for_each_cpu (cpu) {
        struct pcp *pcp = per_cpu_ptr(&page_pcp, cpu);

        if (pcp != own && READ_ONCE(pcp->count) != 0 && READ_ONCE(pcp->limit) != 0)
            WRITE_ONCE(pcp->limit, 0); /* partner: READ_ONCE in free_page */
    }
    if (pcp_enter(own)) {
        got = own->count != 0;
        pcp_drain(own);
        pcp_leave(own);
    }
    return got;
}

/* Single pages and blocks */

static struct page *block_from_zones(unsigned order, unsigned node)
{
    struct page *page = zone_take_block(order, node);

    if (unlikely(page == NULL) && page_relieve())
        page = zone_take_block(order, node);
    if (page != NULL)
        page_hand_out(page, order);
    return page;
}

static __noinline struct page *alloc_page_slow(void)
{
    struct pcp *pcp = this_cpu_ptr(&page_pcp);
    struct page *page = NULL;

    if (unlikely(inject_hit(&page_injection)))
        return NULL;
    if (unlikely(!pcp_enter(pcp)))
        return block_from_zones(0, pcp->home);
    if (pcp->count == 0)
        pcp_fill(pcp);
    if (likely(pcp->count != 0))
        page = pcp_pop(pcp);
    pcp_leave(pcp);
    if (likely(page != NULL))
        page_hand_out(page, 0);
    else
        page_relieve();
    return page;
}

struct page *alloc_page(void)
{
    struct pcp *pcp = this_cpu_ptr(&page_pcp);
    struct page *page;

    if (inject_armed(&page_injection) || unlikely(!pcp_enter(pcp)))
        return alloc_page_slow();
    if (unlikely(pcp->count == 0)) {
        pcp_leave(pcp);
        return alloc_page_slow();
    }
    page = pcp_pop(pcp);
    pcp_leave(pcp);
    page_hand_out(page, 0);
    return page;
}

/* The page is LISTED and in no list. */
static __noinline void free_page_slow(struct page *page)
{
    struct pcp *pcp = this_cpu_ptr(&page_pcp);

    if (unlikely(!pcp_enter(pcp))) {
        zone_put_block(page, 0);
        return;
    }
    if (pcp->count >= READ_ONCE(pcp->limit))
        pcp_make_room(pcp);
    pcp_push(pcp, page);
    pcp_leave(pcp);
}

void free_page(struct page *page)
{
    struct pcp *pcp = this_cpu_ptr(&page_pcp);

    if (unlikely(!page_take_back(page, 0))) {
        report_bad_free(page, 0);
        return;
    }
    if (unlikely(!pcp_enter(pcp))) {
        free_page_slow(page);
        return;
    }
    if (unlikely(pcp->count >= READ_ONCE(pcp->limit))) {
        pcp_leave(pcp);
        free_page_slow(page);
        return;
    }
    pcp_push(pcp, page);
    pcp_leave(pcp);
}

struct page *alloc_pages_node(unsigned order, int node)
{
    if (order > PAGE_MAX_ORDER)
        return NULL;
    if (order == 0 && (node < 0 || page_config.nodes == 1))
        return alloc_page();
    if (unlikely(inject_hit(&page_injection)))
        return NULL;
    return block_from_zones(order, node < 0 ? this_cpu_ptr(&page_pcp)->home : (unsigned)node);
}

struct page *alloc_pages(unsigned order)
{
    return alloc_pages_node(order, PAGE_ANY_NODE);
}

void free_pages(struct page *page, unsigned order)
{
    if (order == 0)
        free_page(page);
    else if (likely(order <= PAGE_MAX_ORDER && page_take_back(page, order)))
        zone_put_block(page, order);
    else
        report_bad_free(page, order);
}

void page_split(struct page *page, unsigned order)
{
    if (order > PAGE_MAX_ORDER || page_state(page) != STATE(PG_HEAD, order)) {
        report_bad_free(page, order);
        return;
    }
    for (unsigned i = 0; i < 1u << order; i++) {
        page_inherit(page + i, page);
        page_set_state(page + i, HEAD0);
    }
}

struct page *alloc_page_zeroed(void)
{
    struct page *page = alloc_page();

    if (page != NULL)
        memset(page_address(page), 0, PAGE_SIZE);
    return page;
}

/* Many single pages */

/* What the list has, newest first. */
static unsigned pcp_pop_bulk(struct pcp *pcp, struct page **out, unsigned n)
{
    struct page **end = &pcp->stack[pcp->count];

    n = MIN(n, pcp->count);
    for (unsigned i = 0; i < n; i++) {
        struct page *page = *--end;

        page_hand_out(page, 0);
        out[i] = page;
    }
    SUB_ONCE(pcp->count, n);
    return n;
}

/* From the CPU's own list, which is filled first for a rest of less than a batch: whole batches are
 * what a zone gives fastest. */
static unsigned bulk_from_pcp(struct page **out, unsigned n)
{
    struct pcp *pcp = this_cpu_ptr(&page_pcp);
    unsigned got;

    if (unlikely(!pcp_enter(pcp)))
        return 0;
    got = pcp_pop_bulk(pcp, out, n);
    if (unlikely(got < n && n - got < PCP_BATCH)) {
        pcp_fill(pcp);
        got += pcp_pop_bulk(pcp, out + got, n - got);
    }
    pcp_leave(pcp);
    return got;
}

/* Into the CPU's own list, up to one that does not fit or must be refused. Returns how many. */
static unsigned bulk_to_pcp(struct page **pages, unsigned n)
{
    struct pcp *pcp = this_cpu_ptr(&page_pcp);
    unsigned count, limit, i;
    struct page **to;

    if (unlikely(!pcp_enter(pcp)))
        return 0;
    count = pcp->count;
    limit = READ_ONCE(pcp->limit);
    to = &pcp->stack[count];
    n = count < limit ? MIN(n, limit - count) : 0;
    for (i = 0; i < n && likely(page_take_back(pages[i], 0)); i++)
        to[i] = pages[i];
    WRITE_ONCE(pcp->count, count + i);
    pcp_leave(pcp);
    return i;
}

unsigned page_alloc_bulk(struct page **out, unsigned n, int node)
{
    bool any = node < 0 || page_config.nodes == 1;
    unsigned home = any ? this_cpu_ptr(&page_pcp)->home : (unsigned)node;
    unsigned got = 0;

    if (n == 1 && any) {
        out[0] = alloc_page();
        return out[0] != NULL;
    }
    if (inject_armed(&page_injection)) {
        while (got < n && (out[got] = alloc_pages_node(0, node)) != NULL)
            got++;
        return got;
    }
    if (likely(any))
        got = bulk_from_pcp(out, n);
    while (got < n) {
        unsigned more = zone_take_singles(out + got, MIN(n - got, PCP_BATCH), home);

        if (unlikely(more == 0) && !page_relieve())
            break;
        for (; more > 0; more--)
            page_hand_out(out[got++], 0);
    }
    return got;
}

void page_free_bulk(struct page **pages, unsigned n)
{
    if (n == 1) {
        free_page(pages[0]);
        return;
    }
    while (n > 0) {
        unsigned done = bulk_to_pcp(pages, n);

        pages += done;
        n -= done;
        if (n > 0) {
            free_page(*pages++); /* makes room, or reports */
            n--;
        }
    }
}

/* Counts, draining, start-up */

uint64_t page_total(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < page_config.nodes; i++)
        sum += page_zones[i].total;
    return sum;
}

uint64_t page_free_count(void)
{
    uint64_t sum = zone_free_pages();
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(per_cpu_ptr(&page_pcp, cpu)->count);
    return sum;
}

unsigned page_nodes(void)
{
    return page_config.nodes;
}

uint64_t page_bad_frees(void)
{
    return READ_ONCE(bad_frees);
}

uint64_t page_damaged(void)
{
    return READ_ONCE(damaged);
}

void page_drain_local(void)
{
    struct pcp *pcp = this_cpu_ptr(&page_pcp);

    if (!pcp_enter(pcp))
        return; /* a handler in the middle of this CPU's own work on the list */
    pcp_drain(pcp);
    pcp_leave(pcp);
}

void page_alloc_set_home(unsigned cpu, unsigned node)
{
    per_cpu_ptr(&page_pcp, cpu)->home = node < page_config.nodes ? node : 0;
}

err_t page_alloc_cpu_init(unsigned cpu)
{
    uint64_t cpus = MAX((uint64_t)smp_cpus_possible(), (uint64_t)cpu + 1);
    uint64_t limit = page_total() / 16 / cpus;

    /* All lists together hold at most 1/16 of memory, for nobody else can have what is in them. */
    limit = MAX(MIN(limit, (uint64_t)PCP_MAX), (uint64_t)PCP_LIMIT_MIN);
    page_config.limit = (uint32_t)limit;
    page_config.batch = MIN((uint32_t)limit / 2, PCP_BATCH);
    return OK;
}

/* Adds a run of pages that ends where the next range does not continue it. */
static void page_alloc_add(const struct mem_range *map, size_t count, bool use_boot_services)
{
    uint64_t start = 0, end = 0;
    unsigned node = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t first = MAX(DIV_ROUND_UP(map[i].base, PAGE_SIZE), 1UL);
        uint64_t last = MIN(map[i].base + map[i].size, DIRECT_MAP_SIZE) >> PAGE_SHIFT;
        unsigned n = MIN(map[i].node, MAX_NODES - 1u);

        if (map[i].kind != MEM_USABLE && !(map[i].kind == MEM_BOOT_RECLAIM && use_boot_services))
            continue;
        if (first >= last)
            continue;
        page_config.nodes = MAX(page_config.nodes, n + 1);
        if (first == end && n == node) {
            end = last;
            continue;
        }
        zone_add_range(start, end, node);
        start = first;
        end = last;
        node = n;
    }
    zone_add_range(start, end, node);
}

void page_alloc_init(const struct mem_range *map, size_t count, bool use_boot_services)
{
    unsigned cpu;

    early_close();
    zone_init_all();
    page_config = (struct page_config){.nodes = 1};
    bad_frees = damaged = 0;
    page_alloc_inject(0, 0);
    for_each_cpu (cpu)
        memset(per_cpu_ptr(&page_pcp, cpu), 0, sizeof(struct pcp));
    page_alloc_add(map, count, use_boot_services);
    page_alloc_cpu_init(0);
}
