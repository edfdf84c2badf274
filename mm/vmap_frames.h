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
    uint32_t room;                /* for those just freed: limit, or 0 if they must wait (safe) */
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
/* Takes the frames that entries [at, at + n) of a table have kept until the flush, and empties
 * them. Bounded work: the return value says how many entries were dealt with, at least
 * FRAMES_BATCH. Task context. */
unsigned frames_take_kept(pte_t *table, unsigned at, unsigned n);

/*
 * Does `step(i)` for 0 <= i < n, sixteen without a branch: the loop's own instructions are most of
 * the cost of larger areas. `move(k)` advances the pointers that step uses by k.
 */
#define FRAMES_TIMES_(k, step, move)                                                               \
    do {                                                                                           \
        _Pragma("GCC unroll 16") for (unsigned i_ = 0; i_ < (k); i_++) step(i_);                   \
        move(k);                                                                                   \
    } while (0)
#define FRAMES_UNROLL(n, step, move)                                                               \
    do {                                                                                           \
        for (unsigned left_ = (n) / 16; left_; left_--)                                            \
            FRAMES_TIMES_(16, step, move);                                                         \
        if (((n)&15) == 0)                                                                         \
            break;                                                                                 \
        if ((n)&8)                                                                                 \
            FRAMES_TIMES_(8, step, move);                                                          \
        if ((n)&4)                                                                                 \
            FRAMES_TIMES_(4, step, move);                                                          \
        if ((n)&2)                                                                                 \
            FRAMES_TIMES_(2, step, move);                                                          \
        if ((n)&1)                                                                                 \
            step(0);                                                                               \
    } while (0)

static __always_inline void frames_to_table(pte_t *to, const pte_t *from, unsigned n)
{
#define STEP_(i) pte_write(to + (i), from[i])
#define MOVE_(k) (to += (k), from += (k))
    FRAMES_UNROLL(n, STEP_, MOVE_);
#undef STEP_
#undef MOVE_
}
static __always_inline void frames_from_table(pte_t *to, pte_t *from, unsigned n)
{
#define STEP_(i) (to[i] = pte_read(from + (i)), pte_write(from + (i), 0))
#define MOVE_(k) (to += (k), from += (k))
    FRAMES_UNROLL(n, STEP_, MOVE_);
#undef STEP_
#undef MOVE_
}
/* Frames that are the caller's. */
static __always_inline void pages_to_table(pte_t *to, struct page *const *from, unsigned n)
{
#define STEP_(i) pte_write(to + (i), page_to_pte(from[i], PAGE_KERNEL))
#define MOVE_(k) (to += (k), from += (k))
    FRAMES_UNROLL(n, STEP_, MOVE_);
#undef STEP_
#undef MOVE_
}
/* The entries keep their frames, not present, until the flush. */
static __always_inline void table_hide(pte_t *to, unsigned n)
{
#define STEP_(i) pte_write(to + (i), pte_read(to + (i)) & ~PTE_P)
#define MOVE_(k) (to += (k))
    FRAMES_UNROLL(n, STEP_, MOVE_);
#undef STEP_
#undef MOVE_
}
static __always_inline void table_zero(pte_t *to, unsigned n)
{
#define STEP_(i) pte_write(to + (i), 0)
#define MOVE_(k) (to += (k))
    FRAMES_UNROLL(n, STEP_, MOVE_);
#undef STEP_
#undef MOVE_
}

#endif
