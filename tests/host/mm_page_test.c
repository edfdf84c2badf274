/*
 * mm_page_test.c: the page allocator on one CPU: random operations against a model of who owns
 * which frame, exhaustion, maps with holes, refused frees, damage of free pages, injection, bulk,
 * split, hog.
 */
#include "tests/host/mm_testlib.h"
#include "lib/memrange.h"
#include "mm/page_internal.h"
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define HAVE_ASAN 1
#endif
#endif

#ifdef CONFIG_DEBUG
#define DEBUG_BUILD 1
#else
#define DEBUG_BUILD 0
#endif

static void start_sized(unsigned nodes, size_t ram)
{
    struct sim_options o = {.seed = test_seed(), .ram = ram, .cpus = 1, .nodes = nodes};

    mm_start(&o);
    mm_forget_owners();
}

static void start(unsigned nodes)
{
    start_sized(nodes, 64 * SZ_1M);
}

/* Blocks of the largest order that can be had: all of memory must be in one piece again. */
static uint64_t largest_blocks(void)
{
    struct page *list = NULL, *p;
    uint64_t n = 0;

    page_drain_local();
    while ((p = alloc_pages(PAGE_MAX_ORDER)) != NULL) {
        p->private = (uintptr_t)list;
        list = p;
        n++;
    }
    while ((p = list) != NULL) {
        list = (struct page *)(uintptr_t)p->private;
        free_pages(p, PAGE_MAX_ORDER);
    }
    return n;
}

static void starts_with_all(void **state)
{
    (void)state;
    for (unsigned nodes = 1; nodes <= 8; nodes++) {
        size_t count;
        const struct mem_range *map;

        start(nodes);
        map = sim_memory_map(&count);
        assert_int_equal(page_total(), memrange_total(map, count, MEM_USABLE) / PAGE_SIZE);
        assert_int_equal(page_free_count(), page_total());
        assert_int_equal(page_nodes(), nodes);
        assert_true(page_alloc_check());
    }
}

/* ---- random operations ---- */

#define HELD 600

struct held {
    struct page *page;
    uint8_t order;
};
struct model {
    struct rng rng;
    struct held held[HELD];
    unsigned n;
    uint64_t pages; /* owned */
};

static void model_add(struct model *m, struct page *page, unsigned order)
{
    mm_take(page, order, 1);
    m->held[m->n++] = (struct held){page, (uint8_t)order};
    m->pages += 1u << order;
}

static struct held model_remove(struct model *m, unsigned i)
{
    struct held h = m->held[i];

    mm_give(h.page, h.order, 1);
    m->held[i] = m->held[--m->n];
    m->pages -= 1u << h.order;
    return h;
}

static void op_alloc(struct model *m)
{
    unsigned order = (unsigned)rng_below(&m->rng, rng_below(&m->rng, 4) ? 3 : PAGE_MAX_ORDER + 1);
    int node = (int)rng_below(&m->rng, page_nodes() + 1) - 1;
    uint64_t before = page_free_count();
    struct page *p;

    if (m->n == HELD)
        return;
    p = rng_below(&m->rng, 2) || order ? alloc_pages_node(order, node) : alloc_page_zeroed();
    if (p != NULL)
        model_add(m, p, order);
    else
        assert_true(order > 0 || before == 0);
    /* While a node has a block that fits, it is taken from there. */
    if (p != NULL && node >= 0 && order > 0 && p->node != node)
        assert_int_equal(page_zones[node].orders >> order, 0);
}

static void op_free(struct model *m)
{
    struct held h;

    if (m->n == 0)
        return;
    h = model_remove(m, (unsigned)rng_below(&m->rng, m->n));
    if (h.order == 0 && rng_below(&m->rng, 2))
        free_page(h.page);
    else
        free_pages(h.page, h.order);
}

static void op_bulk_alloc(struct model *m)
{
    struct page *out[300];
    unsigned want = (unsigned)rng_below(&m->rng, ARRAY_SIZE(out));
    uint64_t free = page_free_count();
    unsigned got;

    want = MIN(want, HELD - m->n);
    got = page_alloc_bulk(out, want, (int)rng_below(&m->rng, page_nodes() + 1) - 1);
    assert_int_equal(got, MIN(want, free));
    for (unsigned i = 0; i < got; i++)
        model_add(m, out[i], 0);
}

