/*
 * image.c: puts the kernel that this program carries into memory, and maps it.
 */
#include "boot/efi/door.h"

#include "boot/efi/map.h"
#include "lib/string.h"
#include <arch/cpu.h>
#include <arch/pte.h>

#define ELF_MAGIC   0x464c457fU
#define ELF_X86_64  62
#define ELF_PT_LOAD 1

struct elf_header {
    uint32_t magic;
    uint8_t class, data, version, abi[9];
    uint16_t type, machine;
    uint32_t version2;
    uint64_t entry, phoff, shoff;
    uint32_t flags;
    uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};
struct elf_segment {
    uint32_t type, flags;
    uint64_t offset, vaddr, paddr, filesz, memsz, align;
};
_Static_assert(sizeof(struct elf_header) == 64 && sizeof(struct elf_segment) == 56, "ELF-64");

/* Link address of the image's first byte, from image_load(). */
static UINT64 image_vaddr;

/* The i-th segment if it is to be loaded, else NULL. A file that does not hold what it says cannot
 * have come out of the build: it is refused. */
static const struct elf_segment *segment(const struct elf_header *elf, unsigned i)
{
    UINT64 file_size = (UINT64)(kernel_elf_end - kernel_elf);
    const struct elf_segment *s = (const void *)(kernel_elf + elf->phoff + i * sizeof(*s));

    if (elf->phoff + (i + 1) * sizeof(*s) > file_size)
        door_fail(L"the kernel inside is damaged", EFI_SUCCESS);
    if (s->type != ELF_PT_LOAD || !s->memsz)
        return NULL;
    if (s->filesz > s->memsz || s->offset > file_size || s->filesz > file_size - s->offset ||
        s->vaddr < KERNEL_BASE || s->vaddr + s->memsz < s->vaddr)
        door_fail(L"the kernel inside is damaged", EFI_SUCCESS);
    return s;
}

UINT64 image_load(struct boot_info *bi)
{
    const struct elf_header *elf = (const void *)kernel_elf;
    const struct elf_segment *s;
    UINT64 lo = UINT64_MAX, hi = 0;
    unsigned i;

    if ((UINT64)(kernel_elf_end - kernel_elf) < sizeof(*elf) || elf->magic != ELF_MAGIC ||
        elf->machine != ELF_X86_64 || elf->phentsize != sizeof(*s))
        door_fail(L"the kernel inside is damaged", EFI_SUCCESS);
    for (i = 0; i < elf->phnum; i++)
        if ((s = segment(elf, i))) {
            lo = MIN(lo, s->vaddr);
            hi = MAX(hi, s->vaddr + s->memsz);
        }
    if (lo >= hi || !IS_ALIGNED(lo, PMD_SIZE) || hi - KERNEL_BASE > SZ_1G)
        door_fail(L"the kernel inside is linked wrongly", EFI_SUCCESS);
    image_vaddr = lo;
    bi->kernel_size = ALIGN_UP(hi, PAGE_SIZE) - lo;
    bi->kernel_phys = door_alloc(bi->kernel_size, PMD_SIZE, EfiLoaderCode);
    for (i = 0; i < elf->phnum; i++)
        if ((s = segment(elf, i)))
            memcpy((void *)(uintptr_t)(bi->kernel_phys + (s->vaddr - lo)), kernel_elf + s->offset,
                   s->filesz);
    return elf->entry;
}

static pte_t *new_table(void)
{
    return (pte_t *)(uintptr_t)door_alloc(PAGE_SIZE, PAGE_SIZE, EfiLoaderData);
}

UINT64 image_map(const struct boot_info *bi)
{
    struct map_request request = {.levels = READ_CR(4) & CR4_LA57 ? 5 : 4,
                                  .va = image_vaddr,
                                  .pa = bi->kernel_phys,
                                  .size = bi->kernel_size};
    pte_t *root = new_table();
    unsigned i;

    /* Below the root the tables stay the firmware's: leave.c keeps the kernel from reusing them. */
    memcpy(root, (const void *)(uintptr_t)(READ_CR(3) & PTE_ADDR), PAGE_SIZE);
    for (i = 0; i < request.levels - 2; i++)
        request.tables[i] = new_table();
    map_kernel(root, &request);
    return (uintptr_t)root;
}
