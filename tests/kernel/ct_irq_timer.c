/*
 * Allocating and freeing in the timer's handler, at 10 kHz on every CPU at once, while each CPU's
 * task does the same (E12). Each call may be met in any state by a handler that makes the same
 * call; the areas of both are written and read again.
 */
#include "lib/string.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/percpu.h>

#define HZ          10000
#define SECONDS_MAX 3
/* An emulated CPU may not run for long while others do. */
#define GRACE_SECONDS 60

static struct {
    struct page *page;
    uint64_t ticks;       /* that each CPU is to take */
    uint64_t end_us;      /* clock: until then */
    uint64_t least, most; /* atomic; rates of CPUs, per second */
    uint32_t no_timer;
} timer;
static DEFINE_PER_CPU(uint64_t, ticks);
static DEFINE_PER_CPU(uint32_t, stopped);

static void pair(size_t pages)
{
    struct page *page = timer.page;
    volatile uint64_t *p = vmalloc(pages * PAGE_SIZE), *q = vm_map_ram(&page, 1, VM_ANY_NODE);

    if (!p || !q) {
        KT_FAIL("an allocation failed");
    } else {
        *p = (uintptr_t)p;
        if (*q != kt_tag(10, 0) || *p != (uintptr_t)p)
            KT_FAIL("%p or %p: another one's contents", (const void *)p, (const void *)q);
    }
    vfree((const void *)p);
    vm_unmap_ram((const void *)q, q ? 1 : 0);
}

static void handler(void)
{
    uint64_t n = ++*this_cpu_ptr(&ticks);

    pair(1 + n % 4);
    if (n >= timer.ticks || clock_us() >= timer.end_us) {
        timer_stop();
        WRITE_ONCE(*this_cpu_ptr(&stopped), 1);
    }
}

static void run(void *arg)
{
    uint64_t begin = clock_us(), rate, old;

    (void)arg;
    *this_cpu_ptr(&ticks) = 0;
    *this_cpu_ptr(&stopped) = 0;
    if (!timer_start(HZ, handler)) {
        WRITE_ONCE(timer.no_timer, 1);
        return;
    }
    for (size_t i = 0; !READ_ONCE(*this_cpu_ptr(&stopped)); i++) {
        pair(1 + i % 3);
        kt_alive();
        if (clock_us() >= timer.end_us + GRACE_SECONDS * 1000000UL) {
            timer_stop();
            KT_FAIL("the timer has stopped by itself");
            break;
        }
    }
    KT_EXPECT(*this_cpu_ptr(&ticks) != 0);
    rate = *this_cpu_ptr(&ticks) * 1000000 / MAX(clock_us() - begin, 1UL);
    old = READ_ONCE(timer.least);
    while (rate < old && !ATOMIC_CAS(timer.least, &old, rate))
        ;
    old = READ_ONCE(timer.most);
    while (rate > old && !ATOMIC_CAS(timer.most, &old, rate))
        ;
}

KTEST(irq_timer, "E12: the timer's handler allocates at 10 kHz on every CPU, over tasks that do")
{
    struct kt_pages page;

    if (!kt_pages_get(&page, 1, 10))
        return;
    memset(&timer, 0, sizeof(timer));
    timer.page = page.page[0];
    timer.ticks = kt_scaled(4000);
    timer.least = UINT64_MAX;
    timer.end_us = clock_us() + SECONDS_MAX * 1000000UL;
    kt_timer_borrow();
    kt_on_all(run, NULL);
    kt_timer_return();
    kt_pages_put(&page);
    if (timer.no_timer)
        KT_SKIP("this CPU has no timer");
    kt_note("%u CPUs: ticks a second on each: %lu to %lu, %u asked", kt_cpus(),
            (unsigned long)timer.least, (unsigned long)timer.most, HZ);
}
