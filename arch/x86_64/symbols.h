/*
 * symbols.h: lookup in the symbol table, private to arch/x86_64. Any context.
 */
#ifndef ARCH_X86_64_SYMBOLS_H
#define ARCH_X86_64_SYMBOLS_H

#include "lib/base.h"

/* True for addresses in the kernel's own code. */
bool symbol_is_text(uintptr_t addr);
/* Name of the function that holds addr and, in *offset, the bytes from its start; NULL if unknown.
 */
const char *symbol_lookup(uintptr_t addr, uint32_t *offset);

#endif
