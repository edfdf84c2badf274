/*
 * population.c: see population.h.
 */
#include "tests/kernel/population.h"
#include "lib/string.h"
#include "mm/page_alloc.h"

uint64_t population_choose(uint64_t quick, uint64_t linux_has, unsigned pages, unsigned workers)
{
    uint64_t n = kt_scaled_areas(quick) / workers;
    uint64_t room = page_free_count() / 4 / pages / workers;

    n = MIN(n, room);
    n = MIN(n, linux_has);
    n = MAX(n, 16UL);
    kt_population(n, linux_has);
    return n;
}

bool population_make(struct population *a, uint64_t n)
{
    a->n = n;
    a->p = vzalloc(n * sizeof(void *));
    if (!a->p)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        a->p[i] = vmalloc(PAGE_SIZE);
        if (!a->p[i]) {
            population_drop(a);
            return false;
        }
        kt_alive();
    }
    return true;
}

void population_drop(struct population *a)
{
    for (uint64_t i = 0; a->p && i < a->n; i++) {
        vfree(a->p[i]);
        kt_alive();
    }
    vfree(a->p);
    a->p = NULL;
}
