/*
 * heartbeat.c: "# alive" lines every five seconds and the watchdog's look at all CPUs, from the
 * boot CPU's timer.
 *
 * The handler prints whole lines only and takes no lock but the console's. Two interrupts a second:
 * with one CPU the measured passes leave out what they interrupt (bench.c).
 */
#include "lib/printf.h"
#include "tests/kernel/runner.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/watchdog.h>

#define TICKS_PER_SECOND 2
#define ALIVE_SECONDS    5

static const char *test_name; /* boot CPU writes, its handler reads */
static unsigned correctness_percent;
static uint64_t next_alive; /* seconds; handler only once started */

static void tick(void)
{
    uint64_t now = clock_us() / 1000000;
    const char *name = READ_ONCE(test_name);

    watchdog_check();
    if (now < next_alive)
        return;
    next_alive = now + ALIVE_SECONDS;
    kprintf("# alive t=%lus test=%s done=%u%%\n", (unsigned long)now, name ? name : "none",
            name ? MAX(bench_percent(), READ_ONCE(correctness_percent)) : 0);
}

void heartbeat_start(void)
{
    if (next_alive == 0)
        next_alive = clock_us() / 1000000 + ALIVE_SECONDS;
    watchdog_touch();
    watchdog_set_busy(true);
    timer_start(TICKS_PER_SECOND, tick);
}

void heartbeat_stop(void)
{
    timer_stop();
    watchdog_set_busy(false);
}

void heartbeat_test(const char *name)
{
    WRITE_ONCE(correctness_percent, 0);
    WRITE_ONCE(test_name, name);
    watchdog_touch();
}

void kt_progress(unsigned percent)
{
    WRITE_ONCE(correctness_percent, MIN(percent, 100U));
    watchdog_touch();
}

void kt_timer_borrow(void)
{
    timer_stop();
}

void kt_timer_return(void)
{
    timer_start(TICKS_PER_SECOND, tick);
}
