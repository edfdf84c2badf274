/*
 * remote_free: one core allocates, the next one frees: buffers handed down a pipeline. Theory: what
 * is fast only for a core's own objects shows here.
 *
 * Worker i writes a cookie into what it allocates and passes it to worker i + 1 by a ring with one
 * producer and one consumer; the consumer checks and frees. When the ring is full the producer
 * frees the object itself.
 */
#include "lib/string.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"
#include <arch/atomic.h>

#define RING 64

struct ring {
    uint64_t head __cacheline; /* producer */
    uint64_t tail __cacheline; /* consumer */
    uint64_t *slot[RING] __cacheline;
};

static struct ring *rings; /* one for each CPU that takes part */

static bool prepare(unsigned workers)
{
    size_t bytes = MIN(workers, kt_cpus()) * sizeof(struct ring);

    rings = vzalloc(bytes);
    if (!rings)
        KT_FAIL("no memory for the rings");
    return rings != NULL;
}

static bool push(struct ring *r, uint64_t *p)
{
    /* Acquire: the consumer's store of tail, after it took the object out. */
    if (r->head - LOAD_ACQUIRE(r->tail) == RING)
        return false;
    r->slot[r->head % RING] = p;
    STORE_RELEASE(r->head, r->head + 1);
    return true;
}

static uint64_t *pop(struct ring *r)
{
    uint64_t *p;

    /* Acquire: the producer's store of head, after the slot. */
    if (LOAD_ACQUIRE(r->head) == r->tail)
        return NULL;
    p = r->slot[r->tail % RING];
    STORE_RELEASE(r->tail, r->tail + 1);
    return p;
}

static uint64_t cookie(const uint64_t *p)
{
    return (uintptr_t)p ^ 0x9e3779b97f4a7c15ULL;
}

static void check_and_free(uint64_t *p)
{
    if (*p != cookie(p))
        KT_FAIL("%p: cookie %lx", (void *)p, (unsigned long)*p);
    vfree(p);
}

static __always_inline bool op(struct kbench_worker *w)
{
    uint64_t *p = vmalloc(PAGE_SIZE);

    if (unlikely(!p))
        return false;
    *p = cookie(p);
    if (!push(&rings[(w->cpu + 1) % w->peers], p))
        check_and_free(p);
    p = pop(&rings[w->cpu]);
    if (p)
        check_and_free(p);
    return true;
}

static void teardown(struct kbench_worker *w)
{
    uint64_t *p;

    while ((p = pop(&rings[w->cpu])) != NULL)
        check_and_free(p);
}

static void finish(void)
{
    vfree(rings);
    rings = NULL;
}

KBENCH_OP(remote_free, 0, "one core allocates, the next one frees", op, .prepare = prepare,
          .teardown = teardown, .finish = finish);
