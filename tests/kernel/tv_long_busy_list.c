/*
 * long_busy_list_alloc_test (4): a 100-page and a one-page area while many others are in use.
 *
 * Whatever is searched by walking the areas in use gets slow here. Linux has 15000 of them for each
 * worker (lib/test_vmalloc.c).
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"
#include "tests/kernel/population.h"

#define LINUX_LENGTH 15000
#define QUICK_ALL    15000 /* of all workers together */
#define LARGE        (100 * PAGE_SIZE)

static uint64_t length; /* constant while workers run */

static bool prepare(unsigned workers)
{
    length = population_choose(QUICK_ALL, LINUX_LENGTH, 1, workers);
    return true;
}

static bool setup(struct kbench_worker *w)
{
    struct population *a = kvmalloc(sizeof(*a));

    w->state[0] = a;
    return a && population_make(a, length);
}

static void teardown(struct kbench_worker *w)
{
    if (w->state[0])
        population_drop(w->state[0]);
    kvfree(w->state[0]);
}

static __always_inline bool op(struct kbench_worker *w)
{
    uint8_t *large = vmalloc(LARGE), *small = vmalloc(PAGE_SIZE);

    (void)w;
    if (large)
        *(volatile uint8_t *)large = 0;
    if (small)
        *(volatile uint8_t *)small = 1;
    vfree(large);
    vfree(small);
    return large && small;
}

KBENCH_OP(long_busy_list_alloc_test, 4, "100 pages and one page beside many areas in use", op,
          .prepare = prepare, .setup = setup, .teardown = teardown, .loops_percent = 25);
