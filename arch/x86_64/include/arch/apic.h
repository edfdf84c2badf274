/*
 * apic.h: the local APIC of each CPU, interrupts between CPUs, its timer; and masking what the
 * firmware left live (8259s, I/O APICs).
 *
 * xAPIC or x2APIC as found; switched up to x2APIC where the CPU has it and the firmware does not
 * object, never back (pitfalls 13, 14).
 */
#ifndef ARCH_APIC_H
#define ARCH_APIC_H

#include "lib/base.h"

/* Vectors. The highest class, 0xf0 and up, has only what may come in at any time: its handlers do
 * nothing that the code they interrupt, even if it had interrupts masked, could notice. */
#define VECTOR_TIMER    0xe0
#define VECTOR_CALL     0xe1 /* smp_interrupt() */
#define VECTOR_STOP     0xe2
#define VECTOR_WAKE     0xf0 /* only ends a HLT */
#define VECTOR_TLB      0xf1
#define VECTOR_ERROR    0xfe
#define VECTOR_SPURIOUS 0xff

/* This CPU's initial APIC ID by CPUID (leaf 1FH, 0BH or 1): the same in both modes, needs no APIC.
 */
uint32_t apic_initial_id(void);
/* IDs of 255 and above can be used: x2APIC is on, or may be switched on. After cpu_detect(). */
bool apic_x2apic_possible(void);

/*
 * Boot CPU, once, interrupts masked, with arch_ioremap set: saves the state for apic_restore(),
 * masks 8259s, I/O APICs and this CPU's local sources, enables the APIC, registers the vectors and
 * the EOI. ERR_NOENT: no usable APIC (a line says why); then there are no other CPUs and no timer.
 */
err_t apic_init(void);
/* The same for another CPU, before it enables interrupts. False: its APIC cannot be brought into
 * the boot CPU's mode. */
bool apic_init_this(void);
/* Puts back what apic_init() found but the mode. Boot CPU, interrupts masked, other CPUs stopped.
 */
void apic_restore(void);

bool apic_present(void);
bool apic_is_x2apic(void);
/* The registers in memory; NULL in x2APIC mode. */
volatile void *apic_mmio(void);
/* "xapic", "x2apic", "none". */
const char *apic_mode_name(void);
/* Read from the calling CPU's own APIC, never from a copy. */
uint32_t apic_id_this(void);

/* Interrupts to the CPU with this APIC ID. Everything stored before is visible to the target when
 * it handles the interrupt. Any context; NMI too. False: the APIC did not take it in bounded time.
 */
bool apic_send_ipi(uint32_t apic_id, unsigned vector);
bool apic_send_nmi(uint32_t apic_id);
bool apic_send_init(uint32_t apic_id);
/* Starts execution at the page (physical, below 1 MiB) in real mode. */
bool apic_send_sipi(uint32_t apic_id, phys_addr_t page);

/* A handler of the highest class is running on this CPU, so that no other of it can come in. */
bool apic_high_in_service(void);

/* Counts of the timer per second; 0 until apic_timer_calibrate() (by clock_init()) has found it. */
uint64_t apic_timer_hz(void);
void apic_timer_calibrate(void);
/* This CPU's timer: VECTOR_TIMER after `count` counts, periodically or once. 0 stops it. */
void apic_timer_set(uint32_t count, bool periodic);

/* Error interrupts since start, all CPUs; the ESR bits seen. */
uint64_t apic_errors(uint32_t *bits);

#endif
