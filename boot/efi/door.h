/*
 * door.h: the UEFI front door's parts to each other.
 *
 * Everything but leave.c runs with boot services, on one CPU, and stops the start with door_fail()
 * if it cannot do its work. Memory is never freed: it is the kernel's, as MEM_LOADER.
 */
#ifndef BOOT_EFI_DOOR_H
#define BOOT_EFI_DOOR_H

#include <efi.h>

#include "boot/boot_info.h"

extern EFI_HANDLE door_image;
extern EFI_SYSTEM_TABLE *door_st;
extern EFI_BOOT_SERVICES *door_bs;

/* Console text. */
void door_say(const CHAR16 *text);
void door_say_number(UINT64 value);
/* Says why, and ends QEMU with the error verdict, or on a PC goes back to the firmware. */
void door_fail(const CHAR16 *why, EFI_STATUS status) __noreturn;

/* `bytes` of zeroed memory at an address that is a multiple of `align` (a power of two, 4 KiB or
 * more), as memory of this type. */
UINT64 door_alloc(UINT64 bytes, UINT64 align, EFI_MEMORY_TYPE type);

/* options.c: config file and load options into bi->cmdline. */
void options_read(struct boot_info *bi);

/* machine.c: RSDP, SMBIOS, Secure Boot state, frame buffer, trampoline page into *bi. */
void machine_read_tables(struct boot_info *bi);
void machine_read_video(struct boot_info *bi);
void machine_take_trampoline(struct boot_info *bi);

/* image.c: puts the kernel where bi then says. Returns the entry point. */
UINT64 image_load(struct boot_info *bi);
/* A copy of the firmware's page-table root with the kernel added at its link address; for CR3. */
UINT64 image_map(const struct boot_info *bi);

/* leave.c */
struct leave {
    struct boot_info *bi;
    UINT64 entry; /* of the kernel */
    UINT64 cr3;   /* from image_map() */
};
/* Leaves boot services, calls the kernel, ends the machine. */
void leave_firmware(const struct leave *what) __noreturn;

/* call.asm */
extern const unsigned char kernel_elf[], kernel_elf_end[];
uint32_t call_kernel(UINT64 entry, struct boot_info *bi, UINT64 cr3);
void call_on_stack(void *top, void (*fn)(void)) __noreturn;
/* True if absolute addresses in data agree with those computed from RIP. */
bool call_relocated(void);

#endif
