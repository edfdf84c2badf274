/*
 * kmain.c: the kernel's start: one flat list of calls in order.
 *
 * The kernel is a function of its front door: it runs on the boot CPU, uses only the memory that
 * boot_info lists, puts back what it changed, and returns a verdict.
 */
#include "boot/kmain.h"

#include "boot/machine_end.h"
#include "boot/version.h"
#include "lib/assert.h"
#include "lib/ktap.h"
#include "lib/options.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/early_alloc.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap.h"
#include <arch/acpi.h>
#include <arch/apic.h>
#include <arch/clock.h>
#include <arch/console.h>
#include <arch/cpu.h>
#include <arch/exit.h>
#include <arch/fb.h>
#include <arch/gdt.h>
#include <arch/handover.h>
#include <arch/paging.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/spinlock.h>
#include <arch/tlb.h>
#include <arch/trap.h>

#define START_STACK_SIZE (16 * 1024)
#define STACK_SIZE       (32 * 1024) /* of every CPU's task context; guarded */

static uint64_t maxcpus = 1024, smp_lost_cpu, smp_lost_sipis;
static bool use_boot_services;
OPTION_UINT(maxcpus, "maxcpus", maxcpus, 1, 65535, "use at most so many CPUs");
OPTION_UINT(smp_lost_cpu, "smp_lost_cpu", smp_lost_cpu, 0, UINT32_MAX,
            "for tests: the CPU with this APIC ID does not get some start-up interrupts");
OPTION_UINT(smp_lost_sipis, "smp_lost_sipis", smp_lost_sipis, 0, 1000,
            "for tests: how many; 2 are sent at first, and 2 when it has not come");
OPTION_BOOL(bootmem, "boot_services_memory", use_boot_services,
            "also use what UEFI's boot services have left (some firmware still needs it)");

#define CPUS_PER_LINE 32 /* of the list of APIC IDs */

static struct boot_info boot;
static DEFINE_PER_CPU(uint32_t, own_apic_id);
static struct ktap bail;
static char start_stack[START_STACK_SIZE] __aligned(16);

static uint32_t stop(const char *why)
{
    ktap_bail(&bail, why);
    return VERDICT_ERROR;
}

/* The banner and the two lines that make the log KTAP, whatever else fails. */
static void print_banner(void)
{
    static const char *const secure[] = {"unknown", "off", "on"};

    kprintf("metalmap %s build=%s\n", metalmap_version, metalmap_build);
    ktap_begin(&bail);
    kprintf("# boot door=%s secure_boot=%s rsdp=0x%lx kernel=0x%lx memory_map=%lu\n",
            boot.door == BOOT_DOOR_UEFI ? "uefi" : "pvh",
            boot.secure_boot < ARRAY_SIZE(secure) ? secure[boot.secure_boot] : "?",
            (unsigned long)boot.rsdp, (unsigned long)boot.kernel_phys,
            (unsigned long)boot.memmap_count);
    console_report();
}

static void print_memory_map(void)
{
    size_t n;
    const struct mem_range *r = early_map(&n);

    for (size_t i = 0; i < n; i++)
        kprintf("# memory 0x%012lx-0x%012lx %s node=%u\n", (unsigned long)r[i].base,
                (unsigned long)(r[i].base + r[i].size), memrange_kind_name(r[i].kind), r[i].node);
}

static void describe_fault(uintptr_t addr)
{
    if (is_vmalloc_addr((void *)addr))
        vmalloc_dump_obj((void *)addr);
}

/* Top of a stack of its own for a CPU; an access below it faults. */
static void *alloc_stack(unsigned slot)
{
    char *p = __vmalloc(STACK_SIZE, PAGE_SIZE, VM_PERMANENT, VM_ANY_NODE);

    (void)slot;
    return p ? p + STACK_SIZE : NULL;
}

static void *map_uncached(phys_addr_t base, size_t size)
{
    return ioremap(base, size, CACHE_UC);
}

