/*
 * panic.h: the two halves of a panic, for those that print in between. Private to arch/x86_64.
 */
#ifndef ARCH_X86_64_PANIC_H
#define ARCH_X86_64_PANIC_H

#include "lib/base.h"

struct trap_frame;

/*
 * Masks interrupts, makes this CPU the only one that runs, and the console its own. False if this
 * CPU had done so before; does not return on a CPU that comes second.
 */
bool panic_take_over(void);
/*
 * Masks interrupts, claims the panic for this CPU, stops the others, and prints "# panic: " and the
 * text. Does not return on a CPU that comes second, nor for a panic inside a panic: that one prints
 * one line and ends the machine.
 */
void panic_begin(const char *fmt, ...) __printf(1, 2) __cold;
/* Prints the result line and ends the machine. */
void panic_end(void) __noreturn __cold;

/* NMI on this CPU: if another one is in panic, counts itself as stopped and does not return. */
void panic_nmi(void);

/* "# cpu=3 task=...": who this CPU is and what it runs. */
void trap_print_cpu(void);
/* The registers of a frame, as lines. */
void trap_print_frame(const struct trap_frame *f);
/* The call chain from a trap on, or from the function whose frame pointer is given. */
void backtrace_print_frame(const struct trap_frame *f);
void backtrace_print_chain(uintptr_t rbp);

#endif
