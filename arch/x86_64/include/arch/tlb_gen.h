/*
 * tlb_gen.h: flush generations: dropping translations everywhere without an interrupt.
 *
 * One number counts generations; each CPU publishes the one it has flushed. Who has cleared entries
 * takes a stamp and may reuse the addresses once every CPU has published that stamp or more. CPUs
 * compare at safe points (allocator calls, interrupts, idle entry and exit, spin loops) and flush
 * themselves. A halted CPU counts as flushed: it flushes before it runs anything that could meet a
 * reused address. Modelled in tests/model/tlb_gen.pml.
 */
#ifndef ARCH_TLB_GEN_H
#define ARCH_TLB_GEN_H

#include "arch/atomic.h"
#include "arch/percpu.h"

/* Read by everybody, written once per generation. */
struct tlb_gen_now {
    uint64_t now;
} __cacheline;
extern struct tlb_gen_now tlb_gen;

/* One CPU's side. Written by that CPU, read by who waits for a generation. */
struct tlb_gen_cpu {
    uint64_t seen; /* flushed at least this generation */
    uint32_t idle; /* halted, or on the way in or out with no address in use that could be reused */
} __cacheline;
DECLARE_PER_CPU(struct tlb_gen_cpu, tlb_gen_cpu);
/* Read sections that this CPU is in, handlers included; nobody else looks. */
DECLARE_PER_CPU(uint64_t, tlb_gen_readers);
/* An interrupt came over a read section and could not publish: its end does. */
DECLARE_PER_CPU(uint64_t, tlb_gen_owed);

void tlb_gen_catch_up(void);

/* Between the two nothing that was found by its address goes away: this CPU publishes no
 * generation. No wait, no store that another CPU reads; any context, NMI too; nests. */
static inline void tlb_gen_read_begin(void)
{
    this_cpu_inc(tlb_gen_readers);
    barrier();
}
/* The end in two parts: true if tlb_gen_read_settle() must follow, which returns true. */
static inline bool tlb_gen_read_leave(void)
{
    barrier();
    this_cpu_add(tlb_gen_readers, -1L);
    return PERCPU_READ_(tlb_gen_owed);
}
bool tlb_gen_read_settle(void);
static inline void tlb_gen_read_end(void)
{
    if (unlikely(tlb_gen_read_leave()))
        tlb_gen_read_settle();
}

/*
 * One compare for all that an allocator's shortest path must know: this CPU has flushed the present
 * generation, is in task context, and nobody has forbidden that path. Equals `seen` when all of it
 * holds.
 */
DECLARE_PER_CPU(uint64_t, tlb_gen_fast);
static inline bool tlb_gen_fast_path(void)
{
    return PERCPU_EQUALS_(tlb_gen_fast, READ_ONCE(tlb_gen.now));
}
/* Who may forbid it. */
enum tlb_gen_reason {
    TLB_GEN_NO_FAST_DESIGN = 1, /* set from the start: the design has no such path */
    TLB_GEN_NO_FAST_INJECT = 2, /* requests must be seen by fault injection */
};
/* Forbids on all CPUs, who notice at once unless they are inside it; or allows again, here at once
 * and elsewhere after the next interrupt or generation. */
void tlb_gen_forbid_fast(enum tlb_gen_reason reason, bool forbid);
bool tlb_gen_fast_forbidden(void);
/* For the entry and exit of interrupts and NMIs. */
void tlb_gen_irq_enter(void);
void tlb_gen_irq_exit(void);

/* There is a generation that this CPU has not flushed. */
static inline bool tlb_gen_behind(void)
{
    return !PERCPU_EQUALS_(tlb_gen_cpu.seen, READ_ONCE(tlb_gen.now));
}

/* A safe point: flushes and publishes if a generation has begun that this CPU has not flushed. Two
 * loads when not. Any context but NMI; inside a read section it is put off to its end. */
static inline void tlb_gen_check(void)
{
    if (unlikely(tlb_gen_behind()))
        tlb_gen_catch_up();
}

/* The stamp for entries that this CPU has cleared before the call: the generation after the present
 * one. Full fence. */
uint64_t tlb_gen_stamp(void);
/* Begins generation `stamp`, unless it has begun. */
void tlb_gen_advance(uint64_t stamp);
/* Every CPU has flushed `stamp`, or is halted. Looks at all CPUs only if the generation has begun
 * and none that looked before saw it end. No wait. */
bool tlb_gen_passed(uint64_t stamp);
/* Every CPU has flushed `stamp`, the halted ones too: for page-table pages, which a CPU that wakes
 * up may walk before it flushes. No wait. */
bool tlb_gen_passed_all(uint64_t stamp);
/* Interrupts those CPUs that have not flushed `stamp` and are not halted; with `halted` also those
 * that are. Returns how many. */
unsigned tlb_gen_kick(uint64_t stamp, bool halted);
/* Advances to `stamp`, kicks whoever is late, and returns when it has passed. In a handler that
 * came over a read section of this CPU, which cannot publish then and for which others may wait,
 * all TLBs are flushed by interrupt instead: no translation is left, but the stamp has not passed.
 * Not in NMI, no lock held. */
void tlb_gen_sync(uint64_t stamp);

/* The same without interrupting anybody: halts until `stamp` has passed, at most `us` microseconds,
 * and is woken by whoever flushes or halts last. For who is ahead of the others where CPUs take
 * turns (smp_cpus_take_turns()): they get on meanwhile. Does not wait where it may not. Returns
 * whether the stamp has passed. Not in NMI, no lock held. */
bool tlb_gen_wait(uint64_t stamp, uint64_t us);
/* CPUs take turns, and this is no handler, interrupts are on, and it is in no read section. */
bool tlb_gen_may_wait(void);

/* For cpu_idle_wait() and the entry of interrupts: tlb.h's idle hooks call them. Interrupts off. */
void tlb_gen_idle_enter(void);
void tlb_gen_idle_exit(void);
/* For NMIs: after the first one its handler meets no translation of what was reused. Returns what
 * the second one must be told. */
bool tlb_gen_nmi_enter(void);
void tlb_gen_nmi_exit(bool was_idle);
static inline bool tlb_gen_is_idle(void)
{
    return PERCPU_READ_(tlb_gen_cpu.idle);
}

/* Generations begun and interrupts sent for them, summed over CPUs. */
uint64_t tlb_gen_begun(void);
uint64_t tlb_gen_kicks(void);

#endif
