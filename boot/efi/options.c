/*
 * options.c: the options text: \metalmap.cfg of the volume that this program was loaded from, then
 * the load options of the boot entry or the shell's command line. Later values win.
 */
#include "boot/efi/door.h"

#include "boot/efi/text.h"

#define CONFIG_NAME L"\\metalmap.cfg"
#define CONFIG_MAX  SZ_64K
#define OPTIONS_MAX SZ_64K
/* Device path node types: a file's path name (UEFI 10.3.5.4), the end (10.3.1). */
#define NODE_MEDIA 4
#define NODE_FILE  4
#define NODE_END   0x7f

/* The file's bytes into dst (CONFIG_MAX bytes); 0 if there is no file. */
static UINTN read_config(EFI_LOADED_IMAGE_PROTOCOL *self, char *dst)
{
    EFI_GUID guid = EFI_SIMPLE_FILE_SYSTEM_PROTOCOL_GUID;
    EFI_SIMPLE_FILE_SYSTEM_PROTOCOL *fs;
    EFI_FILE_HANDLE root, file;
    UINTN n = CONFIG_MAX;
    EFI_STATUS status;

    if (!self->DeviceHandle ||
        EFI_ERROR(door_bs->HandleProtocol(self->DeviceHandle, &guid, (void **)&fs)) ||
        EFI_ERROR(fs->OpenVolume(fs, &root)))
        return 0;
    status = root->Open(root, &file, CONFIG_NAME, EFI_FILE_MODE_READ, 0);
    if (status == EFI_NOT_FOUND)
        return 0;
    if (EFI_ERROR(status))
        door_fail(L"metalmap.cfg cannot be opened", status);
    status = file->Read(file, &n, dst);
    if (EFI_ERROR(status))
        door_fail(L"metalmap.cfg cannot be read", status);
    if (n == CONFIG_MAX)
        door_fail(L"metalmap.cfg is longer than 64 KiB", EFI_SUCCESS);
    file->Close(file);
    root->Close(root);
    return n;
}

/* The path of this program's file, and its length in characters. */
static const uint16_t *own_path(const EFI_LOADED_IMAGE_PROTOCOL *self, UINTN *n)
{
    const EFI_DEVICE_PATH *node = self->FilePath;
    const uint16_t *path = NULL;
    UINTN len;

    *n = 0;
    for (; node && node->Type != NODE_END; node = (const void *)((const char *)node + len)) {
        len = node->Length[0] | (UINTN)node->Length[1] << 8;
        if (len < sizeof(*node))
            break;
        if (node->Type != NODE_MEDIA || node->SubType != NODE_FILE)
            continue;
        path = (const uint16_t *)(const void *)(node + 1);
        for (*n = 0; *n < (len - sizeof(*node)) / 2 && path[*n]; ++*n)
            ;
    }
    return path;
}

static UINTN read_load_options(const EFI_LOADED_IMAGE_PROTOCOL *self, char *dst)
{
    UINTN n = self->LoadOptionsSize / sizeof(uint16_t), own_n, len;
    const uint16_t *own = own_path(self, &own_n);

    if (!self->LoadOptions || !n)
        return 0;
    /* Some firmware passes binary data of its own. */
    len = n <= OPTIONS_MAX ? text_load_options(self->LoadOptions, n, own, own_n, dst) : TEXT_BAD;
    if (len != TEXT_BAD)
        return len;
    door_say(L"metalmap: the load options are not text: ignored\r\n");
    return 0;
}

void options_read(struct boot_info *bi)
{
    EFI_GUID guid = EFI_LOADED_IMAGE_PROTOCOL_GUID;
    EFI_LOADED_IMAGE_PROTOCOL *self;
    EFI_STATUS status = door_bs->HandleProtocol(door_image, &guid, (void **)&self);
    char *text;

    if (EFI_ERROR(status))
        door_fail(L"no loaded image protocol", status);
    bi->cmdline = door_alloc(CONFIG_MAX + 1 + OPTIONS_MAX, SZ_4K, EfiLoaderData);
    text = (char *)(uintptr_t)bi->cmdline;
    bi->cmdline_len = text_normalise(text, read_config(self, text));
    if (bi->cmdline_len == TEXT_BAD)
        door_fail(L"metalmap.cfg has characters that are not ASCII", EFI_SUCCESS);
    text[bi->cmdline_len++] = '\n';
    bi->cmdline_len += read_load_options(self, text + bi->cmdline_len);
}
