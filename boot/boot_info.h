/*
 * boot_info.h: the only struct that crosses from a front door (boot/efi, boot/pvh) into the kernel.
 *
 * Addresses are physical. When the kernel is entered the CPU is in long mode with interrupts off,
 * on a stack of the front door of at least 16 KiB, in page tables of the front door which map
 *   - to itself every address below `identity_limit` that is RAM: boot_info and all that it points
 *     to, the stack and the ACPI tables lie there,
 *   - the kernel image at its link address, writable and executable;
 * the kernel's own page tables map nothing to itself, so it takes a stack of its own first.
 * The entry point is called as kernel_entry(struct boot_info *). It returns an enum verdict.
 */
#ifndef BOOT_BOOT_INFO_H
#define BOOT_BOOT_INFO_H

#include "lib/base.h"
#include "lib/memrange.h"

#define BOOT_INFO_MAGIC   0x50414d4c4154454dULL /* "METALMAP" */
#define BOOT_INFO_VERSION 1

enum boot_door { BOOT_DOOR_PVH = 1, BOOT_DOOR_UEFI = 2 };

enum boot_secure_boot { SECURE_BOOT_UNKNOWN, SECURE_BOOT_OFF, SECURE_BOOT_ON };

/* What the kernel returns; the value written to isa-debug-exit (QEMU's status is 2 * v + 1). */
enum verdict {
    VERDICT_PASS = 0x10,
    VERDICT_FAIL = 0x11,
    VERDICT_SKIP = 0x12,
    VERDICT_ERROR = 0x13,
    VERDICT_PANIC = 0x14,
};

struct boot_framebuffer {
    uint64_t base;          /* 0: none */
    uint32_t width, height; /* pixels */
    uint32_t pitch;         /* bytes from line to line, not width */
    /* of 8 bits each in a pixel of 32 */
    uint8_t red_shift, green_shift, blue_shift, reserved;
};

struct boot_info {
    uint64_t magic;
    uint32_t version;
    uint32_t size; /* sizeof(struct boot_info) */
    uint32_t door; /* enum boot_door */
    uint32_t secure_boot;
    uint64_t kernel_phys;    /* where the first byte of the image lies, 4 KiB aligned, contiguous */
    uint64_t kernel_size;    /* bytes, bss included */
    uint64_t identity_limit; /* bytes */
    uint64_t memmap;         /* struct mem_range[memmap_cap], unsorted as the firmware gave it */
    uint64_t memmap_count;   /* ranges there, those of the front door as MEM_LOADER */
    uint64_t memmap_cap;     /* entries of room, at least 2 * count + 1: memrange_sanitise() */
    uint64_t cmdline;        /* options text: config file, newline, load options; later ones win */
    uint64_t cmdline_len;    /* bytes */
    uint64_t rsdp;           /* 0: none */
    uint64_t trampoline;     /* a page of ours in [0x1000, 0x9efff], MEM_LOADER; 0: none found */
    uint64_t smbios;         /* SMBIOS entry point, _SM3_ if there is one, else _SM_; 0: none */
    uint64_t efi_memmap_entries; /* as reported, for the log */
    struct boot_framebuffer fb;
};

_Static_assert(sizeof(struct boot_framebuffer) == 24, "boot_info layout");
_Static_assert(sizeof(struct boot_info) == 144, "boot_info layout: bump BOOT_INFO_VERSION");

#endif
