/*
 * early_alloc.h: memory before there is a page allocator: takes from the sanitised memory map.
 *
 * Boot CPU only, before page_alloc_init(), which takes what is left. Nothing is given back.
 */
#ifndef MM_EARLY_ALLOC_H
#define MM_EARLY_ALLOC_H

#include "lib/memrange.h"

/* Keeps the array (sanitised, sorted, `cap` entries of room); it shrinks as memory is taken. */
void early_init(struct mem_range *map, size_t count, size_t cap);
/*
 * Takes `size` bytes (rounded up to 4 KiB), aligned to `align` (power of two, at least 4 KiB),
 * ending at or below `max` (0: anywhere), from the top of the highest fitting MEM_USABLE range.
 * Contents are not cleared. Returns the physical address, or 0.
 */
phys_addr_t early_alloc(size_t size, size_t align, phys_addr_t max);
/* The map as it is now; taken parts are MEM_LOADER. */
const struct mem_range *early_map(size_t *count);
/* No early_alloc() from here on (asserted); page_alloc_init() calls it. The map can still be read.
 */
void early_close(void);

#endif
