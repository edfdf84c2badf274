/*
 * main.c: BOOTX64.EFI, the UEFI front door: reads what the firmware knows, loads the kernel that it
 * carries, and leaves (leave.c). UEFI 2.10 is the specification meant in this directory.
 *
 * No address is assumed: everything comes from the firmware's allocator. Text on the console is for
 * people at a screen; the serial line is the kernel's.
 */
#include "boot/efi/door.h"

#include "boot/machine_end.h"
#include "boot/version.h"
#include "lib/string.h"

#define FAIL_SECONDS 20

EFI_HANDLE door_image;
EFI_SYSTEM_TABLE *door_st;
EFI_BOOT_SERVICES *door_bs;

EFI_STATUS efi_main(EFI_HANDLE image, EFI_SYSTEM_TABLE *st);
EFI_STATUS _entry(EFI_HANDLE image, EFI_SYSTEM_TABLE *st);

void door_say(const CHAR16 *text)
{
    if (door_st->ConOut)
        door_st->ConOut->OutputString(door_st->ConOut, (CHAR16 *)(uintptr_t)text);
}

void door_say_number(UINT64 value)
{
    CHAR16 text[19] = {'0', 'x'};
    unsigned digit, n = 2;

    for (digit = 16; digit-- > 0;)
        if (n > 2 || digit == 0 || value >> (4 * digit))
            text[n++] = (CHAR16) "0123456789abcdef"[(value >> (4 * digit)) & 15];
    text[n] = 0;
    door_say(text);
}

static void say_ascii(const char *s)
{
    CHAR16 c[2] = {0, 0};

    for (; *s; s++) {
        c[0] = (CHAR16)*s;
        door_say(c);
    }
}

void door_fail(const CHAR16 *why, EFI_STATUS status)
{
    door_say(L"metalmap: ");
    door_say(why);
    if (status != EFI_SUCCESS) {
        door_say(L", status ");
        door_say_number(status);
    }
    door_say(L"\r\nRESULT: ERROR tests=0 fail=0 skip=0 error=1\r\n");
    machine_end_debug(VERDICT_ERROR);
    door_bs->Stall(FAIL_SECONDS * 1000000);
    door_bs->Exit(door_image, status == EFI_SUCCESS ? EFI_LOAD_ERROR : status, 0, NULL);
    for (;;)
        __asm__ volatile("pause");
}

UINT64 door_alloc(UINT64 bytes, UINT64 align, EFI_MEMORY_TYPE type)
{
    EFI_PHYSICAL_ADDRESS at = 0, start;
    UINT64 pages = DIV_ROUND_UP(bytes, SZ_4K), extra = align / SZ_4K - 1;
    EFI_STATUS status = door_bs->AllocatePages(AllocateAnyPages, type, pages + extra, &at);

    if (EFI_ERROR(status))
        door_fail(L"the firmware has no memory for the kernel", status);
    /* What alignment did not need goes back. */
    start = ALIGN_UP(at, align);
    if (start > at)
        door_bs->FreePages(at, (start - at) / SZ_4K);
    if (extra > (start - at) / SZ_4K)
        door_bs->FreePages(start + pages * SZ_4K, extra - (start - at) / SZ_4K);
    memset((void *)(uintptr_t)start, 0, pages * SZ_4K);
    return start;
}

EFI_STATUS efi_main(EFI_HANDLE image, EFI_SYSTEM_TABLE *st)
{
    struct leave leave;
    struct boot_info *bi;

    door_image = image;
    door_st = st;
    door_bs = st->BootServices;
    /* The firmware resets the machine five minutes after a boot option was started (7.5.2). */
    door_bs->SetWatchdogTimer(0, 0, 0, NULL);
    if (!call_relocated())
        door_fail(L"the program was not relocated: a build fault", EFI_SUCCESS);
    door_say(L"metalmap ");
    say_ascii(metalmap_version);
    door_say(L" starts from UEFI\r\n");

    bi = (struct boot_info *)(uintptr_t)door_alloc(sizeof(*bi), SZ_4K, EfiLoaderData);
    bi->magic = BOOT_INFO_MAGIC;
    bi->version = BOOT_INFO_VERSION;
    bi->size = sizeof(*bi);
    bi->door = BOOT_DOOR_UEFI;
    /* First, while low memory is still free. */
    machine_take_trampoline(bi);
    options_read(bi);
    machine_read_tables(bi);
    machine_read_video(bi);
    leave.bi = bi;
    leave.entry = image_load(bi);
    leave.cr3 = image_map(bi);
    leave_firmware(&leave);
}

/* The name that the start code of GNU-EFI 3.0.16 and later calls. */
EFI_STATUS _entry(EFI_HANDLE image, EFI_SYSTEM_TABLE *st)
{
    return efi_main(image, st);
}
