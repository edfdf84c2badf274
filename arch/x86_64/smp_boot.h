/*
 * smp_boot.h: what smp_boot.c, smp.c and trampoline.asm share about starting CPUs. Private to them.
 */
#ifndef SMP_BOOT_H
#define SMP_BOOT_H

#include "lib/base.h"

/*
 * A CPU's way, each step by compare-and-swap where two could take it:
 *   waiting -> arrived   by the CPU itself, in trampoline.asm
 *   arrived -> ready     by the CPU, when it can take interrupts
 *   arrived -> refused   by the CPU, when it cannot be used
 *   waiting -> held -> waiting   by the boot CPU, around a second INIT
 *   waiting, arrived -> abandoned   by the boot CPU
 * A CPU that loses a step halts for good.
 */
enum ap_state { AP_NONE, AP_WAITING, AP_ARRIVED, AP_READY, AP_REFUSED, AP_HELD, AP_ABANDONED };

/* One for each CPU to start. The first three fields are known to trampoline.asm. */
struct ap_slot {
    uint32_t apic_id;
    uint32_t state; /* enum ap_state */
    void *stack_top;
    void *tables; /* for gdt_init_cpu() */
    unsigned cpu; /* its number: provisional at first */
    uint32_t node;
    uint32_t go; /* set by the boot CPU: the number is final */
} __cacheline;

_Static_assert(sizeof(struct ap_slot) == 64, "trampoline.asm: SLOT_SIZE");
_Static_assert(offsetof(struct ap_slot, apic_id) == 0, "trampoline.asm: SLOT_APIC_ID");
_Static_assert(offsetof(struct ap_slot, state) == 4, "trampoline.asm: SLOT_STATE");
_Static_assert(offsetof(struct ap_slot, stack_top) == 8, "trampoline.asm: SLOT_STACK");
_Static_assert(AP_WAITING == 1 && AP_ARRIVED == 2, "trampoline.asm: AP_WAITING, AP_ARRIVED");

/* Constant while CPUs start. */
extern struct ap_slot *ap_slots;
extern uint32_t ap_slot_count;
extern volatile void *ap_apic_mmio; /* the local APIC's registers; NULL in x2APIC mode */
extern uint32_t ap_strays;          /* CPUs that came and found no slot, or not theirs any more */

/* In trampoline.asm. */
extern const char __trampoline_start[], __trampoline_end[], trampoline_fields[];
void ap_entry(void);
/* Called by it. */
void smp_ap_main(struct ap_slot *slot) __noreturn;

/* What a CPU is, by its number; written before the number is in use. */
struct cpu_entry {
    uint32_t apic_id;
    uint32_t node;
};

/* smp.c: takes the table (`n` entries) and lets CPUs 0 .. n-1 be addressed. */
void smp_set_entries(const struct cpu_entry *table, unsigned n);
/* smp.c: all that are addressable are in use from here on. */
void smp_set_online(void);
/* smp.c: runs what the CPU is called for, halts in between. Interrupts masked. */
void smp_idle_loop(void) __noreturn;

#endif
