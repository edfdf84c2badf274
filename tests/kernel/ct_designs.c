/*
 * What each option of the designs does: every one is seen by something that it alone changes.
 *
 * The allocator is rebuilt for each test as the 2023 design with one option turned round, and put
 * back afterwards. Effects are counted, not timed: nodes that a search visits, acquisitions of a
 * lock class, pages that wait, interrupts. And: every combination that is not refused works, a
 * random choice of them in each run.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/clock.h>

#define AREAS  256
#define PAIRS  64
#define ROUNDS 16

#define FLUSH_TRIES    20
#define FLUSH_PAUSE_US 500 /* longer each time */

static struct vmap_config own; /* the run's */

/* One node, trees, interrupts, everything else off. */
static struct vmap_config plain(void)
{
    return (struct vmap_config){.design = own.design,
                                .range_size = own.range_size,
                                .nodes = 1,
                                .frames_safe = own.frames_safe};
}

static bool build(const struct vmap_config *c)
{
    const char *why = vmap_config_refused(c);
    char text[300];

    kt_alive();
    if (!why && kt_rebuild(c))
        return true;
    vmap_config_print(c, text, sizeof(text));
    KT_FAIL("%s cannot be built: %s", text, why ? why : "see the lines above");
    return false;
}

static void put_back(void)
{
    if (!kt_rebuild(&own))
        KT_FAIL("the design of the run cannot be built again");
}

/* Nodes visited by one allocation of a page on this CPU. */
static uint64_t visits_of_one(struct page *page)
{
    uint64_t before = vmap_tree_visits();
    void *p = vmap(&page, 1, 0, PAGE_KERNEL);

    before = vmap_tree_visits() - before;
    KT_EXPECT(p);
    vunmap(p);
    return before;
}

static void check_search(bool walk, struct page *page)
{
    struct vmap_config c = plain();
    uint64_t others, live, freed, purged;
    static void *p[AREAS];

    c.search_walk = walk;
    c.lazy_max = 16 * AREAS;
    if (!build(&c))
        return;
    others = visits_of_one(page); /* each CPU's stack is an area, too */
    for (unsigned i = 0; i < AREAS; i++)
        p[i] = vmap(&page, 1, 0, PAGE_KERNEL);
    live = visits_of_one(page);
    for (unsigned i = 0; i < AREAS; i++)
        vunmap(p[i]);
    freed = visits_of_one(page);
    vmap_force_purge();
    purged = visits_of_one(page);
    kt_note("test=option_search walk=%u areas=%u visits_others=%lu visits_live=%lu "
            "visits_freed=%lu visits_purged=%lu",
            walk, AREAS, (unsigned long)others, (unsigned long)live, (unsigned long)freed,
            (unsigned long)purged);
    if (walk) {
        KT_EXPECT(live >= others + AREAS);
        KT_EXPECT(freed >= others + AREAS); /* that is what the lazy purge cost */
        KT_EXPECT(purged < others + AREAS / 2);
    } else {
        KT_EXPECT(live < 64);
        KT_EXPECT(freed < 64);
    }
}

KTEST(option_search, "search=walk goes past live and freed areas, search=tree does not")
{
    struct page *page = alloc_page();

    KT_ASSERT(page);
    own = vmap_config;
    check_search(true, page);
    check_search(false, page);
    put_back();
    free_page(page);
}

/* ---- by lock statistics ---- */

/* Puts the run's design back, whose locks are counted if the run's are. */
static void counting_end(void)
{
    kt_quiesce();
    KT_EXPECT(kt_vmap_exit());
    kt_lockstat_end();
    if (!kt_rebuild_from_nothing(&own))
        KT_FAIL("the design of the run cannot be built again");
}

/* Acquisitions of the busy tree's lock in PAIRS times vmap and vunmap. */
static uint64_t busy_acquisitions(const struct vmap_config *c, struct page *page)
{
    uint64_t before;

    if (!build(c))
        return 0;
    before = kt_lockstat("vmap_node.busy").acquisitions;
    for (unsigned i = 0; i < PAIRS; i++)
        vunmap(vmap(&page, 1, 0, PAGE_KERNEL));
    return kt_lockstat("vmap_node.busy").acquisitions - before;
}

