/*
 * fix_align_alloc_test (16): five zeroed pages at twice the alignment of a thread stack (16 KiB on
 * x86-64). Facts: Linux lib/test_vmalloc.c, arch/x86/include/asm/page_64_types.h.
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

#define PAGES 5
#define ALIGN (2 * 16 * 1024UL)

static __always_inline bool op(struct kbench_worker *w)
{
    void *p = __vmalloc(PAGES * PAGE_SIZE, ALIGN, VM_ZERO, VM_ANY_NODE);

    (void)w;
    if (unlikely(!p))
        return false;
    if (unlikely((uintptr_t)p & (ALIGN - 1)))
        KT_FAIL("%p is not aligned to %lu", p, ALIGN);
    vfree(p);
    return true;
}

KBENCH_OP(fix_align_alloc_test, 16, "five zeroed pages, aligned to 32 KiB", op,
          .loops_percent = 70);
