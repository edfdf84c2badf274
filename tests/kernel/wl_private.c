/*
 * private: eight random numbers from the worker's own state. It allocates nothing and shares
 * nothing, so what is missing of N times one CPU's rate is what the machine takes: an emulator
 * whose CPUs take turns on fewer real ones, a hypervisor, a clock that falls when more cores work.
 * No design can have more; tools/scale.py sets the others against it.
 */
#include "tests/kernel/ktest.h"

#define STEPS 8

static __always_inline bool op(struct kbench_worker *w)
{
    uint64_t any = 0;

    for (unsigned i = 0; i < STEPS; i++)
        any |= rng_next(&w->rng);
    return any != 0;
}

KBENCH_OP(private, 0, "eight random numbers: what the machine itself can do", op,
          .op_name = "steps");
