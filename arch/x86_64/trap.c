/*
 * trap.c: what happens on each vector: exceptions, NMI, interrupts.
 *
 * Exceptions first look into the fixup table; any other one is the end: it is printed and the
 * machine panics. Interrupt handlers run with interrupts masked and are acknowledged after they
 * return. An NMI belongs, in this order, to a panic on another CPU, to the watchdog, to the hook;
 * one that nobody expects is counted and reported, and the kernel goes on.
 */
#include "arch/x86_64/fixup.h"
#include "arch/x86_64/panic.h"
#include "arch/x86_64/trap_frame.h"
#include "lib/assert.h"
#include "lib/base.h"
#include "lib/printf.h"
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/page.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb_gen.h>
#include <arch/trap.h>
#include <arch/watchdog.h>

#define VECTORS        256
#define VECTOR_DF      8
#define VECTOR_PF      14
#define VECTOR_MC      18
#define REPORTS_MAX    8    /* unexpected vectors and NMIs that get a line of their own */
#define SYSTEM_PORT_B  0x61 /* why the chipset sent an NMI: bit 7 SERR#, bit 6 IOCHK# */
#define MSR_MCG_CAP    0x179
#define MSR_MCG_STATUS 0x17a
#define MSR_MC0_STATUS 0x401 /* of bank 0; four registers a bank: CTL, STATUS, ADDR, MISC */
#define MC_STATUS_VAL  BIT(63)
#define MC_STATUS_ADDR BIT(58)

static void (*irq_handler[VECTORS])(struct trap_frame *f);
static void (*irq_eoi)(void);
static bool (*irq_in_service)(unsigned vector);
static unsigned irq_spurious_vector; /* 0: none */
static void (*nmi_hook)(struct trap_frame *f);
static uint32_t reports; /* lines about unexpected vectors so far */

void (*trap_describe_address)(uintptr_t addr);

static DEFINE_PER_CPU(uint64_t, irq_count);
static DEFINE_PER_CPU(uint64_t, irq_unexpected);
static DEFINE_PER_CPU(uint64_t, irq_spurious);
static DEFINE_PER_CPU(const char *, task_name);
static DEFINE_PER_CPU(struct trap_frame *, irq_frame);

/* ---- interface ---- */

void irq_register(unsigned vector, void (*fn)(struct trap_frame *f))
{
    ASSERT(vector >= VECTOR_IRQ_FIRST && vector < VECTORS);
    STORE_RELEASE(irq_handler[vector], fn);
}

void irq_register_spurious(unsigned vector)
{
    irq_spurious_vector = vector;
}

void irq_set_eoi(void (*eoi)(void), bool (*in_service)(unsigned vector))
{
    irq_eoi = eoi;
    irq_in_service = in_service;
}

void nmi_set_hook(void (*fn)(struct trap_frame *f))
{
    STORE_RELEASE(nmi_hook, fn);
}

void trap_set_task_name(const char *name)
{
    WRITE_ONCE(*this_cpu_ptr(&task_name), name);
}

const char *trap_task_name(unsigned cpu)
{
    const char *name = READ_ONCE(*per_cpu_ptr(&task_name, cpu));

    return name ? name : "-";
}

uint64_t trap_unexpected(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(*per_cpu_ptr(&irq_unexpected, cpu));
    return sum;
}

uint64_t trap_spurious(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(*per_cpu_ptr(&irq_spurious, cpu));
    return sum;
}

uint64_t trap_irq_count(void)
{
    return PERCPU_READ_(irq_count);
}

const struct trap_frame *trap_irq_frame(void)
{
    return *this_cpu_ptr(&irq_frame);
}

/* ---- interrupts and NMI ---- */

static bool report_allowed(void)
{
    return ATOMIC_ADD(reports, 1) < REPORTS_MAX;
}

static void irq_nobody(struct trap_frame *f)
{
    unsigned vector = (unsigned)f->vector;

    if (vector == irq_spurious_vector) {
        this_cpu_inc(irq_spurious);
        return;
    }
    this_cpu_inc(irq_unexpected);
    if (report_allowed())
        kprintf("# warning: unexpected interrupt vector 0x%x on cpu %u\n", vector, this_cpu_id());
    if (irq_in_service && irq_in_service(vector))
        irq_eoi();
}

/*
 * STI holds interrupts off until the HLT behind it has begun, but not NMIs, nor what nobody sees
 * here: SMIs, a hypervisor that loses the shadow. An interrupt that comes after one of these and
 * before the HLT would be waited for once more. So who comes there returns behind it; whoever halts
 * looks again at what it waits for.
 */
