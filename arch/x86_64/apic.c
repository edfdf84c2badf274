/*
 * apic.c: the local APIC (SDM 3A chapter 11), see apic.h.
 *
 * Registers are memory in xAPIC mode and MSRs in x2APIC mode; all CPUs are in the same mode. Each
 * CPU touches only its own APIC. Waits for delivery are bounded.
 */
#include <arch/acpi.h>
#include <arch/apic.h>
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/page.h>
#include <arch/paging.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/trap.h>

#include "arch/x86_64/irq_sources.h"
#include "lib/printf.h"

#define APIC_BASE_EXTD BIT(10)
#define APIC_BASE_EN   BIT(11)
#define APIC_BASE_ADDR 0x000ffffffffff000ULL
#define MSR_X2APIC     0x800

/* Register offsets; in x2APIC mode register r is MSR 0x800 + r / 16. */
#define REG_ID       0x020
#define REG_VERSION  0x030
#define REG_TPR      0x080
#define REG_EOI      0x0b0
#define REG_SVR      0x0f0
#define REG_ISR      0x100
#define REG_ESR      0x280
#define REG_CMCI     0x2f0
#define REG_ICR      0x300
#define REG_ICR_HIGH 0x310 /* xAPIC only */
#define REG_TIMER    0x320
#define REG_THERMAL  0x330
#define REG_PERF     0x340
#define REG_LINT0    0x350
#define REG_LINT1    0x360
#define REG_ERROR    0x370
#define REG_COUNT    0x380
#define REG_CURRENT  0x390
#define REG_DIVIDE   0x3e0

#define SVR_ENABLE   BIT(8)
#define LVT_MASKED   BIT(16)
#define LVT_PERIODIC BIT(17)
#define LVT_MODE     0x700u
#define LVT_MODE_SMI 0x200u
#define DIVIDE_BY_1  0xbu
#define ICR_NMI      0x400u
#define ICR_INIT     0x500u
#define ICR_SIPI     0x600u
#define ICR_PENDING  BIT(12)
#define ICR_ASSERT   BIT(14) /* must be set in all but INIT de-assert (case E8) */

#define ICR_WAIT_LOOPS 1000000u /* an MMIO read each: 0.1 s and more */
#define EOI_MAX        256      /* interrupts that firmware may have left in service */

/* LVTs in the order in which the version register counts them. */
static const struct {
    uint16_t reg;
    uint8_t max_lvt; /* exists if the version's Max LVT field is at least this */
} lvts[] = {
    {REG_TIMER, 0}, {REG_LINT0, 0},   {REG_LINT1, 0}, {REG_ERROR, 0},
    {REG_PERF, 4},  {REG_THERMAL, 5}, {REG_CMCI, 6},
};

/* Constant after apic_init(). */
static bool present, x2apic;
static volatile uint32_t *regs;
static uint64_t mmio_phys;
static uint64_t timer_hz;

/* What apic_init() found on the boot CPU. */
static struct {
    uint32_t tpr, svr, divide, count;
    uint32_t lvt[ARRAY_SIZE(lvts)];
} saved;

static DEFINE_PER_CPU(uint64_t, error_count);
static uint32_t error_bits;

/* ---- registers ---- */

static uint32_t reg_read(unsigned reg)
{
    if (x2apic)
        return (uint32_t)rdmsr(MSR_X2APIC + reg / 16);
    return regs[reg / 4];
}

static void reg_write(unsigned reg, uint32_t v)
{
    if (x2apic)
        wrmsr(MSR_X2APIC + reg / 16, v);
    else
        regs[reg / 4] = v;
}

static unsigned max_lvt(void)
{
    return reg_read(REG_VERSION) >> 16 & 0xff;
}

uint32_t apic_initial_id(void)
{
    static const uint32_t leaves[] = {0x1f, 0x0b};
    uint32_t max, a, b, c, d;
    size_t i;

    cpuid(0, 0, &max, &b, &c, &d);
    for (i = 0; i < ARRAY_SIZE(leaves); i++) {
        if (max < leaves[i])
            continue;
        /* A leaf is there if its first level has processors: SDM 2A, CPUID. */
        cpuid(leaves[i], 0, &a, &b, &c, &d);
        if (b & 0xffff)
            return d;
    }
    cpuid(1, 0, &a, &b, &c, &d);
    return b >> 24;
}

static bool cpu_has_apic(void)
{
    uint32_t a, b, c, d;

    cpuid(1, 0, &a, &b, &c, &d);
    return d & BIT(9);
}

bool apic_x2apic_possible(void)
{
    if (!cpu_has_apic())
        return false;
    if (rdmsr(MSR_APIC_BASE) & APIC_BASE_EXTD)
        return true;
    return cpu_features.x2apic && !acpi_x2apic_opt_out();
}

bool apic_present(void)
{
    return present;
}

bool apic_is_x2apic(void)
{
    return x2apic;
}

volatile void *apic_mmio(void)
{
    return regs;
}

