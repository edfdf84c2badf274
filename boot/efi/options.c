/*
 * options.c: the options text: \metalmap.cfg of the volume that this program was loaded from, then the load
 * options of the boot entry or the shell's command line. Later values win.
 */
#include "boot/efi/door.h"

#include "lib/string.h"

#define CONFIG_NAME  L"\\metalmap.cfg"
#define CONFIG_MAX   SZ_64K
#define OPTIONS_MAX  SZ_64K
#define MEDIA_PATH   4 /* device path type and subtype of a file's path name (10.3.5.4) */
#define MEDIA_FILE   4
#define PATH_END     0x7f

static bool is_space(CHAR16 c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ASCII from n characters of UCS-2; false if anything is not text. Stops at NUL. */
static bool narrow(const CHAR16 *s, UINTN n, char *dst, UINT64 *len)
{
    UINTN i;

    for (i = 0; i < n && s[i]; i++) {
        if (s[i] >= 0x7f || (s[i] < 0x20 && !is_space(s[i])))
            return false;
        dst[i] = (char)s[i];
    }
    *len = i;
    return true;
}

/* The file's text into dst (CONFIG_MAX bytes); 0 if there is no file. */
static UINT64 read_config(EFI_LOADED_IMAGE_PROTOCOL *self, char *dst)
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

/* What an editor may have put around ASCII: a UTF-8 mark, or UTF-16. */
static UINT64 normalise_config(char *text, UINT64 n)
{
    const unsigned char *u = (const unsigned char *)text;

    if (n >= 3 && u[0] == 0xef && u[1] == 0xbb && u[2] == 0xbf) {
        memmove(text, text + 3, n - 3);
        return n - 3;
    }
    /* The characters are read before the bytes they shrink to are written: dst never overtakes. */
    if (n >= 2 && u[0] == 0xff && u[1] == 0xfe &&
        !narrow((const CHAR16 *)(const void *)text + 1, n / 2 - 1, text, &n))
        door_fail(L"metalmap.cfg has characters that are not ASCII", EFI_SUCCESS);
    return n;
}

static CHAR16 lower(CHAR16 c)
{
    return c >= 'A' && c <= 'Z' ? (CHAR16)(c + 32) : c;
}

/* Strips directories and a final ".efi" from s[0..n). */
static UINTN stem(const CHAR16 **s, UINTN n)
{
    static const CHAR16 suffix[] = {'.', 'e', 'f', 'i'};
    UINTN i, k = ARRAY_SIZE(suffix);

    for (i = n; i-- > 0;)
        if ((*s)[i] == '\\' || (*s)[i] == '/' || (*s)[i] == ':') {
            *s += i + 1;
            n -= i + 1;
            break;
        }
    for (i = 0; n > k && i < k; i++)
        if (lower((*s)[n - k + i]) != suffix[i])
            return n;
    return n > k ? n - k : n;
}

/* True if the word s[0..n) is this program's own name: a shell puts it before the options. */
static bool is_program_name(const EFI_LOADED_IMAGE_PROTOCOL *self, const CHAR16 *s, UINTN n)
{
    const EFI_DEVICE_PATH *node = self->FilePath;
    const CHAR16 *own = NULL, *word = s;
    UINTN len, own_len = 0, word_len = stem(&word, n), i;

    for (i = 0; i < n; i++)
        if (s[i] == '=')
            return false;
    if (word + word_len < s + n)
        return true; /* it ended in .efi */
    for (; node && node->Type != PATH_END; node = (const void *)((const char *)node + len)) {
        len = node->Length[0] | (UINTN)node->Length[1] << 8;
        if (len < sizeof(*node))
            break;
        if (node->Type == MEDIA_PATH && node->SubType == MEDIA_FILE) {
            own = (const CHAR16 *)(const void *)(node + 1);
            for (own_len = 0; own_len < (len - sizeof(*node)) / 2 && own[own_len]; own_len++)
                ;
        }
    }
    if (!own)
        return false;
    own_len = stem(&own, own_len);
    if (own_len != word_len)
        return false;
    for (i = 0; i < own_len; i++)
        if (lower(own[i]) != lower(word[i]))
            return false;
    return true;
}

static UINT64 read_load_options(const EFI_LOADED_IMAGE_PROTOCOL *self, char *dst)
{
    const CHAR16 *s = self->LoadOptions;
    UINTN n = self->LoadOptionsSize / sizeof(CHAR16), word;
    UINT64 len = 0;

    if (!s || n > OPTIONS_MAX)
        return 0;
    while (n && is_space(*s)) {
        s++;
        n--;
    }
    for (word = 0; word < n && s[word] && !is_space(s[word]); word++)
        ;
    if (word && is_program_name(self, s, word)) {
        s += word;
        n -= word;
    }
    /* Some firmware passes binary data of its own. */
    if (!narrow(s, n, dst, &len)) {
        door_say(L"metalmap: the load options are not text: ignored\r\n");
        return 0;
    }
    return len;
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
    bi->cmdline_len = normalise_config(text, read_config(self, text));
    text[bi->cmdline_len++] = '\n';
    bi->cmdline_len += read_load_options(self, text + bi->cmdline_len);
}
