/*
 * private: eight steps of a random walk over a page of the CPU's own. It calls nothing and shares
 * nothing, so what is missing of N times one CPU's rate is what the machine takes: an emulator
 * whose CPUs take turns on fewer real ones, a hypervisor, a clock that falls when more cores work.
 * No design can have more; tools/scale.py sets the others against it.
 */
#include "mm/page_alloc.h"
#include "tests/kernel/ktest.h"

#define WORDS (PAGE_SIZE / sizeof(uint64_t))
#define STEPS 8

static bool setup(struct kbench_worker *w)
{
    struct page *page = alloc_page_zeroed();

    if (page != NULL)
        w->state[0] = page_address(page);
    return page != NULL;
}

static void teardown(struct kbench_worker *w)
{
    if (w->state[0] != NULL)
        free_page(virt_to_page(w->state[0]));
}

static __always_inline bool op(struct kbench_worker *w)
{
    volatile uint64_t *word = w->state[0];
    uint64_t x = w->loop;

    for (unsigned i = 0; i < STEPS; i++) {
        x = x * 0x5851f42d4c957f2dULL + 1;
        word[x >> 55] += x;
    }
    return true;
}

KBENCH_OP(private, 0, "steps over the CPU's own page: the machine's share", op, .setup = setup,
          .teardown = teardown, .op_name = "steps");