const char *apic_mode_name(void)
{
    return !present ? "none" : x2apic ? "x2apic" : "xapic";
}

uint32_t apic_id_this(void)
{
    if (!present)
        return apic_initial_id();
    return x2apic ? reg_read(REG_ID) : reg_read(REG_ID) >> 24;
}

/* ---- interrupts to other CPUs ---- */

static bool icr_wait_idle(void)
{
    unsigned i;

    for (i = 0; i < ICR_WAIT_LOOPS; i++) {
        if (!(reg_read(REG_ICR) & ICR_PENDING))
            return true;
        cpu_relax();
    }
    return false;
}

/* High half first: writing the low one sends. An NMI may come between them, so there the high one
 * is put back. */
static bool xapic_send(uint32_t apic_id, uint32_t command)
{
    unsigned long flags = irq_save();
    uint32_t high = in_nmi() ? reg_read(REG_ICR_HIGH) : 0;
    bool idle = icr_wait_idle();

    if (idle) {
        reg_write(REG_ICR_HIGH, apic_id << 24);
        reg_write(REG_ICR, command);
    }
    if (in_nmi()) {
        idle = idle && icr_wait_idle();
        reg_write(REG_ICR_HIGH, high);
    }
    irq_restore(flags);
    return idle;
}

/* An MSR write of this kind is not ordered behind earlier stores by itself (SDM 3A 11.12.3, case
 * E7). */
static void x2apic_send(uint32_t apic_id, uint32_t command)
{
    __asm__ volatile("mfence; lfence" ::: "memory");
    wrmsr(MSR_X2APIC + REG_ICR / 16, (uint64_t)apic_id << 32 | command);
}

static bool icr_send(uint32_t apic_id, uint32_t command)
{
    if (!present)
        return false;
    command |= ICR_ASSERT;
    if (!x2apic)
        return apic_id < 0xff && xapic_send(apic_id, command);
    x2apic_send(apic_id, command);
    return true;
}

bool apic_send_ipi(uint32_t apic_id, unsigned vector)
{
    return icr_send(apic_id, vector);
}

bool apic_send_nmi(uint32_t apic_id)
{
    return icr_send(apic_id, ICR_NMI);
}

bool apic_send_init(uint32_t apic_id)
{
    return icr_send(apic_id, ICR_INIT);
}

bool apic_send_sipi(uint32_t apic_id, phys_addr_t page)
{
    return icr_send(apic_id, ICR_SIPI | (uint32_t)(page >> PAGE_SHIFT));
}

/* ---- handlers ---- */

static void apic_eoi(void)
{
    reg_write(REG_EOI, 0);
}

static bool in_service(unsigned vector)
{
    return reg_read(REG_ISR + vector / 32 * 16) & BIT(vector % 32);
}

bool apic_high_in_service(void)
{
    return reg_read(REG_ISR + 7 * 16) >> 16;
}

static void error_interrupt(struct trap_frame *f)
{
    uint32_t esr;

    (void)f;
    reg_write(REG_ESR, 0);
    esr = reg_read(REG_ESR);
    ATOMIC_OR(error_bits, esr);
    this_cpu_inc(error_count);
    kprintf_ratelimited("# apic: error 0x%x on cpu %u\n", esr, this_cpu_id());
}

static void wake_interrupt(struct trap_frame *f)
{
    (void)f;
}

uint64_t apic_errors(uint32_t *bits)
{
    uint64_t sum = 0;
    unsigned cpu;

    *bits = READ_ONCE(error_bits);
    for_each_cpu (cpu)
        sum += READ_ONCE(*per_cpu_ptr(&error_count, cpu));
    return sum;
}

/* ---- starting and stopping ---- */

/* Through EN to EXTD: one step would be refused (SDM 3A 11.12.5). */
static bool enter_mode(void)
{
    uint64_t base = rdmsr(MSR_APIC_BASE);

    if ((base & APIC_BASE_EXTD) && !x2apic)
        return false;
    if (!x2apic && (base & APIC_BASE_ADDR) != mmio_phys)
        base = (base & ~APIC_BASE_ADDR) | mmio_phys;
    if (!(base & APIC_BASE_EN) || base != rdmsr(MSR_APIC_BASE)) {
        base |= APIC_BASE_EN;
        wrmsr(MSR_APIC_BASE, base);
    }
    if (x2apic && !(base & APIC_BASE_EXTD))
        wrmsr(MSR_APIC_BASE, base | APIC_BASE_EXTD);
    return true;
}

/* An LVT that delivers SMIs belongs to the firmware: thermal control, as a rule. */
static bool lvt_is_ours(unsigned i, unsigned max)
{
    return max >= lvts[i].max_lvt && (reg_read(lvts[i].reg) & LVT_MODE) != LVT_MODE_SMI;
}

static void mask_local(void)
{
    unsigned i, max = max_lvt();

    for (i = 0; i < ARRAY_SIZE(lvts); i++) {
        if (lvt_is_ours(i, max))
            reg_write(lvts[i].reg, reg_read(lvts[i].reg) | (uint32_t)LVT_MASKED);
    }
    reg_write(REG_COUNT, 0);
}