static void start_framebuffer(void)
{
    struct fb_mode mode = {.width = boot.fb.width,
                           .height = boot.fb.height,
                           .pitch = boot.fb.pitch,
                           .red_shift = boot.fb.red_shift,
                           .green_shift = boot.fb.green_shift,
                           .blue_shift = boot.fb.blue_shift};
    void *pixels;

    if (!boot.fb.base || !console_wants_fb())
        return;
    pixels = ioremap(boot.fb.base, (size_t)boot.fb.pitch * boot.fb.height, CACHE_WC);
    if (!pixels || !fb_init(pixels, &mode))
        kprintf("# console fb: cannot be used\n");
}

/* Memory: the map, ACPI while the front door still maps it, own tables, frames, addresses. NULL, or
 * what was wrong. */
static const char *start_memory(void)
{
    static char msg[128];
    struct mem_range *map = early_virt(boot.memmap);
    struct paging_config paging = {.kernel_phys = boot.kernel_phys,
                                   .identity_limit = boot.identity_limit,
                                   .alloc = early_alloc,
                                   .map = early_map};
    struct vmap_config config;
    size_t n = boot.memmap_count;

    n = memrange_sanitise(map, n, boot.memmap_cap);
    if (!memrange_total(map, n, MEM_USABLE))
        return "no usable memory in the front door's memory map";
    early_init(map, n, boot.memmap_cap);
    acpi_init(boot.rsdp, boot.identity_limit, early_alloc);
    n = acpi_set_nodes(map, (early_map(&n), n), boot.memmap_cap);
    early_init(map, n, boot.memmap_cap);
    if (paging_init(&paging) != OK)
        return "no page tables";
    early_map(&n);
    early_init(phys_to_virt(boot.memmap), n, boot.memmap_cap); /* the identity mapping is gone */
    print_memory_map();
    page_alloc_init(early_map(&n), n, use_boot_services);
    cache_init();
    if (!vmap_config_for(&config, vmap_design_wanted(), msg, sizeof(msg)))
        return msg;
    if (vmap_init(&config) != OK)
        return "no memory for the vmap allocator";
    arch_ioremap = ioremap;
    trap_describe_address = describe_fault;
    return NULL;
}

static void *alloc_zeroed(size_t size, unsigned node)
{
    unsigned order = 0;
    struct page *page;

    while ((PAGE_SIZE << order) < size)
        order++;
    page = order <= PAGE_MAX_ORDER ? alloc_pages_node(order, (int)node) : NULL;
    return page ? memset(page_address(page), 0, PAGE_SIZE << order) : NULL;
}

static bool prepare_cpu(unsigned cpu)
{
    page_alloc_set_home(cpu, smp_node(cpu));
    return page_alloc_cpu_init(cpu) == OK && cache_cpu_init(cpu) == OK && vmap_cpu_init(cpu) == OK;
}

static void start_cpus(void)
{
    struct smp_config config = {.trampoline = boot.trampoline,
                                .max_cpus = (unsigned)maxcpus,
                                .alloc = alloc_zeroed,
                                .alloc_stack = alloc_stack,
                                .lost_apic_id = (uint32_t)smp_lost_cpu,
                                .lost_sipis = (unsigned)smp_lost_sipis};
    unsigned cpu;

    tlb_init();
    smp_start(&config);
    for_each_cpu (cpu) {
        if (cpu != 0 && !prepare_cpu(cpu))
            panic("no memory for CPU %u", cpu);
    }
}

static void print_machine(void)
{
    struct smp_report smp;

    smp_read_report(&smp);
    kprintf("# cpu vendor=%s family=%u model=%u stepping=%u brand=\"%s\"\n", cpu_features.vendor,
            cpu_features.family, cpu_features.model, cpu_features.stepping, cpu_features.brand);
    kprintf(
        "# machine cpus_found=%u cpus_used=%u apic=%s tsc_hz=%lu tsc_source=%s tsc_spread_ppm=%lu "
        "tsc_warp=%lu tsc_invariant=%s emulated=%s hypervisor=%s mem_mib=%lu nodes=%u "
        "paging_levels=%u lock=%s start_us=%lu\n",
        smp.found, smp.used, apic_mode_name(), (unsigned long)clock_tsc_hz(), clock_source(),
        (unsigned long)clock_spread_ppm(), (unsigned long)clock_warp(),
        cpu_features.invariant_tsc ? "yes" : "no", cpu_features.emulated ? "yes" : "no",
        cpu_features.hypervisor[0] ? cpu_features.hypervisor : "none",
        (unsigned long)(page_total() >> 8), acpi_nodes(), paging_levels(), spin_kind(),
        (unsigned long)smp.start_us);
}

