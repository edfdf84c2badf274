/*
 * fix_size_alloc_test (1): vmalloc(nr_pages), write the first byte, vfree; with use_huge by
 * vmalloc_huge.
 *
 * The base line of all figures: the hot path with sizes that repeat. Facts: Linux
 * lib/test_vmalloc.c.
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

enum { SIZE, HUGE };

static bool setup(struct kbench_worker *w)
{
    w->state[SIZE] = (void *)(kt_nr_pages() * PAGE_SIZE);
    w->state[HUGE] = (void *)(uintptr_t)kt_use_huge();
    return true;
}

static __always_inline void *alloc(struct kbench_worker *w)
{
    size_t size = (size_t)w->state[SIZE];

    return unlikely(w->state[HUGE]) ? vmalloc_huge(size) : vmalloc(size);
}

static __always_inline void touch(struct kbench_worker *w, void *p)
{
    (void)w;
    *(volatile uint8_t *)p = 0;
}

static __always_inline void release(struct kbench_worker *w, void *p)
{
    (void)w;
    vfree(p);
}

KBENCH_PAIR(fix_size_alloc_test, 1, "vmalloc, touch and vfree of nr_pages pages", alloc, touch,
            release, .setup = setup, .batch = 8);
