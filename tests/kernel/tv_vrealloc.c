/*
 * vrealloc_test (4096): one page grows to four, shrinks to one, to half of one, and grows to one;
 * the first byte stays. Facts: Linux lib/test_vmalloc.c (2026).
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

static const size_t steps[] = {4 * PAGE_SIZE, PAGE_SIZE, PAGE_SIZE / 2, PAGE_SIZE};

static __always_inline bool op(struct kbench_worker *w)
{
    volatile uint8_t *p = vrealloc(NULL, PAGE_SIZE);
    bool ok = p != NULL;

    (void)w;
    if (ok)
        *p = 'a';
    for (unsigned i = 0; ok && i < ARRAY_SIZE(steps); i++) {
        volatile uint8_t *q = vrealloc((const void *)p, steps[i]);

        ok = q != NULL && *q == 'a';
        if (q)
            p = q;
    }
    vfree((const void *)p);
    return ok;
}

KBENCH_OP(vrealloc_test, 4096, "vrealloc: grow, shrink, within a page", op, .loops_percent = 25);
