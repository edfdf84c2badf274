/*
 * no_block_alloc_test (2048): vmalloc of nr_pages where waiting is forbidden. Linux asks for that
 * by GFP_ATOMIC or GFP_NOWAIT with preemption off, and lets the test fail; here interrupts are off,
 * and a failure is one. Facts: Linux lib/test_vmalloc.c (2025).
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"
#include <arch/cpu.h>

static bool setup(struct kbench_worker *w)
{
    w->state[0] = (void *)(kt_nr_pages() * PAGE_SIZE);
    return true;
}

static __always_inline bool op(struct kbench_worker *w)
{
    unsigned long flags = irq_save();
    uint8_t *p = vmalloc((size_t)w->state[0]);

    if (likely(p))
        *(volatile uint8_t *)p = 0;
    irq_restore(flags);
    vfree(p);
    return p != NULL;
}

KBENCH_OP(no_block_alloc_test, 2048, "vmalloc with interrupts off", op, .setup = setup);
