/*
 * boot.h: starts mm/ on the simulated machine, as the kernel does, and takes it down with all its
 * checks.
 */
#ifndef TESTS_HOST_SIM_BOOT_H
#define TESTS_HOST_SIM_BOOT_H

#include "mm/vmap.h"
#include "tests/host/sim/sim.h"

struct sim_boot {
    unsigned design; /* enum vmap_design; its preset, and what follows is put over it if not 0 */
    uint64_t range_size;
    unsigned nodes;
    uint64_t lazy_max;
    bool no_pools;
    bool frames_safe;
    uint32_t mix; /* options turned round, one bit each (sim_mix()); 0: none */
};

/* Turns options of c round: bit i the one of sim_mix_names[i]; those that then cannot be stay. */
void sim_mix(struct vmap_config *c, uint32_t mix);
#define SIM_MIXES    9
#define SIM_MIX_LOCK 7 /* lock=rw */
extern const char *const sim_mix_names[SIM_MIXES];

/* What is in use when nothing is: for leak checks. */
struct sim_baseline {
    uint64_t free_pages, tables, va_used, cache_pages, index_pages;
};

/* After sim_machine(), outside sim_run() or on CPU 0 inside. It must succeed. */
void sim_boot(const struct sim_boot *b);
struct vmap_counters sim_counters(void);
/* Empties every CPU's caches (each in its own context), and checks all structures. Needs all areas
 * freed; NULL base: some are live, so only the structures are checked. Outside sim_run(). True if
 * sound; else the failure is SIM_TEST. */
bool sim_settle(struct sim_baseline *now);
/* The settled machine must be where it was: addresses exactly, frames but for `slack` pages of
 * cached slabs. */
bool sim_compare(const struct sim_baseline *was, const struct sim_baseline *now, uint64_t slack);
/* vmap_exit() and all that must be true after it. */
bool sim_shutdown(void);

#endif
