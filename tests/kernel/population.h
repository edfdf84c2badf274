/*
 * population.h: areas that live while a measured task runs: the long lists of Linux's tests.
 *
 * With Linux's numbers 64 workers would need more memory than the machine has, and emulated CPUs
 * more time, so the numbers are scaled; the figures' lines say by how much.
 */
#ifndef TESTS_KERNEL_POPULATION_H
#define TESTS_KERNEL_POPULATION_H

#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

/* What each worker gets of `quick` objects for all, at most `linux_has`, and at most what a quarter
 * of the free memory holds at `pages` frames an object. Tells the runner. */
uint64_t population_choose(uint64_t quick, uint64_t linux_has, unsigned pages, unsigned workers);

struct population {
    void **p;
    uint64_t n;
};
/* n one-page areas; false: out of memory, and nothing is kept. */
bool population_make(struct population *a, uint64_t n);
void population_drop(struct population *a);

#endif
