/*
 * The nodes' pools of ready ranges.
 *
 * C3: pools are emptied by purges, by the shortage of addresses and refilled by frees, all at once:
 * ranges must not get lost, and lengths must agree. A pool that nobody uses must shrink to nothing,
 * by at least a quarter with each purge. C8: with one CPU that allocates and another that frees,
 * ranges must come back to the one that allocates.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/percpu.h>

#define SIZES_MAX   255 /* pages, without guard */
#define OTHERS_MAX  3
#define POOLED      1000
#define RING        64
#define PURGE_EVERY 128
#define STEADY      (16 * PURGE_EVERY)

static uint64_t pool_sum(void)
{
    uint64_t sum = 0;

    for (unsigned pages = 1; pages <= SIZES_MAX + 1; pages++)
        sum += vmap_pool_len(pages);
    return sum;
}

static struct {
    uint32_t stop;
    struct page *pages[SIZES_MAX]; /* the same one many times */
} race;

static void disturb(void *arg)
{
    const size_t offsets[2] = {0, 8 * PAGE_SIZE}, sizes[2] = {PAGE_SIZE, PAGE_SIZE};
    struct rng rng;

    (void)arg;
    rng_seed(&rng, kt_seed() + this_cpu_id());
    while (!LOAD_ACQUIRE(race.stop)) {
        if (this_cpu_id() == 1) {
            struct vm_area **a = pcpu_get_vm_areas(offsets, sizes, 2, PAGE_SIZE);

            KT_EXPECT(a);
            pcpu_free_vm_areas(a, 2);
            vm_unmap_aliases();
        } else {
            void *p = vmap(race.pages, (unsigned)rng_range(&rng, 1, SIZES_MAX), 0, PAGE_KERNEL);

            KT_EXPECT(p);
            vunmap(p);
        }
        kt_alive();
    }
}

KTEST(pool_race, "C3: pools are drained and refilled by several CPUs at once")
{
    unsigned others = MIN(kt_cpus() - 1, (unsigned)OTHERS_MAX);
    struct page *page = alloc_page();
    uint64_t used;

    KT_ASSERT(page);
    kt_quiesce();
    used = kt_counter("va_used");
    race.stop = 0;
    for (unsigned i = 0; i < SIZES_MAX; i++)
        race.pages[i] = page;
    for (unsigned i = 1; i <= others; i++)
        kt_start(i, disturb, NULL);
    for (uint64_t i = 0; i < kt_scaled_flushes(100); i++) {
        vunmap(vmap(race.pages, 1 + i % SIZES_MAX, 0, PAGE_KERNEL));
        vmap_force_purge();
        if (i % 16 == 0)
            vmap_quiesce();
        kt_alive();
    }
    STORE_RELEASE(race.stop, 1u);
    for (unsigned i = 1; i <= others; i++)
        kt_join(i);
    KT_EXPECT(kt_selfcheck());
    kt_quiesce();
    KT_EXPECT_EQ(kt_counter("va_used"), used);
    KT_EXPECT_EQ(pool_sum(), 0);
    free_page(page);
}

/* Frees areas of one size; how many are in the pools after the purge. */
static uint64_t fill_pool(struct page *page)
{
    void **p = vzalloc(POOLED * sizeof(*p));
    uint64_t len;

    if (!p)
        return 0;
    for (unsigned i = 0; i < POOLED; i++)
        p[i] = vmap(&page, 1, 0, PAGE_KERNEL);
    for (unsigned i = 0; i < POOLED; i++)
        vunmap(p[i]);
    vmap_force_purge();
    len = vmap_pool_len(2);
    vfree(p);
    return len;
}

