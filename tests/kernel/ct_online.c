/*
 * A CPU that cannot answer a flush yet, or no longer (E2).
 *
 * The others wait only for those that have set their own bit, with IDT and APIC up, as each CPU
 * does at the end of its start. Here a CPU takes its bit back, holds a translation and answers
 * nothing, with interrupts off, while the boot CPU flushes: that must not wait. With its bit set
 * again it must have dropped what it held, since nobody has told it.
 */
#include "lib/string.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/tlb.h>

#define WAIT_US 3000000 /* a flush that waits for the CPU takes this long */

static struct {
    const void *addr;
    uint64_t away, flushed; /* atomic */
    uint64_t value;
    bool cached, stale;
} one;

static void go_away(void *arg)
{
    unsigned long flags = irq_save();
    struct clock_limit limit;
    uint64_t value;

    (void)arg;
    one.cached = kt_read(one.addr, &one.value);
    tlb_cpu_offline();
    STORE_RELEASE(one.away, 1UL);
    clock_limit_start(&limit, WAIT_US);
    while (!LOAD_ACQUIRE(one.flushed) && !clock_limit_over(&limit))
        cpu_relax();
    tlb_cpu_online();
    one.stale = kt_read(one.addr, &value);
    irq_restore(flags);
}

KTEST(flush_not_online, "E2: nobody waits for a CPU without its bit; it drops all when it sets it")
{
    unsigned cpu = kt_other_cpu();
    struct kt_pages page;
    uint64_t begin, took;

    if (cpu == 0)
        KT_SKIP("one CPU");
    if (!kt_pages_get(&page, 1, 12))
        return;
    memset(&one, 0, sizeof(one));
    one.addr = vmap(page.page, 1, 0, PAGE_KERNEL);
    KT_ASSERT(one.addr);
    kt_start(cpu, go_away, NULL);
    KT_EXPECT(kt_wait_for(&one.away, 1));
    vunmap(one.addr);
    begin = clock_us();
    tlb_shootdown_all();
    took = clock_us() - begin;
    STORE_RELEASE(one.flushed, 1UL);
    kt_join(cpu);
    KT_EXPECT(one.cached);
    KT_EXPECT_EQ(one.value, kt_tag(12, 0));
    if (took >= WAIT_US)
        KT_FAIL("the flush took %lu us", (unsigned long)took);
    KT_EXPECT(!one.stale);
    vm_unmap_aliases();
    kt_pages_put(&page);
}
