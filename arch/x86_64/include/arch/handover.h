/*
 * handover.h: the processor's state that the kernel changes, saved on entry and restored on return,
 * so that the front door finds the machine as it left it. The local APIC's part is in the APIC
 * code.
 *
 * Boot CPU only, interrupts masked.
 */
#ifndef ARCH_HANDOVER_H
#define ARCH_HANDOVER_H

#include "lib/base.h"

/*
 * Saves CR0, CR3, CR4, EFER, PAT, GDTR, IDTR, TR, LDTR, segment registers and bases, debug
 * registers and RFLAGS; calls fn(arg) with interrupts masked; restores all of it; returns what fn
 * returned. Must be the first thing the kernel does, on a stack and with code that the front door's
 * page tables and the kernel's own both map.
 */
uint64_t handover_call(uint64_t (*fn)(void *arg), void *arg);

#endif
