/*
 * vm_map_ram_test (1024): the same nr_pages pages mapped by vm_map_ram, written through, and
 * unmapped. Facts: Linux lib/test_vmalloc.c.
 */
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

enum { PAGES, COUNT };

static bool setup(struct kbench_worker *w)
{
    unsigned n = (unsigned)kt_nr_pages();
    struct page **pages = kvmalloc(n * sizeof(*pages));

    w->state[PAGES] = pages;
    if (!pages)
        return false;
    w->state[COUNT] = (void *)(uintptr_t)page_alloc_bulk(pages, n, PAGE_ANY_NODE);
    return (uintptr_t)w->state[COUNT] == n;
}

static void teardown(struct kbench_worker *w)
{
    if (w->state[PAGES])
        page_free_bulk(w->state[PAGES], (unsigned)(uintptr_t)w->state[COUNT]);
    kvfree(w->state[PAGES]);
}

static __always_inline void *alloc(struct kbench_worker *w)
{
    return vm_map_ram(w->state[PAGES], (unsigned)(uintptr_t)w->state[COUNT], VM_ANY_NODE);
}

static __always_inline void touch(struct kbench_worker *w, void *p)
{
    (void)w;
    *(volatile uint8_t *)p = 'a';
}

static __always_inline void release(struct kbench_worker *w, void *p)
{
    vm_unmap_ram(p, (unsigned)(uintptr_t)w->state[COUNT]);
}

KBENCH_PAIR(vm_map_ram_test, 1024, "vm_map_ram, touch and vm_unmap_ram of nr_pages pages", alloc,
            touch, release, .setup = setup, .teardown = teardown, .batch = 8);