KTEST(option_insert, "insert=twice takes the busy lock twice to publish an area, insert=once once")
{
    struct page *page = alloc_page();
    struct vmap_config c;

    KT_ASSERT(page);
    own = vmap_config;
    KT_ASSERT(kt_lockstat_begin());
    c = plain();
    c.lazy_max = 4 * PAIRS;
    for (unsigned walk = 0; walk < 2; walk++) {
        c.search_walk = walk;
        c.insert_twice = false;
        KT_EXPECT_EQ(busy_acquisitions(&c, page), 2 * PAIRS);
        c.insert_twice = true;
        KT_EXPECT_EQ(busy_acquisitions(&c, page), 3 * PAIRS);
    }
    counting_end();
    free_page(page);
}

struct mapping {
    struct page *page;
    void *p;
};

static void map_one(void *arg)
{
    struct mapping *m = arg;

    m->p = vm_map_ram(&m->page, 1, VM_ANY_NODE);
}

static void unmap_one(void *arg)
{
    struct mapping *m = arg;

    vm_unmap_ram(m->p, 1);
}

/* Acquisitions of the index's locks by another CPU than the time before, of two CPUs in turns. */
static uint64_t index_bounces(bool global, struct page *page)
{
    struct vmap_config c = plain();
    struct mapping m[2] = {{.page = page}, {.page = page}};
    uint64_t before = 0;

    c.vbindex_global = global;
    if (!build(&c))
        return 0;
    for (unsigned round = 0; round <= ROUNDS; round++) {
        if (round == 1) /* both have their blocks */
            before = kt_lockstat("vmap_index").acq_bounces;
        for (unsigned cpu = 0; cpu < 2; cpu++) {
            kt_on_cpu(cpu, map_one, &m[cpu]);
            KT_EXPECT(m[cpu].p);
            kt_on_cpu(cpu, unmap_one, &m[cpu]);
        }
    }
    return kt_lockstat("vmap_index").acq_bounces - before;
}

KTEST(option_vbindex,
      "vbindex=global has CPUs meet at one lock, vbindex=percpu keeps their blocks apart")
{
    struct page *page;

    if (kt_cpus() < 2)
        KT_SKIP("one CPU");
    page = alloc_page();
    KT_ASSERT(page);
    own = vmap_config;
    KT_ASSERT(kt_lockstat_begin());
    KT_EXPECT_EQ(index_bounces(true, page), 2 * ROUNDS);
    KT_EXPECT_EQ(index_bounces(false, page), 0);
    counting_end();
    free_page(page);
}

static void look_up(void *arg)
{
    struct vm_area_info info;

    KT_EXPECT(find_vm_area(arg, &info) && info.start == arg);
}

static void check_lock(unsigned lock)
{
    struct lockstat reads, writes;
    struct vmap_config c = plain();
    void *p;

    c.lock = lock;
    if (!build(&c))
        return;
    p = vmalloc(PAGE_SIZE);
    KT_EXPECT(p);
    reads = kt_lockstat("vmap_node.busy-R");
    writes = kt_lockstat("vmap_node.busy-W");
    kt_on_cpu(kt_other_cpu(), look_up, p);
    KT_EXPECT_EQ(kt_lockstat("vmap_node.busy-R").acquisitions, reads.acquisitions + 1);
    KT_EXPECT_EQ(kt_lockstat("vmap_node.busy-W").acquisitions, writes.acquisitions);
    vfree(p);
    KT_EXPECT_EQ(kt_lockstat("vmap_node.busy-R").acquisitions, reads.acquisitions + 1);
    KT_EXPECT_EQ(kt_lockstat("vmap_node.busy-W").acquisitions, writes.acquisitions + 1);
}

KTEST(option_lock, "lock=rw, rwspin: lookups are readers, allocations and frees are writers")
{
    own = vmap_config;
    KT_ASSERT(kt_lockstat_begin());
    check_lock(LOCK_RW);
    check_lock(LOCK_RWSPIN);
    counting_end();
}

/* ---- by counters ---- */

static void free_and_look(void *arg)
{
    struct page *page = *(struct page **)arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        vunmap(vmap(&page, 1, 0, PAGE_KERNEL));
        if (kt_counter("lazy_pages") != 0)
            KT_FAIL("%lu pages wait", (unsigned long)kt_counter("lazy_pages"));
    }
}

