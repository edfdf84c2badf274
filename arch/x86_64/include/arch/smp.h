/*
 * smp.h: the other CPUs: how many, starting them, running a function there.
 */
#ifndef ARCH_SMP_H
#define ARCH_SMP_H

#include "lib/base.h"

/* By configuration; more are named in the log and left out. */
#ifndef SMP_MAX_CPUS
#define SMP_MAX_CPUS 1024
#endif

/* CPUs in use, numbered 0 .. n-1 without holes; 1 until smp_start() has returned. */
unsigned smp_cpus(void);
/* CPUs that may come to be used, from the MADT, at least 1; constant after acpi_init(). */
unsigned smp_cpus_possible(void);
/* CPU numbers that may be in use already: more than smp_cpus() while smp_start() runs. For walks
 * over per-CPU data that a starting CPU may take part in. */
unsigned smp_cpu_slots(void);

/* Under a hypervisor: one that does not get on may not be running because this one is. */
bool smp_cpus_take_turns(void);

#define for_each_cpu(cpu) for (cpu = 0; cpu < smp_cpus(); cpu++)

/*
 * Runs fn(arg) on CPU cpu in its task context with interrupts on, and waits halted until it
 * returned. On the own CPU it is a plain call. One caller at a time per target, the target must be
 * idle or become so; a CPU that waits in one of these calls counts as idle. Not in interrupt
 * handlers, no lock held, interrupts on.
 */
void smp_call(unsigned cpu, void (*fn)(void *), void *arg);
/* The same on every CPU at once, the own one included; returns when all have returned. */
void smp_call_all(void (*fn)(void *), void *arg);
/* Starts fn(arg) on cpu (not the own one) and returns at once; smp_call_wait(cpu) waits for it, on
 * the CPU that started it. */
void smp_call_async(unsigned cpu, void (*fn)(void *), void *arg);
void smp_call_wait(unsigned cpu);

/* Runs fn(arg) on cpu, which may be the own one, inside an interrupt handler (interrupts masked
 * there), without waiting. False if a previous one has not been taken yet. */
bool smp_interrupt(unsigned cpu, void (*fn)(void *), void *arg);
/* Sends an NMI to cpu; its handler calls what was registered with nmi_set_hook() (arch/trap.h). */
void smp_send_nmi(unsigned cpu);

/* Waits, halting, until *flag is non-zero; whoever sets it calls smp_wake(cpu) afterwards.
 * Interrupts on. */
void smp_wait_flag(const uint32_t *flag);
void smp_wake(unsigned cpu);
/* Runs fn on every CPU after each halt, in the context that halted and with interrupts masked;
 * NULL: nothing. fn must not wait. Boot CPU, the others idle. */
void smp_set_idle_hook(void (*fn)(void));
/* As cpu_idle_wait(), but only interrupts of the highest class end it: legal where others must not
 * come in. Needs the APIC. */
void cpu_idle_wait_high(void);

/* All CPUs that entered meet here: returns when `n` CPUs have called it. Waits halted under a
 * hypervisor and spins on metal, so that all leave together. The gate is reusable once all left.
 * Starts as zeroes. Interrupts on. */
struct smp_gate {
    uint32_t arrived;
    uint32_t generation;
};
void smp_gate_wait(struct smp_gate *g, unsigned n);

struct smp_config {
    phys_addr_t trampoline; /* a free page below 1 MiB; 0: none, one CPU, said so */
    unsigned max_cpus;      /* CPUs to use at most, the boot CPU included; 0: no limit */
    /* Zeroed memory for good, page-aligned, mapped writable and outside the vmap range; NULL: none.
     */
    void *(*alloc)(size_t size, unsigned node);
    /* The top of a guarded stack for CPU number `cpu` (provisional: some may not start); NULL:
     * none. */
    void *(*alloc_stack)(unsigned cpu);
    /* Optional: prepares CPU `cpu` on the boot CPU once it has its final number and before it runs
     * anything; false leaves out that CPU and those behind it. */
    bool (*prepare)(unsigned cpu);
    /* For tests: so many SIPIs to the CPU with this APIC ID are lost, from the first on. */
    unsigned lost_sipis;
    uint32_t lost_apic_id;
};
/*
 * Starts every CPU of the MADT but this one by INIT-SIPI-SIPI: all at once, bounded, each that does
 * not come is named and left out. Boot CPU, once, after clock_init() and tlb_init(), interrupts on.
 * After it the others are idle. Prints lines; never fails: at worst one CPU is used.
 */
void smp_start(const struct smp_config *c);
/* Stops all other CPUs for good, before the kernel returns to its front door: they end up waiting
 * for a SIPI, executing nothing. Boot CPU, all others idle. */
void smp_stop_others(void);

/* Runs fn(arg) on another stack whose top is given, and returns on the old one. */
void stack_call(void *top, void (*fn)(void *), void *arg);

struct smp_report {
    unsigned found; /* usable CPUs in the MADT */
    unsigned used;
    unsigned failed;   /* did not come, or could not be set up */
    uint64_t start_us; /* from the first INIT to all online, microseconds */
};
void smp_read_report(struct smp_report *r);
uint32_t smp_apic_id(unsigned cpu);
/* NUMA node by the SRAT, 0 without one. */
unsigned smp_node(unsigned cpu);

#endif
