/*
 * sim_arch.c: what <arch/...> declares and mm/ calls: shootdown, interrupts to other CPUs, time,
 * panic; and how a failure is reported.
 *
 * The shootdown is the machine's protocol: a request per target, an interrupt, and a wait that
 * answers requests of others. Flush generations are the machine's own: arch/x86_64/tlb_gen.c runs
 * here unmodified.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/assert.h"
#include "lib/printf.h"
#include "tests/host/sim/internal.h"
#include "tests/host/testlib.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>

const char *const sim_rule_names[] = {
    "ok",          "address-reuse", "frame-owner-stale", "table-reuse",
    "flush-cover", "global-entry",  "lock-held",         "write-execute",
    "overwrite",   "mapped-free",   "frame-owner",       "stale-access",
    "lock-order",  "lock-irq",      "context",           "hang",
    "panic",       "test",
};
_Static_assert(ARRAY_SIZE(sim_rule_names) == SIM_RULES, "a name per rule");

bool sim_quiet;
void (*tlb_trace)(uintptr_t start, uintptr_t end, bool full);

static uint32_t failed; /* atomic; enum sim_rule */
static char failure_text[400];

enum sim_rule sim_failure(void)
{
    return __atomic_load_n(&failed, __ATOMIC_RELAXED);
}

const char *sim_failure_text(void)
{
    return failure_text;
}

/* Of the sanitizer that is linked in, if one is. */
void __sanitizer_print_stack_trace(void) __weak;

