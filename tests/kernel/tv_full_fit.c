/*
 * full_fit_alloc_test (2): one-page areas while the address space is full of one-page holes: every
 * second one of a long row of areas has been freed.
 *
 * An allocator that searches from the bottom walks over all of them. Linux's row has fls(CPUs) *
 * 8192 areas for each worker, and as many holes (lib/test_vmalloc.c).
 */
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"
#include "tests/kernel/population.h"

#define LINUX_PER_FLS (32 * SZ_1M / PAGE_SIZE)
#define QUICK_ALL     8192 /* areas of all workers together */

static uint64_t length; /* constant while workers run */

static bool prepare(unsigned workers)
{
    length = population_choose(QUICK_ALL, fls64(kt_cpus()) * LINUX_PER_FLS, 2, workers);
    return true;
}

static bool setup(struct kbench_worker *w)
{
    void **kept = vzalloc(length * sizeof(void *)), **junk = vzalloc(length * sizeof(void *));
    bool ok = kept && junk;

    w->state[0] = kept;
    for (uint64_t i = 0; ok && i < length; i++) {
        kept[i] = vmalloc(PAGE_SIZE);
        junk[i] = vmalloc(PAGE_SIZE);
        ok = kept[i] && junk[i];
        kt_alive();
    }
    for (uint64_t i = 0; junk && i < length; i++) {
        vfree(junk[i]);
        kt_alive();
    }
    vfree(junk);
    return ok;
}

static void teardown(struct kbench_worker *w)
{
    void **kept = w->state[0];

    for (uint64_t i = 0; kept && i < length; i++) {
        vfree(kept[i]);
        kt_alive();
    }
    vfree(kept);
}

static __always_inline void *alloc(struct kbench_worker *w)
{
    (void)w;
    return vmalloc(PAGE_SIZE);
}

static __always_inline void touch(struct kbench_worker *w, void *p)
{
    (void)w;
    *(volatile uint8_t *)p = 1;
}

static __always_inline void release(struct kbench_worker *w, void *p)
{
    (void)w;
    vfree(p);
}

KBENCH_PAIR(full_fit_alloc_test, 2, "one page among many one-page holes", alloc, touch, release,
            .prepare = prepare, .setup = setup, .teardown = teardown);
