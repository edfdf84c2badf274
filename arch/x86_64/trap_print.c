/*
 * trap_print.c: exceptions, registers and call chains as text, for panics and the watchdog.
 *
 * Any context. Memory is read through the fixup table only: what is printed here is what may be
 * broken.
 */
#include "arch/x86_64/panic.h"
#include "arch/x86_64/symbols.h"
#include "arch/x86_64/trap_frame.h"
#include "lib/base.h"
#include "lib/printf.h"
#include <arch/cpu.h>
#include <arch/gdt.h>
#include <arch/percpu.h>
#include <arch/trap.h>

#define BACKTRACE_MAX 32
#define FRAME_MAX     (1UL << 20) /* from one frame to the next; a longer step is a broken chain */

static const char *const exception_names[32] = {
    "#DE divide error",
    "#DB debug",
    "NMI",
    "#BP breakpoint",
    "#OF overflow",
    "#BR bound range exceeded",
    "#UD invalid opcode",
    "#NM device not available",
    "#DF double fault",
    "coprocessor segment overrun",
    "#TS invalid TSS",
    "#NP segment not present",
    "#SS stack segment fault",
    "#GP general protection",
    "#PF page fault",
    "exception 15",
    "#MF x87 floating point",
    "#AC alignment check",
    "#MC machine check",
    "#XM SIMD floating point",
    "#VE virtualization",
    "#CP control protection",
    [28] = "#HV hypervisor injection",
    [29] = "#VC VMM communication",
    [30] = "#SX security",
};

/* Error code of #PF: SDM 3A 4.7. */
static void describe_page_fault(uint64_t error, uint64_t cr2, char *buf, size_t size)
{
    const char *access = error & BIT(4) ? "fetch from" : error & BIT(1) ? "write to" : "read of";
    const char *why = "not present";

    if (error & BIT(3))
        why = "reserved bit set in a page-table entry";
    else if (error & BIT(5))
        why = "protection key";
    else if (error & BIT(6))
        why = "shadow stack access";
    else if (error & BIT(0))
        why = error & BIT(4) ? "not executable" : error & BIT(1) ? "read-only" : "protection";
    ksnprintf(buf, size, "#PF page fault: %s 0x%lx: %s%s", access, cr2, why,
              error & BIT(2) ? ", user mode" : "");
}

void trap_describe(const struct trap_frame *f, uint64_t cr2, char *buf, size_t size)
{
    const char *name = f->vector < 32 ? exception_names[f->vector] : NULL;

    switch (f->vector) {
    case 14:
        describe_page_fault(f->error, cr2, buf, size);
        break;
    case 8:
        /* A push that missed the stack: CR2 lies just below RSP (case: overflow into a guard page).
         */
        ksnprintf(buf, size, "#DF double fault%s", f->rsp - cr2 <= 4096 ? ", stack overflow" : "");
        break;
    case 10:
    case 11:
    case 12:
    case 13: {
        static const char *const table[4] = {"GDT", "IDT", "LDT", "IDT"};

        if (f->error)
            ksnprintf(buf, size, "%s: selector 0x%lx in the %s%s", name, f->error & 0xfff8,
                      table[f->error >> 1 & 3], f->error & 1 ? ", external event" : "");
        else
            ksnprintf(buf, size, "%s", name);
        break;
    }
    case 17:
    case 21:
    case 29:
    case 30:
        ksnprintf(buf, size, "%s, error 0x%lx", name, f->error);
        break;
    default:
        if (name)
            ksnprintf(buf, size, "%s", name);
        else
            ksnprintf(buf, size, "exception %lu, error 0x%lx", f->vector, f->error);
        break;
    }
}

/* From CPUID, since the APIC code may be what is broken: leaf 0Bh if it is there, else 8 bits of
 * leaf 1. */
static uint32_t own_apic_id(void)
{
    uint32_t max, a, b, c, d;

    cpuid(0, 0, &max, &b, &c, &d);
    if (max >= 0xb) {
        cpuid(0xb, 0, &a, &b, &c, &d);
        if (b & 0xffff)
            return d;
    }
    cpuid(1, 0, &a, &b, &c, &d);
    return b >> 24;
}

