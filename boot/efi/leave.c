/*
 * leave.c: the way out: memory map, ExitBootServices, the kernel, the end of the machine.
 *
 * After the first call of ExitBootServices no boot service but GetMemoryMap and ExitBootServices
 * may be called (7.4.6). All memory needed afterwards is allocated before.
 */
#include "boot/efi/door.h"

#include "boot/machine_end.h"
#include "lib/string.h"
#include <arch/cpu.h>
#include <arch/pte.h>

#define STACK_SIZE    SZ_64K
#define TSS_SIZE      104 /* without I/O bitmap: SDM 3A 8.7 */
#define EXIT_TRIES    8
#define MAP_TRIES     4
#define SLACK_ENTRIES 128 /* that the map may grow by between allocation and exit */
/* Ranges of ours added to the firmware's: its page tables, in runs, and descriptor tables. */
#define OWN_RANGES 512

static struct leave plan;
static struct {
    UINT8 *buf;
    UINTN capacity, size, step, key;
} map;

/* Reads the map into the buffer. The only boot service used once the exit has been tried. */
static EFI_STATUS refresh_map(void)
{
    UINT32 version;

    map.size = map.capacity;
    return door_bs->GetMemoryMap(&map.size, (EFI_MEMORY_DESCRIPTOR *)map.buf, &map.key, &map.step,
                                 &version);
}

/* A buffer for the map and an array for what becomes of it, with room to grow. */
static void allocate_map(struct boot_info *bi)
{
    EFI_STATUS status = EFI_BUFFER_TOO_SMALL;
    unsigned tries;

    for (tries = 0; tries < MAP_TRIES && status == EFI_BUFFER_TOO_SMALL; tries++) {
        refresh_map();
        if (map.step < sizeof(EFI_MEMORY_DESCRIPTOR))
            door_fail(L"the firmware's memory map makes no sense", EFI_SUCCESS);
        map.capacity = map.size + SLACK_ENTRIES * map.step;
        map.buf = (UINT8 *)(uintptr_t)door_alloc(map.capacity, SZ_4K, EfiLoaderData);
        bi->memmap_cap = 2 * (map.capacity / map.step + OWN_RANGES) + 1;
        bi->memmap = door_alloc(bi->memmap_cap * sizeof(struct mem_range), SZ_4K, EfiLoaderData);
        status = refresh_map();
    }
    if (EFI_ERROR(status))
        door_fail(L"the firmware gives no memory map", status);
}

static void reset(EFI_RESET_TYPE type)
{
    door_st->RuntimeServices->ResetSystem(type, EFI_SUCCESS, 0, NULL);
}
static void efi_poweroff(void)
{
    reset(EfiResetShutdown);
}
static void efi_reboot(void)
{
    reset(EfiResetCold);
}
static const struct machine_ops ops = {.poweroff = efi_poweroff, .reboot = efi_reboot};

/* For the test that the retry works: makes the first key stale. */
static void make_stale(unsigned tries)
{
#ifdef BOOT_EFI_TEST_STALE_KEY
    if (tries == 0)
        door_alloc(SZ_4K, SZ_4K, EfiLoaderData);
#else
    (void)tries;
#endif
}

/* The key goes stale if anything allocates in between, timer events of the firmware included. */
static void exit_boot_services(void)
{
    EFI_STATUS status;
    unsigned tries;

    for (tries = 0; tries < EXIT_TRIES; tries++) {
        status = refresh_map();
        make_stale(tries);
        if (!EFI_ERROR(status))
            status = door_bs->ExitBootServices(door_image, map.key);
        if (!EFI_ERROR(status))
            return;
    }
    /* Half of the firmware may be gone: no more of its services. The text may show. */
    door_say(L"metalmap: the firmware does not let go (ExitBootServices), status ");
    door_say_number(status);
    machine_end(VERDICT_ERROR, MACHINE_EXIT_AUTO, &ops);
}

/* Types of UEFI 7.2.1. What later versions add (persistent, unaccepted) and what vendors invent is
 * not ours to touch. */
static uint32_t kind_of(const EFI_MEMORY_DESCRIPTOR *d)
{
    switch (d->Type) {
    case EfiConventionalMemory:
        return d->Attribute & EFI_MEMORY_WB ? MEM_USABLE : MEM_RESERVED;
    case EfiBootServicesCode:
    case EfiBootServicesData:
        return d->Attribute & EFI_MEMORY_WB ? MEM_BOOT_RECLAIM : MEM_RESERVED;
    case EfiLoaderCode:
    case EfiLoaderData:
        return MEM_LOADER;
    case EfiACPIReclaimMemory:
        return MEM_ACPI_RECLAIM;
    case EfiACPIMemoryNVS:
        return MEM_ACPI_NVS;
    case EfiRuntimeServicesCode:
    case EfiRuntimeServicesData:
        return MEM_RUNTIME;
    case EfiUnusableMemory:
        return MEM_UNUSABLE;
    default:
        return MEM_RESERVED;
    }
}