static void op_bulk_free(struct model *m)
{
    struct page *pages[300];
    unsigned n = 0, limit = (unsigned)rng_below(&m->rng, ARRAY_SIZE(pages));

    for (unsigned i = m->n; i-- > 0 && n < limit;) {
        if (m->held[i].order == 0)
            pages[n++] = model_remove(m, i).page;
    }
    page_free_bulk(pages, n);
}

static void op_split(struct model *m)
{
    unsigned i = m->n ? (unsigned)rng_below(&m->rng, m->n) : 0;
    struct held h;

    if (m->n == 0 || m->n + (1u << m->held[i].order) > HELD)
        return;
    h = model_remove(m, i);
    page_split(h.page, h.order);
    for (unsigned j = 0; j < 1u << h.order; j++)
        model_add(m, h.page + j, 0);
}

static void random_ops(void **state)
{
    static void (*const ops[])(struct model *) = {op_alloc,      op_alloc,     op_alloc,
                                                  op_free,       op_free,      op_free,
                                                  op_bulk_alloc, op_bulk_free, op_split};
    static struct model m;

    (void)state;
    for (unsigned nodes = 1; nodes <= 4; nodes++) {
        uint64_t blocks, total;

        start(nodes);
        blocks = largest_blocks();
        total = page_total();
        memset(&m, 0, sizeof(m));
        m.rng = test_rng(10 + nodes);
        for (int i = 0; i < 20000; i++) {
            ops[rng_below(&m.rng, ARRAY_SIZE(ops))](&m);
            if (rng_below(&m.rng, 100) == 0)
                page_drain_local();
            assert_int_equal(page_free_count(), total - m.pages);
            if (i % 100 == 0)
                assert_true(page_alloc_check());
        }
        while (m.n > 0)
            op_free(&m);
        assert_int_equal(page_free_count(), total);
        assert_int_equal(largest_blocks(), blocks);
        assert_true(page_alloc_check());
        assert_int_equal(page_bad_frees(), 0);
        assert_int_equal(page_damaged(), 0);
    }
}

/* Every page can be had, once, and nothing is left behind by a failure. */
static void exhaustion(void **state)
{
    (void)state;
    for (unsigned order = 0; order <= PAGE_MAX_ORDER; order++) {
        struct page *p, *list = NULL;
        uint64_t got = 0, total;

        start(1 + order % 3);
        total = page_total();
        while ((p = alloc_pages(order)) != NULL) {
            mm_take(p, order, 1);
            p->private = (uintptr_t)list;
            list = p;
            got += 1u << order;
        }
        if (order == 0)
            assert_int_equal(got, total);
        assert_null(alloc_pages(order));
        assert_int_equal(page_free_count(), total - got);
        assert_true(page_alloc_check());
        while ((p = list) != NULL) {
            list = (struct page *)(uintptr_t)p->private;
            mm_give(p, order, 1);
            free_pages(p, order);
        }
        assert_int_equal(page_free_count(), total);
        page_drain_local();
        assert_true(page_alloc_check());
    }
    assert_null(alloc_pages(PAGE_MAX_ORDER + 1));
    assert_null(alloc_pages(~0u));
}

/* Maps with holes: struct pages of what is not in them must not be touched, for they may not be
 * mapped. */
static void maps_with_holes(void **state)
{
    static struct mem_range map[64];
    struct rng r = test_rng(20);

    (void)state;
    for (int round = 0; round < 60; round++) {
        struct sim_options o = {.seed = 1, .ram = 64 * SZ_1M, .cpus = 1};
        size_t n = rng_range(&r, 1, 20), total = 0;
        bool boot = rng_below(&r, 2);
        struct page *p;

        sim_machine(&o);
        mm_forget_owners();
        for (size_t i = 0; i < n; i++) {
            uint64_t base = rng_below(&r, 60 * SZ_1M);

            map[i] = (struct mem_range){base, rng_below(&r, rng_below(&r, 2) ? SZ_64K : 16 * SZ_1M),
                                        (uint32_t)rng_range(&r, 1, 4), (uint32_t)rng_below(&r, 3)};
            map[i].size = MIN(map[i].size, 64 * SZ_1M - base);
        }
        n = memrange_sanitise(map, n, ARRAY_SIZE(map));
        for (size_t i = 0, pfn = 0; i < MM_FRAMES / 4; i++)
            mm_owner[pfn++] = UINT32_MAX;
#ifdef HAVE_ASAN
        ASAN_POISON_MEMORY_REGION(sim_memmap, 64 * SZ_1M / PAGE_SIZE * sizeof(struct page));
#endif
        for (size_t i = 0; i < n; i++) {
            if (map[i].kind != MEM_USABLE && !(boot && map[i].kind == MEM_BOOT_RECLAIM))
                continue;
            for (uint64_t at = map[i].base; at < map[i].base + map[i].size;
                 at += PAGE_SIZE, total++) {
                mm_owner[at / PAGE_SIZE] = 0;
#ifdef HAVE_ASAN
                ASAN_UNPOISON_MEMORY_REGION(phys_to_page(at), sizeof(struct page));
#endif
            }
        }
        page_alloc_init(map, n, boot);
        assert_int_equal(page_total(), total);
        assert_int_equal(page_free_count(), total);
        assert_true(page_alloc_check());
        while ((p = alloc_page()) != NULL)
            mm_take(p, 0, 1);
        for (size_t i = 0; i < 64 * SZ_1M / PAGE_SIZE; i++) {
            if (mm_owner[i] == UINT32_MAX)
                continue;
            mm_give(pfn_to_page(i), 0, 1);
            free_page(pfn_to_page(i));
        }
        page_drain_local();
        assert_int_equal(page_free_count(), total);
        assert_true(page_alloc_check());
#ifdef HAVE_ASAN
        ASAN_UNPOISON_MEMORY_REGION(sim_memmap, 64 * SZ_1M / PAGE_SIZE * sizeof(struct page));
#endif
    }
}

