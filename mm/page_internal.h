/*
 * page_internal.h: what the files of the page allocator share: zones, states of a page, and the
 * per-CPU lists. Nobody else includes it.
 *
 * State of a page = its order and flags, read and written as one 16-bit value, so that a reader
 * without the lock never sees the order of one state with the flags of another. 0 is the state of
 * everything that is not the first page of a block, and of memory that is not managed at all.
 *
 *   HEAD    allocated, first page of its block            written by: its owner
 *   LISTED  free, in a per-CPU list or a zone's batch,     who took it off its last place
 *           or between two places
 *   BUDDY   free, first page of a block in a zone's list   under the zone's lock
 *
 * POISON may be set beside LISTED, BUDDY and 0 on every free page (debug builds).
 */
#ifndef MM_PAGE_INTERNAL_H
#define MM_PAGE_INTERNAL_H

#include <arch/atomic.h>
#include <arch/percpu.h>
#include <arch/spinlock.h>

#include "mm/page_alloc.h"

#define PG_HEAD   0x01u
#define PG_LISTED 0x02u
#define PG_BUDDY  0x04u
#define PG_POISON 0x80u

#define ORDERS        (PAGE_MAX_ORDER + 1)
#define MAX_NODES     64
#define PAGE_POISON   0xaaaaaaaaaaaaaaaaULL
#define PCP_MAX       512u /* room in a per-CPU list */
#define PCP_BATCH     64u  /* most pages moved under one acquisition of a zone's lock */
#define PCP_LIMIT_MIN 16u
#define ZONE_BATCHES  16u /* batches of PCP_BATCH pages that a zone keeps as they are */

typedef uint16_t __attribute__((may_alias)) page_state_t;
_Static_assert(offsetof(struct page, flags) == offsetof(struct page, order) + 1 &&
                   offsetof(struct page, order) % 2 == 0,
               "order and flags are one aligned 16-bit value");

#define STATE(flags, order) ((uint16_t)((flags) << 8 | (order)))

static inline uint16_t page_state(const struct page *p)
{
    return READ_ONCE(*(const page_state_t *)&p->order);
}
static inline void page_set_state(struct page *p, uint16_t state)
{
    WRITE_ONCE(*(page_state_t *)&p->order, state);
}
/* The bit that survives moves between the free states. */
static inline uint16_t page_poison_bit(const struct page *p)
{
    return page_state(p) & STATE(PG_POISON, 0);
}

/*
 * Largest order that the block around p may grow to without leaving its memory range, where struct
 * pages need not be mapped. Kept in page->reserved as order + 1; 0, as in a fresh memmap, is no
 * limit. Valid on pages that head or have headed a block.
 */
static inline unsigned page_limit(const struct page *p)
{
    return p->reserved ? p->reserved - 1u : PAGE_MAX_ORDER;
}

/* A page that becomes the head of a block knows what the old head knew. */
static inline void page_inherit(struct page *p, const struct page *head)
{
    p->node = head->node;
    p->reserved = head->reserved;
}

/* Memory of one NUMA node. */
struct zone {
    /* under the lock */
    struct spinlock lock;
    uint32_t orders; /* bit o: lists[o] is not empty */
    uint64_t free;   /* pages in lists and batches; read without the lock for sums and hints */
    struct list_head lists[ORDERS];
    /* Batches of PCP_BATCH LISTED pages each: page->list.next links a batch's pages, the
     * first one's list.prev the batches. */
    struct page *batches;
    uint32_t batch_count;
    /* constant after init */
    uint64_t total;
} __cacheline;

/* Read on every path, written at start-up and by tests only. */
struct page_config {
    uint32_t nodes; /* zones in use */
    uint32_t limit; /* of a per-CPU list, pages; at most PCP_MAX */
    uint32_t batch;
};
extern struct page_config page_config;
extern struct zone page_zones[MAX_NODES];

/*
 * Free single pages of one CPU, the newest last. Only that CPU touches it, so no lock: `busy` keeps
 * its own interrupt handlers out while the CPU is between two fields; a handler that finds it set
 * takes the zone's way instead. All zero is a valid empty list. Counts are read by others for sums.
 */
struct pcp {
    uint32_t busy;
    uint32_t count;
    uint32_t limit; /* 0: give everything back at the next free; set to 0 by any CPU that ran out */
    uint32_t home;  /* node that this CPU prefers */
    struct page *stack[PCP_MAX];
};
DECLARE_PER_CPU(struct pcp, page_pcp);

/* page_zone.c */
void zone_init_all(void);
void zone_add_range(uint64_t pfn, uint64_t end, unsigned node);
/* A LISTED block of exactly `order`, from `node` or the ones after it; NULL when there is none. */
struct page *zone_take_block(unsigned order, unsigned node);
/* Up to n <= PCP_BATCH single LISTED pages, in rising order where they come from one block. */
unsigned zone_take_singles(struct page **out, unsigned n, unsigned node);
/* LISTED pages (n <= PCP_BATCH) or blocks go back and merge with their buddies. */
void zone_put_block(struct page *page, unsigned order);
void zone_put_singles(struct page **pages, unsigned n);
uint64_t zone_free_pages(void);

/* page_alloc.c */
/* LISTED to HEAD, contents checked in debug builds. */
void page_hand_out(struct page *page, unsigned order);
/* Empties a list whose CPU cannot use it meanwhile. */
void pcp_drain(struct pcp *pcp);

#endif