void sim_fail(enum sim_rule rule, const char *fmt, ...)
{
    uint32_t none = SIM_OK;
    va_list ap;

    if (__atomic_compare_exchange_n(&failed, &none, rule, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
        va_start(ap, fmt);
        kvsnprintf(failure_text, sizeof(failure_text), fmt, ap);
        va_end(ap);
        if (!sim_quiet && __sanitizer_print_stack_trace)
            __sanitizer_print_stack_trace();
        if (!sim_quiet)
            fprintf(stderr, "sim: %s: %s (CPU %u, machine seed 0x%lx, step %lu)\n",
                    sim_rule_names[rule], failure_text, sim_this->id, (unsigned long)sim_opt.seed,
                    (unsigned long)sim_steps());
    }
    if (sim_opt.free_running)
        abort(); /* other threads cannot be stopped where they are */
    if (sim_running)
        sim_leave_run();
    if (!sim_quiet)
        abort();
}

void panic(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    kvsnprintf(test_panic_text, sizeof(test_panic_text), fmt, ap);
    va_end(ap);
    if (test_panic_to && !sim_running)
        longjmp(*test_panic_to, 1);
    sim_fail(SIM_PANIC, "%s", test_panic_text);
    abort();
}

/* ---- shootdown ---- */

struct tlb_request {
    uintptr_t start, end;
    bool full;
    uint32_t state; /* atomic: 0 none or done, 1 asked, 2 being served */
};
static struct tlb_request requests[SIM_MAX_CPUS][SIM_MAX_CPUS]; /* [target][asker] */
static struct tlb_counters counters;

static void serve_request(unsigned target, unsigned asker)
{
    struct tlb_request *r = &requests[target][asker];
    uint32_t asked = 1;

    if (!__atomic_compare_exchange_n(&r->state, &asked, 2, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return;
    oracle_flush(target, r->start, r->end, r->full);
    __atomic_store_n(&r->state, 0, __ATOMIC_RELEASE);
}

void sim_serve_tlb(struct sim_cpu *c)
{
    __atomic_fetch_and(&c->pending, ~SIM_PENDING_TLB, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < sim_opt.cpus; i++)
        serve_request(c->id, i);
}

void tlb_poll(void)
{
    sim_point();
    if (__atomic_load_n(&sim_this->pending, __ATOMIC_ACQUIRE) & SIM_PENDING_TLB)
        sim_serve_tlb(sim_this);
    tlb_gen_check();
}

void tlb_flush_local_all(void)
{
    sim_point();
    if (sim_opt.mutation == SIM_MUTATE_NO_FULL)
        return;
    oracle_flush(this_cpu_id(), 0, 0, true);
}

void tlb_flush_local_range(uintptr_t start, uintptr_t end)
{
    sim_point();
    oracle_flush(this_cpu_id(), start, end, false);
}

static bool mutated(unsigned target, uintptr_t *end, bool full)
{
    switch (sim_opt.mutation) {
    case SIM_MUTATE_SKIP_CPU:
        return target == sim_opt.cpus - 1;
    case SIM_MUTATE_SHORT:
        *end -= full ? 0 : PAGE_SIZE;
        return full;
    case SIM_MUTATE_LOCAL:
        return target != this_cpu_id();
    case SIM_MUTATE_NO_FULL:
        return full;
    default:
        return false;
    }
}

/* Interrupts are masked, so that no handler of this CPU asks with the same requests in between. */
static void shootdown(uintptr_t start, uintptr_t end, bool full)
{
    unsigned long flags = irq_save();
    unsigned self = this_cpu_id();

    sim_point();
    if (sim_this->locks_held)
        sim_fail(SIM_LOCK_HELD, "a shootdown is asked for with lock %s held", sim_lock_name());
    if (sim_this->nmi_depth)
        sim_fail(SIM_CONTEXT, "a shootdown is asked for in NMI context");
    if (tlb_trace)
        tlb_trace(start, end, full);
    __atomic_fetch_add(full ? &counters.full : &counters.range, 1, __ATOMIC_RELAXED);
    for (unsigned cpu = 0; cpu < sim_opt.cpus; cpu++) {
        struct tlb_request *r = &requests[cpu][self];
        uintptr_t to = end;

        if (mutated(cpu, &to, full))
            continue;
        if (cpu == self) {
            oracle_flush(self, start, to, full);
            continue;
        }
        r->start = start;
        r->end = to;
        r->full = full;
        __atomic_store_n(&r->state, 1, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(&counters.ipis, 1, __ATOMIC_RELAXED);
        sim_kick(cpu, SIM_PENDING_TLB);
    }
    for (unsigned cpu = 0; cpu < sim_opt.cpus; cpu++)
        while (__atomic_load_n(&requests[cpu][self].state, __ATOMIC_ACQUIRE) != 0) {
            tlb_poll();
            cpu_relax();
        }
    irq_restore(flags);
}

void tlb_shootdown_range(uintptr_t start, uintptr_t end)
{
    if (start >= end)
        return;
    shootdown(start, end, (end - start) >> PAGE_SHIFT > TLB_RANGE_MAX_PAGES);
}

void tlb_shootdown_all(void)
{
    shootdown(0, 0, true);
}

void tlb_read_counters(struct tlb_counters *c)
{
    c->full = __atomic_load_n(&counters.full, __ATOMIC_RELAXED);
    c->range = __atomic_load_n(&counters.range, __ATOMIC_RELAXED);
    c->ipis = __atomic_load_n(&counters.ipis, __ATOMIC_RELAXED);
}

/* ---- other CPUs, time ---- */

struct call {
    void (*fn)(void *);
    void *arg;
    uint32_t state; /* atomic: 0 free, 1 being written, 2 to be run */
};
static struct call calls[SIM_MAX_CPUS];

unsigned smp_cpus(void)
{
    return sim_opt.cpus;
}

unsigned smp_cpus_possible(void)
{
    return sim_opt.cpus;
}

bool smp_interrupt(unsigned cpu, void (*fn)(void *), void *arg)
{
    struct call *c = &calls[cpu];
    uint32_t none = 0;

    sim_point();
    if (!__atomic_compare_exchange_n(&c->state, &none, 1, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return false;
    c->fn = fn;
    c->arg = arg;
    __atomic_store_n(&c->state, 2, __ATOMIC_SEQ_CST);
    sim_kick(cpu, SIM_PENDING_CALL);
    return true;
}

void sim_serve_calls(struct sim_cpu *c)
{
    struct call *call = &calls[c->id];
    void (*fn)(void *) = call->fn;
    void *arg = call->arg;

    __atomic_fetch_and(&c->pending, ~SIM_PENDING_CALL, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&call->state, __ATOMIC_ACQUIRE) != 2)
        return;
    __atomic_store_n(&call->state, 0, __ATOMIC_RELEASE);
    fn(arg);
}

void smp_wake(unsigned cpu)
{
    sim_point();
    sim_kick(cpu, SIM_PENDING_WAKE);
}

bool smp_cpus_take_turns(void)
{
    return sim_opt.turns;
}

void smp_wait_flag(const uint32_t *flag)
{
    unsigned long flags = irq_save();

    while (!LOAD_ACQUIRE(*flag))
        cpu_idle_wait();
    irq_restore(flags);
}

/* A function for a CPU's idle loop. */
struct task {
    void (*fn)(void *);
    void *arg;
    unsigned caller;
    uint32_t state; /* atomic: 0 free, 1 being written or run, 2 to be run */
    uint32_t done;  /* atomic */
};
static struct task tasks[SIM_MAX_CPUS];

bool sim_run_task(void)
{
    struct task *t = &tasks[this_cpu_id()];
    uint32_t asked = 2;
    unsigned caller;

    if (!__atomic_compare_exchange_n(&t->state, &asked, 1, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return false;
    irq_enable();
    caller = t->caller;
    t->fn(t->arg);
    STORE_RELEASE(t->done, 1);
    smp_wake(caller);
    irq_disable();
    return true;
}

void smp_call(unsigned cpu, void (*fn)(void *), void *arg)
{
    struct task *t = &tasks[cpu];
    uint32_t none = 0;

    if (cpu == this_cpu_id()) {
        fn(arg);
        return;
    }
    if (!__atomic_compare_exchange_n(&t->state, &none, 1, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        sim_fail(SIM_TEST, "two smp_call() to CPU %u at once", cpu);
    t->fn = fn;
    t->arg = arg;
    t->caller = this_cpu_id();
    WRITE_ONCE(t->done, 0);
    STORE_RELEASE(t->state, 2);
    smp_wake(cpu);
    smp_wait_flag(&t->done);
    STORE_RELEASE(t->state, 0);
}

static uint64_t ticks; /* by schedule: readings of the clock */

uint64_t sim_tsc(void)
{
    struct timespec t;

    if (!sim_opt.free_running)
        return (ticks += 10) + (sim_opt.step_ns ? sim_opt.step_ns : 1000) * sim_steps();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_tsc_hz(void)
{
    return 1000000000;
}

uint64_t clock_us(void)
{
    return sim_tsc() / 1000;
}

uint64_t clock_cycles_to_us(uint64_t cycles)
{
    return cycles / 1000;
}

uint64_t clock_us_to_cycles(uint64_t us)
{
    return us * 1000;
}

uint64_t log_seconds(void)
{
    return sim_tsc() / 1000000000;
}

void sim_arch_reset(void)
{
    __atomic_store_n(&failed, SIM_OK, __ATOMIC_RELAXED);
    failure_text[0] = '\0';
    memset(requests, 0, sizeof(requests));
    memset(calls, 0, sizeof(calls));
    memset(tasks, 0, sizeof(tasks));
    counters = (struct tlb_counters){0};
    ticks = 0;
    tlb_trace = NULL;
}
