/*
 * buf_64k, buf_64k_vmalloc: a buffer of 64 KiB, 16 pages: filled by a copy, its ends read back, and
 * dropped. Once by mapping pages that are there (vm_map_ram), once by vmalloc, which allocates them
 * too.
 *
 * Theory: for a buffer that lives for one copy, address space, page tables and flushes are a large
 * part of the cost, and all CPUs share them. Source: XFS's log, whose item buffers of 64 KiB came
 * from vmalloc; working around it left a fifth of it.
 */
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

#define BYTES (64 * 1024UL)
#define PAGES (BYTES / PAGE_SIZE)

enum { SOURCE, TARGET, COUNT };

static bool setup(struct kbench_worker *w)
{
    struct page **pages = kvmalloc(PAGES * sizeof(*pages));

    w->state[SOURCE] = vmalloc(BYTES);
    w->state[TARGET] = pages;
    if (!w->state[SOURCE] || !pages)
        return false;
    memset(w->state[SOURCE], (int)(w->id | 1), BYTES);
    w->state[COUNT] = (void *)(uintptr_t)page_alloc_bulk(pages, PAGES, PAGE_ANY_NODE);
    return (uintptr_t)w->state[COUNT] == PAGES;
}

static void teardown(struct kbench_worker *w)
{
    if (w->state[TARGET])
        page_free_bulk(w->state[TARGET], (unsigned)(uintptr_t)w->state[COUNT]);
    kvfree(w->state[TARGET]);
    vfree(w->state[SOURCE]);
}

static void copy_and_check(struct kbench_worker *w, uint8_t *p)
{
    p[0] = p[BYTES - 1] = 0;
    memcpy(p, w->state[SOURCE], BYTES);
    if (p[0] != (uint8_t)(w->id | 1) || p[BYTES - 1] != (uint8_t)(w->id | 1))
        KT_FAIL("the copy did not arrive");
}

static __always_inline bool op_ram(struct kbench_worker *w)
{
    uint8_t *p = vm_map_ram(w->state[TARGET], PAGES, VM_ANY_NODE);

    if (unlikely(!p))
        return false;
    copy_and_check(w, p);
    vm_unmap_ram(p, PAGES);
    return true;
}

static __always_inline bool op_vmalloc(struct kbench_worker *w)
{
    uint8_t *p = vmalloc(BYTES);

    if (unlikely(!p))
        return false;
    copy_and_check(w, p);
    vfree(p);
    return true;
}

KBENCH_OP(buf_64k, 0, "64 KiB by vm_map_ram, with a copy", op_ram, .setup = setup,
          .teardown = teardown, .loops_percent = 25);
KBENCH_OP(buf_64k_vmalloc, 0, "64 KiB by vmalloc, with a copy", op_vmalloc, .setup = setup,
          .teardown = teardown, .loops_percent = 25);
