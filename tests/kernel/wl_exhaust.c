/*
 * exhaust: the address range is all but used up, so that freed addresses have to be purged to be
 * had again, on all cores at once. Every allocation must succeed: what is live always fits. Case
 * F4's kind: running short is a slow path, not a failure.
 */
#include "mm/vmalloc.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define PAGES_MAX 16

static bool prepare(unsigned workers)
{
    /* Room for what is live, for pools, and with the table for blocks of each CPU or areas of whole
     * units. */
    uint64_t each = vmap_config.index_table ? 4 * PMD_SIZE : 256 * 1024;

    if (16 * SZ_1M + workers * each > vmap_config.range_size - kt_counter("va_used")) {
        kt_skip("vmalloc= leaves too few addresses for %u workers", workers);
        return false;
    }
    if (kt_eat_addresses(16 * SZ_1M + workers * each))
        return true;
    KT_FAIL("the addresses could not be used up");
    return false;
}

static void finish(void)
{
    kt_spit_addresses();
}

static __always_inline bool op(struct kbench_worker *w)
{
    volatile uint8_t *p = vmalloc(rng_range(&w->rng, 1, PAGES_MAX) * PAGE_SIZE);

    if (unlikely(!p))
        return false;
    *p = 1;
    vfree((const void *)p);
    return true;
}

static uint64_t held(const struct kbench_worker *w)
{
    (void)w;
    return 0;
}

KBENCH_OP(exhaust, 0, "addresses run short", op, .prepare = prepare, .finish = finish, .held = held,
          .loops_percent = 25);
