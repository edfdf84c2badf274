/*
 * vmap_pcpu_check.c: selfcheck() of the per-CPU blocks: each block's slots, each queue's lists and
 * counts. Only when no other CPU is inside mm/.
 */
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/vmap_frames.h"
#include "mm/vmap_internal.h"
#include "mm/vmap_pcpu.h"
#include <arch/atomic.h>
#include <arch/smp.h>

static const char *check_block(const struct pblock *b, const struct pqueue *q)
{
    unsigned live = 0, slot, taken = b->cursor - b->run_start;

    if (b->home != q)
        return "a block on another queue";
    bitmap_for_each_set (slot, b->starts, BLOCK_PAGES) {
        struct pslot d = b->slots[slot];

        if (!d.kind)
            continue;
        live += d.span;
        for (unsigned i = 0; i < d.pages; i++)
            if (!pte_present(pte_read(&b->table[slot + i])))
                return "a mapping without an entry";
    }
    if (b->whole) {
        if (memcmp(b->pending, b->used, sizeof(b->used)) != 0 || live || taken ||
            b->waiting_pages + b->free != BLOCK_PAGES)
            return "a block that waits as a whole and does not";
        return NULL;
    }
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++)
        if (b->waiting_pages && (b->pending[w] & b->waiting[w] || b->waiting[w] & ~b->used[w]))
            return "a slot in two states";
    if (b->waiting_pages && bitmap_weight(b->waiting, BLOCK_PAGES) != b->waiting_pages)
        return "freed slots miscounted";
    for (unsigned w = 0; w < BITMAP_WORDS(BLOCK_PAGES); w++) {
        uint64_t bits = READ_ONCE(b->remote[w]);

        for (; bits; bits &= bits - 1)
            live += b->slots[w * 64 + (unsigned)__builtin_ctzll(bits)].span;
    }
    if (bitmap_weight(b->used, BLOCK_PAGES) + b->free != BLOCK_PAGES)
        return "used and free slots that are not all";
    if (live + bitmap_weight(b->pending, BLOCK_PAGES) + b->waiting_pages + b->free !=
        BLOCK_PAGES + taken)
        return "slots that are neither live, freed nor free";
    return NULL;
}

/* Lists, their states and the counts that go with them. */
static const char *check_queue(struct pqueue *q)
{
    const struct {
        struct list_head *list;
        unsigned state;
        bool whole;
        const uint32_t *count; /* NULL: nobody counts them */
    } lists[] = {
        {&q->full, PBLOCK_FULL, false, NULL},
        {&q->partial, PBLOCK_PARTIAL, false, NULL},
        {&q->empty, PBLOCK_EMPTY, false, &q->empty_blocks},
        {&q->dirty, PBLOCK_DIRTY, false, &q->dirty_blocks},
        {&q->waiting[0], PBLOCK_WAITING, false, &q->waiting_parts},
        {&q->waiting[1], PBLOCK_WAITING, true, NULL},
    };
    uint64_t seen = 0, waiting = 0, used = 0;
    const char *wrong = NULL, *w;
    struct pblock *b;

    if (pqueue_is_active(q)) {
        wrong = check_block(q->active, q);
        used += bitmap_weight(q->active->used, BLOCK_PAGES);
        seen++;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(lists); i++) {
        uint64_t n = 0, last = 0;

        list_for_each_entry (b, lists[i].list, link) {
            w = check_block(b, q);
            if (b->state != lists[i].state)
                w = "a block in the wrong list";
            else if (!w && (b->free == BLOCK_PAGES) != (b->state == PBLOCK_EMPTY))
                w = "an empty block among others, or another among them";
            else if (!w && b->state == PBLOCK_WAITING &&
                     (b->whole != lists[i].whole || b->stamp < last || b->stamp > q->last_stamp))
                w = "a block that waits in the wrong list, or out of turn";
            wrong = w ? w : wrong;
            last = b->stamp;
            used += BLOCK_PAGES - b->free;
            n++;
        }
        if (!wrong && lists[i].count && n != *lists[i].count)
            wrong = "lists or pages miscounted";
        waiting += lists[i].state == PBLOCK_WAITING ? n : 0;
        seen += n;
    }
    if (!wrong && (waiting != q->waiting_blocks || used != q->used_pages))
        wrong = "lists or pages miscounted";
    return seen != q->blocks ? "a wrong number of blocks" : wrong;
}

bool pblock_check(void)
{
    const char *wrong = NULL;
    unsigned cpu;

    for_each_cpu (cpu) {
        struct pqueues *qs = per_cpu_ptr(&vmap_pqueues, cpu);

        for (unsigned c = 0; c < ARRAY_SIZE(qs->context); c++) {
            const char *w = qs->context[c].active ? check_queue(&qs->context[c]) : NULL;

            wrong = w ? w : wrong;
        }
        if (per_cpu_ptr(&vmap_frames, cpu)->n > per_cpu_ptr(&vmap_frames, cpu)->limit)
            wrong = "more ready frames than there may be";
    }
    if (wrong)
        kprintf("# selfcheck: per-CPU blocks: %s\n", wrong);
    return !wrong;
}
