/*
 * smp.c: running things on other CPUs, and waiting for them without using up the machine. Starting
 * them is in smp_boot.c.
 *
 * Whoever waits halts; with many vCPUs on few host cores everything else depends on that. A
 * condition is checked with interrupts masked before the HLT, and whoever makes it true sends an
 * interrupt afterwards, so no wake-up is lost.
 */
#include <arch/acpi.h>
#include <arch/apic.h>
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/exit.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/trap.h>

#include "arch/x86_64/smp_boot.h"
#include "arch/x86_64/trap_frame.h"
#include "lib/assert.h"

enum work_state { WORK_FREE, WORK_CLAIMED, WORK_PENDING, WORK_RUNNING };

/* What a CPU is asked to run in task context. Written by the caller until PENDING, then by the CPU.
 */
struct work {
    uint32_t state;
    unsigned caller;
    void (*fn)(void *);
    void *arg;
    uint32_t *count;    /* one less when fn has returned; at 0 the caller is woken */
    uint32_t own_count; /* for smp_call_async() */
} __cacheline;

/* The same in an interrupt handler. */
struct irq_work {
    uint32_t state;
    void (*fn)(void *);
    void *arg;
} __cacheline;

static DEFINE_PER_CPU(struct work, work);
static DEFINE_PER_CPU(struct irq_work, irq_work);
static DEFINE_PER_CPU(struct smp_gate *, waiting_gate);

static struct cpu_entry boot_entry;
static const struct cpu_entry *entries = &boot_entry; /* constant after smp_start() */
static unsigned slots = 1, online = 1;

/* ---- who is there ---- */

unsigned smp_cpus(void)
{
    return READ_ONCE(online);
}

unsigned smp_cpu_slots(void)
{
    return READ_ONCE(slots);
}

unsigned smp_cpus_possible(void)
{
    return 1 + acpi_other_cpus();
}

bool smp_cpus_take_turns(void)
{
    return cpu_features.hypervisor_present;
}

uint32_t smp_apic_id(unsigned cpu)
{
    return entries[cpu].apic_id;
}

unsigned smp_node(unsigned cpu)
{
    return entries[cpu].node;
}

void smp_set_online(void)
{
    WRITE_ONCE(online, slots);
}

/* ---- waiting ---- */

static void (*idle_hook)(void);

void smp_set_idle_hook(void (*fn)(void))
{
    STORE_RELEASE(idle_hook, fn);
}

void cpu_idle_wait(void)
{
    void (*hook)(void);

    tlb_idle_enter();
    cpu_halt();
    tlb_idle_exit();
    hook = LOAD_ACQUIRE(idle_hook);
    if (hook)
        hook();
}

/* The task priority blocks all classes up to this one. */
#define PRIORITY_HIGH 0xe

void cpu_idle_wait_high(void)
{
    uint64_t old = READ_CR(8);

    WRITE_CR(8, PRIORITY_HIGH);
    cpu_idle_wait();
    WRITE_CR(8, old);
}

void smp_wake(unsigned cpu)
{
    apic_send_ipi(smp_apic_id(cpu), VECTOR_WAKE);
}

void smp_wait_flag(const uint32_t *flag)
{
    unsigned long flags = irq_save();

    while (!LOAD_ACQUIRE(*flag))
        cpu_idle_wait();
    irq_restore(flags);
}

/* The last to come. Each waiter has announced itself before it looked at the generation, so either
 * it sees the new one or it is seen here. */
static void gate_open(struct smp_gate *g)
{
    unsigned cpu;

    WRITE_ONCE(g->arrived, 0);
    ATOMIC_ADD(g->generation, 1);
    if (!smp_cpus_take_turns())
        return;
    for_each_cpu (cpu) {
        if (READ_ONCE(*per_cpu_ptr(&waiting_gate, cpu)) == g)
            smp_wake(cpu);
    }
}

void smp_gate_wait(struct smp_gate *g, unsigned n)
{
    uint32_t generation = LOAD_ACQUIRE(g->generation);
    struct smp_gate **mine = this_cpu_ptr(&waiting_gate);
    unsigned long flags;

    if (ATOMIC_ADD(g->arrived, 1) + 1 == n) {
        gate_open(g);
        return;
    }
    if (!smp_cpus_take_turns()) {
        while (LOAD_ACQUIRE(g->generation) == generation) {
            tlb_poll();
            cpu_relax();
        }
        return;
    }
    flags = irq_save();
    (void)ATOMIC_XCHG(*mine, g);
    while (LOAD_ACQUIRE(g->generation) == generation)
        cpu_idle_wait();
    WRITE_ONCE(*mine, NULL);
    irq_restore(flags);
}

