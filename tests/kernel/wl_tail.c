/*
 * tail: the worst single operation: one to four pages on all cores, for longer than other tasks, so
 * that purges, refills and everything else that happens once in a while falls into some operation.
 * The figure to look at is max (on emulated CPUs the host's scheduling is in it; under -icount it
 * is exact).
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

static __always_inline bool op(struct kbench_worker *w)
{
    volatile uint8_t *p = vmalloc(rng_range(&w->rng, 1, 4) * PAGE_SIZE);

    if (unlikely(!p))
        return false;
    *p = 1;
    vfree((const void *)p);
    return true;
}

KBENCH_OP(tail, 0, "the worst of many operations", op, .loops_percent = 200);
