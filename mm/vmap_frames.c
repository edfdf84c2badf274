/*
 * vmap_frames.c: filling and emptying the per-CPU stacks of ready frames. See vmap_frames.h.
 */
#include "mm/vmap_frames.h"

#include "lib/assert.h"
#include "mm/page_alloc.h"
#include <arch/smp.h>

/* All stacks together hold at most this part of memory. */
#define MEMORY_SHARE 32

DEFINE_PER_CPU(struct vmap_frames, vmap_frames);

void frames_cpu_init(unsigned cpu)
{
    struct vmap_frames *f = per_cpu_ptr(&vmap_frames, cpu);
    uint64_t share = page_total() / MEMORY_SHARE / smp_cpus_possible();

    /* With less than two areas' worth a stack would be filled and spilt all the time. */
    f->limit = (uint32_t)MAX(2UL * PBLOCK_MAX_ALLOC, MIN((uint64_t)VMAP_FRAMES_MAX, share));
    f->room = vmap_config.frames_safe ? 0 : f->limit;
}

bool frames_fill(unsigned n)
{
    struct vmap_frames *f = this_cpu_ptr(&vmap_frames);
    struct page *batch[FRAMES_BATCH];
    unsigned got;

    if (!f->limit)
        return false;
    do {
        got = page_alloc_bulk(batch, FRAMES_BATCH, PAGE_ANY_NODE);
        /* Downwards, so that ascending frames come out ascending. */
        for (unsigned i = got; i > 0; i--)
            f->entry[f->n++] = page_to_phys(batch[i - 1]) | PAGE_KERNEL;
    } while (f->n < n && got == FRAMES_BATCH);
    return f->n >= n;
}

static void spill(struct vmap_frames *f, unsigned n)
{
    struct page *batch[FRAMES_BATCH];
    unsigned i;

    for (i = 0; i < n; i++)
        batch[i] = phys_to_page(pte_phys(f->entry[--f->n]));
    page_free_bulk(batch, n);
}

bool frames_room(unsigned n)
{
    struct vmap_frames *f = this_cpu_ptr(&vmap_frames);

    if (!f->limit)
        return false;
    while (f->n + n > f->limit)
        spill(f, MIN(f->n, (uint32_t)FRAMES_BATCH));
    return true;
}

unsigned frames_take_kept(pte_t *table, unsigned at, unsigned n)
{
    struct vmap_frames *f = this_cpu_ptr(&vmap_frames);
    pte_t *to, *end;

    if (f->limit - f->n < FRAMES_BATCH)
        spill(f, FRAMES_BATCH);
    n = MIN(n, f->limit - f->n);
    to = &f->entry[f->n];
    end = &table[at + n];
    for (pte_t *entry = &table[at]; entry < end; entry++) {
        pte_t e = pte_read(entry);

        if (!e)
            continue;
        ASSERT_DBG(!pte_present(e));
        pte_write(entry, 0);
        *to++ = pte_phys(e) | PAGE_KERNEL;
    }
    f->n = (uint32_t)(to - f->entry);
    return n;
}

void frames_drain_local(void)
{
    struct vmap_frames *f = this_cpu_ptr(&vmap_frames);

    while (f->n)
        spill(f, MIN(f->n, (uint32_t)FRAMES_BATCH));
}