/* ---- calls in task context ---- */

static bool work_pending(void)
{
    return LOAD_ACQUIRE(this_cpu_ptr(&work)->state) == WORK_PENDING;
}

/* The slot is free again before the caller is told, and not touched after that. */
static void work_run(void)
{
    struct work *w = this_cpu_ptr(&work);
    uint32_t *count = w->count;
    unsigned caller = w->caller;

    WRITE_ONCE(w->state, WORK_RUNNING);
    w->fn(w->arg);
    STORE_RELEASE(w->state, WORK_FREE);
    if (ATOMIC_SUB(*count, 1) == 1)
        smp_wake(caller);
}

void smp_idle_loop(void)
{
    for (;;) {
        if (work_pending()) {
            irq_enable();
            work_run();
            irq_disable();
        } else {
            cpu_idle_wait();
        }
    }
}

/* Halts until *count is 0; runs what others ask this CPU for meanwhile. */
static void wait_count(const uint32_t *count)
{
    ASSERT_DBG(irqs_enabled());
    irq_disable();
    while (LOAD_ACQUIRE(*count)) {
        if (work_pending()) {
            irq_enable();
            work_run();
            irq_disable();
        } else {
            cpu_idle_wait();
        }
    }
    irq_enable();
}

static void work_post(unsigned cpu, void (*fn)(void *), void *arg, uint32_t *count)
{
    struct work *w = per_cpu_ptr(&work, cpu);
    uint32_t state = WORK_FREE;

    while (!ATOMIC_CAS(w->state, &state, WORK_CLAIMED)) {
        state = WORK_FREE;
        tlb_poll();
        cpu_relax();
    }
    w->fn = fn;
    w->arg = arg;
    w->count = count ? count : &w->own_count;
    w->caller = this_cpu_id();
    STORE_RELEASE(w->state, WORK_PENDING);
    smp_wake(cpu);
}

void smp_call(unsigned cpu, void (*fn)(void *), void *arg)
{
    uint32_t count = 1;

    if (cpu == this_cpu_id()) {
        fn(arg);
        return;
    }
    work_post(cpu, fn, arg, &count);
    wait_count(&count);
}

void smp_call_all(void (*fn)(void *), void *arg)
{
    unsigned self = this_cpu_id(), cpu;
    uint32_t count = smp_cpus() - 1;

    for_each_cpu (cpu) {
        if (cpu != self)
            work_post(cpu, fn, arg, &count);
    }
    fn(arg);
    wait_count(&count);
}

void smp_call_async(unsigned cpu, void (*fn)(void *), void *arg)
{
    ASSERT(cpu != this_cpu_id());
    STORE_RELEASE(per_cpu_ptr(&work, cpu)->own_count, 1);
    work_post(cpu, fn, arg, NULL);
}

void smp_call_wait(unsigned cpu)
{
    wait_count(&per_cpu_ptr(&work, cpu)->own_count);
}

/* ---- interrupts ---- */

bool smp_interrupt(unsigned cpu, void (*fn)(void *), void *arg)
{
    struct irq_work *w = per_cpu_ptr(&irq_work, cpu);
    uint32_t state = WORK_FREE;

    if (!ATOMIC_CAS(w->state, &state, WORK_CLAIMED))
        return false;
    w->fn = fn;
    w->arg = arg;
    STORE_RELEASE(w->state, WORK_PENDING);
    apic_send_ipi(smp_apic_id(cpu), VECTOR_CALL);
    return true;
}

static void call_interrupt(struct trap_frame *f)
{
    struct irq_work *w = this_cpu_ptr(&irq_work);
    void (*fn)(void *);
    void *arg;

    (void)f;
    if (LOAD_ACQUIRE(w->state) != WORK_PENDING)
        return;
    fn = w->fn;
    arg = w->arg;
    STORE_RELEASE(w->state, WORK_FREE);
    fn(arg);
}

void smp_send_nmi(unsigned cpu)
{
    apic_send_nmi(smp_apic_id(cpu));
}

static void nmi_all_others(void)
{
    unsigned cpu, self = this_cpu_id();

    for_each_cpu (cpu) {
        if (cpu != self)
            smp_send_nmi(cpu);
    }
}

void smp_set_entries(const struct cpu_entry *table, unsigned n)
{
    entries = table;
    irq_register(VECTOR_CALL, call_interrupt);
    panic_set_stop_others(nmi_all_others);
    STORE_RELEASE(slots, n);
}
