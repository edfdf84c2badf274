/*
 * memrange.h: lists of physical memory ranges, and making sense of a firmware's map.
 *
 * Pure C: the same code sorts OVMF's map, a PVH map and the byte arrays of the host tests.
 */
#ifndef LIB_MEMRANGE_H
#define LIB_MEMRANGE_H

#include "lib/base.h"

/* Kinds in order of precedence: where firmware entries overlap, the higher number wins. */
enum mem_kind {
    MEM_USABLE = 1,   /* conventional memory, free to use */
    MEM_BOOT_RECLAIM, /* boot-services memory: usable by option only */
    MEM_LOADER,       /* the front door's own: kernel image, boot_info, start stacks */
    MEM_ACPI_RECLAIM, /* ACPI tables */
    MEM_ACPI_NVS,
    MEM_RUNTIME,  /* UEFI runtime services */
    MEM_RESERVED, /* not RAM, or not ours */
    MEM_UNUSABLE, /* RAM with errors */
    MEM_KIND_COUNT
};

struct mem_range {
    uint64_t base; /* bytes */
    uint64_t size; /* bytes */
    uint32_t kind; /* enum mem_kind */
    uint32_t node; /* NUMA node, 0 until SRAT says otherwise */
};

/*
 * Sorts the n ranges in place by address, cuts overlaps (higher kind wins; within a kind the lower
 * node), merges neighbours of one kind and node, drops empty ones and those whose end overflows;
 * MEM_USABLE and MEM_BOOT_RECLAIM are shrunk to whole 4 KiB pages and lose page 0. `cap` is the
 * array's capacity in entries: cutting may need more than n (at most 2 n + 1); what does not fit is
 * dropped, usable ranges first to lose, and never shows as usable what was not. Returns the new
 * count.
 */
size_t memrange_sanitise(struct mem_range *r, size_t n, size_t cap);
/* Sum of sizes of one kind, bytes. */
uint64_t memrange_total(const struct mem_range *r, size_t n, enum mem_kind kind);
/* "usable", "acpi-nvs", …; "?" for unknown kinds. */
const char *memrange_kind_name(uint32_t kind);

#endif
