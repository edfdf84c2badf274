/*
 * lookup: find_vm_area of one live area after the other, nothing else: what a check before each
 * access costs.
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"
#include "tests/kernel/population.h"

#define AREAS 1024 /* a power of two */

static struct population areas; /* constant while workers run */

static bool prepare(unsigned workers)
{
    (void)workers;
    if (population_make(&areas, AREAS))
        return true;
    KT_FAIL("no memory for the areas");
    return false;
}

static void finish(void)
{
    population_drop(&areas);
}

static __always_inline bool op(struct kbench_worker *w)
{
    struct vm_area_info info;

    return find_vm_area(areas.p[w->loop & (AREAS - 1)], &info);
}

KBENCH_OP(lookup, 0, "find_vm_area", op, .prepare = prepare, .finish = finish, .op_name = "lookup");
