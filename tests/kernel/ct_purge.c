/*
 * What a purge costs and what it flushes.
 *
 * C1: the time of a purge is linear in the areas that wait, with a small constant, and the counter
 * of lazy pages ends at exactly 0. C2: one flush for all of them. C4: no lock is held for long
 * while it runs. E10: a few far apart areas become one full flush, not a loop over everything
 * between them; a small one stays a ranged flush.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/clock.h>
#include <arch/cpu.h>

#define MAPPED_MAX (KT_BLOCK_ALLOC + 1)
#define GROWTH     8
#define TRIES      3
#define ROUNDS     8
#define FAR        (64 * SZ_1G)

struct share {
    struct page *pages[MAPPED_MAX]; /* the same one many times */
    uint64_t n;                     /* of each CPU */
};

/* Pages of an area: one, or where small ones come from blocks, too many for one. */
static unsigned mapped(void)
{
    return vmap_config.blocks_all ? MAPPED_MAX : 1;
}

/* Areas that may wait with room to spare. */
static uint64_t limit(void)
{
    return kt_counter("lazy_limit") / (mapped() + 1) / 2;
}

static void free_some(void *arg)
{
    struct share *s = arg;

    for (uint64_t i = 0; i < s->n; i++) {
        void *p = vmap(s->pages, mapped(), 0, PAGE_KERNEL);

        KT_EXPECT(p);
        vunmap(p);
        kt_alive();
    }
}

static void share_init(struct share *s, struct page *page, uint64_t n)
{
    s->n = n;
    for (unsigned i = 0; i < MAPPED_MAX; i++)
        s->pages[i] = page;
}

/* Cycles an area of a purge of n areas that all CPUs have freed: the best of some tries. */
static uint64_t purge_cost(struct page *page, uint64_t n)
{
    struct vmap_purge_report r = {0};
    uint64_t best = UINT64_MAX;
    struct share s;

    share_init(&s, page, MAX(n / kt_cpus(), 1UL));
    for (unsigned i = 0; i < TRIES; i++) {
        kt_on_all(free_some, &s);
        vmap_force_purge();
        vmap_last_purge(&r);
        if (!vmap_config.index_table) /* there areas are units, more than may wait */
            KT_EXPECT_EQ(r.areas, s.n * kt_cpus());
        KT_EXPECT_EQ(kt_counter("lazy_pages"), 0);
        best = MIN(best, r.cycles / MAX(r.areas, 1UL));
    }
    /* search=walk frees them all under one hold, as was done then. */
    if (!cpu_features.hypervisor_present && !vmap_config.search_walk)
        KT_EXPECT(clock_cycles_to_us(r.locked_worst) < 1000);
    return best;
}

KTEST(purge_linear, "C1, C4: the time of a purge is linear, its counter exact, its locks short")
{
    uint64_t few = MIN(kt_scaled(512), limit() / GROWTH), small, large;
    struct page *page;

    KT_NEEDS_LAZY();
    page = alloc_page();
    KT_ASSERT(page);
    kt_quiesce();
    /* The flush is shared by more areas, so it should rather fall; what takes the square of the
     * time would take GROWTH times as long in every round, a busy host not. */
    for (unsigned round = 0; round < ROUNDS; round++) {
        small = purge_cost(page, few);
        large = purge_cost(page, GROWTH * few);
        if (large <= GROWTH / 2 * small)
            break;
    }
    kt_note("test=purge_linear areas=%lu cycles_each=%lu areas=%lu cycles_each=%lu",
            (unsigned long)few, (unsigned long)small, (unsigned long)(GROWTH * few),
            (unsigned long)large);
    if (large > GROWTH / 2 * small)
        KT_FAIL("%lu cycles for each of %lu areas, %lu for each of %lu", (unsigned long)large,
                (unsigned long)(GROWTH * few), (unsigned long)small, (unsigned long)few);
    free_page(page);
}

KTEST(one_flush_per_purge, "C2: a thousand freed areas, one flush")
{
    uint64_t n = MIN(kt_scaled(1000), limit()), ipis;
    struct page *page;
    unsigned flushes;
    struct share s;

    KT_NEEDS_LAZY();
    page = alloc_page();
    KT_ASSERT(page);
    share_init(&s, page, n);
    kt_quiesce();
    free_some(&s);
    if (!vmap_config.blocks_all) /* there they wait in their blocks */
        KT_EXPECT(kt_counter("lazy_pages") >= n);
    ipis = kt_counter("tlb_ipis");
    kt_flush_log_start();
    vmap_force_purge();
    flushes = kt_flush_log_stop();
    ipis = kt_counter("tlb_ipis") - ipis;
    KT_EXPECT_EQ(flushes, 1);
    KT_EXPECT_EQ(kt_counter("lazy_pages"), 0);
    /* Idle CPUs hold translations too; only generations can do without telling them. */
    if (vmap_config.flush_gen)
        KT_EXPECT(ipis <= kt_cpus() - 1);
    else
        KT_EXPECT_EQ(ipis, kt_cpus() - 1);
    free_page(page);
}

KTEST(flush_far_apart, "E10: areas far apart become one full flush, a small one a ranged one")
{
    uint64_t far = MIN(FAR, 1UL << (fls64(vmap_config.range_size / 4) - 1));
    const struct kt_flush *f = kt_flush_at(0);
    char *low, *high, *ten;

    KT_NEEDS_LAZY();
    kt_quiesce();
    low = vmalloc(PAGE_SIZE);
    high = __vmalloc(PAGE_SIZE, far, 0, VM_ANY_NODE);
    KT_ASSERT(low && high);
    KT_EXPECT((uintptr_t)high - (uintptr_t)low > far / 4);
    vfree(low);
    vfree(high);
    kt_flush_log_start();
    vmap_force_purge();
    KT_EXPECT_EQ(kt_flush_log_stop(), 1);
    KT_EXPECT(f->full);

    kt_quiesce();
    ten = vmalloc(10 * PAGE_SIZE);
    KT_ASSERT(ten);
    vfree(ten);
    kt_flush_log_start();
    vmap_force_purge();
    KT_EXPECT_EQ(kt_flush_log_stop(), 1);
    KT_EXPECT(kt_flush_covers((uintptr_t)ten, (uintptr_t)ten + 10 * PAGE_SIZE));
    KT_EXPECT(!f->full || vmap_config.flush_gen);
    KT_EXPECT(f->full || f->end - f->start <= 11 * PAGE_SIZE);
}
