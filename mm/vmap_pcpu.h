/*
 * vmap_pcpu.h: the default design's blocks: their layout, and the paths that are inlined into the
 * API.
 *
 * Nobody outside mm/ includes it. What the owner writes, what others write, and what lookups read
 * lie on different cache lines.
 */
#ifndef MM_VMAP_PCPU_H
#define MM_VMAP_PCPU_H

#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include <arch/clock.h>
#include <arch/tlb_gen.h>

/* Upkeep of a queue is spread over the operations: a bit each so many slots. */
#define PBLOCK_CHAPTER (BLOCK_PAGES / 4u)
/* A parked block with this many free pages is used again before a new one is made. */
#define PBLOCK_PARTIAL_MIN   64
#define PBLOCK_PARTIAL_TRIES 4
/* Holes in partly used blocks are left alone while a queue's blocks have at most so many times the
 * pages in use, and this many on top. */
#define PBLOCK_SPARSE      3
#define PBLOCK_SLACK_PAGES (16 * BLOCK_PAGES)
/* Freed pages that make a block worth a generation; below it they wait for more. */
#define PBLOCK_STAMP_MIN 64
/* Freed pages of one queue that begin a generation; no oftener than each so many microseconds, all
 * queues together, unless it is eight times as many. Every CPU reloads CR3 for each generation. */
#define PBLOCK_ADVANCE_BLOCKS 8ULL
#define PBLOCK_ADVANCE_PAGES  (PBLOCK_ADVANCE_BLOCKS * BLOCK_PAGES)
#define PBLOCK_ADVANCE_US     100
/* Time over which the most blocks in flight decide how many empty ones are kept. */
#define PBLOCK_EPOCH_US 1000000
/* Frees of others that one operation collects, up to one block more. */
#define PBLOCK_COLLECT 128
/* Blocks that wait for a generation before late CPUs are interrupted after the deadline, and before
 * the owner waits for them. */
#define PBLOCK_WAITING_SOFT 256
#define PBLOCK_WAITING_HARD 1024
#define PBLOCK_DEADLINE_US  1000000
/* Blocks that wait before the owner looks whether others are late, and how late they must be for it
 * to halt until they are not. */
#define PBLOCK_LATE    32u
#define PBLOCK_LATE_US 500
/* When that was in vain it is not done again for so long. */
#define PBLOCK_IMPATIENT_US 10000000
/* Pages of memory that are a block's own: its table, its slots. */
#define PBLOCK_OWN_PAGES 2
/* How long a CPU that is short of addresses waits for what the others can spare. */
#define PBLOCK_SHORTAGE_US 10000
/* Blocks of each list that one operation moves: one, and one for each so many that there are. */
#define PBLOCK_STEP_BACKLOG 32
#define PBLOCK_STEP_MAX     8u

enum pblock_state {
    PBLOCK_ACTIVE,
    PBLOCK_FULL,    /* nothing freed, next to nothing free */
    PBLOCK_PARTIAL, /* nothing freed, some free */
    PBLOCK_DIRTY,   /* something freed */
    PBLOCK_WAITING, /* for a generation */
    PBLOCK_EMPTY,
};

/* At the first slot of each mapping; one 8-byte load or store. kind 0: not live. */
struct pslot {
    int32_t caller; /* distance from vmalloc(): all code lies within 2 GiB */
    uint8_t pages;
    uint8_t span; /* pages and guard */
    uint8_t kind; /* enum vm_kind */
    uint8_t flags;
} __aligned(8);
_Static_assert(sizeof(struct pslot) == 8, "one load reads a slot");

struct pqueue;

struct pblock {
    /* as struct vmap_owner; constant after publication */
    uintptr_t start;
    struct pqueue *queue; /* the owner; NULL while full or partial: a free takes the long way */
    uint32_t owner_type;
    pte_t *table;
    struct pslot *slots; /* BLOCK_PAGES, one page */
    struct vm_area *area;
    struct pqueue *home; /* the owner, always */
    /* owner, every operation */
    uint32_t cursor __cacheline;
    uint32_t limit; /* of what is taken the short way; at most run_end */
    uint32_t run_start, run_end;
    uint16_t free; /* pages, those of the current run that are taken already included */
    uint16_t waiting_pages;
    uint8_t state;
    bool whole; /* all that is not free waits: as `pending` says, `waiting` says nothing */
    uint64_t stamp;
    struct list_head link;
    /* owner; read by lookups */
    uint64_t starts[BITMAP_WORDS(BLOCK_PAGES)] __cacheline;
    /* owner, every free and every recycling */
    uint64_t pending[BITMAP_WORDS(BLOCK_PAGES)] __cacheline;
    uint64_t waiting[BITMAP_WORDS(BLOCK_PAGES)];
    uint64_t used[BITMAP_WORDS(BLOCK_PAGES)]; /* but not yet the current run */
    /* others */
    uint64_t remote[BITMAP_WORDS(BLOCK_PAGES)] __cacheline; /* first slots of what they freed */
    struct pblock *remote_next;
    uint32_t remote_queued;
};
_Static_assert(offsetof(struct pblock, queue) == offsetof(struct vmap_owner, queue) &&
                   offsetof(struct pblock, owner_type) == offsetof(struct vmap_owner, owner_type),
               "a block is an owner");
