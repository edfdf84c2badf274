/*
 * What a search costs, in nodes visited: figures that do not depend on the clock.
 *
 * B2: the time of an allocation must not grow with the number of holes (or areas) except by the
 * depth of a tree. B3: freed areas that wait for the purge must not be found, and must not make
 * lookups dearer. The areas are vmaps of one page, which need addresses and page tables, and no
 * memory.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define SEARCHES 16

/* 2n areas, every other one freed: n holes of two pages (page and guard). */
static bool make_holes(void **p, uint64_t n, struct page *page)
{
    for (uint64_t i = 0; i < 2 * n; i++) {
        p[i] = vmap(&page, 1, 0, PAGE_KERNEL);
        if (!p[i])
            return false;
        kt_alive();
    }
    for (uint64_t i = 0; i < 2 * n; i += 2) {
        vunmap(p[i]);
        p[i] = NULL;
    }
    kt_quiesce();
    return true;
}

/* Nodes visited by an allocation of `count` pages, on average. */
static uint64_t visits_of(struct page *page, unsigned count)
{
    struct page *pages[2] = {page, page};
    void *got[SEARCHES];
    uint64_t before = vmap_tree_visits(), visits;

    for (unsigned i = 0; i < SEARCHES; i++)
        got[i] = vmap(pages, count, 0, PAGE_KERNEL);
    visits = (vmap_tree_visits() - before) / SEARCHES;
    for (unsigned i = 0; i < SEARCHES; i++) {
        if (!got[i])
            KT_FAIL("no addresses for %u pages", count);
        vunmap(got[i]);
    }
    kt_quiesce();
    return visits;
}

struct cost {
    uint64_t one, two; /* visits for one and for two pages */
};

static struct cost measure(uint64_t n, struct page *page)
{
    struct cost c = {0};
    void **p = vzalloc(2 * n * sizeof(*p));

    if (p && make_holes(p, n, page)) {
        c.two = visits_of(page, 2);
        c.one = visits_of(page, 1);
    } else {
        KT_FAIL("no memory for %lu holes", (unsigned long)n);
    }
    for (uint64_t i = 0; p && i < 2 * n; i++)
        vunmap(p[i]);
    vfree(p);
    kt_quiesce();
    return c;
}

KTEST(search_cost, "B2: the search is logarithmic in the number of holes")
{
    uint64_t few = kt_scaled(256), many = 16 * few;
    struct page *page = alloc_page();
    struct cost small, large;

    KT_ASSERT(page);
    small = measure(few, page);
    kt_progress(30);
    large = measure(many, page);
    kt_note("test=search_cost holes=%lu visits_one=%lu visits_two=%lu holes=%lu visits_one=%lu "
            "visits_two=%lu",
            (unsigned long)few, (unsigned long)small.one, (unsigned long)small.two,
            (unsigned long)many, (unsigned long)large.one, (unsigned long)large.two);
    KT_EXPECT(large.two != 0 || vmap_config.blocks_all);
    if (vmap_config.search_walk) {
        /* Linear: that is its point. Small areas of blocks=all do not search at all. */
        KT_EXPECT(large.two >= many || vmap_config.blocks_all);
    } else {
        KT_EXPECT(large.two <= 3 * MAX(small.two, 8UL));
        KT_EXPECT(large.one <= 3 * MAX(small.one, 8UL));
    }
    free_page(page);
}

static uint64_t lookup_visits(const void *p)
{
    struct vm_area_info info;
    uint64_t before = vmap_tree_visits();

    KT_EXPECT(find_vm_area(p, &info) && info.start == p);
    return vmap_tree_visits() - before;
}

KTEST(lazy_not_found, "B3: freed areas are not found and do not slow down lookups")
{
    uint64_t n = MIN(kt_scaled(2000), kt_counter("lazy_limit") / 4), areas, before, after;
    struct vm_area_info info;
    struct page *page;
    void **p, *live;

    KT_NEEDS_LAZY();
    page = alloc_page();
    p = vzalloc(n * sizeof(*p));
    KT_ASSERT(page && p);
    kt_quiesce();
    live = vmalloc(PAGE_SIZE);
    areas = kt_counter("vmap_areas");
    before = lookup_visits(live);
    for (uint64_t i = 0; i < n; i++) {
        p[i] = vmap(&page, 1, 0, PAGE_KERNEL);
        KT_EXPECT(p[i]);
    }
    for (uint64_t i = 0; i < n; i++)
        vunmap(p[i]);
    /* Otherwise a purge ran, and nothing was shown. */
    KT_EXPECT(kt_counter("lazy_pages") >= n || vmap_config.index_table);
    for (uint64_t i = 0; i < n; i++) {
        if (find_vm_area(p[i], &info))
            KT_FAIL("%p is freed and was found", p[i]);
    }
    KT_EXPECT(kt_counter("vmap_areas") == areas || vmap_config.blocks_all);
    after = lookup_visits(live);
    /* search=walk keeps them in the tree, as was done then. */
    if (after > before + 2 && !vmap_config.search_walk)
        KT_FAIL("a lookup visits %lu nodes, %lu before", (unsigned long)after,
                (unsigned long)before);
    vfree(live);
    vfree(p);
    free_page(page);
}
