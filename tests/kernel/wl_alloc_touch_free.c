/*
 * alloc_touch_free: four pages, every one touched, freed. Unlike in fix_size_alloc_test each page
 * is used, so a translation of each is loaded and has to be dropped everywhere before the addresses
 * come back.
 *
 * Theory: a purge that is put off saves flushes, but where freed areas stay among those that an
 * allocation walks over (search=walk), it costs more than it saves; a tree of free ranges ends
 * that. Source: the reports of 2010 on slow vmalloc under GFS2, 1 million loops in 149 s with the
 * lazy purge and 15 s with a purge at each free on 8 cores; Linux 2.6.39, "mm: vmap area cache".
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
