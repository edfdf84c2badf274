/*
 * random_size_alloc_test (8): areas of 1 to 100 pages at random. Facts: Linux lib/test_vmalloc.c.
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

#define PAGES_MAX 100

static __always_inline void *alloc(struct kbench_worker *w)
{
    return vmalloc(rng_range(&w->rng, 1, PAGES_MAX) * PAGE_SIZE);
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

KBENCH_PAIR(random_size_alloc_test, 8, "1 to 100 pages at random", alloc, touch, release,
            .batch = 4, .loops_percent = 35);
