/*
 * map.h: adds the kernel's mapping to a page-table root. Pure C, tested on the host.
 */
#ifndef BOOT_EFI_MAP_H
#define BOOT_EFI_MAP_H

#include <arch/pte.h>

#define MAP_TABLES_MAX 3

struct map_request {
    unsigned levels; /* of paging: 4 or 5 */
    uintptr_t va;    /* link address of the image, 2 MiB aligned, the image does not cross 1 GiB */
    phys_addr_t pa;  /* 2 MiB aligned */
    uint64_t size;   /* bytes */
    /* levels - 2 zeroed pages that are mapped to themselves, below the root in order of use. */
    pte_t *tables[MAP_TABLES_MAX];
};

/* Maps [va, va + size) to pa by 2 MiB pages, writable and executable. The root's entry for va is
 * replaced, whatever was there; the others stay. */
void map_kernel(pte_t *root, const struct map_request *r);

#endif