void trap_print_cpu(void)
{
    kprintf("# cpu=%u apic_id=%u task=%s irq_depth=%u nmi_depth=%u\n", this_cpu_id(), own_apic_id(),
            trap_task_name(this_cpu_id()), PERCPU_READ_(percpu_irq_depth),
            PERCPU_READ_(percpu_nmi_depth));
}

static void print_code(uintptr_t rip)
{
    uint64_t bytes[2];

    if (!probe_read8((const void *)rip, &bytes[0]) ||
        !probe_read8((const void *)(rip + 8), &bytes[1])) {
        kprintf("# code: cannot be read\n");
        return;
    }
    kprintf("# code:");
    for (unsigned i = 0; i < 16; i++)
        kprintf(" %02x", (unsigned)(bytes[i / 8] >> (8 * (i % 8)) & 0xff));
    kprintf("\n");
}

void trap_print_frame(const struct trap_frame *f)
{
    const char *ist = gdt_ist_name(f->rsp);

    kprintf("# vector=%lu error=0x%lx rip=%016lx cs=%04lx rflags=%08lx rsp=%016lx ss=%04lx%s%s\n",
            f->vector, f->error, f->rip, f->cs & 0xffff, f->rflags, f->rsp, f->ss & 0xffff,
            ist ? " on the stack of " : "", ist ? ist : "");
    kprintf("# rax=%016lx rbx=%016lx rcx=%016lx rdx=%016lx\n", f->rax, f->rbx, f->rcx, f->rdx);
    kprintf("# rsi=%016lx rdi=%016lx rbp=%016lx r8 =%016lx\n", f->rsi, f->rdi, f->rbp, f->r8);
    kprintf("# r9 =%016lx r10=%016lx r11=%016lx r12=%016lx\n", f->r9, f->r10, f->r11, f->r12);
    kprintf("# r13=%016lx r14=%016lx r15=%016lx\n", f->r13, f->r14, f->r15);
    kprintf("# cr0=%08lx cr2=%016lx cr3=%016lx cr4=%08lx\n", READ_CR(0), READ_CR(2), READ_CR(3),
            READ_CR(4));
    print_code(f->rip);
}

/* ret: the address is a return address, which may lie behind the last instruction of the caller. */
static void print_address(uintptr_t addr, bool ret)
{
    uint32_t offset;
    const char *name = symbol_lookup(addr - ret, &offset);

    if (name)
        kprintf("#   %016lx %s+0x%x\n", addr, name, offset + ret);
    else
        kprintf("#   %016lx ?\n", addr);
}

/* True if addr lies behind a call with a 32-bit displacement: it looks like a return address. */
static bool follows_call(uintptr_t addr)
{
    uint64_t bytes;

    return symbol_is_text(addr - 5) && probe_read8((const void *)(addr - 5), &bytes) &&
           (bytes & 0xff) == 0xe8;
}

static void print_chain(uintptr_t rbp)
{
    uint64_t next, ret;
    unsigned n;

    for (n = 0; n < BACKTRACE_MAX; n++) {
        if (rbp == 0 || !IS_ALIGNED(rbp, sizeof(uintptr_t)))
            return;
        if (!probe_read8((const void *)rbp, &next) ||
            !probe_read8((const void *)(rbp + sizeof(uintptr_t)), &ret))
            return;
        if (ret == 0)
            return;
        print_address(ret, true);
        /* A stack grows down, so callers' frames lie higher; another stack ends the chain. */
        if (!symbol_is_text(ret) || next <= rbp || next - rbp > FRAME_MAX)
            return;
        rbp = next;
    }
    kprintf("#   ...\n");
}

void backtrace_print_chain(uintptr_t rbp)
{
    kprintf("# backtrace:\n");
    print_chain(rbp);
}

void backtrace_print(uintptr_t rip, uintptr_t rbp)
{
    kprintf("# backtrace:\n");
    print_address(rip, false);
    print_chain(rbp);
}

/* The compilers leave out the frame of a function that calls nothing; then the chain lacks its
 * caller, whose address is still the last thing on the stack. */
void backtrace_print_frame(const struct trap_frame *f)
{
    uint64_t ret;

    kprintf("# backtrace:\n");
    print_address(f->rip, false);
    if (probe_read8((const void *)f->rsp, &ret) && follows_call(ret))
        print_address(ret, true);
    print_chain(f->rbp);
}
