/*
 * machine.c: what the firmware knows of the machine: ACPI and SMBIOS tables, Secure Boot, the frame
 * buffer; and the one page that must lie below 1 MiB.
 */
#include "boot/efi/door.h"

#include "lib/string.h"

/* The last byte of the highest page below the EBDA; CPUs are started at page numbers 01 to 9e. */
#define TRAMPOLINE_MAX 0x9efffULL

static UINT64 find_table(const EFI_GUID *guid)
{
    UINTN i;

    for (i = 0; i < door_st->NumberOfTableEntries; i++)
        if (!memcmp(&door_st->ConfigurationTable[i].VendorGuid, guid, sizeof(*guid)))
            return (UINT64)(uintptr_t)door_st->ConfigurationTable[i].VendorTable;
    return 0;
}

void machine_read_tables(struct boot_info *bi)
{
    static const EFI_GUID acpi2 = ACPI_20_TABLE_GUID, acpi1 = ACPI_TABLE_GUID;
    static const EFI_GUID smbios3 = SMBIOS3_TABLE_GUID, smbios2 = SMBIOS_TABLE_GUID;
    EFI_GUID global = EFI_GLOBAL_VARIABLE;
    UINT8 on = 0;
    UINTN size = sizeof(on);

    bi->rsdp = find_table(&acpi2);
    if (!bi->rsdp)
        bi->rsdp = find_table(&acpi1);
    bi->smbios = find_table(&smbios3);
    if (!bi->smbios)
        bi->smbios = find_table(&smbios2);
    /* No such variable: firmware without Secure Boot, or one that does not say (32.3). */
    if (EFI_ERROR(door_st->RuntimeServices->GetVariable(L"SecureBoot", &global, NULL, &size, &on)))
        bi->secure_boot = SECURE_BOOT_UNKNOWN;
    else
        bi->secure_boot = on ? SECURE_BOOT_ON : SECURE_BOOT_OFF;
}

/* The shift of a colour's mask, if it is 8 bits wide. */
static bool mask_shift(UINT32 mask, uint8_t *shift)
{
    *shift = mask ? (uint8_t)__builtin_ctz(mask) : 0;
    return mask >> *shift == 0xff;
}

/* False if the kernel could not draw on it. */
static bool use_video(const EFI_GRAPHICS_OUTPUT_PROTOCOL *gop, struct boot_framebuffer *fb)
{
    const EFI_GRAPHICS_OUTPUT_MODE_INFORMATION *mode;

    if (!gop->Mode || !gop->Mode->Info || !gop->Mode->FrameBufferBase)
        return false;
    mode = gop->Mode->Info;
    switch (mode->PixelFormat) {
    case PixelRedGreenBlueReserved8BitPerColor:
        fb->red_shift = 0;
        fb->green_shift = 8;
        fb->blue_shift = 16;
        break;
    case PixelBlueGreenRedReserved8BitPerColor:
        fb->blue_shift = 0;
        fb->green_shift = 8;
        fb->red_shift = 16;
        break;
    case PixelBitMask:
        if (!mask_shift(mode->PixelInformation.RedMask, &fb->red_shift) ||
            !mask_shift(mode->PixelInformation.GreenMask, &fb->green_shift) ||
            !mask_shift(mode->PixelInformation.BlueMask, &fb->blue_shift))
            return false;
        break;
    default:
        return false; /* PixelBltOnly has no memory to draw into */
    }
    fb->width = mode->HorizontalResolution;
    fb->height = mode->VerticalResolution;
    fb->pitch = mode->PixelsPerScanLine * 4;
    fb->base = gop->Mode->FrameBufferBase;
    return fb->width && fb->height && mode->PixelsPerScanLine >= fb->width;
}

void machine_read_video(struct boot_info *bi)
{
    EFI_GUID guid = EFI_GRAPHICS_OUTPUT_PROTOCOL_GUID;
    EFI_GRAPHICS_OUTPUT_PROTOCOL *gop;
    EFI_HANDLE *handles = NULL;
    UINTN n = 0, i;

    /* The one behind the console is what somebody looks at; with several screens it has no memory
     * of its own, then any that has will do. */
    if (!EFI_ERROR(door_bs->HandleProtocol(door_st->ConsoleOutHandle, &guid, (void **)&gop)) &&
        use_video(gop, &bi->fb))
        return;
    if (!EFI_ERROR(door_bs->LocateHandleBuffer(ByProtocol, &guid, NULL, &n, &handles)))
        for (i = 0; i < n; i++)
            if (!EFI_ERROR(door_bs->HandleProtocol(handles[i], &guid, (void **)&gop)) &&
                use_video(gop, &bi->fb))
                return;
    memset(&bi->fb, 0, sizeof(bi->fb));
}

void machine_take_trampoline(struct boot_info *bi)
{
    EFI_PHYSICAL_ADDRESS at;
    unsigned tries;

    /* The second try is for a firmware that gives page 0, which is then ours for good. */
    for (tries = 0; tries < 2; tries++) {
        at = TRAMPOLINE_MAX;
        if (EFI_ERROR(door_bs->AllocatePages(AllocateMaxAddress, EfiLoaderData, 1, &at)))
            return;
        if (at) {
            bi->trampoline = at;
            return;
        }
    }
}
