/*
 * alloc_touch_free: four pages, every one touched, freed. Unlike in fix_size_alloc_test each page
 * is used, so a translation of each is loaded and has to be dropped everywhere before the addresses
 * come back.
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

#define PAGES 4

static __always_inline void *alloc(struct kbench_worker *w)
{
    (void)w;
    return vmalloc(PAGES * PAGE_SIZE);
}

static __always_inline void touch(struct kbench_worker *w, void *p)
{
    (void)w;
    for (unsigned i = 0; i < PAGES; i++)
        *(volatile uint8_t *)((char *)p + i * PAGE_SIZE) = 1;
}

static __always_inline void release(struct kbench_worker *w, void *p)
{
    (void)w;
    vfree(p);
}

KBENCH_PAIR(alloc_touch_free, 0, "vmalloc, touch each of four pages, vfree", alloc, touch, release,
            .batch = 8);
