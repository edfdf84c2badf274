/*
 * smp_boot.c: starting the other CPUs, and stopping them at the end.
 *
 * All are started at once: INIT, 10 ms, SIPI, 200 us, SIPI (SDM 3A 9.4.4), each by its own APIC ID,
 * never by broadcast (case G5). Each prepares itself on memory of its own and halts; when no more
 * come, the boot CPU gives numbers without holes in MADT order to those that came, and lets them
 * go. Every wait ends: with many vCPUs on few host cores it goes on as long as CPUs keep coming.
 */
#include <arch/acpi.h>
#include <arch/apic.h>
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/gdt.h>
#include <arch/page.h>
#include <arch/paging.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/trap.h>

#include "arch/x86_64/smp_boot.h"
#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"

#define INIT_DELAY_US    10000
#define SIPI_DELAY_US    200
#define QUIET_US         1500000  /* nobody came for so long: nobody will */
#define ARRIVED_QUIET_US 10000000 /* one came and has not finished */
#define STOP_WAIT_US     1000000
#define POLL_US          1000

#define MSR_MISC_ENABLE 0x1a0

/* At trampoline_fields in trampoline.asm. */
struct trampoline_fields {
    uint64_t entry;
    uint32_t cr3, cr4, cr0, efer;
    uint32_t allow_nx;
    uint16_t gdt_limit;
    uint32_t gdt_base;
    uint32_t far32;
    uint16_t far32_selector;
    uint32_t far64;
    uint16_t far64_selector;
} __packed;

/* What is left in the page afterwards: CLI, HLT, and a jump back to it. */
static const uint8_t halt_code[] = {0xfa, 0xf4, 0xeb, 0xfd};

struct ap_slot *ap_slots;
uint32_t ap_slot_count;
volatile void *ap_apic_mmio;
uint32_t ap_strays;

static struct smp_report report;
static uint32_t progress;    /* CPUs that got to their next stop */
static uint32_t progress_at; /* wake the boot CPU when `progress` gets here */
static uint32_t boot_apic_id;
static struct cpu_entry boot_entry;
static uint32_t stopped;
static struct {
    uint32_t apic_id;
    unsigned sipis;
} lost;

/* ---- on the CPU that starts ---- */

static void __noreturn halt_for_good(void)
{
    for (;;)
        __asm__ volatile("cli; hlt");
}

/* The boot CPU looks once a millisecond anyway: only the last one wakes it. */
static void tell_progress(void)
{
    if (ATOMIC_ADD(progress, 1) + 1 == READ_ONCE(progress_at))
        apic_send_ipi(boot_apic_id, VECTOR_WAKE);
}

static void stop_interrupt(struct trap_frame *f)
{
    (void)f;
    tlb_cpu_offline();
    ATOMIC_ADD(stopped, 1);
    halt_for_good();
}

/* Until `go` this CPU has a provisional number, and is not waited for by TLB requests. */
void smp_ap_main(struct ap_slot *slot)
{
    uint32_t state = AP_ARRIVED;

    percpu_load(slot->cpu);
    gdt_init_cpu(slot->tables);
    idt_load();
    cpu_init_this();
    if (!apic_init_this()) {
        ATOMIC_CAS(slot->state, &state, AP_REFUSED);
        tell_progress();
        halt_for_good();
    }
    if (!ATOMIC_CAS(slot->state, &state, AP_READY))
        halt_for_good();
    tell_progress();
    while (!LOAD_ACQUIRE(slot->go))
        cpu_idle_wait();
    tlb_cpu_online();
    tell_progress();
    smp_idle_loop();
}

/* ---- the trampoline page ---- */

/* A CPU whose firmware hides NX would fault on the first table entry with it (SDM 4,
 * IA32_MISC_ENABLE[34]); the register is Intel's. */
static bool has_misc_enable(void)
{
    uint64_t v;

    return strcmp(cpu_features.vendor, "GenuineIntel") == 0 && rdmsr_safe(MSR_MISC_ENABLE, &v);
}

