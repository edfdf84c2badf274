/*
 * driver.h: random operations over all of mm/vmalloc.h on the simulated machine, judged by the
 * oracle and by a model: which intervals are live, and what every page of them must hold.
 *
 * One driver for the seeds, for TSan and for the fuzzer: only the source of its choices differs (a
 * seeded generator per CPU, or the fuzzer's bytes), and whether the CPUs run by schedule or free.
 */
#ifndef TESTS_HOST_SIM_DRIVER_H
#define TESTS_HOST_SIM_DRIVER_H

#include "tests/host/sim/boot.h"

struct driver_plan {
    struct sim_options machine;
    struct sim_boot boot;
    unsigned ops;       /* per CPU */
    unsigned slots;     /* areas that a CPU may have live, at most DRIVER_SLOTS */
    unsigned pages_max; /* of one area, mostly */
    unsigned bias;      /* which makers are preferred, below DRIVER_BIASES */
    uint32_t storm; /* an interrupt that allocates and frees every so many marked points; 0: none */
    uint32_t nmis;  /* an NMI that looks up every so many marked points; 0: none */
    bool inject;    /* now and then some requests of one kind fail */
    bool ample;     /* memory and addresses suffice: a failed call is a failure */
    const uint8_t *data; /* choices; NULL: from the machine's seed */
    size_t size;
};

#define DRIVER_SLOTS  32
#define DRIVER_BIASES 5

/* Makes a plan of the seed: machine, allocator and load. */
void driver_plan_for(struct driver_plan *p, uint64_t seed);
/* The same from a fuzzer's bytes: the first ones make the plan, the rest the operations. */
void driver_plan_from(struct driver_plan *p, const uint8_t *data, size_t size);
/* Builds the machine, starts mm/, runs, frees everything, checks that all is back, and takes mm/
 * down. */
bool driver_run(const struct driver_plan *p);
void driver_print_plan(const struct driver_plan *p);

/* Since program start. */
struct driver_stats {
    uint64_t operations, failed_calls, bad_calls, verified_pages;
};
extern struct driver_stats driver_stats;

#endif
