/*
 * watchdog.h: finds CPUs that have work but make no progress, has them say where they are, and ends
 * the run instead of hanging.
 *
 * Option: watchdog=seconds (0 = off).
 */
#ifndef ARCH_WATCHDOG_H
#define ARCH_WATCHDOG_H

#include "lib/base.h"
#include "arch/percpu.h"

DECLARE_PER_CPU(uint64_t, watchdog_progress);

/* Progress of this CPU: one instruction. Call once per operation or more rarely. */
static inline void watchdog_touch(void)
{
    this_cpu_inc(watchdog_progress);
}
/* This CPU has work and will touch the watchdog (true), or is idle (false). Idle at first. */
void watchdog_set_busy(bool busy);

/*
 * Looks at all CPUs; from a periodic timer on the boot CPU, at least once a second. A busy CPU
 * whose progress has not moved for the limit gets an NMI and prints its state; after twice the
 * limit every busy CPU does, and the run ends.
 */
void watchdog_check(void);
/* Overrides the option; returns what was in force. Any context, NMI too. */
uint64_t watchdog_set_limit(uint64_t seconds);
/* Called to end the run, in interrupt context; must not return. NULL: prints "RESULT: ERROR" and
 * ends the machine with VERDICT_ERROR. */
void watchdog_set_end(void (*fn)(unsigned cpu));
/* Called in NMI context for one more line about the CPU, e.g. TLB requests it has not answered. */
void watchdog_set_describe(void (*fn)(unsigned cpu));
/* For the NMI code: prints this CPU's state if the watchdog asked for it. True if it did. */
struct trap_frame;
bool watchdog_nmi(const struct trap_frame *f);

#endif
