/*
 * remote_stress.h: the ends of the default design's blocks: frees by other CPUs, blocks that become
 * empty and go back, purges that delete them, and CPUs that want the purge's mutex all at once.
 */
#ifndef TESTS_HOST_SIM_REMOTE_STRESS_H
#define TESTS_HOST_SIM_REMOTE_STRESS_H

#include "tests/host/sim/sim.h"

/* One schedule on a fresh machine. False: a rule was broken. */
bool remote_stress_run(uint64_t seed);

#endif
