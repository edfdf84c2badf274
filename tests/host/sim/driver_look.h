/*
 * driver_look.h: operations that make no area: reading, wrong calls, and calls about everything.
 */
#ifndef TESTS_HOST_SIM_DRIVER_LOOK_H
#define TESTS_HOST_SIM_DRIVER_LOOK_H

#include "tests/host/sim/driver_internal.h"

/* Copies from around a live area by vread or vread_iter, and compares what is the area's. */
void op_vread(struct actor *a, struct area *area);
/* A free that must be refused, counted and without effect. */
void op_bad_call(struct actor *a, struct area *area);
/* An allocation that cannot be: NULL, and no effect. */
void op_impossible(struct actor *a);
/* vm_unmap_aliases, purges, counters, lists, injection. */
void op_global(struct actor *a);

#endif