static void read_apic_id(void *arg)
{
    (void)arg;
    *this_cpu_ptr(&own_apic_id) = apic_id_this();
}

/* Who is who, each APIC ID as the CPU itself reads it. */
static void print_cpus(void)
{
    unsigned cpu, n = smp_cpus();

    smp_call_all(read_apic_id, NULL);
    for (cpu = 0; cpu < n; cpu += CPUS_PER_LINE) {
        char line[16 + 11 * CPUS_PER_LINE];
        size_t used = 0;

        for (unsigned i = 0; i < CPUS_PER_LINE && cpu + i < n; i++)
            used += (size_t)ksnprintf(line + used, sizeof(line) - used, "%s%u", i ? "," : "",
                                      *per_cpu_ptr(&own_apic_id, cpu + i));
        kprintf("# cpus first=%u apic_ids=%s\n", cpu, line);
    }
}

/* On a guarded stack, with memory up: everything else. arg: where the verdict goes. */
static void run(void *arg)
{
    uint32_t *verdict = arg;

    console_map_mmio(map_uncached);
    start_framebuffer();
    apic_init();
    clock_init();
    irq_enable();
    start_cpus();
    clock_warp_test();
    cpu_check_state();
    print_machine();
    print_cpus();
    *verdict = tests_main();
    irq_disable();
    timer_stop();
    smp_stop_others();
    apic_restore();
}

/* A panic ends the machine from in here; it does as exit= says, as the front door would. */
static void set_panic_end(enum machine_exit how)
{
    if (how == MACHINE_EXIT_REBOOT)
        kernel_set_end(KERNEL_END_REBOOT);
    else if (how == MACHINE_EXIT_POWEROFF)
        kernel_set_end(KERNEL_END_POWEROFF);
}

static uint64_t kmain(void *arg)
{
    const char *cmdline;
    static char msg[256];
    uint32_t verdict = VERDICT_ERROR;
    const char *wrong;
    void *stack;
    err_t parsed;

    percpu_init_boot();
    gdt_init_boot();
    idt_init();
    idt_load();
    cpu_detect();
    spin_select(cpu_features.hypervisor_present);
    boot = *(struct boot_info *)arg;
    if (boot.magic != BOOT_INFO_MAGIC || boot.version != BOOT_INFO_VERSION ||
        boot.size != sizeof(boot))
        return VERDICT_ERROR;

    cmdline = early_virt(boot.cmdline);
    parsed = options_parse(cmdline, boot.cmdline_len, msg, sizeof(msg));
    console_init();
    print_banner();
    if (parsed != OK || !tests_validate_options(msg, sizeof(msg)))
        return stop(msg);
    set_panic_end(machine_exit_option(cmdline, boot.cmdline_len));
    cpu_init_this();
    wrong = start_memory();
    if (wrong)
        return stop(wrong);
    stack = alloc_stack(0);
    if (!stack)
        return stop("no memory for a stack");
    stack_call(stack, run, &verdict);
    return verdict;
}

struct entry {
    struct boot_info *bi;
    uint64_t verdict;
};

static void enter(void *arg)
{
    struct entry *e = arg;

    e->verdict = handover_call(kmain, e->bi);
}

/* The front door's stack may lie anywhere; from here on the stack is in the image, which both page
 * tables map. */
uint32_t kernel_entry(struct boot_info *bi)
{
    static struct entry e;

    e.bi = bi;
    stack_call(start_stack + sizeof(start_stack), enter, &e);
    return (uint32_t)e.verdict;
}
