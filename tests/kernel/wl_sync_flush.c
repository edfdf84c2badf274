/*
 * sync_flush: how long vm_unmap_aliases takes when there is something to flush: the latency of one
 * round of all CPUs. One worker; each operation maps a page, writes to it, and unmaps it first,
 * which is small beside the flush.
 */
#include "tests/kernel/helpers.h"

#define QUICK_LOOPS 100

static uint64_t loops(uint64_t asked, unsigned workers)
{
    (void)workers;
    return MIN(asked, kt_scaled_flushes(QUICK_LOOPS));
}

static bool setup(struct kbench_worker *w)
{
    w->state[0] = alloc_page();
    return w->state[0] != NULL;
}

static void teardown(struct kbench_worker *w)
{
    if (w->state[0])
        free_page(w->state[0]);
}

static __always_inline bool op(struct kbench_worker *w)
{
    struct page *page = w->state[0];
    volatile uint8_t *p = vm_map_ram(&page, 1, VM_ANY_NODE);

    if (!p)
        return false;
    *p = 1;
    vm_unmap_ram((const void *)p, 1);
    vm_unmap_aliases();
    return true;
}

KBENCH_OP(sync_flush, 0, "latency of vm_unmap_aliases", op, .setup = setup, .teardown = teardown,
          .loops = loops, .single = true, .op_name = "flush");