_Static_assert(offsetof(struct pblock, remote) % CACHE_LINE == 0,
               "remote frees on their own lines");
_Static_assert(offsetof(struct pblock, starts) % CACHE_LINE == 0, "lookups read one line");

/* One owner: a CPU's task context, or its interrupt handlers. */
struct pqueue {
    struct pblock *active;
    struct list_head full, partial, empty, dirty;
    struct list_head waiting[2]; /* [1]: as a whole */
    uint64_t last_stamp, stamped_pages, advanced_at;
    uint64_t used_pages; /* live, pending and waiting, without the active block's current run */
    uint32_t dirty_blocks, waiting_blocks, waiting_parts, empty_blocks, blocks, cpu;
    uint32_t phase; /* of the upkeep */
    /* Most blocks that waited in this epoch, and what is kept for the sake of earlier ones. */
    uint32_t peak, keep;
    uint64_t epoch;
    uint64_t late_stamp, late_since; /* one that has not passed, and since when that is known */
    uint64_t impatient;              /* until then it waits for nobody */
    struct pblock *collecting;       /* taken off `remote`, not yet collected */
    uint32_t busy;                   /* its owner is in the middle of something that may halt */
    uint32_t answered;               /* the last round of a shortage that it gave to; others look */
    /* others */
    struct pblock *remote __cacheline;
};
struct pqueues {
    struct pqueue context[2]; /* [1]: interrupt handlers */
};
DECLARE_PER_CPU(struct pqueues, vmap_pqueues);
DECLARE_PER_CPU(struct pqueue *, vmap_pqueue_self); /* the task context's */

void *pblock_map_slow(struct page *const *pages, unsigned count, unsigned align, struct pslot slot,
                      pgprot_t prot);
void pblock_note_free_long(struct pblock *b, unsigned slot, unsigned span);
/* Makes the active block of this CPU's task context, which has none, one with room for n pages;
 * false: there is none. */
bool pblock_refill(unsigned n);
void pblock_free_remote(struct pblock *b, unsigned slot);
/* q->active is a block, and not what stands for none. */
static inline bool pqueue_is_active(const struct pqueue *q)
{
    return q->active->home;
}

/* NULL if the owner is not a block. */
static inline struct pblock *pblock_of(struct vmap_owner *o)
{
    return o->owner_type == OWNER_BLOCK ? (struct pblock *)o : NULL;
}

static inline struct pslot pslot_read(const struct pslot *p)
{
    union {
        uint64_t word;
        struct pslot slot;
    } u = {.word = READ_ONCE(*(const uint64_t *)p)};

    return u.slot;
}
/* pages, span, kind and flags as one number. */
static inline uint32_t pslot_what(const struct pslot *p)
{
    return READ_ONCE(*(const uint32_t *)&p->pages);
}
static inline void pslot_write(struct pslot *p, struct pslot v)
{
    union {
        struct pslot slot;
        uint64_t word;
    } u = {.slot = v};

    WRITE_ONCE(*(uint64_t *)p, u.word);
}
/* By others than the owner: of two frees of one mapping, one gets it. */
static inline bool pslot_claim_remote(struct pslot *p, struct pslot was)
{
    union {
        struct pslot slot;
        uint64_t word;
    } old = {.slot = was}, dead = {.slot = was};

    dead.slot.kind = VM_KIND_NONE;
    return ATOMIC_CAS(*(uint64_t *)p, &old.word, dead.word);
}
static inline void *pslot_caller(struct pslot d)
{
    return (void *)((intptr_t)vmalloc + d.caller);
}

/* Takes [at, at + span) of the current run, whose entries are written, and describes it. Whole
 * before it can be found: entries, then the description, then the start bit. */