/* No memory at all, page 0, ranges too small for a page, and a node number out of range. */
static void strange_maps(void **state)
{
    struct sim_options o = {.seed = 1, .ram = 64 * SZ_1M, .cpus = 1};
    struct mem_range map[] = {
        {0, PAGE_SIZE, MEM_USABLE, 0},
        {3 * PAGE_SIZE + 1, 2 * PAGE_SIZE - 2, MEM_USABLE, 0},
        {8 * PAGE_SIZE + 1, 3 * PAGE_SIZE, MEM_USABLE, 1000},
        {DIRECT_MAP_SIZE, SZ_1G, MEM_USABLE, 0},
    };
    struct page *p;

    (void)state;
    sim_machine(&o);
    page_alloc_init(NULL, 0, true);
    assert_int_equal(page_total(), 0);
    assert_null(alloc_page());
    assert_null(alloc_pages(3));
    assert_true(page_alloc_check());
    sim_machine(&o);
    page_alloc_init(map, ARRAY_SIZE(map), true);
    assert_int_equal(page_total(), 2);
    p = alloc_page();
    assert_true(page_to_pfn(p) == 9 || page_to_pfn(p) == 10);
    free_page(p);
    assert_true(page_alloc_check());
}

/* ---- refused frees ---- */

/* why: NULL for all but the first few, as the reports are rate-limited. */
static void expect_refused(struct page *p, unsigned order, const char *why)
{
    uint64_t bad = page_bad_frees(), free = page_free_count();
    const char *text;

    capture_start();
    free_pages(p, order);
    text = capture_text();
    assert_int_equal(page_bad_frees(), bad + 1);
    assert_int_equal(page_free_count(), free);
    CHECK_MSG(why == NULL || strstr(text, why) != NULL, "expected \"%s\" in \"%s\"", why, text);
    assert_true(page_alloc_check());
}

static void bad_frees(void **state)
{
    struct page *p, *q, *out[7];
    uint64_t bad;

    (void)state;
    start(1);
    p = alloc_page();
    free_page(p);
    expect_refused(p, 0, "free already");
    page_drain_local();
    expect_refused(p, 0, NULL);
    p = alloc_pages(3);
    expect_refused(p, 2, "another order");
    expect_refused(p, 0, NULL);
    expect_refused(p + 1, 0, "not the first page");
    expect_refused(p + 4, 2, NULL);
    expect_refused(p, PAGE_MAX_ORDER + 1, NULL);
    free_pages(p, 3);
    expect_refused(p, 3, NULL);
    expect_refused(p + 1, 0, NULL);
    expect_refused(pfn_to_page(2), 0, NULL); /* never managed */
    p = alloc_pages(2);
    bad = page_bad_frees();
    page_split(p, 1);
    page_split(p + 1, 0);
    page_split(p, PAGE_MAX_ORDER + 1);
    assert_int_equal(page_bad_frees(), bad + 3);
    page_split(p, 2);
    expect_refused(p, 2, NULL);
    for (unsigned i = 0; i < 4; i++)
        free_page(p + i);
    expect_refused(p + 2, 0, NULL);
    /* Among others, in one call. */
    assert_int_equal(page_alloc_bulk(out, 4, PAGE_ANY_NODE), 4);
    out[4] = out[1];
    out[5] = pfn_to_page(2);
    q = out[2];
    out[2] = out[0];
    out[6] = q;
    bad = page_bad_frees();
    page_free_bulk(out, 7);
    assert_int_equal(page_bad_frees(), bad + 3);
    p = alloc_page();
    q = alloc_page();
    assert_ptr_not_equal(p, q);
    free_page(p);
    free_page(q);
    page_drain_local();
    assert_int_equal(page_free_count(), page_total());
    assert_true(page_alloc_check());
}

