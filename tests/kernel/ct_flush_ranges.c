/*
 * Every flush covers what was unmapped (E9).
 *
 * Ranges are computed from pointers that move while a loop unmaps; an end computed too late, or a
 * page too short, leaves one stale translation in a thousand. So: random sizes and kinds, and for
 * each the logged flushes must cover it.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define PAGES_MAX 80

static void free_and_check(const char *p, unsigned pages, unsigned kind)
{
    uintptr_t start = (uintptr_t)p, end = start + pages * PAGE_SIZE;

    kt_flush_log_start();
    if (kind == 0)
        vfree(p);
    else if (kind == 1)
        vunmap(p);
    else
        vm_unmap_ram(p, pages);
    vm_unmap_aliases();
    kt_flush_log_stop();
    if (!kt_flush_covers(start, end))
        KT_FAIL("kind %u, %u pages at %p: not covered by the flush 0x%lx-0x%lx", kind, pages, p,
                (unsigned long)kt_flush_at(0)->start, (unsigned long)kt_flush_at(0)->end);
}

KTEST(flush_ranges, "E9: flushes cover exactly what was unmapped")
{
    struct kt_pages pages;
    struct rng rng;

    rng_seed(&rng, kt_seed());
    kt_quiesce();
    if (!kt_pages_get(&pages, PAGES_MAX, 1))
        return;
    for (uint64_t i = 0; i < kt_scaled_flushes(48); i++) {
        unsigned n = (unsigned)rng_range(&rng, 1, PAGES_MAX), kind = i % 3;
        char *p = kind == 0   ? vmalloc(n * PAGE_SIZE)
                  : kind == 1 ? vmap(pages.page, n, 0, PAGE_KERNEL)
                              : vm_map_ram(pages.page, n, VM_ANY_NODE);

        if (!p) {
            KT_FAIL("no area of %u pages", n);
            break;
        }
        free_and_check(p, n, kind);
        kt_alive();
    }
    kt_pages_put(&pages);
}

KTEST(flush_shrunk, "E9: the tail that vrealloc gave back is flushed")
{
    uint64_t value;
    char *p = vmalloc(20 * PAGE_SIZE), *q;
    unsigned cpu = kt_other_cpu();

    KT_ASSERT(p);
    KT_EXPECT(kt_read_on(cpu, p + 19 * PAGE_SIZE, &value));
    q = vrealloc(p, 7 * PAGE_SIZE);
    KT_EXPECT(q == p);
    kt_flush_log_start();
    vm_unmap_aliases();
    kt_flush_log_stop();
    KT_EXPECT(kt_flush_covers((uintptr_t)p + 7 * PAGE_SIZE, (uintptr_t)p + 20 * PAGE_SIZE));
    KT_EXPECT(!kt_read_on(cpu, p + 19 * PAGE_SIZE, &value));
    KT_EXPECT(kt_read_on(cpu, p + 6 * PAGE_SIZE, &value));
    vfree(q);
}