static struct mem_range *range(UINT64 i)
{
    return (struct mem_range *)(uintptr_t)plan.bi->memmap + i;
}

/* Once the array is half full there is no room left to sanitise it: then everything of the
 * firmware's is kept, which covers whatever was to be added. */
static void keep(UINT64 base, UINT64 size)
{
    struct boot_info *bi = plan.bi;
    struct mem_range *last = range(bi->memmap_count - 1);
    UINT64 i;

    size = ALIGN_UP(base + size, SZ_4K) - ALIGN_DOWN(base, SZ_4K);
    base = ALIGN_DOWN(base, SZ_4K);
    if (last->kind == MEM_LOADER && last->base + last->size == base) {
        last->size += size;
    } else if (last->kind == MEM_LOADER && base + size == last->base) {
        last->base = base;
        last->size += size;
    } else if (2 * (bi->memmap_count + 1) + 1 <= bi->memmap_cap) {
        *range(bi->memmap_count++) =
            (struct mem_range){.base = base, .size = size, .kind = MEM_LOADER};
    } else {
        for (i = 0; i < bi->memmap_count; i++)
            if (range(i)->kind == MEM_BOOT_RECLAIM)
                range(i)->kind = MEM_LOADER;
    }
}

/* Keeps every page-table page below and including `table`. */
static void keep_tables(UINT64 table, unsigned level)
{
    const pte_t *entry = (const pte_t *)(uintptr_t)table;
    unsigned i;

    keep(table, SZ_4K);
    if (level == 1)
        return;
    for (i = 0; i < PTE_COUNT; i++)
        if ((entry[i] & PTE_P) && !(level <= 3 && (entry[i] & PTE_PS)))
            keep_tables(entry[i] & PTE_ADDR, level - 1);
}

/*
 * What the CPU uses of the firmware's boot-services memory while the kernel starts, and again when
 * it has returned: page tables, GDT, IDT, task state.
 */
static void keep_cpu_tables(void)
{
    struct __packed {
        uint16_t limit;
        uint64_t base;
    } gdt, idt;
    uint16_t tr;
    uint64_t low, high;

    keep_tables(READ_CR(3) & PTE_ADDR, READ_CR(4) & CR4_LA57 ? 5 : 4);
    __asm__ volatile("sgdt %0; sidt %1; str %2" : "=m"(gdt), "=m"(idt), "=r"(tr));
    keep(gdt.base, gdt.limit + 1ULL);
    keep(idt.base, idt.limit + 1ULL);
    tr &= 0xfff8;
    if (tr && tr + 15 <= gdt.limit) {
        memcpy(&low, (const char *)(uintptr_t)gdt.base + tr, 8);
        memcpy(&high, (const char *)(uintptr_t)gdt.base + tr + 8, 8);
        low = (low >> 16 & 0xffffff) | (low >> 56) << 24 | high << 32;
        keep(low, TSS_SIZE);
    }
}

static void convert_map(void)
{
    struct boot_info *bi = plan.bi;
    const EFI_MEMORY_DESCRIPTOR *d;
    UINTN at;

    for (at = 0; at + map.step <= map.size; at += map.step) {
        d = (const EFI_MEMORY_DESCRIPTOR *)(map.buf + at);
        *range(bi->memmap_count++) = (struct mem_range){
            .base = d->PhysicalStart, .size = d->NumberOfPages * SZ_4K, .kind = kind_of(d)};
        bi->efi_memmap_entries++;
        if (kind_of(d) != MEM_RESERVED)
            bi->identity_limit =
                MAX(bi->identity_limit, d->PhysicalStart + d->NumberOfPages * SZ_4K);
    }
}

/* On our own stack: the firmware's lies in memory that the kernel may use. */
static void run(void)
{
    struct boot_info *bi = plan.bi;
    enum machine_exit how;
    uint32_t verdict;

    convert_map();
    keep_cpu_tables();
    how = machine_exit_option((const char *)(uintptr_t)bi->cmdline, bi->cmdline_len);
    verdict = call_kernel(plan.entry, bi, plan.cr3);
    machine_end(verdict, how, &ops);
}

void leave_firmware(const struct leave *what)
{
    char *stack;

    plan = *what;
    stack = (char *)(uintptr_t)door_alloc(STACK_SIZE, SZ_4K, EfiLoaderData);
    allocate_map(plan.bi);
    exit_boot_services();
    /* Not before: each boot service enables interrupts again as it restores the task priority. The
     * firmware's handlers and tables are still whole here. */
    irq_disable();
    call_on_stack(stack + STACK_SIZE, run);
}