/* Case D12: a page that is still mapped is not given to anybody else. */
static void mapped_pages(void **state)
{
    struct page *p, *q;

    (void)state;
    if (!DEBUG_BUILD)
        skip();
    start(1);
    p = alloc_page();
    q = alloc_pages(2);
    p->mapcount = 1;
    q[3].mapcount = 2;
    expect_refused(p, 0, "still mapped");
    expect_refused(q, 2, "still mapped");
    p->mapcount = 0;
    q[3].mapcount = 0;
    free_page(p);
    free_pages(q, 2);
    assert_int_equal(page_free_count(), page_total());
}

/* ---- damage ---- */

/* Writes one byte of a free page and says how many damaged pages are found when all is allocated.
 */
static uint64_t damage_found(struct page *p, unsigned at, char *text, size_t size)
{
    struct page *list = NULL, *q;
    uint64_t before = page_damaged();

    ((uint8_t *)page_address(p))[at] ^= 0x10;
    capture_start();
    while ((q = alloc_page()) != NULL) {
        q->private = (uintptr_t)list;
        list = q;
    }
    str_copy(text, capture_text(), size);
    while ((q = list) != NULL) {
        list = (struct page *)(uintptr_t)q->private;
        free_page(q);
    }
    return page_damaged() - before;
}

static void damage(void **state)
{
    static const unsigned at[] = {0, 1, 7, 8, 2048, 4088, 4095};
    char text[400], want[60];
    struct page *p;

    (void)state;
    if (!DEBUG_BUILD)
        skip();
    for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
        start_sized(1, 8 * SZ_1M);
        p = alloc_page();
        free_page(p); /* in the CPU's list */
        assert_int_equal(damage_found(p, at[i], text, sizeof(text)), 1);
        snprintf(want, sizeof(want), "frame %#lx was written while free: byte %u is 0xba, not 0xaa",
                 (unsigned long)page_to_phys(p), at[i]);
        if (i == 0)
            CHECK_MSG(strstr(text, want) != NULL, "expected \"%s\" in \"%s\"", want, text);
        /* All pages have been free now, and are merged and split again on the way. */
        page_drain_local();
        assert_int_equal(damage_found(p, at[i], text, sizeof(text)), 1);
        assert_int_equal(damage_found(p + 1, at[i], text, sizeof(text)), 1);
        /* Inside of a block. */
        p = alloc_pages(4);
        free_pages(p, 4);
        assert_int_equal(damage_found(p + 11, at[i], text, sizeof(text)), 1);
    }
    start_sized(1, 8 * SZ_1M);
    p = alloc_pages(4);
    free_pages(p, 4);
    ((uint8_t *)page_address(p + 3))[5] = 0;
    capture_start();
    p = alloc_pages(5);
    assert_int_equal(page_damaged(), 1);
    capture_text();
    free_pages(p, 5);
    assert_int_equal(page_damaged(), 1);
}

/* ---- injection, bulk, hog ---- */

static void injection(void **state)
{
    struct page *out[64];

    (void)state;
    start(2);
    for (uint64_t after = 0; after < 40; after++) {
        uint64_t count = 1 + after % 3;

        page_alloc_inject(after, count);
        for (uint64_t i = 0; i < after + count + 5; i++) {
            unsigned order = (unsigned)(i % 3);
            struct page *p = alloc_pages_node(order, (int)(i % 3) - 1);

            if (i >= after && i < after + count)
                assert_null(p);
            else
                free_pages(p, order);
        }
    }
    page_alloc_inject(7, 1);
    assert_int_equal(page_alloc_bulk(out, 20, PAGE_ANY_NODE), 7);
    page_free_bulk(out, 7);
    assert_int_equal(page_alloc_bulk(out, 20, PAGE_ANY_NODE), 20);
    page_free_bulk(out, 20);
    page_alloc_inject(2, UINT64_MAX);
    free_page(alloc_page());
    free_page(alloc_page_zeroed());
    for (int i = 0; i < 100; i++)
        assert_null(alloc_page());
    assert_null(alloc_page_zeroed());
    assert_null(alloc_pages(4));
    assert_int_equal(page_alloc_bulk(out, 3, 1), 0);
    page_alloc_inject(0, 0);
    free_page(alloc_page());
    page_drain_local();
    assert_int_equal(page_free_count(), page_total());
    assert_true(page_alloc_check());
}