static void leave_halt(struct trap_frame *f)
{
    if (unlikely(f->rip == (uintptr_t)cpu_halt_hlt))
        f->rip = (uintptr_t)cpu_halt_end;
}

static void irq_dispatch(struct trap_frame *f)
{
    void (*fn)(struct trap_frame *) = LOAD_ACQUIRE(irq_handler[f->vector]);
    struct trap_frame **frame = this_cpu_ptr(&irq_frame);
    struct trap_frame *outer = *frame;

    *frame = f;
    /* The handler may meet an address that was reused while this CPU was halted. */
    if (tlb_gen_is_idle())
        tlb_gen_idle_exit();
    ++*this_cpu_ptr(&percpu_irq_depth);
    tlb_gen_irq_enter();
    this_cpu_inc(irq_count);
    if (likely(fn)) {
        fn(f);
        if (irq_eoi)
            irq_eoi();
    } else {
        irq_nobody(f);
    }
    tlb_gen_check();
    --*this_cpu_ptr(&percpu_irq_depth);
    tlb_gen_irq_exit();
    *frame = outer;
    leave_halt(f);
}

/* A handler may take a fault on purpose (backtraces), and the code that was interrupted may just
 * have taken one and not have read CR2 yet. */
static void nmi_dispatch(struct trap_frame *f)
{
    void (*hook)(struct trap_frame *) = LOAD_ACQUIRE(nmi_hook);
    uint64_t cr2 = READ_CR(2);
    bool idle;

    /* An NMI is an interrupt, too: who asks in_irq() first need not ask in_nmi(). Both ends of the
     * halt are part of it: they may send an interrupt. */
    ++*this_cpu_ptr(&percpu_irq_depth);
    ++*this_cpu_ptr(&percpu_nmi_depth);
    idle = tlb_gen_nmi_enter();
    tlb_gen_irq_enter();
    this_cpu_inc(irq_count);
    panic_nmi();
    if (watchdog_nmi(f)) {
        /* answered */
    } else if (hook) {
        hook(f);
    } else {
        this_cpu_inc(irq_unexpected);
        if (report_allowed())
            kprintf("# warning: unexpected NMI on cpu %u at %pS, port 0x61=0x%02x\n", this_cpu_id(),
                    (void *)f->rip, inb(SYSTEM_PORT_B));
    }
    tlb_gen_nmi_exit(idle);
    --*this_cpu_ptr(&percpu_nmi_depth);
    --*this_cpu_ptr(&percpu_irq_depth);
    tlb_gen_irq_exit();
    if (READ_CR(2) != cr2)
        WRITE_CR(2, cr2);
    leave_halt(f);
}

/* ---- exceptions ---- */

static void machine_check_print(void)
{
    uint64_t cap, status, addr;
    unsigned bank;

    if (!rdmsr_safe(MSR_MCG_CAP, &cap) || !rdmsr_safe(MSR_MCG_STATUS, &status))
        return;
    kprintf("# machine check: mcg_status=0x%lx\n", status);
    for (bank = 0; bank < (cap & 0xff); bank++) {
        uint32_t msr = MSR_MC0_STATUS + 4 * bank;

        if (!rdmsr_safe(msr, &status) || !(status & MC_STATUS_VAL))
            continue;
        addr = 0;
        if (status & MC_STATUS_ADDR)
            rdmsr_safe(msr + 1, &addr);
        kprintf("# machine check: bank %u status=0x%016lx addr=0x%lx\n", bank, status, addr);
    }
}

static void exception_fatal(struct trap_frame *f, uint64_t cr2)
{
    char what[160];

    trap_describe(f, cr2, what, sizeof(what));
    panic_begin("%s at %pS", what, (void *)f->rip);
    trap_print_cpu();
    trap_print_frame(f);
    if (f->vector == VECTOR_MC)
        machine_check_print();
    if ((f->vector == VECTOR_PF || f->vector == VECTOR_DF) && trap_describe_address &&
        cr2 - VMAP_BASE < VMAP_SIZE_MAX)
        trap_describe_address(cr2);
    backtrace_print_frame(f);
    panic_end();
}

/* From trap_entry.asm. True: return without IRET. */
bool trap_dispatch(struct trap_frame *f);

bool trap_dispatch(struct trap_frame *f)
{
    uint64_t cr2;

    if (likely(f->vector >= VECTOR_IRQ_FIRST)) {
        irq_dispatch(f);
        return false;
    }
    if (f->vector == VECTOR_NMI) {
        nmi_dispatch(f);
        return false;
    }
    cr2 = READ_CR(2);
    if (f->vector != VECTOR_DF && f->vector != VECTOR_MC && fixup_apply(f, cr2))
        return in_nmi();
    exception_fatal(f, cr2);
    return false;
}