static void free_only(void *arg)
{
    struct page *page = *(struct page **)arg;

    for (unsigned i = 0; i < ROUNDS; i++)
        vunmap(vmap(&page, 1, 0, PAGE_KERNEL));
}

KTEST(option_purge, "purge=eager leaves no page that waits, purge=lazy all of them up to the limit")
{
    struct page *page = alloc_page();
    struct vmap_config c;
    uint64_t purges;

    KT_ASSERT(page);
    own = vmap_config;
    c = plain();
    for (unsigned walk = 0; walk < 2; walk++) {
        c.search_walk = walk;
        c.purge_eager = true;
        if (!build(&c))
            break;
        purges = kt_counter("purges");
        free_and_look(&page);
        KT_EXPECT_EQ(kt_counter("purges") - purges, ROUNDS);
        /* All at once: a free may be served by another CPU's pass, but must be served. */
        kt_on_all(free_only, &page);
        KT_EXPECT_EQ(kt_counter("lazy_pages"), 0);
        c.purge_eager = false;
        c.lazy_max = 4 * ROUNDS;
        if (!build(&c))
            break;
        free_only(&page);
        KT_EXPECT_EQ(kt_counter("lazy_pages"), 2 * ROUNDS); /* page and guard */
    }
    put_back();
    free_page(page);
}

static uint64_t areas_of_one_vmalloc(void)
{
    uint64_t before = kt_counter("vmap_areas");
    void *p = vmalloc(PAGE_SIZE), *q = vmalloc(PAGE_SIZE);

    KT_EXPECT(p && q);
    before = kt_counter("vmap_areas") - before;
    vfree(p);
    vfree(q);
    return before;
}

KTEST(option_blocks, "blocks=all takes no area for each small vmalloc, blocks=ram does")
{
    struct vmap_config c;

    own = vmap_config;
    c = plain();
    if (build(&c))
        KT_EXPECT_EQ(areas_of_one_vmalloc(), 2);
    c.blocks_all = c.index_table = c.flush_gen = true;
    if (build(&c))
        KT_EXPECT(areas_of_one_vmalloc() <= 1); /* a new block at most */
    put_back();
}

static uint64_t visits_of_lookup(void)
{
    void *p = vmalloc(PAGE_SIZE);
    uint64_t before = vmap_tree_visits();

    look_up(p);
    before = vmap_tree_visits() - before;
    vfree(p);
    return before;
}

KTEST(option_index, "index=table looks at no tree, index=tree does")
{
    struct vmap_config c;

    own = vmap_config;
    c = plain();
    if (build(&c))
        KT_EXPECT(visits_of_lookup() > 0);
    c.index_table = c.flush_gen = true;
    if (build(&c))
        KT_EXPECT_EQ(visits_of_lookup(), 0);
    put_back();
}

/* Interrupts that a purge sends. The other CPUs have nothing to do. */
static uint64_t ipis_of_purge(void)
{
    uint64_t before;

    vfree(vmalloc(PAGE_SIZE));
    before = kt_counter("tlb_ipis");
    vmap_force_purge();
    return kt_counter("tlb_ipis") - before;
}

/* The fewest of several purges: a CPU is not halted before the host has let it get there. */
static uint64_t ipis_of_halted(void)
{
    uint64_t fewest = UINT64_MAX;

    for (unsigned i = 0; i < FLUSH_TRIES && fewest >= kt_cpus() - 1; i++) {
        clock_delay_us(i * FLUSH_PAUSE_US);
        fewest = MIN(fewest, ipis_of_purge());
    }
    return fewest;
}

KTEST(option_flush, "flush=ipi interrupts every other CPU, flush=gen no halted one")
{
    struct vmap_config c;

    own = vmap_config;
    c = plain();
    if (build(&c))
        KT_EXPECT_EQ(ipis_of_purge(), kt_cpus() - 1);
    c.flush_gen = true;
    if (build(&c) && kt_cpus() > 1)
        KT_EXPECT(ipis_of_halted() < kt_cpus() - 1);
    put_back();
}

/* ---- combinations ---- */