static void bulk_until_empty(void **state)
{
    static struct page *out[MM_FRAMES];
    unsigned got;

    (void)state;
    start(3);
    got = page_alloc_bulk(out, MM_FRAMES, 1);
    assert_int_equal(got, page_total());
    assert_int_equal(page_free_count(), 0);
    assert_int_equal(page_alloc_bulk(out + got, 1, 1), 0);
    for (unsigned i = 0; i < got; i++)
        mm_take(out[i], 0, 1);
    page_free_bulk(out, got);
    page_drain_local();
    assert_int_equal(page_free_count(), page_total());
    assert_true(page_alloc_check());
}

/* While a node has memory, who asks for its memory gets that. */
static void nodes_asked_for(void **state)
{
    static struct page *out[200];

    (void)state;
    start(3);
    for (int node = 0; node < 3; node++) {
        for (unsigned n = 1; n <= ARRAY_SIZE(out); n += 99) {
            assert_int_equal(page_alloc_bulk(out, n, node), n);
            for (unsigned i = 0; i < n; i++)
                assert_int_equal(out[i]->node, node);
            page_free_bulk(out, n);
        }
        for (unsigned order = 0; order <= PAGE_MAX_ORDER; order++) {
            struct page *p = alloc_pages_node(order, node);

            assert_non_null(p);
            assert_int_equal(p->node, node);
            free_pages(p, order);
        }
    }
}

static void hog(void **state)
{
    static const uint64_t leave[] = {0, 1, 2, 63, 64, 65, 1000, 1024, 5000, 1 << 20};
    static struct page *out[MM_FRAMES];

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(leave); i++) {
        uint64_t total, blocks;
        unsigned got;

        start(2);
        total = page_total();
        blocks = largest_blocks();
        page_free_bulk(out, page_alloc_bulk(out, 200, PAGE_ANY_NODE)); /* something in the list */
        page_hog(leave[i]);
        assert_int_equal(page_free_count(), MIN(leave[i], total));
        assert_true(page_alloc_check());
        got = page_alloc_bulk(out, MM_FRAMES, PAGE_ANY_NODE);
        assert_int_equal(got, MIN(leave[i], total));
        assert_null(alloc_page());
        page_free_bulk(out, got);
        page_hog(leave[i] / 2);
        assert_int_equal(page_free_count(), MIN(leave[i] / 2, total));
        page_unhog();
        assert_int_equal(page_free_count(), total);
        assert_int_equal(largest_blocks(), blocks);
    }
    page_unhog(); /* nothing is held: nothing happens */
    assert_int_equal(page_free_count(), page_total());
}

/* The validator itself must notice what is wrong. */
static void check_notices(void **state)
{
    struct page *p, *q;
    struct pcp *pcp;

    (void)state;
    start(1);
    pcp = this_cpu_ptr(&page_pcp);
    p = alloc_page();
    free_page(p);
    capture_start();
    pcp->stack[pcp->count++] = p;
    assert_false(page_alloc_check()); /* twice in a list */
    pcp->count--;
    assert_true(page_alloc_check());
    page_zones[0].free++;
    assert_false(page_alloc_check());
    page_zones[0].free--;
    page_zones[0].orders ^= 1;
    assert_false(page_alloc_check());
    page_zones[0].orders ^= 1;
    q = alloc_pages(5);
    page_set_state(q, STATE(PG_BUDDY, 5)); /* freed without merging */
    list_add(&q->list, &page_zones[0].lists[5]);
    page_zones[0].free += 32;
    assert_false(page_alloc_check());
    list_del(&q->list);
    page_zones[0].free -= 32;
    page_set_state(q, STATE(PG_HEAD, 5));
    free_pages(q, 5);
    assert_true(page_alloc_check());
    q = list_first_entry(&page_zones[0].lists[PAGE_MAX_ORDER], struct page, list);
    q->order = 3;
    assert_false(page_alloc_check());
    q->order = PAGE_MAX_ORDER;
    q->list.next->prev = &q->list + 1;
    assert_false(page_alloc_check());
    q->list.next->prev = &q->list;
    pcp->stack[pcp->count - 1] = q + 7; /* inside of a free block */
    page_set_state(q + 7, STATE(PG_LISTED, 0));
    assert_false(page_alloc_check());
    capture_text();
}

