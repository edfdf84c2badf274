/*
 * watchdog.c: notices CPUs that do not get on.
 *
 * watchdog_check() runs on the boot CPU only and owns the table of what it saw last, which lies in
 * per-CPU memory. A CPU that is asked answers in its NMI handler. Prints only when something is
 * wrong.
 */
#include "arch/x86_64/panic.h"
#include "lib/base.h"
#include "lib/options.h"
#include "lib/printf.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/exit.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/spinlock.h>
#include <arch/tlb.h>
#include <arch/trap.h>
#include <arch/watchdog.h>

#define TSC_GUESS     3000000000ULL
#define ANSWER_CYCLES 6000000000ULL /* for an NMI to be taken, and again to be answered */

enum { ASKED_NOT, ASKED, ANSWERING };

/* What the boot CPU knows of another one; written by it only, but for `asked`. */
struct watch {
    uint64_t seen;  /* progress at the last look */
    uint64_t since; /* seconds: when it last moved, or the CPU became busy */
    bool was_busy;
    bool reported;
    uint32_t asked; /* set to ASKED by the boot CPU, to the others by the CPU that answers */
};

static uint64_t limit_s = 15;
OPTION_UINT(watchdog, "watchdog", limit_s, 0, 3600,
            "seconds without progress before a busy CPU is asked for its state; 0 = off");

DEFINE_PER_CPU(uint64_t, watchdog_progress);
static DEFINE_PER_CPU(uint32_t, busy);
static DEFINE_PER_CPU(struct watch, watch);

static void (*end_hook)(unsigned cpu);
static void (*describe_hook)(unsigned cpu);

uint64_t watchdog_set_limit(uint64_t seconds)
{
    uint64_t before = READ_ONCE(limit_s);

    WRITE_ONCE(limit_s, seconds);
    return before;
}

void watchdog_set_end(void (*fn)(unsigned cpu))
{
    end_hook = fn;
}

void watchdog_set_describe(void (*fn)(unsigned cpu))
{
    describe_hook = fn;
}

void watchdog_set_busy(bool on)
{
    watchdog_touch();
    WRITE_ONCE(*this_cpu_ptr(&busy), on);
}

static uint64_t now_s(void)
{
    uint64_t us = clock_us();

    return us ? us / 1000000 : rdtsc() / TSC_GUESS;
}

static void print_state(const struct trap_frame *f)
{
    const struct spinlock *lock = spin_wanted(this_cpu_id());
    const struct trap_frame *irq = trap_irq_frame();

    kprintf("# watchdog: cpu %u task=%s rip=%pS rsp=%016lx if=%u progress=%lu irqs=%lu lock=%s\n",
            this_cpu_id(), trap_task_name(this_cpu_id()), (void *)f->rip, f->rsp,
            (f->rflags & RFLAGS_IF) != 0, PERCPU_READ_(watchdog_progress), trap_irq_count(),
            !lock         ? "none"
            : lock->class ? lock->class->name
                          : "?");
    if (lock)
        kprintf("# watchdog: cpu %u lock word=0x%x owner=%d\n", this_cpu_id(), READ_ONCE(lock->val),
                (int)READ_ONCE(lock->owner) - 1);
    if (describe_hook)
        describe_hook(this_cpu_id());
    if (irq)
        kprintf("# watchdog: cpu %u is in an interrupt that came at %pS\n", this_cpu_id(),
                (void *)irq->rip);
    backtrace_print_frame(f);
}

bool watchdog_nmi(const struct trap_frame *f)
{
    struct watch *w = this_cpu_ptr(&watch);
    uint32_t asked = ASKED;

    if (!ATOMIC_CAS(w->asked, &asked, (uint32_t)ANSWERING))
        return false;
    print_state(f);
    STORE_RELEASE(w->asked, (uint32_t)ASKED_NOT);
    return true;
}

static bool wait_while(const uint32_t *word, uint32_t value)
{
    uint64_t start = rdtsc();

    while (READ_ONCE(*word) == value) {
        if (rdtsc() - start > ANSWER_CYCLES)
            return false;
        cpu_relax();
        tlb_poll();
    }
    return true;
}

/* One after the other, so that their lines do not mix; a CPU that takes no NMI is named. */
static void ask_and_wait(unsigned cpu)
{
    struct watch *w = per_cpu_ptr(&watch, cpu);
    uint32_t asked = ASKED;

    STORE_RELEASE(w->asked, (uint32_t)ASKED);
    smp_send_nmi(cpu);
    if (!wait_while(&w->asked, ASKED) && ATOMIC_CAS(w->asked, &asked, (uint32_t)ASKED_NOT))
        kprintf("# watchdog: cpu %u does not answer an NMI\n", cpu);
    wait_while(&w->asked, ANSWERING);
}

static void end_run(unsigned culprit)
{
    unsigned cpu;

    for_each_cpu (cpu) {
        if (READ_ONCE(*per_cpu_ptr(&busy, cpu)))
            ask_and_wait(cpu);
    }
    panic_take_over();
    kprintf("# error: cpu %u task %s made no progress for %lu s\n", culprit,
            trap_task_name(culprit), 2 * limit_s);
    if (end_hook)
        end_hook(culprit);
    kprintf("RESULT: ERROR tests=0 fail=0 skip=0 error=1\n");
    kernel_exit(EXIT_ERROR);
}

static void check_cpu(unsigned cpu, uint64_t now)
{
    struct watch *w = per_cpu_ptr(&watch, cpu);
    uint64_t progress = READ_ONCE(*per_cpu_ptr(&watchdog_progress, cpu));
    bool is_busy = READ_ONCE(*per_cpu_ptr(&busy, cpu));

    if (!is_busy || !w->was_busy || progress != w->seen) {
        w->was_busy = is_busy;
        w->seen = progress;
        w->since = now;
        w->reported = false;
        return;
    }
    if (now - w->since >= 2 * limit_s) {
        end_run(cpu);
    } else if (now - w->since >= limit_s && !w->reported) {
        w->reported = true;
        kprintf("# watchdog: cpu %u made no progress for %lu s\n", cpu, now - w->since);
        ask_and_wait(cpu);
    }
}

void watchdog_check(void)
{
    uint64_t now = now_s();
    unsigned cpu;

    if (limit_s == 0 || panic_active())
        return;
    for_each_cpu (cpu)
        check_cpu(cpu, now);
}
