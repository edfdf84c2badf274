/*
 * machine_end.h: what a front door does with the machine once the kernel has returned.
 */
#ifndef BOOT_MACHINE_END_H
#define BOOT_MACHINE_END_H

#include "lib/base.h"

/* Values of the option exit=. */
enum machine_exit {
    MACHINE_EXIT_AUTO, /* under a hypervisor: end it; on a PC: halt, the screen stays readable */
    MACHINE_EXIT_HALT, /* halt, whatever the machine is */
    MACHINE_EXIT_REBOOT,
    MACHINE_EXIT_POWEROFF,
};

/* How this front door can do it; a function that could not returns. NULL: no way. */
struct machine_ops {
    void (*poweroff)(void);
    void (*reboot)(void);
};

/* The last valid exit= in the options text (n bytes, lib/options.h's syntax), else auto. The kernel
 * rejects bad values; here they are ignored. */
enum machine_exit machine_exit_option(const char *text, size_t n);

/* Under a hypervisor: writes the verdict (enum verdict) to isa-debug-exit, which ends QEMU if it
 * has that device. Elsewhere, and where there is none, it does nothing. */
void machine_end_debug(uint32_t verdict);

/*
 * Ends the machine. With auto under a hypervisor by machine_end_debug() first; if that did not end
 * it the machine is powered off, and halted if that fails too. One CPU runs, interrupts are off,
 * all others are parked.
 */
void machine_end(uint32_t verdict, enum machine_exit how, const struct machine_ops *ops) __noreturn;

#endif
