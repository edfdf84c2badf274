/*
 * vmap_frames.h: frames ready to be mapped: a per-CPU stack of page-table entries, for the default
 * design's fast path.
 *
 * What goes from a stack into a table and back is the entry itself, address and protection, so that
 * a page costs two or three moves and its struct page is not touched. The page allocator sees these
 * frames as allocated. Task context of the owning CPU only; interrupt handlers use the page
 * allocator.
 */
#ifndef MM_VMAP_FRAMES_H
#define MM_VMAP_FRAMES_H

#include "mm/vmap_internal.h"

#define VMAP_FRAMES_MAX 1024
#define FRAMES_BATCH    64

struct vmap_frames {
    uint32_t n;
    uint32_t limit;               /* at most VMAP_FRAMES_MAX; 0 before frames_cpu_init() */
    pte_t entry[VMAP_FRAMES_MAX]; /* frame | PAGE_KERNEL; the newest at the end */
} __cacheline;
DECLARE_PER_CPU(struct vmap_frames, vmap_frames);

void frames_cpu_init(unsigned cpu);
/* Gets at least `n` (up to PBLOCK_MAX_ALLOC) entries into this CPU's stack; false:
 * out of memory. */
bool frames_fill(unsigned n);
/* Makes room for n more (up to PBLOCK_MAX_ALLOC); false: there is no stack yet. */
bool frames_room(unsigned n);
void frames_drain_local(void);
/* Frames in all stacks. */
uint64_t frames_count(void);

/* Eight at a time: the loop's own instructions are most of the cost of larger areas. */
#define FRAMES_UNROLL(n, step)                                                                     \
    do {                                                                                           \
        for (; (n) >= 8; (n) -= 8) {                                                               \
            step;                                                                                  \
            step;                                                                                  \
            step;                                                                                  \
            step;                                                                                  \
            step;                                                                                  \
            step;                                                                                  \
            step;                                                                                  \
            step;                                                                                  \
        }                                                                                          \
        for (; (n) > 0; (n)--)                                                                     \
            step;                                                                                  \
    } while (0)

static __always_inline void frames_to_table(pte_t *to, const pte_t *from, unsigned n)
{
    FRAMES_UNROLL(n, pte_write(to++, *from++));
}
static __always_inline void frames_from_table(pte_t *to, pte_t *from, unsigned n)
{
    FRAMES_UNROLL(n, (*to++ = pte_read(from), pte_write(from++, 0)));
}

#endif