static void trampoline_install(phys_addr_t page)
{
    struct trampoline_fields *f;
    uint8_t *p = (uint8_t *)page;

    paging_map_low(page, PAGE_KERNEL);
    memset(p, 0xcc, PAGE_SIZE);
    memcpy(p, __trampoline_start, (size_t)(__trampoline_end - __trampoline_start));
    f = (struct trampoline_fields *)(p + (trampoline_fields - __trampoline_start));
    f->entry = (uint64_t)ap_entry;
    f->cr3 = (uint32_t)paging_root();
    f->cr4 = (uint32_t)READ_CR(4);
    f->cr0 = (uint32_t)READ_CR(0);
    f->efer = (uint32_t)rdmsr(MSR_EFER);
    f->allow_nx = has_misc_enable();
    f->gdt_base += (uint32_t)page;
    f->far32 += (uint32_t)page;
    f->far64 += (uint32_t)page;
    paging_map_low(page, PAGE_KERNEL_RX);
}

/* Whoever comes after this runs into HLT; nobody who was left out can be between the two. */
static void trampoline_remove(phys_addr_t page)
{
    paging_map_low(page, PAGE_KERNEL);
    memset((void *)page, 0xcc, PAGE_SIZE);
    memcpy((void *)page, halt_code, sizeof(halt_code));
    paging_unmap_low();
    tlb_flush_local_all();
}

/* ---- slots ---- */

static bool slot_fill(struct ap_slot *s, unsigned cpu, const struct acpi_cpu *a,
                      const struct smp_config *c)
{
    size_t percpu = ALIGN_UP(percpu_size(), PAGE_SIZE);
    char *mem = c->alloc(percpu + gdt_cpu_size(), a->node);

    s->stack_top = mem ? c->alloc_stack(cpu) : NULL;
    if (!s->stack_top)
        return false;
    percpu_add(cpu, mem);
    s->tables = mem + percpu;
    s->apic_id = a->apic_id;
    s->node = a->node;
    s->cpu = cpu;
    STORE_RELEASE(s->state, AP_WAITING);
    return true;
}

/* One for each of the first `n` others, as far as there is memory; returns how many. The boot CPU
 * is not among them by its initial APIC ID; where firmware has renumbered, only its APIC knows. */
static unsigned slots_make(const struct smp_config *c, unsigned n)
{
    uintptr_t *offsets = c->alloc(ALIGN_UP((n + 1) * sizeof(*offsets), PAGE_SIZE), 0);
    unsigned i, made = 0;

    ap_slots = c->alloc(ALIGN_UP(n * sizeof(*ap_slots), PAGE_SIZE), 0);
    if (!offsets || !ap_slots) {
        kprintf("# smp: out of memory: one CPU is used\n");
        return 0;
    }
    percpu_set_table(offsets, n + 1);
    for (i = 0; i < acpi_other_cpus() && made < n; i++) {
        const struct acpi_cpu *a = acpi_other_cpu(i);

        if (a->apic_id == boot_apic_id)
            continue;
        if (!slot_fill(&ap_slots[made], made + 1, a, c)) {
            kprintf("# smp: memory for %u of %u CPUs only\n", made + 1, n + 1);
            break;
        }
        made++;
    }
    return made;
}

static unsigned count_state(enum ap_state state)
{
    unsigned i, n = 0;

    for (i = 0; i < ap_slot_count; i++)
        n += LOAD_ACQUIRE(ap_slots[i].state) == (uint32_t)state;
    return n;
}

/* ---- starting ---- */

/* Halts until an interrupt, at most POLL_US. Masked before the timer is set: it must not fire
 * before the HLT. */
static void pause_short(uint32_t target)
{
    irq_disable();
    if (!timer_once(POLL_US, NULL)) {
        irq_enable();
        clock_delay_us(POLL_US);
        return;
    }
    if (LOAD_ACQUIRE(progress) < target)
        cpu_idle_wait();
    irq_enable();
}

