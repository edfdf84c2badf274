/*
 * tlb.h: dropping translations, on this CPU and on the others.
 *
 * The vmap range has no global entries, so a CR3 reload drops all of it (and the paging-structure
 * caches) and keeps kernel text and direct map warm (SDM 3A 4.10.4.1). Requests of other CPUs come
 * as IPIs; a CPU that spins with interrupts masked must call tlb_poll() in its loop, and every spin
 * loop of the kernel does (spinlock.h, smp.h). Nobody may call tlb_shootdown*() with a lock held.
 */
#ifndef ARCH_TLB_H
#define ARCH_TLB_H

#include "arch/page.h"

/* Above this many pages one full flush is cheaper than single ones (Linux's default of 33). */
#define TLB_RANGE_MAX_PAGES 33

/* This CPU only; any context. */
void tlb_flush_local_all(void);
void tlb_flush_local_range(uintptr_t start, uintptr_t end);

/*
 * Drops [start, end) on every online CPU, and returns when all have done so. Ranges of more than
 * TLB_RANGE_MAX_PAGES become full flushes. Legal with interrupts masked and in interrupt handlers;
 * not in NMI, not with a spinlock held (asserted in debug builds). Before SMP it is local only.
 */
void tlb_shootdown_range(uintptr_t start, uintptr_t end);
void tlb_shootdown_all(void);

/* Answers a pending request of another CPU, if any. One load when there is none. Any context. */
void tlb_poll(void);

/* Boot CPU, after apic_init(): registers the vector and brings this CPU online. */
void tlb_init(void);
/* From here on the calling CPU is waited for, so it must be able to answer: IDT loaded, APIC on.
 * Drops everything it has cached so far, global entries too (case E2). */
void tlb_cpu_online(void);
/* From here on it is not. When no other CPU is inside a shootdown. */
void tlb_cpu_offline(void);
/* Called by cpu_idle_wait() before and after the HLT, interrupts masked. The IPI protocol needs
 * neither; a protocol that counts halted CPUs as flushed has its two halves here. An interrupt that
 * ends the HLT is handled between the two. */
void tlb_idle_enter(void);
void tlb_idle_exit(void);

/* Counters, summed over CPUs. */
struct tlb_counters {
    uint64_t full;  /* full flushes requested */
    uint64_t range; /* ranged flushes requested */
    uint64_t ipis;  /* IPIs sent for either */
};
void tlb_read_counters(struct tlb_counters *c);

/* Called with (start, end, full) for each shootdown, before it starts; for the tests that log and
 * check what was flushed. NULL = none. */
extern void (*tlb_trace)(uintptr_t start, uintptr_t end, bool full);

#endif