KTEST(pool_decay, "C3: an unused pool shrinks by a quarter with each purge, to nothing")
{
    struct page *page, *five[5];
    uint64_t len, rounds = 0;

    KT_NEEDS_LAZY();
    page = alloc_page();
    KT_ASSERT(page);
    for (unsigned i = 0; i < ARRAY_SIZE(five); i++)
        five[i] = page;
    kt_quiesce();
    len = fill_pool(page);
    if (!len) {
        kt_skip("pools are off (one node, or pools=off)");
    } else {
        KT_EXPECT(len >= POOLED / 2);
        while (len && rounds++ < 64) {
            uint64_t now;

            vunmap(vmap(five, 5, 0, PAGE_KERNEL)); /* something to purge */
            vmap_force_purge();
            now = vmap_pool_len(2);
            KT_EXPECT(now <= len - (len + 3) / 4);
            len = now;
        }
        kt_note("test=pool_decay rounds=%lu", (unsigned long)rounds);
        KT_EXPECT_EQ(len, 0);
    }
    free_page(page);
}

/* One producer (the boot CPU), one consumer. */
static struct {
    uint64_t head __cacheline;
    uint64_t tail __cacheline;
    void *slot[RING];
} ring;

static void consume(void *arg)
{
    uint64_t n = *(uint64_t *)arg;

    while (ring.tail < n) {
        if (!kt_wait_for(&ring.head, ring.tail + 1)) {
            KT_FAIL("the producer stopped");
            return;
        }
        vunmap(ring.slot[ring.tail % RING]);
        STORE_RELEASE(ring.tail, ring.tail + 1);
        if (ring.tail % PURGE_EVERY == 0)
            vmap_force_purge();
        kt_alive();
    }
}

/* Hits of the second half, in percent; 100 if there are no pools. */
static uint64_t produce(struct page *page, uint64_t n, uint64_t *va_max)
{
    uint64_t hit = 0, miss = 0;

    for (uint64_t i = 0; i < n; i++) {
        if (i >= RING && !kt_wait_for(&ring.tail, i - RING + 1)) {
            KT_FAIL("the consumer stopped");
            break;
        }
        if (i == n / 2) {
            hit = kt_counter("pool_hit");
            miss = kt_counter("pool_miss");
        }
        ring.slot[i % RING] = vmap(&page, 1, 0, PAGE_KERNEL);
        KT_EXPECT(ring.slot[i % RING]);
        STORE_RELEASE(ring.head, i + 1);
        if (i % PURGE_EVERY == 0)
            *va_max = MAX(*va_max, kt_counter("va_used"));
        kt_progress((unsigned)(i * 100 / n));
    }
    hit = kt_counter("pool_hit") - hit;
    miss = kt_counter("pool_miss") - miss;
    return hit + miss ? hit * 100 / (hit + miss) : 100;
}

KTEST(producer_consumer, "C8: one CPU allocates, another frees: addresses stay bounded")
{
    uint64_t n = ALIGN_UP(MAX(kt_scaled(4096), (uint64_t)STEADY), 2UL * PURGE_EVERY), used,
             va_max = 0, hits, each;
    struct page *page = alloc_page();

    KT_ASSERT(page);
    if (kt_cpus() == 1) {
        free_page(page);
        KT_SKIP("one CPU");
    }
    kt_quiesce();
    used = kt_counter("va_used");
    memset(&ring, 0, sizeof(ring));
    kt_start(1, consume, &n);
    hits = produce(page, n, &va_max);
    kt_join(1);
    kt_note("test=producer_consumer areas=%lu pool_hits_percent=%lu va_max=%lu pool=%lu",
            (unsigned long)n, (unsigned long)hits, (unsigned long)(va_max - used),
            (unsigned long)pool_sum());
    /* What lives, what waits for the purge, and pools of the same order. */
    each = vmap_config.index_table ? PMD_SIZE : 2 * PAGE_SIZE;
    KT_EXPECT(va_max - used <= (vmap_config.blocks_all ? 32 * PMD_SIZE : 16 * PURGE_EVERY * each));
    KT_EXPECT(pool_sum() <= 8 * PURGE_EVERY);
    KT_EXPECT(hits > 80 || !vmap_config.pools);
    free_page(page);
}
