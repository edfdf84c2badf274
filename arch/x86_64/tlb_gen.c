/*
 * tlb_gen.c: flush generations, see tlb_gen.h.
 *
 * Two orders, on which everything rests; both need a full fence, since x86 lets a later load pass
 * an earlier store (SDM 3A 9.2.3.4):
 * - stamp: entries cleared, fence, generation read. So who flushes for the stamp walks cleared
 *   entries.
 * - wake-up: idle flag down, fence, generation read. So either the CPU that looks sees it busy, or
 *   it sees the generation and flushes.
 */
#include <arch/tlb_gen.h>

#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>

#include "lib/assert.h"
#include "lib/printf.h"

struct tlb_gen_now tlb_gen;
DEFINE_PER_CPU(struct tlb_gen_cpu, tlb_gen_cpu);
DEFINE_PER_CPU(uint64_t, tlb_gen_readers);
DEFINE_PER_CPU(uint64_t, tlb_gen_owed);
DEFINE_PER_CPU(uint64_t, tlb_gen_fast);
static uint32_t no_fast = TLB_GEN_NO_FAST_DESIGN; /* enum tlb_gen_reason */
#define NEVER UINT64_MAX

/* The highest stamp that somebody saw pass; only grows. */
static struct {
    uint64_t passed;
} __cacheline summary;

/* CPUs that halt in tlb_gen_wait(), and the stamp that each waits for; 0: none. */
static struct {
    uint32_t count;
} waiting __cacheline;
static DEFINE_PER_CPU(uint64_t, awaited);

static DEFINE_PER_CPU(uint64_t, begun_count);
static DEFINE_PER_CPU(uint64_t, kick_count);

/* A CPU that does not flush for this long after an interrupt will not. */
#define ANSWER_LIMIT_US 10000000

static void set_fast(bool handler)
{
    struct tlb_gen_cpu *c = this_cpu_ptr(&tlb_gen_cpu);

    WRITE_ONCE(*this_cpu_ptr(&tlb_gen_fast), handler || READ_ONCE(no_fast) ? NEVER : c->seen);
}

/*
 * Behind whatever may be the last thing that somebody waits for: a generation published, a halt; of
 * an NMI, too, during which its CPU is not halted for those who look. Who waits comes here on its
 * own way into the halt, so one of two fences is the later one: the waiter sees what the other one
 * did, or is seen to wait.
 */
static void wake_waiters(void)
{
    uint64_t late = NEVER;
    unsigned cpu;

    smp_mb();
    if (likely(!READ_ONCE(waiting.count)))
        return;
    for_each_cpu (cpu) {
        uint64_t *a = per_cpu_ptr(&awaited, cpu), stamp = READ_ONCE(*a);

        if (!stamp || stamp >= late)
            continue;
        if (!tlb_gen_passed(stamp))
            late = stamp;
        else if (ATOMIC_XCHG(*a, 0))
            smp_wake(cpu);
    }
}

void tlb_gen_catch_up(void)
{
    unsigned long flags;
    uint64_t now;

    flags = irq_save();
    if (PERCPU_READ_(tlb_gen_readers)) {
        *this_cpu_ptr(&tlb_gen_owed) = 1;
        irq_restore(flags);
        return;
    }
    *this_cpu_ptr(&tlb_gen_owed) = 0;
    now = LOAD_ACQUIRE(tlb_gen.now);
    /* The generation is read before the flush: what was cleared for it is dropped by the flush
     * (case E13). */
    tlb_flush_local_all();
    STORE_RELEASE(this_cpu_ptr(&tlb_gen_cpu)->seen, now);
    set_fast(in_irq());
    wake_waiters();
    irq_restore(flags);
}

bool tlb_gen_read_settle(void)
{
    if (!in_nmi())
        tlb_gen_catch_up();
    return true;
}

bool tlb_gen_fast_forbidden(void)
{
    return READ_ONCE(no_fast) != 0;
}

void tlb_gen_irq_enter(void)
{
    set_fast(true);
}

/* The depth is that of what goes on. */
void tlb_gen_irq_exit(void)
{
    set_fast(in_irq());
}

void tlb_gen_forbid_fast(enum tlb_gen_reason reason, bool forbid)
{
    unsigned cpu;

    if (forbid)
        ATOMIC_OR(no_fast, (uint32_t)reason);
    else
        ATOMIC_AND(no_fast, ~(uint32_t)reason);
    if (READ_ONCE(no_fast)) {
        for_each_cpu (cpu)
            WRITE_ONCE(*per_cpu_ptr(&tlb_gen_fast, cpu), NEVER);
    } else {
        /* The others may be in handlers: each finds out at its next interrupt. */
        set_fast(in_irq());
    }
}

uint64_t tlb_gen_stamp(void)
{
    smp_mb();
    return READ_ONCE(tlb_gen.now) + 1;
}

void tlb_gen_advance(uint64_t stamp)
{
    uint64_t before = stamp - 1;

    if (READ_ONCE(tlb_gen.now) >= stamp)
        return;
    if (!ATOMIC_CAS(tlb_gen.now, &before, stamp))
        return;
    this_cpu_inc(begun_count);
    if (unlikely(tlb_trace))
        tlb_trace(0, UINTPTR_MAX, true);
}