/* Waits until `progress` is `target`; gives up when it has not moved for quiet_us. */
static bool wait_progress(uint32_t target, uint64_t quiet_us)
{
    struct clock_limit limit;
    uint32_t seen = LOAD_ACQUIRE(progress);

    WRITE_ONCE(progress_at, target);
    clock_limit_start(&limit, quiet_us);
    while (LOAD_ACQUIRE(progress) < target) {
        pause_short(target);
        if (LOAD_ACQUIRE(progress) != seen) {
            seen = LOAD_ACQUIRE(progress);
            clock_limit_start(&limit, quiet_us);
        } else if (clock_limit_over(&limit)) {
            return false;
        }
    }
    return true;
}

static bool sipi_is_lost(uint32_t apic_id)
{
    return apic_id == lost.apic_id && lost.sipis != 0 && lost.sipis--;
}

static void send_sipis(phys_addr_t page)
{
    unsigned i;

    for (i = 0; i < ap_slot_count; i++) {
        if (READ_ONCE(ap_slots[i].state) == AP_WAITING && !sipi_is_lost(ap_slots[i].apic_id))
            apic_send_sipi(ap_slots[i].apic_id, page);
    }
}

static void start_waiting(phys_addr_t page)
{
    clock_delay_us(INIT_DELAY_US);
    send_sipis(page);
    clock_delay_us(SIPI_DELAY_US);
    send_sipis(page);
}

/* A CPU may lose its SIPI, in SMM for instance (pitfall 18). Held while it is reset, so that one
 * which comes just then is not reset after it has claimed its slot. */
static void start_again(phys_addr_t page)
{
    unsigned i, n = 0;

    for (i = 0; i < ap_slot_count; i++) {
        uint32_t state = AP_WAITING;

        if (!ATOMIC_CAS(ap_slots[i].state, &state, AP_HELD))
            continue;
        apic_send_init(ap_slots[i].apic_id);
        n++;
    }
    if (!n)
        return;
    kprintf("# smp: %u CPUs have not come yet: trying again\n", n);
    clock_delay_us(INIT_DELAY_US);
    for (i = 0; i < ap_slot_count; i++) {
        if (ap_slots[i].state == AP_HELD)
            STORE_RELEASE(ap_slots[i].state, AP_WAITING);
    }
    start_waiting(page);
}

/* Takes its slot from every CPU that is not ready, and stops it by an INIT, so that it cannot come
 * later. */
static void abandon(void)
{
    unsigned i;

    for (i = 0; i < ap_slot_count; i++) {
        struct ap_slot *s = &ap_slots[i];
        uint32_t state = LOAD_ACQUIRE(s->state);

        while ((state == AP_WAITING || state == AP_ARRIVED) &&
               !ATOMIC_CAS(s->state, &state, AP_ABANDONED))
            ;
        if (state == AP_READY)
            continue;
        apic_send_init(s->apic_id);
        kprintf("# smp: CPU with APIC ID %u left out: %s\n", s->apic_id,
                state == AP_WAITING   ? "it did not start"
                : state == AP_REFUSED ? "its APIC is in another mode"
                                      : "it started, but did not get ready");
        report.failed++;
    }
}

static void start_all(phys_addr_t page)
{
    uint32_t want = ap_slot_count;
    unsigned i;

    for (i = 0; i < ap_slot_count; i++)
        apic_send_init(ap_slots[i].apic_id);
    start_waiting(page);
    if (!wait_progress(want, QUIET_US)) {
        start_again(page);
        if (!wait_progress(want, QUIET_US) && count_state(AP_ARRIVED))
            wait_progress(want, ARRIVED_QUIET_US);
    }
    abandon();
}

/* Numbers without holes, in MADT order, to those that are ready. Returns the number of CPUs. */
static unsigned number(struct cpu_entry *entries)
{
    unsigned i, n = 1;

    for (i = 0; i < ap_slot_count; i++) {
        struct ap_slot *s = &ap_slots[i];

        if (s->state != AP_READY)
            continue;
        percpu_set_cpu_id(s->cpu, n);
        s->cpu = n;
        entries[n] = (struct cpu_entry){s->apic_id, s->node};
        n++;
    }
    return n;
}

