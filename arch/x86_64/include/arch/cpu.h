/*
 * cpu.h: this CPU: instructions C cannot say, interrupt masking, identity and features.
 *
 * All functions are for the calling CPU and legal in any context unless said otherwise.
 */
#ifndef ARCH_CPU_H
#define ARCH_CPU_H

#include "lib/base.h"

#define RFLAGS_IF 0x200UL

static inline void cpu_relax(void)
{
    __asm__ volatile("pause" ::: "memory");
}
/* Masks interrupts and returns the old RFLAGS for irq_restore(). */
static inline unsigned long irq_save(void)
{
    unsigned long flags;

    __asm__ volatile("pushfq; popq %0; cli" : "=r"(flags)::"memory");
    return flags;
}
static inline void irq_restore(unsigned long flags)
{
    if (flags & RFLAGS_IF)
        __asm__ volatile("sti" ::: "memory");
}
static inline bool irqs_enabled(void)
{
    unsigned long flags;

    __asm__ volatile("pushfq; popq %0" : "=r"(flags)::"memory");
    return flags & RFLAGS_IF;
}
static inline void irq_enable(void)
{
    __asm__ volatile("sti" ::: "memory");
}
static inline void irq_disable(void)
{
    __asm__ volatile("cli" ::: "memory");
}
/* Halts until an interrupt. Call with interrupts masked after a last check of the wake-up
 * condition: STI takes effect after HLT has begun (SDM 2B, STI), so no wake-up is lost. Returns
 * with interrupts masked again. Counts as idle for the TLB code: see arch/tlb.h. */
void cpu_idle_wait(void);

static inline void cpuid(uint32_t leaf, uint32_t sub, uint32_t *a, uint32_t *b, uint32_t *c,
                         uint32_t *d)
{
    __asm__ volatile("cpuid" : "=a"(*a), "=b"(*b), "=c"(*c), "=d"(*d) : "a"(leaf), "c"(sub));
}
static inline uint64_t rdmsr(uint32_t msr)
{
    uint32_t lo, hi;

    __asm__ volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(msr));
    return ((uint64_t)hi << 32) | lo;
}
static inline void wrmsr(uint32_t msr, uint64_t v)
{
    __asm__ volatile("wrmsr" ::"c"(msr), "a"((uint32_t)v), "d"((uint32_t)(v >> 32)) : "memory");
}
/* RDMSR and WRMSR that survive #GP (fixup table): false if the register is not there. */
bool rdmsr_safe(uint32_t msr, uint64_t *v);
bool wrmsr_safe(uint32_t msr, uint64_t v);

static inline void outb(uint16_t port, uint8_t v)
{
    __asm__ volatile("outb %0, %1" ::"a"(v), "Nd"(port) : "memory");
}
static inline void outw(uint16_t port, uint16_t v)
{
    __asm__ volatile("outw %0, %1" ::"a"(v), "Nd"(port) : "memory");
}
static inline void outl(uint16_t port, uint32_t v)
{
    __asm__ volatile("outl %0, %1" ::"a"(v), "Nd"(port) : "memory");
}
static inline uint8_t inb(uint16_t port)
{
    uint8_t v;

    __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port) : "memory");
    return v;
}
static inline uint16_t inw(uint16_t port)
{
    uint16_t v;

    __asm__ volatile("inw %1, %0" : "=a"(v) : "Nd"(port) : "memory");
    return v;
}
static inline uint32_t inl(uint16_t port)
{
    uint32_t v;

    __asm__ volatile("inl %1, %0" : "=a"(v) : "Nd"(port) : "memory");
    return v;
}

#define READ_CR(n)                                                                                 \
    ({                                                                                             \
        uint64_t cr_;                                                                              \
        __asm__ volatile("mov %%cr" #n ", %0" : "=r"(cr_)::"memory");                              \
        cr_;                                                                                       \
    })
#define WRITE_CR(n, v) __asm__ volatile("mov %0, %%cr" #n ::"r"((uint64_t)(v)) : "memory")

#define CR0_PE    BIT(0)
#define CR0_MP    BIT(1)
#define CR0_ET    BIT(4)
#define CR0_NE    BIT(5)
#define CR0_WP    BIT(16)
#define CR0_CD    BIT(30)
#define CR0_PG    BIT(31)
#define CR4_PAE   BIT(5)
#define CR4_MCE   BIT(6)
#define CR4_PGE   BIT(7)
#define CR4_LA57  BIT(12)
#define CR4_PCIDE BIT(17)

#define MSR_APIC_BASE 0x1b
#define MSR_SMI_COUNT 0x34
#define MSR_PAT       0x277
#define MSR_EFER      0xc0000080
#define MSR_FS_BASE   0xc0000100
#define MSR_GS_BASE   0xc0000101
#define MSR_KGS_BASE  0xc0000102
#define EFER_LME      BIT(8)
#define EFER_LMA      BIT(10)
#define EFER_NXE      BIT(11)

struct cpu_features {
    char vendor[13];
    char brand[49];
    char hypervisor[13]; /* "" on bare metal */
    uint32_t family, model, stepping;
    uint8_t phys_bits, virt_bits;
    bool hypervisor_present, nx, pge, pat, gbpages, la57_active, rdtscp, x2apic, invariant_tsc,
        tsc_deadline, hybrid, aperfmperf, emulated; /* emulated: known to be TCG */
};
extern struct cpu_features cpu_features;
/* Reads CPUID on the boot CPU, once, before anything that asks; after idt_load(). */
void cpu_detect(void);
/* Sets CR0.WP, CR4, EFER.NXE, PAT, clears what firmware left (CR4.PCIDE, TSC-deadline, debug
 * registers); every CPU calls it before it loads tables with NX bits. Later CPUs must end with the
 * boot CPU's values; mismatches are printed. */
void cpu_init_this(void);
/* Changes this CPU's PAT the safe way; interrupts masked. No effect without PAT. */
void cpu_set_pat(uint64_t pat);
/* CR0, CR4, EFER, PAT as this CPU has them now, for the consistency check of case K15. */
struct cpu_state {
    uint64_t cr0, cr3, cr4, efer, pat, mtrr_def;
};
void cpu_read_state(struct cpu_state *s);
/* True if this CPU has the boot CPU's CR0, CR4, EFER, PAT and MTRR default; else prints what
 * differs. */
bool cpu_check_state(void);

#endif
