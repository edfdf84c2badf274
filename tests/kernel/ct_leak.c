/*
 * The check for leaks and the check of the footprint see what they are for: each kind of thing is
 * kept back on purpose, is found and named, and is gone when it was given back.
 */
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include "tests/kernel/runner.h"

#define OBJECTS_MAX (2 * 1024 + 1)

KTEST(leaks_are_seen, "an area, a mapping, an object per CPU, frames kept back: each is found")
{
    uint64_t objects = MIN(2 * leak_objects_bound() + 1, (uint64_t)OBJECTS_MAX), n = 0;
    void *area, *first = NULL;
    struct page *page;
    struct kt_pages frames;

    KT_EXPECT_EQ(leak_look(), 0);
    KT_ASSERT(area = vmalloc(PAGE_SIZE));
    KT_EXPECT_EQ(leak_look() & (LEAK_ADDRESSES | LEAK_TABLES | LEAK_AREAS),
                 LEAK_ADDRESSES | LEAK_TABLES | LEAK_AREAS);
    vfree(area);
    KT_EXPECT_EQ(leak_look(), 0);

    KT_ASSERT(page = alloc_page());
    area = vm_map_ram(&page, 1, VM_ANY_NODE);
    KT_EXPECT(area && leak_look() & LEAK_ADDRESSES && leak_look() & LEAK_TABLES);
    if (area)
        vm_unmap_ram(area, 1);
    free_page(page);
    KT_EXPECT_EQ(leak_look(), 0);

    for (; n < objects; n++) {
        void **o = kmalloc(16);

        if (!o)
            break;
        *o = first;
        first = o;
    }
    KT_EXPECT_EQ(n, objects);
    KT_EXPECT_EQ(leak_look(), LEAK_OBJECTS);
    while (first) {
        void *next = *(void **)first;

        kfree(first);
        first = next;
    }
    KT_EXPECT_EQ(leak_look(), 0);

    KT_ASSERT(kt_pages_get(&frames, (unsigned)(2 * leak_frames_bound()), 1));
    KT_EXPECT(leak_look() & LEAK_FRAMES);
    kt_pages_put(&frames);
    KT_EXPECT_EQ(leak_look(), 0);
}

KTEST(growth_is_seen, "a footprint that grows by more than a tenth and the slack is found")
{
    struct footprint from, to;

    footprint_read(&from, 0);
    to = from;
    to.c.pt_pages += from.c.pt_pages / 10;
    to.used_pages += from.used_pages / 10;
    KT_EXPECT_EQ(footprint_grown(&from, &to, false), 0);
    if (kt_cpus() == 1) {
        to.c.pt_pages += 17; /* one CPU may come to 16 blocks more */
        KT_EXPECT_EQ(footprint_grown(&from, &to, false), 1);
    }
    to.c.pt_pages = 2 * from.c.pt_pages + page_total();
    KT_EXPECT_EQ(footprint_grown(&from, &to, false), 1);
    to.c.vmap_blocks = 2 * from.c.vmap_blocks + page_total();
    KT_EXPECT_EQ(footprint_grown(&from, &to, false), 2);
    to.c.va_used = 2 * from.c.va_used + page_total() * PMD_SIZE;
    KT_EXPECT_EQ(footprint_grown(&from, &to, false), 3);
    to.cache_pages = 2 * from.cache_pages + page_total();
    KT_EXPECT_EQ(footprint_grown(&from, &to, false), 4);
    to.used_pages = 2 * from.used_pages + page_total() + 1024UL * kt_cpus();
    KT_EXPECT_EQ(footprint_grown(&from, &to, false), 5);
}
