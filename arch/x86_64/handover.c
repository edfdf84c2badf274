/*
 * handover.c: saves what the kernel changes in the processor, runs the kernel, restores it.
 *
 * One function for all three: shadow stacks (CR4.CET), if the front door runs with them, are
 * switched off and on again at the same depth of calls, so that the shadow stack still fits.
 * Segment limits and attributes come back by loading the selectors from the old GDT; bases by MSR.
 * Nothing here needs memory but the stack.
 */
#include "lib/base.h"
#include <arch/cpu.h>
#include <arch/handover.h>

#define CR4_CET       BIT(23)
#define MSR_S_CET     0x6a2
#define GDT_TI        0x4 /* selector bit: in the LDT */
#define TSS_BUSY      BIT(41)
#define TSS_TYPE      (0xfULL << 40)
#define TSS_TYPE_BUSY (0xbULL << 40)

struct table_ptr {
    uint16_t limit;
    uint64_t base;
} __packed;

struct saved {
    uint64_t cr0, cr3, cr4, efer, pat, s_cet;
    uint64_t fs_base, gs_base, kgs_base, rflags;
    uint64_t dr[4], dr6, dr7;
    struct table_ptr gdtr, idtr;
    uint16_t cs, ds, es, ss, fs, gs, tr, ldtr;
    bool pat_there;
};

#define READ_SEG(name)                                                                             \
    ({                                                                                             \
        uint16_t sel_;                                                                             \
        __asm__ volatile("movw %%" #name ", %0" : "=rm"(sel_));                                    \
        sel_;                                                                                      \
    })
#define WRITE_SEG(name, v) __asm__ volatile("movl %0, %%" #name ::"r"((uint32_t)(v)) : "memory")
#define READ_DR(n)                                                                                 \
    ({                                                                                             \
        uint64_t dr_;                                                                              \
        __asm__ volatile("movq %%dr" #n ", %0" : "=r"(dr_));                                       \
        dr_;                                                                                       \
    })
#define WRITE_DR(n, v) __asm__ volatile("movq %0, %%dr" #n ::"r"((uint64_t)(v)))

static void save_segments(struct saved *s)
{
    s->cs = READ_SEG(cs);
    s->ds = READ_SEG(ds);
    s->es = READ_SEG(es);
    s->ss = READ_SEG(ss);
    s->fs = READ_SEG(fs);
    s->gs = READ_SEG(gs);
    __asm__ volatile("sgdt %0" : "=m"(s->gdtr));
    __asm__ volatile("sidt %0" : "=m"(s->idtr));
    __asm__ volatile("str %0" : "=rm"(s->tr));
    __asm__ volatile("sldt %0" : "=rm"(s->ldtr));
    s->fs_base = rdmsr(MSR_FS_BASE);
    s->gs_base = rdmsr(MSR_GS_BASE);
    s->kgs_base = rdmsr(MSR_KGS_BASE);
}

static void save(struct saved *s)
{
    uint32_t a, b, c, d;

    s->cr0 = READ_CR(0);
    s->cr3 = READ_CR(3);
    s->cr4 = READ_CR(4);
    s->efer = rdmsr(MSR_EFER);
    cpuid(1, 0, &a, &b, &c, &d);
    s->pat_there = d & BIT(16);
    s->pat = s->pat_there ? rdmsr(MSR_PAT) : 0;
    s->dr7 = READ_DR(7);
    WRITE_DR(7, 0x400);
    s->dr[0] = READ_DR(0);
    s->dr[1] = READ_DR(1);
    s->dr[2] = READ_DR(2);
    s->dr[3] = READ_DR(3);
    s->dr6 = READ_DR(6);
    save_segments(s);
}

/* LTR refuses a TSS that is marked busy, which the old one still is. */
static void load_tr(const struct saved *s)
{
    uint64_t *desc = (uint64_t *)(s->gdtr.base + (s->tr & ~7u));

    if ((s->tr & ~3u) == 0 || (s->tr & GDT_TI))
        return;
    if ((*desc & TSS_TYPE) == TSS_TYPE_BUSY)
        *desc &= ~TSS_BUSY;
    __asm__ volatile("ltr %0" ::"r"(s->tr) : "memory");
}

static void restore_segments(const struct saved *s)
{
    __asm__ volatile("lgdt %0" ::"m"(s->gdtr) : "memory");
    __asm__ volatile("lidt %0" ::"m"(s->idtr) : "memory");
    __asm__ volatile("pushq %0\n\t"
                     "leaq 1f(%%rip), %%rax\n\t"
                     "pushq %%rax\n\t"
                     "lretq\n"
                     "1:"
                     :
                     : "r"((uint64_t)s->cs)
                     : "rax", "memory");
    __asm__ volatile("lldt %0" ::"r"(s->ldtr) : "memory");
    load_tr(s);
    WRITE_SEG(ds, s->ds);
    WRITE_SEG(es, s->es);
    WRITE_SEG(ss, s->ss);
    WRITE_SEG(fs, s->fs);
    WRITE_SEG(gs, s->gs);
    wrmsr(MSR_FS_BASE, s->fs_base);
    wrmsr(MSR_GS_BASE, s->gs_base);
    wrmsr(MSR_KGS_BASE, s->kgs_base);
}

/*
 * CR3 first and without write protection, since the old GDT is reached and marked through the old
 * tables; PGE off drops the kernel's global entries; EFER.NXE must be as the old tables need it
 * before CR3 is loaded, and the kernel's tables need it set: it is cleared, if at all, after.
 */
static void restore(const struct saved *s)
{
    uint64_t cr4 = READ_CR(4);

    WRITE_CR(0, READ_CR(0) & ~CR0_WP);
    WRITE_CR(4, cr4 & ~CR4_PGE);
    WRITE_CR(3, s->cr3 & ~0xfffULL);
    wrmsr(MSR_EFER, s->efer);
    if (s->pat_there)
        cpu_set_pat(s->pat);
    restore_segments(s);
    WRITE_DR(0, s->dr[0]);
    WRITE_DR(1, s->dr[1]);
    WRITE_DR(2, s->dr[2]);
    WRITE_DR(3, s->dr[3]);
    WRITE_DR(6, s->dr6);
    WRITE_DR(7, s->dr7);
    WRITE_CR(0, s->cr0);
    /* PCIDE may be set only while CR3[11:0] is 0; then CR3 as it was. */
    WRITE_CR(4, s->cr4 & ~CR4_CET);
    WRITE_CR(3, s->cr3);
}

uint64_t handover_call(uint64_t (*fn)(void *arg), void *arg)
{
    struct saved s;
    uint64_t result;

    s.rflags = irq_save();
    s.s_cet = 0;
    s.cr4 = READ_CR(4);
    if (s.cr4 & CR4_CET) {
        s.s_cet = rdmsr(MSR_S_CET);
        wrmsr(MSR_S_CET, 0);
        WRITE_CR(4, s.cr4 & ~CR4_CET);
        save(&s);
        s.cr4 |= CR4_CET;
    } else {
        save(&s);
    }
    result = fn(arg);
    irq_disable();
    restore(&s);
    if (s.cr4 & CR4_CET) {
        WRITE_CR(4, s.cr4);
        wrmsr(MSR_S_CET, s.s_cet);
    }
    irq_restore(s.rflags);
    return result;
}
