/*
 * mm_testlib.h: a simulated machine with a page allocator on it, and who owns which frame by the
 * test's own account. Shared by the tests of the page allocator and of the object caches.
 */
#ifndef TESTS_HOST_MM_TESTLIB_H
#define TESTS_HOST_MM_TESTLIB_H

#include "tests/host/testlib.h"
#include <stdio.h>
#include <string.h>
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "tests/host/sim/sim.h"

/* Builds the machine and starts the page allocator on it. */
static inline void mm_start(const struct sim_options *o)
{
    const struct mem_range *map;
    size_t count;

    sim_machine(o);
    map = sim_memory_map(&count);
    page_alloc_init(map, count, false);
    for (unsigned cpu = 1; cpu < o->cpus; cpu++)
        assert_int_equal(page_alloc_cpu_init(cpu), OK);
}

/*
 * Owners: a word per frame, 0 = the allocator's. Taking a frame that has an owner, or giving one
 * back that is not one's own, fails. Atomic, for it is what several CPUs are judged by.
 */
#define MM_FRAMES 65536
static uint32_t mm_owner[MM_FRAMES];

static inline void mm_take(struct page *page, unsigned order, uint32_t who)
{
    uint64_t pfn = page_to_pfn(page);

    if (!IS_ALIGNED(pfn, 1ULL << order) || pfn + (1ULL << order) > MM_FRAMES)
        sim_fail(SIM_TEST, "frame %lu was given out as a block of order %u", (unsigned long)pfn,
                 order);
    for (uint64_t i = pfn; i < pfn + (1ULL << order); i++) {
        uint32_t old = __atomic_exchange_n(&mm_owner[i], who, __ATOMIC_SEQ_CST);

        if (old != 0)
            sim_fail(SIM_TEST, "frame %lu was given to %u and is owned by %u", (unsigned long)i,
                     who, old);
        *(volatile uint64_t *)page_address(pfn_to_page(i)) = (uint64_t)who << 32 | i;
    }
}

/* The frame's contents must be what its owner left. */
static inline void mm_give(struct page *page, unsigned order, uint32_t who)
{
    uint64_t pfn = page_to_pfn(page);

    for (uint64_t i = pfn; i < pfn + (1ULL << order); i++) {
        uint64_t tag = *(volatile uint64_t *)page_address(pfn_to_page(i));
        uint32_t old = __atomic_exchange_n(&mm_owner[i], 0, __ATOMIC_SEQ_CST);

        if (old != who || tag != ((uint64_t)who << 32 | i))
            sim_fail(SIM_TEST, "frame %lu of %u is owned by %u and holds %#lx", (unsigned long)i,
                     who, old, (unsigned long)tag);
    }
}

static inline void mm_forget_owners(void)
{
    memset(mm_owner, 0, sizeof(mm_owner));
}

/* How often `what` stands in the text. */
static inline unsigned mm_count_text(const char *text, const char *what)
{
    unsigned n = 0;

    while ((text = strstr(text, what)) != NULL) {
        text += strlen(what);
        n++;
    }
    return n;
}

#endif
