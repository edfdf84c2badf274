/*
 * sim.h: a simulated machine for mm/ on the host: CPUs, interrupts, physical memory, page tables,
 * translation caches, and an oracle that judges what the code does with them. For tests; mm/ sees
 * only <arch/...>.
 *
 * Two ways to run: by schedule (one OS thread, CPUs are fibers, a seeded choice at marked points
 * decides who runs: the same seed gives the same run) and free (a pthread per CPU, for TSan and for
 * real concurrency). Use: sim_machine(&options); [sim_boot()]; sim_run(n, fn, arg); sim_failure().
 */
#ifndef TESTS_HOST_SIM_H
#define TESTS_HOST_SIM_H

#include "lib/base.h"
#include "lib/rng.h"
#include <arch/page.h>
#include <arch/pte.h>

#define SIM_MAX_CPUS 128

/* What the oracle can find. The names are in sim_rule_names. */
enum sim_rule {
    SIM_OK,
    SIM_REUSE,        /* an address got a translation while a CPU still held its old one */
    SIM_FRAME,        /* frames=safe: a frame was given back or out while a stale entry led to it */
    SIM_TABLE,        /* a table page was freed or moved while a CPU could still walk it */
    SIM_COVER,        /* vm_unmap_aliases returned before all that was unmapped was flushed */
    SIM_GLOBAL,       /* a global entry in the vmap range */
    SIM_LOCK_HELD,    /* a lock was held while waiting for a shootdown */
    SIM_WX,           /* an entry that is writable and executable */
    SIM_OVERWRITE,    /* a live entry was replaced by one for another frame */
    SIM_MAPPED,       /* a frame was freed while an entry maps it */
    SIM_OWNER,        /* a frame was given out twice or freed twice */
    SIM_STALE_ACCESS, /* an access went through a stale translation */
    SIM_LOCK_ORDER,   /* two lock classes taken in both orders, or one lock twice */
    SIM_LOCK_IRQ,     /* a lock of an interrupt handler taken with interrupts on */
    SIM_CONTEXT,      /* a call returned with a lock held or the interrupt flag changed */
    SIM_HANG,         /* no CPU got anywhere */
    SIM_PANIC,        /* panic() or an assertion of the code */
    SIM_TEST,         /* what a test itself found */
    SIM_RULES
};
extern const char *const sim_rule_names[];

/* How eagerly the CPUs cache what they were not asked for. */
enum sim_caching {
    SIM_CACHE_WORST,  /* every CPU holds every present entry at any time */
    SIM_CACHE_RANDOM, /* what it used, and each present entry with even chance */
    SIM_CACHE_USED,   /* only what it used */
};

/* Faults planted in the machine itself, to show that the oracle notices. */
enum sim_mutation {
    SIM_MUTATE_NONE,
    SIM_MUTATE_SKIP_CPU,   /* a shootdown leaves one CPU out */
    SIM_MUTATE_SHORT,      /* a ranged shootdown ends a page early; a full one is not done */
    SIM_MUTATE_LOCAL,      /* a shootdown is done on the own CPU only */
    SIM_MUTATE_GLOBAL,     /* leaf entries become global */
    SIM_MUTATE_WX,         /* leaf entries become writable and executable */
    SIM_MUTATE_NO_FULL,    /* full flushes are not done */
    SIM_MUTATE_LOST_CLEAR, /* now and then a cleared entry stays */
};

struct sim_options {
    uint64_t seed;
    size_t ram;     /* bytes, default 64 MiB */
    unsigned cpus;  /* online, default 1 */
    unsigned nodes; /* NUMA nodes the memory is split into, default 1 */
    bool free_running;
    bool no_oracle;   /* free_running under TSan: the oracle's lock would order everything */
    bool frames_safe; /* the rule SIM_FRAME is in force */
    enum sim_caching caching;
    enum sim_mutation mutation;
    bool turns;           /* smp_cpus_take_turns() */
    uint64_t step_ns;     /* simulated time per turn, default 1 us */
    uint64_t storm_steps; /* turns of a run after which storms are over; 0 = default */
    uint64_t hang_steps;  /* pauses without anything else until SIM_HANG; 0 = default */
};

/* Builds a machine, forgetting the one before: memory undefined, no table below the root, every
 * variable of mm/ as at program start (see sim_reset.c). */
void sim_machine(const struct sim_options *o);
const struct sim_options *sim_options(void);
/* The memory map that page_alloc_init() takes; *count entries. */
struct mem_range;
const struct mem_range *sim_memory_map(size_t *count);

/* Runs fn(arg) on CPUs 0 .. n - 1 at once. True if all returned and no rule was broken. By
 * schedule a failure ends the run where it stands, and the machine is only good for sim_machine().
 */
bool sim_run(unsigned n, void (*fn)(void *arg), void *arg);
/* The same on CPU 0 alone; for set-up and checks that may fail. */
bool sim_do(void (*fn)(void *arg), void *arg);

/* The first failure since sim_machine(). */
enum sim_rule sim_failure(void);
const char *sim_failure_text(void);
/* Failures are printed unless they are expected. */
extern bool sim_quiet;
/* Reports a failure and, by schedule, does not return. */
void sim_fail(enum sim_rule rule, const char *fmt, ...) __printf(2, 3);
#define SIM_CHECK(cond, ...)                                                                       \
    do {                                                                                           \
        if (unlikely(!(cond)))                                                                     \
            sim_fail(SIM_TEST, __VA_ARGS__);                                                       \
    } while (0)

/* Interrupts: fn(arg) at a marked point of `cpu` with interrupts on (also smp_interrupt of
 * arch/smp.h), or, with sim_irq_storm, at random points of every CPU, once in `every` points on
 * average (0: off). */
void sim_irq_storm(void (*fn)(void), uint32_t every);
/* The same with NMIs, which interrupts off do not hold up. By schedule only. */
void sim_nmi_storm(void (*fn)(void), uint32_t every);

/* Accesses to the vmap range as the CPU's caches and tables translate them; false: it would fault.
 */
bool sim_read8(uintptr_t va, uint64_t *value);
bool sim_write8(uintptr_t va, uint64_t value);
/* True if this CPU still holds a stale translation of any page of [va, va + size). No access is
 * made. */
bool sim_stale_here(uintptr_t va, size_t size);
/* The rule SIM_REUSE for addresses that are handed out before, or without, being mapped (guards).
 */
void sim_check_handed_out(uintptr_t va, size_t size);
/* Stale translations of CPUs that are not halted. */
uint64_t sim_stale_count(void);
/* A frame that its owner frees although stale translations of it may exist, on its own account
 * (pages given to vmap); SIM_FRAME does not apply to it. */
void sim_frame_callers_own(const struct page *page);

/* A number for the way the scheduler went since sim_machine(). */
uint64_t sim_trail(void);

/* Since program start. calls: into the API, from outside mm/. */
struct sim_stats {
    uint64_t schedules, switches, calls, pte_writes, flushes, interrupts, stale_made,
        calmed; /* runs that went on without storms */
};
extern struct sim_stats sim_stats;

#endif
