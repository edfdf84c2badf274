/*
 * symbols.h: the kernel's table of code symbols, for backtraces.
 *
 * The table is made from the linked kernel and linked in by a second pass (tools/ksyms.awk,
 * Makefile). It is sorted by offset, one entry per address. The first pass has an empty table:
 * count 0.
 */
#ifndef ARCH_SYMBOLS_H
#define ARCH_SYMBOLS_H

#include "lib/base.h"

struct ksym {
    uint32_t offset; /* bytes from __text_start */
    uint32_t name;   /* byte offset into ksym_names, NUL-terminated there */
};

extern const struct ksym ksym_table[];
extern const uint32_t ksym_count;
extern const char ksym_names[];

#endif
