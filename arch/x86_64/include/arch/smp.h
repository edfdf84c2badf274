/*
 * smp.h: the other CPUs: how many, starting them, running a function there.
 */
#ifndef ARCH_SMP_H
#define ARCH_SMP_H

#include "lib/base.h"

/* CPUs in use, numbered 0 .. n-1 without holes; 1 until smp_start() has returned. */
unsigned smp_cpus(void);
/* CPUs that may come to be used, from the MADT, at least 1; constant after acpi_init(). */
unsigned smp_cpus_possible(void);

#define for_each_cpu(cpu) for (cpu = 0; cpu < smp_cpus(); cpu++)

/*
 * Runs fn(arg) on CPU cpu in its task context with interrupts on, and waits halted until it returned.
 * On the own CPU it is a plain call. One caller at a time per target, the target must be idle or
 * become so. Not in interrupt handlers, no lock held.
 */
void smp_call(unsigned cpu, void (*fn)(void *), void *arg);
/* The same on every CPU at once, the own one included; returns when all have returned. */
void smp_call_all(void (*fn)(void *), void *arg);
/* Starts fn(arg) on cpu (not the own one) and returns at once; smp_call_wait(cpu) waits for it. */
void smp_call_async(unsigned cpu, void (*fn)(void *), void *arg);
void smp_call_wait(unsigned cpu);

/* Runs fn(arg) on cpu inside an interrupt handler (interrupts masked there), without waiting.
 * False if a previous one has not run yet. */
bool smp_interrupt(unsigned cpu, void (*fn)(void *), void *arg);
/* Sends an NMI to cpu; its handler calls what was registered with nmi_set_hook() (arch/trap.h). */
void smp_send_nmi(unsigned cpu);

/* Waits, halting, until *flag is non-zero; whoever sets it calls smp_wake(cpu) afterwards. */
void smp_wait_flag(const uint32_t *flag);
void smp_wake(unsigned cpu);

/* All CPUs that entered meet here: returns when `n` CPUs have called it. Waits halted under a
 * hypervisor and spins on metal, so that all leave together. The gate is reusable once all left. */
struct smp_gate {
    uint32_t arrived;
    uint32_t generation;
};
void smp_gate_wait(struct smp_gate *g, unsigned n);

/*
 * Starts every CPU of the MADT but this one by INIT-SIPI-SIPI: all at once, bounded, each that does
 * not come is named and left out. Needs the trampoline page (phys, below 1 MiB; 0 = none: one CPU, said
 * so), interrupts on the boot CPU, per-CPU areas, and a way to get stacks.
 * alloc_stack returns the top of a guarded stack or NULL.
 */
void smp_start(phys_addr_t trampoline, void *(*alloc_stack)(unsigned slot), unsigned maxcpus);
/* Parks all other CPUs with interrupts off for good, before the kernel returns to its front door. */
void smp_stop_others(void);

/* Runs fn(arg) on another stack whose top is given, and returns on the old one. */
void stack_call(void *top, void (*fn)(void *), void *arg);

struct smp_report {
    unsigned found;     /* usable CPUs in the MADT */
    unsigned used;
    unsigned failed;
    uint64_t start_us;  /* from the first SIPI to all online, microseconds */
};
void smp_read_report(struct smp_report *r);
uint32_t smp_apic_id(unsigned cpu);

#endif
