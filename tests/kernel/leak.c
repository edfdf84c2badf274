/*
 * leak.c: after each test everything must be back: addresses, areas and lazy pages exactly, frames
 * within a stated bound (per-CPU caches of objects may hold a few), no bad free that the test has
 * not announced, and every structure sound.
 *
 * The baseline is that of the run, not of the test, so that small leaks add up until they are seen.
 * Boot CPU only, all others idle.
 */
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap.h"
#include "tests/kernel/runner.h"
#include <arch/smp.h>

/* Frames that may stay with caches, and page tables: some for the machine, and a few for each CPU.
 */
#define LEAK_PAGES         32
#define LEAK_PAGES_PER_CPU 2

static struct vmap_counters base;
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
    vmap_read_counters(&base);
    expected_bad_frees = 0;
}

void kt_expect_bad_frees(uint64_t n)
{
    expected_bad_frees += n;
}

static void compare(const struct vmap_counters *now)
{
    uint64_t bound = LEAK_PAGES + LEAK_PAGES_PER_CPU * (uint64_t)smp_cpus();

    if (now->free_pages + now->pt_pages + bound < base.free_pages + base.pt_pages)
        KT_FAIL("leak: %lu free pages, %lu before; page tables %lu and %lu; caches may keep %lu",
                (unsigned long)now->free_pages, (unsigned long)base.free_pages,
                (unsigned long)now->pt_pages, (unsigned long)base.pt_pages, (unsigned long)bound);
    if (now->pt_pages > base.pt_pages + bound)
        KT_FAIL("leak: %lu page-table pages, %lu before", (unsigned long)now->pt_pages,
                (unsigned long)base.pt_pages);
    if (now->va_used != base.va_used)
        KT_FAIL("leak: va_used=%lu, before %lu", (unsigned long)now->va_used,
                (unsigned long)base.va_used);
    if (now->vmap_areas != base.vmap_areas)
        KT_FAIL("leak: vmap_areas=%lu, before %lu", (unsigned long)now->vmap_areas,
                (unsigned long)base.vmap_areas);
    if (now->lazy_pages != 0)
        KT_FAIL("leak: lazy_pages=%lu after everything was purged", (unsigned long)now->lazy_pages);
    if (now->bad_free - base.bad_free != expected_bad_frees)
        KT_FAIL("bad_free rose by %lu, expected %lu",
                (unsigned long)(now->bad_free - base.bad_free), (unsigned long)expected_bad_frees);
}

void leak_check(void)
{
    struct vmap_counters now;

    kt_quiesce();
    vmap_read_counters(&now);
    compare(&now);
    if (!kt_selfcheck())
        KT_FAIL("selfcheck: see the lines above");
    base.bad_free = now.bad_free;
    expected_bad_frees = 0;
    if (kt_failed())
        base = now;
}
