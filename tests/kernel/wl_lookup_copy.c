/*
 * lookup_copy: bounded copies: before each copy out of an area the bounds are asked for by
 * find_vm_area, on all cores, while a few writers allocate and free: the pattern of hardened user
 * copies and of BPF. copy_unchecked is the same without asking: what lookups could cost at least.
 *
 * Theory: one locked tree has all readers meet at its lock, even if it is a reader-writer lock,
 * whose count they all change; trees per node spread them, a table without a lock takes it away.
 * Source: the discussion of vmalloc's busy tree under hardened usercopy, 48 CPUs: 114 k requests/s
 * with one tree, 460 k with a reader-writer lock, 584 k with a tree per node, 832 k without
 * lookups. Every eighth worker is a writer (none below two workers); its own figures do not count.
 */
#include "lib/string.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"
#include "tests/kernel/population.h"

#define AREAS        256 /* a power of two */
#define COPY         256 /* bytes */
#define WRITER_EVERY 8

static struct population areas; /* constant while workers run */

static bool prepare(unsigned workers)
{
    (void)workers;
    if (!population_make(&areas, AREAS)) {
        KT_FAIL("no memory for the areas");
        return false;
    }
    for (unsigned i = 0; i < AREAS; i++)
        memset(areas.p[i], (int)i, PAGE_SIZE);
    return true;
}

static void finish(void)
{
    population_drop(&areas);
}

static bool setup(struct kbench_worker *w)
{
    w->background = w->id % WRITER_EVERY == 1;
    return true;
}

static __always_inline bool copy(struct kbench_worker *w, bool ask)
{
    uint8_t buffer[COPY];
    unsigned i = w->loop & (AREAS - 1);
    const uint8_t *from = (uint8_t *)areas.p[i] + rng_below(&w->rng, PAGE_SIZE - COPY);
    struct vm_area_info info;

    if (ask && !find_vm_area(from, &info))
        return false;
    if (ask && (from + COPY > (uint8_t *)info.start + info.size || info.start != areas.p[i])) {
        KT_FAIL("find_vm_area(%p) says %p", from, info.start);
        return false;
    }
    memcpy(buffer, from, COPY);
    if (buffer[0] != (uint8_t)i || buffer[COPY - 1] != (uint8_t)i)
        KT_FAIL("area %u has another one's contents", i);
    return true;
}

static bool replace_one(void)
{
    uint8_t *p = vmalloc(PAGE_SIZE);

    if (!p)
        return false;
    *(volatile uint8_t *)p = 1;
    vfree(p);
    return true;
}

static __always_inline bool op(struct kbench_worker *w)
{
    return w->background ? replace_one() : copy(w, true);
}

KBENCH_OP(lookup_copy, 0, "find_vm_area before each copy, few writers", op, .prepare = prepare,
          .setup = setup, .finish = finish, .op_name = "lookup");

static __always_inline bool op_unchecked(struct kbench_worker *w)
{
    return w->background ? replace_one() : copy(w, false);
}

KBENCH_OP(copy_unchecked, 0, "the same copies without find_vm_area", op_unchecked,
          .prepare = prepare, .setup = setup, .finish = finish, .op_name = "lookup");