/* How many of the n CPUs could be prepared; the others are stopped again. */
static unsigned prepare_all(const struct smp_config *c, unsigned n)
{
    unsigned cpu, i;

    for (cpu = 1; cpu < n && (!c->prepare || c->prepare(cpu)); cpu++)
        ;
    if (cpu == n)
        return n;
    kprintf("# smp: %u of %u CPUs could be prepared\n", cpu, n);
    for (i = 0; i < ap_slot_count; i++) {
        if (ap_slots[i].state != AP_READY || ap_slots[i].cpu < cpu)
            continue;
        ap_slots[i].state = AP_ABANDONED;
        apic_send_init(ap_slots[i].apic_id);
        report.failed++;
    }
    return cpu;
}

/* Waits until all have gone into their idle loops. */
static void release(unsigned n)
{
    unsigned i;

    WRITE_ONCE(progress, 0);
    for (i = 0; i < ap_slot_count; i++) {
        if (ap_slots[i].state != AP_READY)
            continue;
        STORE_RELEASE(ap_slots[i].go, 1);
        apic_send_ipi(ap_slots[i].apic_id, VECTOR_WAKE);
    }
    if (!wait_progress(n - 1, ARRIVED_QUIET_US))
        panic("%u CPUs that were ready did not go on", n - 1 - READ_ONCE(progress));
}

static unsigned limit_cpus(const struct smp_config *c)
{
    unsigned found = smp_cpus_possible(), limit = c->max_cpus ? c->max_cpus : SMP_MAX_CPUS;

    if (found > 1 && !apic_present())
        limit = 1;
    if (found > 1 && !c->trampoline) {
        kprintf("# smp: no free page below 1 MiB to start other CPUs from\n");
        limit = 1;
    }
    limit = MIN(limit, (unsigned)SMP_MAX_CPUS);
    if (found > limit)
        kprintf("# smp: using %u of %u CPUs\n", limit, found);
    return MIN(found, limit);
}

static void start_others(const struct smp_config *c, unsigned others)
{
    struct cpu_entry *entries = c->alloc(ALIGN_UP((others + 1) * sizeof(*entries), PAGE_SIZE), 0);
    uint64_t start = rdtsc();
    unsigned n;

    if (!entries)
        return;
    ap_slot_count = slots_make(c, others);
    if (!ap_slot_count)
        return;
    entries[0] = boot_entry;
    irq_register(VECTOR_STOP, stop_interrupt);
    ap_apic_mmio = apic_mmio();
    trampoline_install(c->trampoline);
    start_all(c->trampoline);
    trampoline_remove(c->trampoline);
    n = prepare_all(c, number(entries));
    smp_set_entries(entries, n);
    release(n);
    timer_stop();
    smp_set_online();
    report.start_us = clock_cycles_to_us(rdtsc() - start);
}

void smp_start(const struct smp_config *c)
{
    unsigned n = limit_cpus(c);

    boot_apic_id = apic_id_this();
    boot_entry = (struct cpu_entry){boot_apic_id, acpi_boot_node()};
    smp_set_entries(&boot_entry, 1);
    report.found = smp_cpus_possible();
    lost.apic_id = c->lost_apic_id;
    lost.sipis = c->lost_sipis;
    if (n > 1)
        start_others(c, n - 1);
    report.used = smp_cpus();
    kprintf("# smp cpus_found=%u cpus_used=%u failed=%u strays=%u apic=%s start_us=%lu\n",
            report.found, report.used, report.failed, ap_strays, apic_mode_name(), report.start_us);
}

void smp_read_report(struct smp_report *r)
{
    *r = report;
}

void smp_stop_others(void)
{
    unsigned cpu, others = smp_cpus() - 1, i;
    struct clock_limit limit;

    for (cpu = 1; cpu <= others; cpu++)
        apic_send_ipi(smp_apic_id(cpu), VECTOR_STOP);
    clock_limit_start(&limit, STOP_WAIT_US);
    while (LOAD_ACQUIRE(stopped) < others && !clock_limit_over(&limit)) {
        tlb_poll();
        cpu_relax();
    }
    if (READ_ONCE(stopped) < others)
        kprintf("# smp: %u CPUs did not stop by themselves\n", others - READ_ONCE(stopped));
    for (i = 0; i < ap_slot_count; i++)
        apic_send_init(ap_slots[i].apic_id);
}
