/*
 * irq_alloc: interrupt handlers that allocate and free while the task they interrupt does the same.
 * Every eighth operation has the next CPU's handler run one pair. Locks taken with interrupts on
 * would deadlock here, and per-CPU state without protection would be lost (case E12).
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>

#define EVERY 8

static uint64_t posted, handled; /* all CPUs */

static bool pair(void)
{
    volatile uint64_t *p = vmalloc(PAGE_SIZE);

    if (unlikely(!p))
        return false;
    *p = (uintptr_t)p;
    if (*p != (uintptr_t)p)
        KT_FAIL("%p: another one wrote to it", (const void *)p);
    vfree((const void *)p);
    return true;
}

static void handler(void *arg)
{
    (void)arg;
    if (!pair())
        KT_FAIL("vmalloc failed in an interrupt handler");
    ATOMIC_ADD(handled, 1UL);
}

static __always_inline bool op(struct kbench_worker *w)
{
    if (w->loop % EVERY == 0 && smp_interrupt((w->cpu + 1) % w->peers, handler, NULL))
        ATOMIC_ADD(posted, 1UL);
    return pair();
}

static bool prepare(unsigned workers)
{
    (void)workers;
    posted = handled = 0;
    return true;
}

/* All that were sent must have run: bounded, since a lost one is what is looked for. */
static void finish(void)
{
    for (unsigned i = 0; i < 100000000 && READ_ONCE(handled) != READ_ONCE(posted); i++) {
        tlb_poll();
        cpu_relax();
        kt_alive();
    }
    KT_EXPECT_EQ(handled, posted);
    KT_EXPECT(posted != 0);
}

KBENCH_OP(irq_alloc, 0, "interrupt handlers and tasks allocate at once", op, .prepare = prepare,
          .finish = finish);