/* What the firmware's handlers have not acknowledged would block everything of lower priority. */
static void finish_in_service(void)
{
    unsigned i, n;

    for (n = 0; n < EOI_MAX; n++) {
        uint32_t any = 0;

        for (i = 0; i < 8; i++)
            any |= reg_read(REG_ISR + i * 16);
        if (!any)
            return;
        apic_eoi();
    }
}

static void enable_local(void)
{
    mask_local();
    reg_write(REG_TPR, 0);
    reg_write(REG_SVR, (uint32_t)SVR_ENABLE | VECTOR_SPURIOUS);
    finish_in_service();
    reg_write(REG_ESR, 0);
    reg_write(REG_ESR, 0);
    reg_write(REG_ERROR, VECTOR_ERROR);
    reg_write(REG_DIVIDE, DIVIDE_BY_1);
}

static void save_local(void)
{
    unsigned i, max = max_lvt();

    saved.tpr = reg_read(REG_TPR);
    saved.svr = reg_read(REG_SVR);
    saved.divide = reg_read(REG_DIVIDE);
    saved.count = reg_read(REG_COUNT);
    for (i = 0; i < ARRAY_SIZE(lvts); i++) {
        if (max >= lvts[i].max_lvt)
            saved.lvt[i] = reg_read(lvts[i].reg);
    }
}

static err_t find_mode(void)
{
    uint64_t base;

    if (!cpu_has_apic()) {
        kprintf("# apic: this CPU has none: one CPU, no timer\n");
        return ERR_NOENT;
    }
    base = rdmsr(MSR_APIC_BASE);
    x2apic = apic_x2apic_possible();
    mmio_phys = base & APIC_BASE_ADDR;
    if (x2apic)
        return OK;
    regs = arch_ioremap ? arch_ioremap(mmio_phys, PAGE_SIZE, CACHE_UC) : NULL;
    if (!regs) {
        kprintf("# apic: cannot map %#lx: one CPU, no timer\n", mmio_phys);
        return ERR_NOENT;
    }
    return OK;
}

err_t apic_init(void)
{
    err_t err;

    irq_sources_mask();
    err = find_mode();
    if (err != OK)
        return err;
    enter_mode();
    present = true;
    save_local();
    irq_register_spurious(VECTOR_SPURIOUS);
    irq_register(VECTOR_ERROR, error_interrupt);
    irq_register(VECTOR_WAKE, wake_interrupt);
    irq_set_eoi(apic_eoi, in_service);
    enable_local();
    return OK;
}

bool apic_init_this(void)
{
    if (!enter_mode())
        return false;
    enable_local();
    return true;
}

void apic_restore(void)
{
    unsigned i, max;

    if (present) {
        max = max_lvt();
        reg_write(REG_COUNT, 0);
        finish_in_service();
        reg_write(REG_DIVIDE, saved.divide);
        for (i = 0; i < ARRAY_SIZE(lvts); i++) {
            if (lvt_is_ours(i, max))
                reg_write(lvts[i].reg, saved.lvt[i]);
        }
        reg_write(REG_COUNT, saved.count);
        reg_write(REG_TPR, saved.tpr);
        /* Disabling it sets all mask bits: last. */
        reg_write(REG_SVR, saved.svr);
    }
    irq_sources_restore();
}

/* ---- timer ---- */

uint64_t apic_timer_hz(void)
{
    return timer_hz;
}

/* Median of three short runs against the TSC. */
void apic_timer_calibrate(void)
{
    uint64_t hz[3], low, high;
    size_t i;

    if (!present || !clock_tsc_hz())
        return;
    for (i = 0; i < ARRAY_SIZE(hz); i++) {
        unsigned long flags = irq_save();
        uint64_t t0, t1;
        uint32_t left;

        reg_write(REG_TIMER, (uint32_t)LVT_MASKED | VECTOR_TIMER);
        reg_write(REG_COUNT, UINT32_MAX);
        t0 = rdtsc();
        clock_delay_us(2000);
        left = reg_read(REG_CURRENT);
        t1 = rdtsc();
        reg_write(REG_COUNT, 0);
        irq_restore(flags);
        hz[i] = (UINT32_MAX - left) * clock_tsc_hz() / MAX(t1 - t0, 1UL);
    }
    low = MIN(hz[0], hz[1]);
    high = MAX(hz[0], hz[1]);
    high = MIN(high, hz[2]);
    timer_hz = MAX(low, high);
}

void apic_timer_set(uint32_t count, bool periodic)
{
    reg_write(REG_COUNT, 0);
    if (!count) {
        reg_write(REG_TIMER, (uint32_t)LVT_MASKED | VECTOR_TIMER);
        return;
    }
    reg_write(REG_DIVIDE, DIVIDE_BY_1);
    reg_write(REG_TIMER, VECTOR_TIMER | (periodic ? (uint32_t)LVT_PERIODIC : 0));
    reg_write(REG_COUNT, count);
}
