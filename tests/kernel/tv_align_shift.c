/*
 * align_shift_alloc_test (64): one zeroed page at alignments of 2^0 to 2^63. It is expected to
 * fail: no range has room for the largest ones. What must hold: below the size of the range it
 * works, the address is aligned, and a failure is a NULL. Facts: Linux lib/test_vmalloc.c; case B1.
 */
#include "mm/vmalloc.h"
#include "mm/vmap.h"
#include "tests/kernel/ktest.h"

#define SHIFTS 64

static uint64_t loops(uint64_t asked, unsigned workers)
{
    (void)asked;
    (void)workers;
    return SHIFTS;
}

static __always_inline bool op(struct kbench_worker *w)
{
    size_t align = 1UL << (w->loop % SHIFTS);
    void *p = __vmalloc(PAGE_SIZE, align, VM_ZERO, VM_ANY_NODE);

    /* Each worker, and as many freed ones as that, finds an aligned address. */
    if (!p) {
        if (align <= vmap_config.range_size / 4 / w->peers)
            KT_FAIL("no page at an alignment of 2^%lu", w->loop % SHIFTS);
        return false;
    }
    if ((uintptr_t)p & (align - 1) || !is_vmalloc_addr(p))
        KT_FAIL("%p at an alignment of 2^%lu", p, w->loop % SHIFTS);
    vfree(p);
    return true;
}

KBENCH_OP(align_shift_alloc_test, 64, "one page at alignments of 2^0 to 2^63", op, .loops = loops,
          .may_fail = true);
