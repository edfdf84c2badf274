/*
 * idt.c: the interrupt descriptor table, one for all CPUs, constant after idt_init().
 *
 * All gates are interrupt gates: handlers run with interrupts masked.
 */
#include "lib/base.h"
#include <arch/gdt.h>
#include <arch/trap.h>

#define VECTORS      256
#define STUB_SIZE    16      /* trap_entry.asm */
#define GATE_PRESENT 0x8e00u /* present, ring 0, 64-bit interrupt gate */

/* SDM 3A 6.14.1. */
struct gate {
    uint16_t offset_low;
    uint16_t selector;
    uint16_t ist_type;
    uint16_t offset_mid;
    uint32_t offset_high;
    uint32_t reserved;
};
_Static_assert(sizeof(struct gate) == 16, "SDM 3A figure 6-8");

struct table_ptr {
    uint16_t limit;
    uint64_t base;
} __packed;

extern const char trap_stubs[], trap_stubs_end[];

static struct gate idt[VECTORS] __aligned(4096);

static unsigned vector_ist(unsigned vector)
{
    switch (vector) {
    case 2:
        return IST_NMI;
    case 8:
        return IST_DF;
    case 18:
        return IST_MC;
    default:
        return 0;
    }
}

void idt_init(void)
{
    unsigned v;

    for (v = 0; v < VECTORS; v++) {
        uint64_t entry = (uint64_t)trap_stubs + v * STUB_SIZE;

        idt[v] = (struct gate){
            .offset_low = (uint16_t)entry,
            .selector = SEL_CODE64,
            .ist_type = (uint16_t)(GATE_PRESENT | vector_ist(v)),
            .offset_mid = (uint16_t)(entry >> 16),
            .offset_high = (uint32_t)(entry >> 32),
        };
    }
}

void idt_load(void)
{
    struct table_ptr idtr = {sizeof(idt) - 1, (uint64_t)idt};

    __asm__ volatile("lidt %0" ::"m"(idtr) : "memory");
}
