/*
 * gen_stress.h: flush generations by themselves: CPUs that clear, stamp, advance, wait, halt, wake
 * and reuse as fast as they can.
 */
#ifndef TESTS_HOST_SIM_GEN_STRESS_H
#define TESTS_HOST_SIM_GEN_STRESS_H

#include "tests/host/sim/sim.h"

/* One schedule on a fresh machine without mm/. False: a rule was broken. */
bool gen_stress_run(uint64_t seed);
/* The same of tlb_gen_wait() among CPUs that do not halt. */
bool gen_wait_run(uint64_t seed);

#endif
