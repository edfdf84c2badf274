/*
 * trap_frame.h: an exception in words, and the HLT that handlers know. Private to arch/x86_64.
 */
#ifndef ARCH_X86_64_TRAP_FRAME_H
#define ARCH_X86_64_TRAP_FRAME_H

#include "lib/base.h"
#include <arch/trap.h>

/* "#PF page fault: write to 0x10, not present": the exception and its error code, decoded. */
void trap_describe(const struct trap_frame *f, uint64_t cr2, char *buf, size_t size);

/* Halts until an interrupt or an NMI, with interrupts on only meanwhile (trap_entry.asm). */
void cpu_halt(void);

#endif
