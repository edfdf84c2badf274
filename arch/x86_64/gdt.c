/*
 * gdt.c: GDT, TSS and IST stacks of each CPU.
 *
 * One block of memory per CPU: a page for the tables, then the stacks for #MC, NMI and #DF. Each
 * stack has a magic word at its end, which tells an overflow from other damage. Descriptors have
 * the Accessed bit set, so that loading a segment writes nothing (SDM 3A 3.4.5.1).
 *
 * FS and GS selectors are left alone: only their bases count in 64-bit mode, and loading a selector
 * would clear the base that per-CPU variables need.
 */
#include "lib/assert.h"
#include "lib/base.h"
#include "lib/string.h"
#include <arch/cpu.h>
#include <arch/gdt.h>
#include <arch/page.h>
#include <arch/percpu.h>

#define DESC_CODE64 0x00af9b000000ffffULL /* present, ring 0, code, readable, accessed, L */
#define DESC_DATA   0x00cf93000000ffffULL /* present, ring 0, data, writable, accessed */
#define DESC_TSS    0x89ULL               /* present, available 64-bit TSS */

#define STACK_DF  16384 /* panics from here */
#define STACK_NMI 8192
#define STACK_MC  8192
#define CANARY    0x6e6b636174536349ULL

/* SDM 3A 8.7: the 64-bit TSS. */
struct tss {
    uint32_t reserved0;
    uint64_t rsp[3];
    uint64_t reserved1;
    uint64_t ist[7];
    uint64_t reserved2;
    uint16_t reserved3;
    uint16_t iomap; /* beyond the limit: no I/O bitmap */
} __packed;
_Static_assert(sizeof(struct tss) == 104, "SDM 3A figure 8-11");

struct cpu_tables {
    uint64_t gdt[5]; /* null, code, data, TSS (two words) */
    struct tss tss __aligned(16);
    uint8_t mc[STACK_MC] __aligned(PAGE_SIZE);
    uint8_t nmi[STACK_NMI] __aligned(PAGE_SIZE);
    uint8_t df[STACK_DF] __aligned(PAGE_SIZE);
} __aligned(PAGE_SIZE);

struct table_ptr {
    uint16_t limit;
    uint64_t base;
} __packed;

struct ist_range {
    const char *name;
    uint8_t *base;
    size_t size;
};

static struct cpu_tables boot_tables;
static DEFINE_PER_CPU(struct cpu_tables *, own_tables);

static void ist_ranges(struct cpu_tables *t, struct ist_range r[IST_COUNT])
{
    r[IST_DF - 1] = (struct ist_range){"#DF", t->df, STACK_DF};
    r[IST_NMI - 1] = (struct ist_range){"NMI", t->nmi, STACK_NMI};
    r[IST_MC - 1] = (struct ist_range){"#MC", t->mc, STACK_MC};
}

static void tables_fill(struct cpu_tables *t)
{
    uint64_t tss = (uint64_t)&t->tss;
    struct ist_range r[IST_COUNT];
    unsigned i;

    memset(t, 0, offsetof(struct cpu_tables, mc));
    t->gdt[SEL_CODE64 / 8] = DESC_CODE64;
    t->gdt[SEL_DATA / 8] = DESC_DATA;
    t->gdt[SEL_TSS / 8] = (sizeof(struct tss) - 1) | (tss & 0xffffff) << 16 | DESC_TSS << 40 |
                          (tss >> 24 & 0xff) << 56;
    t->gdt[SEL_TSS / 8 + 1] = tss >> 32;
    t->tss.iomap = sizeof(struct tss);
    ist_ranges(t, r);
    for (i = 0; i < IST_COUNT; i++) {
        *(uint64_t *)r[i].base = CANARY;
        t->tss.ist[i] = (uint64_t)r[i].base + r[i].size;
    }
}

/* CS can only be loaded by a far transfer: a far return to the next instruction. */
static void tables_load(struct cpu_tables *t)
{
    struct table_ptr gdtr = {sizeof(t->gdt) - 1, (uint64_t)t->gdt};

    __asm__ volatile("lgdt %0\n\t"
                     "pushq %1\n\t"
                     "leaq 1f(%%rip), %%rax\n\t"
                     "pushq %%rax\n\t"
                     "lretq\n"
                     "1:\n\t"
                     "movl %2, %%eax\n\t"
                     "movl %%eax, %%ds\n\t"
                     "movl %%eax, %%es\n\t"
                     "movl %%eax, %%ss\n\t"
                     "xorl %%eax, %%eax\n\t"
                     "lldt %%ax\n\t"
                     "movl %3, %%eax\n\t"
                     "ltr %%ax"
                     :
                     : "m"(gdtr), "i"(SEL_CODE64), "i"(SEL_DATA), "i"(SEL_TSS)
                     : "rax", "memory");
    *this_cpu_ptr(&own_tables) = t;
}

void gdt_init_boot(void)
{
    tables_fill(&boot_tables);
    tables_load(&boot_tables);
}

size_t gdt_cpu_size(void)
{
    return sizeof(struct cpu_tables);
}

void gdt_init_cpu(void *mem)
{
    ASSERT(IS_ALIGNED((uintptr_t)mem, PAGE_SIZE));
    tables_fill(mem);
    tables_load(mem);
}

bool gdt_stacks_intact(void)
{
    struct cpu_tables *t = *this_cpu_ptr(&own_tables);
    struct ist_range r[IST_COUNT];
    unsigned i;

    if (!t)
        return true;
    ist_ranges(t, r);
    for (i = 0; i < IST_COUNT; i++) {
        if (*(uint64_t *)r[i].base != CANARY)
            return false;
    }
    return true;
}

const char *gdt_ist_name(uintptr_t rsp)
{
    struct cpu_tables *t = *this_cpu_ptr(&own_tables);
    struct ist_range r[IST_COUNT];
    unsigned i;

    if (!t)
        return NULL;
    ist_ranges(t, r);
    for (i = 0; i < IST_COUNT; i++) {
        if (rsp - (uintptr_t)r[i].base <= r[i].size)
            return r[i].name;
    }
    return NULL;
}