static bool look_at_all(uint64_t stamp, bool halted_count)
{
    unsigned cpu;

    for_each_cpu (cpu) {
        const struct tlb_gen_cpu *c = per_cpu_ptr(&tlb_gen_cpu, cpu);

        if (LOAD_ACQUIRE(c->seen) >= stamp)
            continue;
        if (!halted_count || !LOAD_ACQUIRE(c->idle))
            return false;
    }
    return true;
}

bool tlb_gen_passed(uint64_t stamp)
{
    uint64_t old = READ_ONCE(summary.passed);

    if (old >= stamp)
        return true;
    /* Pairs with the fence of the wake-up: the generation had begun before the flags are read. */
    if (LOAD_ACQUIRE(tlb_gen.now) < stamp || !look_at_all(stamp, true))
        return false;
    while (old < stamp && !ATOMIC_CAS(summary.passed, &old, stamp))
        ;
    return true;
}

bool tlb_gen_passed_all(uint64_t stamp)
{
    return LOAD_ACQUIRE(tlb_gen.now) >= stamp && look_at_all(stamp, false);
}

unsigned tlb_gen_kick(uint64_t stamp, bool halted)
{
    unsigned cpu, me = this_cpu_id(), n = 0;

    tlb_gen_check();
    for_each_cpu (cpu) {
        const struct tlb_gen_cpu *c = per_cpu_ptr(&tlb_gen_cpu, cpu);

        if (cpu == me || LOAD_ACQUIRE(c->seen) >= stamp || (!halted && LOAD_ACQUIRE(c->idle)))
            continue;
        smp_wake(cpu); /* any interrupt is a safe point */
        n++;
    }
    this_cpu_add(kick_count, n);
    return n;
}

void tlb_gen_sync(uint64_t stamp)
{
    struct clock_limit limit;

    tlb_gen_advance(stamp);
    if (PERCPU_READ_(tlb_gen_readers)) {
        tlb_shootdown_all();
        return;
    }
    tlb_gen_check();
    if (tlb_gen_passed(stamp))
        return;
    tlb_gen_kick(stamp, false);
    clock_limit_start(&limit, ANSWER_LIMIT_US);
    while (!tlb_gen_passed(stamp)) {
        tlb_poll();
        cpu_relax();
        if (!clock_limit_over(&limit))
            continue;
        kprintf("# tlb: generation %lu has not passed, interrupting again\n", (unsigned long)stamp);
        tlb_gen_kick(stamp, true);
        clock_limit_start(&limit, ANSWER_LIMIT_US);
    }
}

bool tlb_gen_may_wait(void)
{
    return smp_cpus_take_turns() && !in_irq() && irqs_enabled() && !PERCPU_READ_(tlb_gen_readers);
}

bool tlb_gen_wait(uint64_t stamp, uint64_t us)
{
    uint64_t *mine = this_cpu_ptr(&awaited);
    struct clock_limit limit;
    bool passed;

    tlb_gen_advance(stamp);
    tlb_gen_check();
    if (!tlb_gen_may_wait())
        return tlb_gen_passed(stamp);
    clock_limit_start(&limit, us);
    irq_disable();
    ATOMIC_ADD(waiting.count, 1);
    while (!(passed = tlb_gen_passed(stamp)) && !clock_limit_over(&limit)) {
        WRITE_ONCE(*mine, stamp);
        timer_ensure(us); /* each time: one that was set before may have ended the last halt */
        cpu_idle_wait();  /* where it looks again, see wake_waiters() */
    }
    WRITE_ONCE(*mine, 0);
    ATOMIC_SUB(waiting.count, 1);
    irq_enable();
    return passed;
}

/* Not in a read section: who waits there for a shootdown to end still holds what it found. */
void tlb_gen_idle_enter(void)
{
    if (PERCPU_READ_(tlb_gen_readers))
        return;
    STORE_RELEASE(this_cpu_ptr(&tlb_gen_cpu)->idle, 1);
    wake_waiters();
}

void tlb_gen_idle_exit(void)
{
    struct tlb_gen_cpu *c = this_cpu_ptr(&tlb_gen_cpu);

    WRITE_ONCE(c->idle, 0);
    smp_mb(); /* partner: the loads of look_at_all() */
    if (READ_ONCE(c->seen) != READ_ONCE(tlb_gen.now))
        tlb_gen_catch_up();
}

/*
 * It may come in tlb_gen_idle_exit(), when the flag is down and the flush is still to be done: then
 * it meets translations of addresses that were reused since. The fence is that of the wake-up. It
 * publishes nothing, since it may have come over a read section, or between the two ends of
 * tlb_gen_catch_up().
 */
bool tlb_gen_nmi_enter(void)
{
    if (tlb_gen_is_idle()) {
        tlb_gen_idle_exit();
        return true;
    }
    smp_mb();
    if (tlb_gen_behind())
        tlb_flush_local_all();
    return false;
}

void tlb_gen_nmi_exit(bool was_idle)
{
    if (was_idle)
        tlb_gen_idle_enter();
}

uint64_t tlb_gen_begun(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(*per_cpu_ptr(&begun_count, cpu));
    return sum;
}

uint64_t tlb_gen_kicks(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(*per_cpu_ptr(&kick_count, cpu));
    return sum;
}