static void use_a_little(void *arg)
{
    struct page *page = *(struct page **)arg, *two[2] = {page, page};

    for (unsigned i = 0; i < 4; i++) {
        uint64_t *a = vmalloc((i + 1) * PAGE_SIZE), *b = vmap(two, 2, 0, PAGE_KERNEL);
        uint64_t *c = vm_map_ram(&page, 1, VM_ANY_NODE), *d = vmalloc(200 * PAGE_SIZE);

        KT_EXPECT(a && b && c && d);
        if (a && b && c && d) {
            kt_fill(a, PAGE_SIZE, i);
            kt_fill(d + 199 * PAGE_SIZE / sizeof(*d), PAGE_SIZE, i + 1);
            KT_EXPECT(kt_verify(a, PAGE_SIZE, i));
            KT_EXPECT(kt_verify(d + 199 * PAGE_SIZE / sizeof(*d), PAGE_SIZE, i + 1));
            KT_EXPECT(*b == *kt_word(page) && *c == *kt_word(page));
            look_up(a);
            look_up(c);
        }
        vfree(a);
        vunmap(b);
        vm_unmap_ram(c, 1);
        if (i % 2)
            vm_unmap_aliases();
        vfree(d);
    }
}

static struct vmap_config random_config(struct rng *r)
{
    struct vmap_config c = plain();

    c.nodes = 1 + (unsigned)rng_below(r, 4);
    c.lock = (unsigned)rng_below(r, LOCK_RWSPIN + 1);
    c.lazy_max = rng_below(r, 2) ? 64 : 0;
    c.blocks_all = rng_below(r, 3) == 0;
    c.index_table = c.blocks_all || rng_below(r, 3) == 0;
    c.flush_gen = c.index_table || rng_below(r, 2);
    c.pools = rng_below(r, 2);
    c.search_walk = rng_below(r, 2);
    c.insert_twice = rng_below(r, 2);
    c.vbindex_global = rng_below(r, 2);
    c.purge_eager = rng_below(r, 3) == 0;
    c.frames_safe = rng_below(r, 2);
    return c;
}

KTEST(option_mixes, "any options that are not refused together work together")
{
    uint64_t rounds = MAX(kt_scaled(48) / (1 + kt_cpus() / 8), 3UL), built = 0;
    struct page *page = alloc_page();
    struct rng rng;

    KT_ASSERT(page);
    *kt_word(page) = 0x5a5a;
    own = vmap_config;
    rng_seed(&rng, kt_seed());
    while (built < rounds && !kt_failed()) {
        struct vmap_config c = random_config(&rng);
        char text[300];

        if (vmap_config_refused(&c))
            continue;
        if (!build(&c))
            break;
        kt_on_few(use_a_little, &page);
        kt_quiesce();
        vmap_config_print(&c, text, sizeof(text));
        if (!kt_selfcheck() || kt_counter("lazy_pages") != 0)
            KT_FAIL("%s: selfcheck, or %lu pages wait", text,
                    (unsigned long)kt_counter("lazy_pages"));
        else if (kt_failed())
            kt_note("test=option_mixes %s", text);
        built++;
        kt_progress((unsigned)(built * 100 / rounds));
    }
    put_back();
    free_page(page);
}

KTEST(option_refusals, "what cannot be is refused, with the reason, and not built")
{
    struct vmap_config good[3], bad[9];

    own = vmap_config;
    good[0] = good[1] = good[2] = plain();
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
        bad[i] = plain();
    good[1].blocks_all = good[1].index_table = good[1].flush_gen = true;
    good[2].search_walk = good[2].purge_eager = good[2].insert_twice = true;
    for (unsigned i = 0; i < ARRAY_SIZE(good); i++)
        KT_EXPECT(!vmap_config_refused(&good[i]));
    bad[0].blocks_all = bad[0].flush_gen = true;
    bad[1].blocks_all = bad[1].index_table = true;
    bad[2].index_table = true;
    bad[3].blocks_all = bad[3].index_table = bad[3].flush_gen = bad[3].purge_eager = true;
    bad[4].search_walk = true;
    bad[4].nodes = 2;
    bad[5].index_table = bad[5].flush_gen = bad[5].pools = true;
    bad[6].nodes = 1000;
    bad[7].range_size += PAGE_SIZE;
    bad[8].index_table = bad[8].purge_eager = true;
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
        if (!vmap_config_refused(&bad[i]))
            KT_FAIL("combination %u is not refused", i);
    kt_quiesce();
    KT_ASSERT(kt_vmap_exit());
    KT_EXPECT_EQ(vmap_init(&bad[0]), ERR_INVAL);
    KT_ASSERT(kt_rebuild_from_nothing(&own));
}
