/*
 * free.h: finds free RAM in the loader's memory map. Pure C, tested on the host.
 */
#ifndef BOOT_PVH_FREE_H
#define BOOT_PVH_FREE_H

#include "boot/pvh/pvh.h"

/* Physical addresses, bytes. */
struct span {
    uint64_t base, size;
};

struct free_memory {
    const struct hvm_memmap_entry *map; /* in any order; where entries overlap, RAM loses */
    size_t map_count;
    const struct span *taken; /* RAM that is in use; those of size 0 do not count */
    size_t taken_count;
};

/* The highest page-aligned run of `size` bytes of free RAM within *within; 0 if there is none, or
 * none but at address 0. */
uint64_t free_find(const struct free_memory *m, uint64_t size, const struct span *within);

#endif
