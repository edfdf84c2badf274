/*
 * buf_64k...: a buffer of 64 KiB, 16 pages: filled by a copy, its ends read back, and dropped. By
 * mapping pages that are there (buf_64k); by vmalloc, which allocates them too (buf_64k_vmalloc);
 * without any mapping, in frames that lie side by side (buf_64k_direct); and in a buffer that is
 * kept (buf_64k_kept): the copy alone, which is to be subtracted from the others.
 *
 * Theory: for a buffer that lives for one copy, address space, page tables and flushes are a large
 * part of the cost, and all CPUs share them. Source: XFS's log, whose item buffers of 64 KiB came
 * from vmalloc; working around it, by contiguous memory where there is some, left a fifth of it.
 */
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

#define BYTES (64 * 1024UL)
#define PAGES (BYTES / PAGE_SIZE)
#define ORDER 4

_Static_assert(PAGE_SIZE << ORDER == BYTES, "one block of frames");

enum { SOURCE, TARGET, COUNT, KEPT };

static bool setup(struct kbench_worker *w)
{
    struct page **pages = kvmalloc(PAGES * sizeof(*pages));

    w->state[SOURCE] = vmalloc(BYTES);
    w->state[TARGET] = pages;
    w->state[KEPT] = vmalloc(BYTES);
    if (!w->state[SOURCE] || !pages || !w->state[KEPT])
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
    vfree(w->state[KEPT]);
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

static __always_inline bool op_direct(struct kbench_worker *w)
{
    struct page *page = alloc_pages(ORDER);

    if (unlikely(!page))
        return op_vmalloc(w); /* as those who work around it do */
    copy_and_check(w, page_address(page));
    free_pages(page, ORDER);
    return true;
}

static __always_inline bool op_kept(struct kbench_worker *w)
{
    copy_and_check(w, w->state[KEPT]);
    return true;
}

KBENCH_OP(buf_64k, 0, "64 KiB by vm_map_ram, with a copy", op_ram, .setup = setup,
          .teardown = teardown, .loops_percent = 25);
KBENCH_OP(buf_64k_vmalloc, 0, "64 KiB by vmalloc, with a copy", op_vmalloc, .setup = setup,
          .teardown = teardown, .loops_percent = 25);
KBENCH_OP(buf_64k_direct, 0, "64 KiB of contiguous frames, not mapped, with a copy", op_direct,
          .setup = setup, .teardown = teardown, .loops_percent = 25);
KBENCH_OP(buf_64k_kept, 0, "the copy alone, into 64 KiB that are kept", op_kept, .setup = setup,
          .teardown = teardown, .loops_percent = 25);
