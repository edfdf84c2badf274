/*
 * exit.h: ending the machine from inside the kernel, and what panic() does last.
 *
 * The usual way out is to return from kmain to the front door; this is for those who cannot return.
 */
#ifndef ARCH_EXIT_H
#define ARCH_EXIT_H

#include "lib/base.h"

enum kernel_end { KERNEL_END_AUTO, KERNEL_END_HALT, KERNEL_END_REBOOT, KERNEL_END_POWEROFF };

/* What ACPI's FADT and \_S5 say: PM1a and PM1b control ports (0 = none) and SLP_TYP values. Without
 * them KERNEL_END_POWEROFF halts. */
void machine_set_s5(uint16_t pm1a_cnt, uint16_t pm1b_cnt, uint8_t slp_typa, uint8_t slp_typb);
/* What the FADT says about the reset register, if it is an I/O port; 0 = none. */
void machine_set_reset(uint16_t port, uint8_t value);
/* How kernel_exit() ends the machine where there is no debug exit. KERNEL_END_AUTO, as at first:
 * power off under a hypervisor, halt on a PC, so that the screen stays readable. */
void kernel_set_end(enum kernel_end how);

/* Two verdicts that arise here; the values are those of enum verdict (boot/boot_info.h). */
#define EXIT_ERROR 0x13
#define EXIT_PANIC 0x14

/* Ends the machine with an enum verdict (boot/boot_info.h): through isa-debug-exit under a
 * hypervisor, else as kernel_set_end() says. Any context. */
void kernel_exit(unsigned verdict) __noreturn;
/* The ways by themselves; each falls back to halting with interrupts off. */
void kernel_end(enum kernel_end how) __noreturn;

/* Called by panic() last, instead of kernel_exit(); must not return. NULL = kernel_exit(). */
void panic_set_exit(void (*fn)(unsigned verdict));
/* Called once, early in panic(): sends an NMI to all other CPUs, without waiting. Set by the SMP
 * code. */
void panic_set_stop_others(void (*fn)(void));
/* True from the moment that a CPU has begun to panic. */
bool panic_active(void);

#endif
