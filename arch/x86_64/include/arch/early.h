/*
 * early.h: memory before there is a page allocator, as arch/ is given it by whoever starts the
 * kernel.
 *
 * Boot CPU only.
 */
#ifndef ARCH_EARLY_H
#define ARCH_EARLY_H

#include "lib/base.h"

/* `size` bytes aligned to `align` (power of two, at least 4 KiB), ending at or below `max_addr`
 * (0: anywhere). Not cleared, never given back. 0 if there is none. */
typedef phys_addr_t (*early_alloc_fn)(size_t size, size_t align, phys_addr_t max_addr);

/* How the kernel reaches RAM at a physical address: before paging_init() through the front door's
 * identity mapping, afterwards through the direct map. */
void *early_virt(phys_addr_t pa);

#endif
