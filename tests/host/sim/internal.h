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
bool sim_cpu_idle(unsigned cpu); /* runs nothing: interrupts are served on its behalf */
uint64_t sim_steps(void);        /* of the scheduler */
void sim_cpu_reset(void);
void sim_leave_run(void) __noreturn; /* by schedule: abandons all CPUs */
/* Lets a CPU notice what is pending. */
void sim_kick(unsigned cpu, uint32_t what);

/* sim_mem.c */
void sim_mem_reset(void);
uint64_t sim_frames(void);

/* sim_arch.c */
void sim_arch_reset(void);
void sim_serve_tlb(struct sim_cpu *c);
void sim_serve_calls(struct sim_cpu *c);
void sim_lock_reset(void);

/* sim_oracle.c; the caller holds nothing. */
void oracle_reset(void);
void oracle_flush(unsigned cpu, uintptr_t start, uintptr_t end, bool full);
void oracle_frames_taken(uint64_t pfn, uint64_t n);
void oracle_frames_freed(uint64_t pfn, uint64_t n);
void oracle_shootdown(void);

/* sim_api.c: brackets of the calls into mm/. */
void oracle_api_enter(void);
void oracle_api_leave(void);
void oracle_aliases_begin(void);
void oracle_aliases_end(void);

#endif
