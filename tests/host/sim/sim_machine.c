/*
 * sim_machine.c: builds a simulated machine from its options.
 */
#include "tests/host/sim/internal.h"

#include <stdio.h>
#include <stdlib.h>

#define RAM_DEFAULT (64 * SZ_1M)

void sim_machine(const struct sim_options *o)
{
    sim_opt = *o;
    if (!sim_opt.ram)
        sim_opt.ram = RAM_DEFAULT;
    if (!sim_opt.cpus)
        sim_opt.cpus = 1;
    if (!sim_opt.nodes)
        sim_opt.nodes = 1;
    if (sim_opt.cpus > SIM_MAX_CPUS) {
        fprintf(stderr, "sim: %u CPUs, at most %u\n", sim_opt.cpus, SIM_MAX_CPUS);
        exit(2);
    }
    sim_mem_reset();
    sim_cpu_reset();
    sim_arch_reset();
    sim_lock_reset();
    oracle_reset();
}

const struct sim_options *sim_options(void)
{
    return &sim_opt;
}
