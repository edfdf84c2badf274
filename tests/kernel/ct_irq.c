/*
 * Allocating and freeing in an interrupt handler (E12).
 *
 * The timer's handler frees what the task has queued, and allocates and frees itself, while the
 * task does the same: a lock taken with interrupts on deadlocks here. The link of the queue lies in
 * the first word of the area itself, so that area must still be mapped when the handler gets to it.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>

#define HZ          2000
#define PER_TICK    8
#define QUEUE_MAX   64
#define SECONDS_MAX 20

struct object {
    struct object *next;
    uint64_t cookie;
};

/* Of the one CPU that runs the test; the task masks interrupts to touch the queue. */
static struct {
    struct object *queue;
    uint64_t queued, freed, ticks, waiting;
    struct page *page;
} irq;

static void handler(void)
{
    struct page *page = irq.page;
    uint64_t *p = vmalloc(PAGE_SIZE), *q = vm_map_ram(&page, 1, VM_ANY_NODE);

    irq.ticks++;
    for (unsigned i = 0; i < PER_TICK && irq.queue; i++) {
        struct object *o = irq.queue;

        if (o->cookie != ((uintptr_t)o ^ 0x55))
            KT_FAIL("%p has another one's contents", (void *)o);
        irq.queue = o->next;
        irq.waiting--;
        irq.freed++;
        vfree(o);
    }
    KT_EXPECT(p && q);
    if (p)
        *p = 1;
    vfree(p);
    vm_unmap_ram(q, 1);
}

static bool queue_one(void)
{
    struct object *o = vmalloc(PAGE_SIZE);
    unsigned long flags;

    if (!o)
        return false;
    o->cookie = (uintptr_t)o ^ 0x55;
    flags = irq_save();
    o->next = irq.queue;
    irq.queue = o;
    irq.waiting++;
    irq_restore(flags);
    irq.queued++;
    return true;
}

static void run(void *arg)
{
    uint64_t ticks = *(uint64_t *)arg, begin = clock_us();

    if (!timer_start(HZ, handler)) {
        kt_skip("this CPU has no timer");
        return;
    }
    while (READ_ONCE(irq.ticks) < ticks) {
        if (READ_ONCE(irq.waiting) < QUEUE_MAX)
            KT_EXPECT(queue_one());
        vfree(vmalloc(2 * PAGE_SIZE));
        kt_alive();
        if (clock_us() - begin > SECONDS_MAX * 1000000ULL) {
            KT_FAIL("%lu ticks in %u s", (unsigned long)irq.ticks, SECONDS_MAX);
            break;
        }
    }
    timer_stop();
    while (irq.queue)
        handler();
}

KTEST(irq_free, "E12: vfree and vmalloc in an interrupt handler")
{
    uint64_t ticks = kt_scaled(200);
    unsigned cpu = kt_other_cpu();

    memset(&irq, 0, sizeof(irq));
    irq.page = alloc_page();
    KT_ASSERT(irq.page);
    if (cpu == 0)
        kt_timer_borrow();
    kt_on_cpu(cpu, run, &ticks);
    if (cpu == 0)
        kt_timer_return();
    KT_EXPECT_EQ(irq.queued, irq.freed);
    free_page(irq.page);
}
