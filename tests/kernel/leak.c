/*
 * leak.c: after each test everything must be back: addresses, areas, page tables and lazy pages
 * exactly, objects and frames within a stated bound (a CPU may keep an object, caches a few
 * frames), no bad free that the test has not announced, and every structure sound.
 *
 * The baseline is that of the run, with repeat= of the first round, not of the test, so that small
 * leaks add up until they are seen.
 * Boot CPU only, all others idle.
 */
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap.h"
#include "tests/kernel/runner.h"
#include <arch/smp.h>

/* Frames that may stay with caches: some for the machine, and a few for each CPU. Page tables all
 * come back. A CPU may keep one object, for the next split of a free range. */
#define LEAK_PAGES         32
#define LEAK_PAGES_PER_CPU 2

static struct footprint base;
static uint64_t expected_bad_frees;

/* What only this CPU can give back: blocks, deferred frees, its lists of objects and frames. The
 * older designs have no blocks of a CPU that another one could not free, and are spared the walk
 * over the tables. */
static void drain_cpu(void *arg)
{
    (void)arg;
    if (vmap_config.blocks_all) {
        vmap_quiesce();
        return;
    }
    vm_unmap_aliases();
    cache_shrink_all();
    page_drain_local();
}

/* One CPU after the other: together they would only wait for each other's purges. */
void kt_quiesce(void)
{
    unsigned cpu;

    for_each_cpu (cpu) {
        if (cpu != 0 && kt_take_used(cpu))
            kt_on_idle_cpu(cpu, drain_cpu, NULL);
    }
    vmap_quiesce();
}

void leak_baseline(void)
{
    kt_quiesce();
    footprint_read(&base, 0);
    expected_bad_frees = 0;
}

void kt_expect_bad_frees(uint64_t n)
{
    expected_bad_frees += n;
}

uint64_t leak_frames_bound(void)
{
    return LEAK_PAGES + LEAK_PAGES_PER_CPU * (uint64_t)smp_cpus();
}

uint64_t leak_objects_bound(void)
{
    return smp_cpus();
}

/* `ok`, or `leak` and a failure of the running test. */
static unsigned must(bool ok, enum leak leak, bool say, const char *what, uint64_t now,
                     uint64_t before)
{
    if (ok)
        return 0;
    if (say)
        KT_FAIL("leak: %s=%lu, before %lu", what, (unsigned long)now, (unsigned long)before);
    return leak;
}

static unsigned compare(const struct footprint *now, bool say)
{
    const struct vmap_counters *n = &now->c, *b = &base.c;

    return must(now->used_pages <= base.used_pages + leak_frames_bound(), LEAK_FRAMES, say,
                "used_pages", now->used_pages, base.used_pages) |
           must(n->pt_pages <= b->pt_pages, LEAK_TABLES, say, "pt_pages", n->pt_pages,
                b->pt_pages) |
           must(n->va_used == b->va_used, LEAK_ADDRESSES, say, "va_used", n->va_used, b->va_used) |
           must(n->vmap_areas == b->vmap_areas, LEAK_AREAS, say, "vmap_areas", n->vmap_areas,
                b->vmap_areas) |
           must(n->lazy_pages == 0, LEAK_LAZY, say, "lazy_pages", n->lazy_pages, 0) |
           must(now->cache_objects <= base.cache_objects + leak_objects_bound(), LEAK_OBJECTS, say,
                "cache_objects", now->cache_objects, base.cache_objects) |
           must(n->bad_free - b->bad_free == expected_bad_frees, LEAK_BAD_FREES, say, "bad_free",
                n->bad_free, b->bad_free + expected_bad_frees);
}

unsigned leak_look(void)
{
    struct footprint now;

    kt_quiesce();
    footprint_read(&now, 0);
    return compare(&now, false);
}

/* With counters=each, what vm_unmap_aliases() alone leaves is said, too. */
void leak_check(const char *test)
{
    bool each = kt_options.counters == COUNTERS_EACH;
    struct footprint now;

    if (each) {
        vm_unmap_aliases();
        footprint_read(&now, 0);
        footprint_note(test, "unmap_aliases", &now);
    }
    kt_quiesce();
    footprint_read(&now, 0);
    if (each)
        footprint_note(test, "all_given_back", &now);
    compare(&now, true);
    if (!kt_selfcheck())
        KT_FAIL("selfcheck: see the lines above");
    base.c.bad_free = now.c.bad_free;
    expected_bad_frees = 0;
    if (kt_failed())
        base = now;
}
