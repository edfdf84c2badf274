/*
 * kvfree_rcu_1_arg_vmalloc_test (256), kvfree_rcu_2_arg_vmalloc_test (512): one page, freed later.
 * Linux waits for a grace period of its readers; here the free is deferred to this CPU's next
 * batch. With one argument the link is the allocator's own memory, with two it lies in the object,
 * whose contents begin behind it; the allocator here never needs the link, so the two differ in
 * what the object keeps. Facts: Linux lib/test_vmalloc.c.
 */
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

/* Size of Linux's struct rcu_head. */
#define HEAD_BYTES 16

static __always_inline bool free_later(size_t first_byte)
{
    uint8_t *p = vmalloc(PAGE_SIZE);

    if (unlikely(!p))
        return false;
    *(volatile uint8_t *)(p + first_byte) = 'a';
    kvfree_deferred(p);
    return true;
}

static __always_inline bool op_1(struct kbench_worker *w)
{
    (void)w;
    return free_later(0);
}

static __always_inline bool op_2(struct kbench_worker *w)
{
    (void)w;
    return free_later(HEAD_BYTES);
}

/* What is still waiting on this CPU goes before the figures of the next test begin. */
static void teardown(struct kbench_worker *w)
{
    (void)w;
    vm_unmap_aliases();
}

KBENCH_OP(kvfree_rcu_1_arg_vmalloc_test, 256, "one page, freed later", op_1, .teardown = teardown);
KBENCH_OP(kvfree_rcu_2_arg_vmalloc_test, 512, "one page with a link in it, freed later", op_2,
          .teardown = teardown);
