/*
 * fixup.h: instructions that may fault on purpose: pairs of an address and where to go on instead.
 *
 * For a fetch that faults the first address is where the call would have returned to. Private to
 * arch/x86_64.
 */
#ifndef ARCH_X86_64_FIXUP_H
#define ARCH_X86_64_FIXUP_H

#include "lib/base.h"
#include <arch/trap.h>

struct fixup {
    uintptr_t ip;
    uintptr_t resume;
};

/* For inline assembly; labels as strings. */
#define FIXUP(ip, resume)                                                                          \
    ".pushsection fixups, \"a\"\n\t"                                                               \
    ".balign 8\n\t"                                                                                \
    ".quad " ip ", " resume "\n\t"                                                                 \
    ".popsection\n\t"

/* If the instruction at f->rip may fault: sets f to go on at its fixup and returns true. cr2 is the
 * fault address of a #PF. Any context. */
bool fixup_apply(struct trap_frame *f, uintptr_t cr2);

#endif