static __always_inline void *pblock_describe(struct pblock *b, unsigned at, struct pslot slot)
{
    b->cursor = at + slot.span;
    pslot_write(&b->slots[at], slot);
    STORE_RELEASE(b->starts[at / 64], b->starts[at / 64] | 1ULL << (at % 64));
    return (void *)(b->start + at * PAGE_SIZE);
}

static __always_inline void *pblock_take(struct pblock *b, unsigned at, struct page *const *pages,
                                         unsigned count, struct pslot slot, pgprot_t prot)
{
    ptmap_table_map(b->table, at, pages, count, prot);
    return pblock_describe(b, at, slot);
}

/* Sets [slot, slot + span), span at least 1. */
static __always_inline void slot_bits_set(uint64_t *map, unsigned slot, unsigned span)
{
    unsigned shift = slot % 64, last = shift + span - 1;
    uint64_t *word = &map[slot / 64], bits = ~0ULL << shift;

    for (; unlikely(last >= 64); last -= 64) {
        *word++ |= bits;
        bits = ~0ULL;
    }
    *word |= bits & (~0ULL >> (63 - last));
}

/* The owner's: [slot, slot + span) was freed. */
static __always_inline void pblock_note_free(struct pqueue *q, struct pblock *b, unsigned slot,
                                             unsigned span)
{
    slot_bits_set(b->pending, slot, span);
    if (unlikely(b->state == PBLOCK_FULL || b->state == PBLOCK_PARTIAL)) {
        list_del(&b->link);
        list_add_tail(&b->link, &q->dirty);
        ADD_ONCE(q->dirty_blocks, 1);
        b->state = PBLOCK_DIRTY;
        WRITE_ONCE(b->queue, q); /* partner: own_block() */
    }
}

/* The same where the cases that need a call are rare. */
static __always_inline void pblock_note_free_fast(struct pblock *b, unsigned slot, unsigned span)
{
    unsigned shift = slot % 64;

    if (span > 1 && unlikely(shift + span > 64)) {
        pblock_note_free_long(b, slot, span);
        return;
    }
    b->pending[slot / 64] |= (~0ULL >> (64 - span)) << shift;
}

static inline struct pqueue *pqueue_mine(void)
{
    return &this_cpu_ptr(&vmap_pqueues)->context[in_irq()];
}

/* Takes slots for `count` pages, maps them and describes them. align in pages, a power of two.
 * NULL: no addresses or no memory. */
static __always_inline void *pblock_map(struct page *const *pages, unsigned count, unsigned align,
                                        struct pslot slot, pgprot_t prot)
{
    struct pblock *b = pqueue_mine()->active;
    unsigned at = b->cursor;

    if (likely(align == 1 && at + slot.span <= b->limit))
        return pblock_take(b, at, pages, count, slot, prot);
    return pblock_map_slow(pages, count, align, slot, prot);
}

static inline bool pblock_room(unsigned n)
{
    const struct pblock *b = PERCPU_READ_(vmap_pqueues.context[0].active);

    return b->cursor + n <= b->limit || pblock_refill(n);
}

/* Finds the mapping that starts at addr and makes it the caller's to unmap. `kinds` is a bit mask
 * of enum vm_kind; count 0: any. */
static __always_inline enum pblock_result pblock_claim(uintptr_t addr, unsigned kinds,
                                                       unsigned count, struct pblock **block,
                                                       struct pslot *slot)
{
    unsigned at = (addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT;
    enum pblock_result result = PBLOCK_BAD;
    struct pblock *b;
    struct pslot d;

    tlb_gen_read_begin();
    b = pblock_of(table_lookup(addr));
    if (unlikely(!b)) {
        tlb_gen_read_end();
        return PBLOCK_NOT_ONE;
    }
    d = pslot_read(&b->slots[at]);
    if (likely(IS_ALIGNED(addr, PAGE_SIZE) && (kinds >> d.kind & 1) &&
               (!count || d.pages == count))) {
        if (likely(b->home == pqueue_mine())) {
            WRITE_ONCE(b->slots[at].kind, VM_KIND_NONE);
            result = PBLOCK_OK;
        } else if (pslot_claim_remote(&b->slots[at], d)) {
            result = PBLOCK_OK;
        }
    }
    tlb_gen_read_end();
    *block = b;
    *slot = d;
    return result;
}

/* The entries of a claimed mapping are cleared: its slots wait for their generation. */
static __always_inline void pblock_give(struct pblock *b, uintptr_t addr, unsigned span)
{
    unsigned at = (addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT;
    struct pqueue *q = pqueue_mine();

    if (likely(b->home == q))
        pblock_note_free(q, b, at, span);
    else
        pblock_free_remote(b, at);
}

#endif