/* Frees as many single pages as make the zone of `node` keep all the batches that it may. */
static void fill_batches(int node)
{
    static struct page *out[2 * PCP_MAX + (ZONE_BATCHES + 1) * PCP_BATCH];
    unsigned got = page_alloc_bulk(out, ARRAY_SIZE(out), node);

    assert_int_equal(got, ARRAY_SIZE(out));
    page_free_bulk(out, got);
    assert_int_equal(page_zones[node].batch_count, ZONE_BATCHES);
}

/* What a zone keeps unmerged is bounded, is had by whoever asks for single pages, and is merged
 * when blocks run out. */
static void batches(void **state)
{
    static struct page *out[MM_FRAMES];
    uint64_t blocks;
    struct zone *z;

    (void)state;
    for (unsigned nodes = 1; nodes <= 2; nodes++) {
        int last = (int)nodes - 1;
        unsigned count;
        struct page *newest;

        start(nodes);
        z = &page_zones[last];
        blocks = largest_blocks();
        fill_batches(last);
        assert_true(page_alloc_check());
        assert_int_equal(page_free_count(), page_total());

        /* A batch is one list, newest first; nothing else of the zone is touched. */
        page_drain_local();
        page_alloc_set_home(0, (unsigned)last);
        newest = z->batches;
        count = z->batch_count;
        out[0] = alloc_page();
        assert_ptr_equal(out[0], newest);
        assert_int_equal(z->batch_count, count - 1);
        assert_int_equal(page_alloc_bulk(out + 1, PCP_BATCH, PAGE_ANY_NODE), PCP_BATCH);
        assert_int_equal(z->batch_count, count - 2);
        page_free_bulk(out, PCP_BATCH + 1);
        assert_true(page_alloc_check());

        /* Exact: all of memory in the largest blocks, all of it in single pages. */
        assert_int_equal(largest_blocks(), blocks);
        assert_int_equal(z->batch_count, 0);
        fill_batches(last);
        assert_int_equal(page_alloc_bulk(out, MM_FRAMES, PAGE_ANY_NODE), page_total());
        assert_int_equal(z->batch_count, 0);
        assert_true(page_alloc_check());
        page_free_bulk(out, (unsigned)page_total());
        page_drain_local();
        assert_int_equal(page_free_count(), page_total());
        assert_int_equal(largest_blocks(), blocks);
        assert_true(page_alloc_check());
    }
}

/* The validator itself must notice what is wrong. */
static void check_notices_batches(void **state)
{
    struct zone *z = &page_zones[0];
    struct list_head *next, *prev;

    (void)state;
    start(1);
    fill_batches(0);
    capture_start();
    z->batch_count--;
    assert_false(page_alloc_check());
    z->batch_count++;
    next = z->batches->list.next->next;
    z->batches->list.next->next = NULL; /* pages lost */
    assert_false(page_alloc_check());
    z->batches->list.next->next = &z->batches->list; /* and in a circle */
    assert_false(page_alloc_check());
    z->batches->list.next->next = next;
    prev = z->batches->list.prev;
    z->batches->list.prev = &z->batches->list;
    assert_false(page_alloc_check());
    z->batches->list.prev = prev;
    z->batches->node = 1;
    assert_false(page_alloc_check());
    z->batches->node = 0;
    page_set_state(z->batches, STATE(PG_HEAD, 0));
    assert_false(page_alloc_check());
    page_set_state(z->batches, STATE(PG_LISTED, 0));
    assert_true(page_alloc_check());
    capture_text();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_with_all),
        cmocka_unit_test(random_ops),
        cmocka_unit_test(exhaustion),
        cmocka_unit_test(maps_with_holes),
        cmocka_unit_test(strange_maps),
        cmocka_unit_test(mapped_pages),
        cmocka_unit_test(bad_frees),
        cmocka_unit_test(damage),
        cmocka_unit_test(injection),
        cmocka_unit_test(bulk_until_empty),
        cmocka_unit_test(nodes_asked_for),
        cmocka_unit_test(hog),
        cmocka_unit_test(check_notices),
        cmocka_unit_test(batches),
        cmocka_unit_test(check_notices_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
