/*
 * pvh.h: the structures of the PVH boot protocol, version 0 and 1
 * (xen/include/public/arch-x86/hvm/start_info.h). All addresses are physical.
 */
#ifndef BOOT_PVH_PVH_H
#define BOOT_PVH_PVH_H

#include "lib/base.h"

#define HVM_START_MAGIC 0x336ec578

struct hvm_start_info {
    uint32_t magic;
    uint32_t version;
    uint32_t flags;
    uint32_t nr_modules;
    uint64_t modlist_paddr;
    uint64_t cmdline_paddr; /* NUL-terminated; 0: none */
    uint64_t rsdp_paddr;    /* 0: none */
    uint64_t memmap_paddr;  /* version 1 on; 0: none */
    uint32_t memmap_entries;
    uint32_t reserved;
};

/* Types are those of E820. */
enum {
    HVM_MEM_RAM = 1,
    HVM_MEM_RESERVED = 2,
    HVM_MEM_ACPI = 3,
    HVM_MEM_NVS = 4,
    HVM_MEM_UNUSABLE = 5
};

struct hvm_memmap_entry {
    uint64_t addr;
    uint64_t size;
    uint32_t type;
    uint32_t reserved;
};

_Static_assert(sizeof(struct hvm_start_info) == 56, "PVH boot ABI");
_Static_assert(sizeof(struct hvm_memmap_entry) == 24, "PVH boot ABI");

#endif
