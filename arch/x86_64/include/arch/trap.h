/*
 * trap.h: exceptions and interrupts: what a handler is told, and how tests provoke faults on
 * purpose.
 */
#ifndef ARCH_TRAP_H
#define ARCH_TRAP_H

#include "lib/base.h"

/* Registers as the entry code pushes them. */
struct trap_frame {
    uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
    uint64_t vector, error;
    uint64_t rip, cs, rflags, rsp, ss;
};

#define VECTOR_NMI       2
#define VECTOR_IRQ_FIRST 32 /* below: exceptions */

/* Fills the IDT, once, on the boot CPU. */
void idt_init(void);
/* Loads it; every CPU, after its GDT. */
void idt_load(void);

/*
 * fn runs for `vector` (32..255) with interrupts masked; the dispatcher sends the EOI after it, so
 * fn must not. NULL takes it out. Once, before the vector can come.
 */
void irq_register(unsigned vector, void (*fn)(struct trap_frame *f));
/* `vector` is the APIC's spurious one: counted apart, never acknowledged. */
void irq_register_spurious(unsigned vector);
/* How to acknowledge, and to find out whether an unexpected vector came through the APIC (its bit
 * in the ISR). NULL until the APIC is up: then no EOI is sent. */
void irq_set_eoi(void (*eoi)(void), bool (*in_service)(unsigned vector));
/* Spurious interrupts since start, all CPUs. */
uint64_t trap_spurious(void);

/* Accesses that may fault (fixup table): false if they did. Any context but NMI. */
bool probe_read8(const volatile void *addr, uint64_t *value);
bool probe_write8(volatile void *addr, uint64_t value);
/* Calls the code at addr; false if the fetch faulted (NX, not present). It must be a `ret`. */
bool probe_exec(const void *addr);
/* CR2 and error code of the last fault that a probe of this CPU took. */
struct fault_info {
    uint64_t addr, error;
};
void probe_last_fault(struct fault_info *f);

/* Called for a fault in the vmap range before the panic, to say what the address is (mm sets it).
 */
extern void (*trap_describe_address)(uintptr_t addr);
/* Name of what this CPU is running, printed with every exception (the test runner sets it). */
void trap_set_task_name(const char *name);
const char *trap_task_name(unsigned cpu);
/* Called in NMI context on this CPU; NULL = count and report. */
void nmi_set_hook(void (*fn)(struct trap_frame *f));
/* Unexpected vectors and NMIs since start. */
uint64_t trap_unexpected(void);
/* Interrupts taken by this CPU; a timed sample during which it moved is not a clean one. */
uint64_t trap_irq_count(void);

/* What the innermost interrupt handler of this CPU has interrupted; NULL outside handlers. */
const struct trap_frame *trap_irq_frame(void);

/* The HLT of cpu_idle_wait() and what is behind it. A handler whose frame's rip is at the first one
 * returns to the second one, so that an NMI ends the HLT that it came before, too. */
extern const char cpu_halt_hlt[], cpu_halt_end[];

/* Prints the call chain by frame pointers, each with its symbol. Any context. */
void backtrace_print(uintptr_t rip, uintptr_t rbp);

#endif
