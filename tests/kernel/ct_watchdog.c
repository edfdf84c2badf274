/*
 * A CPU that does not get on, with interrupts off and answering nobody: the watchdog asks it, by
 * NMI, for its state, and so names it, while the others go on. With watchdog_end=on it never gets
 * on: then the run must end with an error that names it, and not hang.
 */
#include "lib/options.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/watchdog.h>

#define LIMIT_S   2
#define GIVE_UP_S 15

static bool forever;
OPTION_BOOL(
    watchdog_end, "watchdog_end", forever,
    "the CPU that stops in the test watchdog_names never goes on: the run ends in an error");

static struct {
    unsigned cpu; /* that stops */
    uint64_t before;
    uint64_t named; /* it was asked for its state */
    uint64_t others;
} stuck;

/* On the CPU that was asked, in its NMI handler, after it has printed where it is. */
static void describe(unsigned cpu)
{
    if (cpu != stuck.cpu) {
        ATOMIC_ADD(stuck.others, 1UL); /* whom the host has stopped for so long */
        return;
    }
    if (!forever)
        watchdog_set_limit(stuck.before);
    STORE_RELEASE(stuck.named, 1UL);
}

static void stop(void *arg)
{
    unsigned long flags = irq_save();
    uint64_t begin = clock_us();

    (void)arg;
    while (forever || (!LOAD_ACQUIRE(stuck.named) && clock_us() - begin < GIVE_UP_S * 1000000ULL))
        cpu_relax();
    irq_restore(flags);
}

KTEST(watchdog_names, "a CPU that stops with interrupts off is named, and asked where it is")
{
    if (kt_cpus() < 2)
        KT_SKIP("one CPU");
    stuck.cpu = kt_other_cpu();
    stuck.named = stuck.others = 0;
    stuck.before = watchdog_set_limit(LIMIT_S);
    watchdog_set_describe(describe);
    kt_start(stuck.cpu, stop, NULL);
    KT_EXPECT(kt_wait_for(&stuck.named, 1));
    kt_join(stuck.cpu);
    watchdog_set_describe(NULL);
    watchdog_set_limit(stuck.before);
    if (stuck.others)
        kt_note("watchdog: %lu more CPUs were stopped by the host", (unsigned long)stuck.others);
}
