/*
 * pvh.c: the PVH front door: fills boot_info from the start info, calls the kernel, ends the
 * machine.
 *
 * Runs once on the boot CPU, on start.asm's stack and page tables: physical addresses below 4 GiB
 * are pointers. What the loader wrote (start info, map, command line) lies anywhere in low
 * memory: it is copied to a place of our own before anything could be put on top of it.
 */
#include "boot/boot_info.h"
#include "boot/machine_end.h"
#include "boot/port.h"
#include "boot/pvh/free.h"
#include "boot/pvh/pvh.h"
#include "lib/string.h"

#define IDENTITY_LIMIT SZ_4G
#define LOAD_PHYS      0x200000ULL /* linker.ld */
#define CMDLINE_MAX    SZ_64K      /* where the search for its end gives up */
#define TRAMPOLINE_LO  0x1000ULL   /* page 0 is nobody's */
#define TRAMPOLINE_HI  0x9f000ULL  /* above it lies the EBDA of many machines */
#define COM1           0x3f8

enum { TAKEN_IMAGE, TAKEN_START, TAKEN_MAP, TAKEN_CMDLINE, TAKEN_WORK, TAKEN_COUNT };

extern char __image_start[], __image_end[];
uint32_t kernel_entry(struct boot_info *bi);
void pvh_main(uint32_t start_info);

static struct boot_info info;
/* Used when there is no memory to put the map in: the image, and room to sanitise. */
static struct mem_range spare_map[5];
static struct span taken[TAKEN_COUNT];

static const struct hvm_memmap_entry *firmware_map(const struct hvm_start_info *si, size_t *n)
{
    uint64_t bytes = si->memmap_entries * sizeof(struct hvm_memmap_entry);

    *n = 0;
    if (si->version == 0 || !si->memmap_paddr || si->memmap_paddr + bytes > IDENTITY_LIMIT)
        return NULL;
    *n = si->memmap_entries;
    return (const struct hvm_memmap_entry *)(uintptr_t)si->memmap_paddr;
}

static uint32_t kind_of(uint32_t type)
{
    switch (type) {
    case HVM_MEM_RAM:
        return MEM_USABLE;
    case HVM_MEM_ACPI:
        return MEM_ACPI_RECLAIM;
    case HVM_MEM_NVS:
        return MEM_ACPI_NVS;
    case HVM_MEM_UNUSABLE:
        return MEM_UNUSABLE;
    default:
        return MEM_RESERVED;
    }
}

static void add_range(uint64_t base, uint64_t size, uint32_t kind)
{
    struct mem_range *map = (struct mem_range *)(uintptr_t)info.memmap;

    if (size && info.memmap_count < info.memmap_cap)
        map[info.memmap_count++] = (struct mem_range){.base = base, .size = size, .kind = kind};
}

/* Puts a copy of the command line and the converted map into free RAM, and finds the trampoline
 * page. */
static void take_memory(const struct hvm_start_info *si)
{
    static const struct span low = {TRAMPOLINE_LO, TRAMPOLINE_HI - TRAMPOLINE_LO};
    static const struct span high = {SZ_1M, IDENTITY_LIMIT - SZ_1M};
    struct free_memory memory = {.taken = taken, .taken_count = TAKEN_COUNT};
    const struct hvm_memmap_entry *map;
    size_t n, i, cap;
    uint64_t work, size;

    map = firmware_map(si, &n);
    memory.map = map;
    memory.map_count = n;
    taken[TAKEN_MAP] = (struct span){si->memmap_paddr, n * sizeof(*map)};
    cap = 2 * (n + TAKEN_COUNT) + 1;
    size = ALIGN_UP(cap * sizeof(struct mem_range) + info.cmdline_len, SZ_4K);
    work = free_find(&memory, size, &high);
    if (work) {
        taken[TAKEN_WORK] = (struct span){work, size};
        info.memmap = work;
        info.memmap_cap = cap;
        for (i = 0; i < n; i++)
            add_range(map[i].addr, map[i].size, kind_of(map[i].type));
        add_range(work, size, MEM_LOADER);
        work += cap * sizeof(struct mem_range);
        memcpy((void *)(uintptr_t)work, (const void *)(uintptr_t)info.cmdline, info.cmdline_len);
        info.cmdline = work;
    } else {
        info.memmap = (uintptr_t)spare_map - (uintptr_t)__image_start + LOAD_PHYS;
        info.memmap_cap = ARRAY_SIZE(spare_map);
    }
    info.trampoline = free_find(&memory, SZ_4K, &low);
    if (info.trampoline)
        add_range(info.trampoline, SZ_4K, MEM_LOADER);
    add_range(info.kernel_phys, info.kernel_size, MEM_LOADER);
}

