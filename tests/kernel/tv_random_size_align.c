/*
 * random_size_align_alloc_test (32): up to ten zeroed pages, alignment up to 4 MiB, both from one
 * random byte. Facts: Linux lib/test_vmalloc.c.
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

static __always_inline bool op(struct kbench_worker *w)
{
    unsigned rnd = rng_next(&w->rng) & 0xff;
    size_t align = 1UL << (rnd % 23);
    size_t size = (rnd % 10 + 1) * PAGE_SIZE;
    void *p = __vmalloc(size, align, VM_ZERO, VM_ANY_NODE);

    if (unlikely(!p))
        return false;
    if (unlikely((uintptr_t)p & (align - 1)))
        KT_FAIL("%p is not aligned to %lu", p, align);
    vfree(p);
    return true;
}

KBENCH_OP(random_size_align_alloc_test, 32, "up to ten zeroed pages, aligned to up to 4 MiB", op,
          .loops_percent = 35);
