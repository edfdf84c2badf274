/*
 * internal.h: what the parts of the simulation share. Not for tests.
 */
#ifndef TESTS_HOST_SIM_INTERNAL_H
#define TESTS_HOST_SIM_INTERNAL_H

#include "tests/host/sim/sim.h"
#include "sim_point.h"

#define SIM_CPU_WORDS (SIM_MAX_CPUS / 64)

extern struct sim_options sim_opt;
extern struct sim_cpu sim_cpus[SIM_MAX_CPUS];
extern bool sim_running; /* inside sim_run() */

/* sim_cpu.c */
uint64_t sim_steps(void); /* of the scheduler */
void sim_cpu_reset(void);
void sim_leave_run(void) __noreturn; /* by schedule: abandons all CPUs */
/* Lets a CPU notice what is pending. */
void sim_kick(unsigned cpu, uint32_t what);

/* sim_mem.c */
void sim_mem_reset(void);
uint64_t sim_frames(void);
/* They have been given out, so the next machine must find them as they were. */
void sim_frames_touched(uint64_t pfn, uint64_t n);

/* sim_arch.c */
void sim_arch_reset(void);
void sim_serve_tlb(struct sim_cpu *c);
void sim_serve_calls(struct sim_cpu *c);
/* Does what smp_call() asked this CPU for; false if nothing. Interrupts are masked but for that. */
bool sim_run_task(void);

/* sim_lock.c */
void sim_lock_reset(void);
const char *sim_lock_name(void); /* class of the lock this CPU took last */

/* sim_oracle.c, oracle_tables.c */
void oracle_reset(void);
/* CPU `cpu` drops [start, end), or everything. */
void oracle_flush(unsigned cpu, uintptr_t start, uintptr_t end, bool full);
void oracle_frames_taken(uint64_t pfn, uint64_t n);
void oracle_frames_freed(uint64_t pfn, uint64_t n);
/*
 * Between the two, CPU `cpu` is halted, or on its way there or back without touching what could
 * have been reused: it may hold old translations of addresses that are reused, if it drops them
 * before the end. Tables are no part of that.
 */
void oracle_idle_begin(unsigned cpu);
bool oracle_idle_end(unsigned cpu); /* false: it was not */
/* Notes an access of this CPU, which caches its translation. */
void oracle_used(uintptr_t va);
bool oracle_stale_here(uintptr_t va);

/* Brackets of a call into mm/: what it unmaps counts as unmapped once it has returned. */
bool oracle_call_begin(void);
void oracle_call_end(bool outermost);
/* Brackets of vm_unmap_aliases(). */
struct oracle_promise {
    uint64_t time;
    uint64_t call_since[SIM_MAX_CPUS];
};
void oracle_aliases_begin(struct oracle_promise *p);
void oracle_aliases_end(const struct oracle_promise *p);

#endif