static void find_cmdline(const struct hvm_start_info *si)
{
    if (!si->cmdline_paddr || si->cmdline_paddr >= IDENTITY_LIMIT)
        return;
    info.cmdline = si->cmdline_paddr;
    info.cmdline_len = strnlen((const char *)(uintptr_t)si->cmdline_paddr,
                               MIN(CMDLINE_MAX, IDENTITY_LIMIT - si->cmdline_paddr));
    taken[TAKEN_CMDLINE] = (struct span){info.cmdline, info.cmdline_len + 1};
}

/* Before there is a serial driver: COM1 as the firmware left it, each wait bounded. */
static void say(const char *text)
{
    unsigned spin;

    for (; *text; text++) {
        for (spin = 0; spin < 100000 && !(port_in8(COM1 + 5) & 0x20); spin++)
            ;
        port_out8(COM1, (uint8_t)*text);
    }
}

/* SLP_EN with sleep type 0, which is S5 in QEMU's DSDT, to the PM1a control register where the
 * firmware of q35 and pc puts it, and where older ones did. ACPI 4.8.3.2.1. */
static void qemu_poweroff(void)
{
    port_out16(0x604, 0x2000);
    port_out16(0xb004, 0x2000);
}

/* Reset control register of the PC chipsets (full reset), then the keyboard controller's reset
 * line. */
static void pc_reboot(void)
{
    port_out8(0xcf9, 0x06);
    port_out8(0x64, 0xfe);
}

void pvh_main(uint32_t start_info)
{
    static const struct machine_ops ops = {.poweroff = qemu_poweroff, .reboot = pc_reboot};
    const struct hvm_start_info *si = (const struct hvm_start_info *)(uintptr_t)start_info;
    enum machine_exit how;
    uint32_t verdict;

    if (si->magic != HVM_START_MAGIC) {
        say("metalmap: not started by the PVH protocol: no start info\r\n"
            "RESULT: ERROR tests=0 fail=0 skip=0 error=1\r\n");
        machine_end(VERDICT_ERROR, MACHINE_EXIT_AUTO, &ops);
    }
    info.magic = BOOT_INFO_MAGIC;
    info.version = BOOT_INFO_VERSION;
    info.size = sizeof(info);
    info.door = BOOT_DOOR_PVH;
    info.secure_boot = SECURE_BOOT_OFF;
    info.kernel_phys = LOAD_PHYS;
    info.kernel_size = (uint64_t)(__image_end - __image_start);
    info.identity_limit = IDENTITY_LIMIT;
    info.rsdp = si->rsdp_paddr;
    taken[TAKEN_IMAGE] = (struct span){info.kernel_phys, info.kernel_size};
    taken[TAKEN_START] = (struct span){start_info, sizeof(*si)};
    find_cmdline(si);
    take_memory(si);

    /* Kept here: what info points to is the kernel's to change. */
    how = machine_exit_option((const char *)(uintptr_t)info.cmdline, info.cmdline_len);
    verdict =
        kernel_entry((struct boot_info *)((uintptr_t)&info - (uintptr_t)__image_start + LOAD_PHYS));
    machine_end(verdict, how, &ops);
}
