/*
 * fuzz_vmap.c: libFuzzer's bytes as operations over all of mm/vmalloc.h: the first eight make the
 * machine, the allocator's settings and the interleaving, the rest are the choices of all CPUs in
 * the order in which they ask.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/host/sim/driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct driver_plan p;

    if (size < 16)
        return -1; /* not worth a machine */
    driver_plan_from(&p, data, size);
    if (driver_run(&p))
        return 0;
    driver_print_plan(&p);
    fprintf(stderr, "%s: %s\n", sim_rule_names[sim_failure()], sim_failure_text());
    abort();
}
