/*
 * vmap_internal.h: what the parts of the vmap allocator share. Nobody outside mm/ includes it.
 *
 * All locks are taken with interrupts masked; none is held while a TLB is flushed, a page is
 * allocated, or a line is printed. The order is in docs/LOCKING.md.
 */
#ifndef MM_VMAP_INTERNAL_H
#define MM_VMAP_INTERNAL_H

#include "lib/bitmap.h"
#include "lib/list.h"
#include "lib/rbtree.h"
#include "mm/ptmap.h"
#include "mm/vmalloc.h"
#include "mm/vmap.h"
#include <arch/atomic.h>
#include <arch/percpu.h>
#include <arch/spinlock.h>

/* Pools keep ready ranges of 1 .. POOL_SIZES pages, guard included (Linux's MAX_VA_SIZE_PAGES). */
#define VMAP_POOL_SIZES 256
/* Neighbouring addresses go to one node by zones of 16 pages (Linux's vmap_zone_size). */
#define VMAP_ZONE_SHIFT (PAGE_SHIFT + 4) /* 16 pages */
#define VMAP_NODES_MAX  128

/* Blocks for vm_map_ram: 2 MiB and one page-table page. */
#define BLOCK_PAGES     PTE_COUNT
#define BLOCK_SIZE      PMD_SIZE
#define BLOCK_MAX_ALLOC 64 /* pages; larger requests are areas */

/* Internal kinds, beside enum vm_kind: the addresses of a block. */
#define VM_KIND_BLOCK_AREA 100

#define VMAP_NO_POOL 0xff
_Static_assert(VMAP_NODES_MAX < VMAP_NO_POOL, "a byte names a node");

/* Where an area stands. In the busy tree lookups see the whole ones only. */
enum area_state {
    AREA_ALONE,    /* in no busy tree */
    AREA_RESERVED, /* in it, not described yet (insert=twice, search=walk) */
    AREA_WHOLE,    /* in it, found by lookups */
    AREA_HIDDEN,   /* search=walk: in it, being unmapped */
    AREA_FREED,    /* search=walk: in it, waits for the purge */
    AREA_PURGED,   /* search=walk: in it, on the purge's list */
};

/* Kind of a slot: a vmap whose pages vfree() frees. Everybody else sees VM_KIND_MAP: its low bits.
 */
#define VM_KIND_MAP_OWNED (VM_KIND_MAP | 8)
#define VM_KIND_SEEN      7

/* One range of addresses, free or in use. Which tree or list it is on follows from its state. */
struct vm_area {
    /* as struct vmap_owner */
    uintptr_t start;
    struct pqueue *queue; /* NULL */
    uint32_t owner_type;
    /* constant while in use */
    uint32_t nr_pages; /* mapped pages from start; written by vrealloc's shrinking too */
    uintptr_t end;     /* behind the guard */
    uint8_t flags;     /* VM_* of the caller */
    uint8_t pool;      /* node whose pool it came from, VMAP_NO_POOL: the tree */
    uint8_t state;     /* enum area_state; written by who owns it, or under the busy lock */
    uint8_t kind;
    bool keeps_frames;          /* its entries hold frames to be freed after the flush */
    bool leaves : 1, plain : 1; /* it had 2 MiB leaves; its entries are of the ready frames' kind */
    uint16_t page_offset;       /* ioremap: offset of the caller's address in its first page */
    void *caller;
    union {
        struct vmap_block *block; /* VM_KIND_BLOCK_AREA */
        struct pblock *pblock;    /* VM_KIND_PBLOCK_AREA */
    };
    /* free tree (free lock) or busy tree (node's busy lock) */
    struct rb_node rb;
    union {
        uint64_t subtree_max;        /* free tree: largest size in the subtree, bytes */
        struct vm_area *next_sorted; /* search=walk: in the order of address */
        uint64_t stamp;              /* in a CPU's cache of units: its flush generation */
    };
    struct list_head list; /* lazy list, pool, cache of units */
};

/* vmap_area.c: free space and area objects. With search=walk vmap_walk.c does the work, and what is
 * taken is in the busy tree from then on, AREA_RESERVED. */
err_t area_space_init(uintptr_t start, uint64_t size);
void area_space_exit(void);
struct vm_area *area_new(void);
void area_delete(struct vm_area *a);
/* Takes `size` bytes aligned to `align` from the lowest free range that fits, into *a (its start
 * and end). ERR_NOSPACE; ERR_NOMEM: no object for a split. */
err_t area_space_take(struct vm_area *a, uint64_t size, uint64_t align);
/* Takes exactly [start, end), which must be free (permanent areas, pcpu). */
err_t area_space_take_at(struct vm_area *a, uintptr_t start, uintptr_t end);
/* Gives ranges back, merging with neighbours; the objects are consumed. The list is emptied. */
void area_space_give(struct vm_area *a);
void area_space_give_list(struct list_head *list);
uint64_t area_space_free(void);              /* bytes in the tree */
bool area_space_check(uint64_t *free_bytes); /* for selfcheck: order, merging, summaries */
/* Calls fn for the free range at or above `from`; returns false if none. */
bool area_space_next_free(uintptr_t from, uintptr_t *start, uintptr_t *end);
/* Finds a common base for n areas, top down, and takes them. ERR_NOSPACE. */
err_t area_space_take_congruent(struct vm_area **areas, const size_t *offsets, const size_t *sizes,
                                int n, uint64_t align);
uint64_t area_longest_hold(void);
/* With what keeps `floor` valid locked: finds the highest common base. floor: the free range with
 * the highest start at or below addr. */
typedef bool (*area_floor_fn)(uintptr_t addr, uintptr_t *start, uintptr_t *end);
bool area_congruent_base(area_floor_fn floor, const size_t *offsets, const size_t *sizes, int n,
                         uint64_t align, uintptr_t *base_out);

/* vmap_walk.c: the same without a tree of free ranges, for search=walk. */
void walk_init(uint64_t size);
err_t walk_take(struct vm_area *a, uint64_t size, uint64_t align);
err_t walk_take_at(struct vm_area *a, uintptr_t start, uintptr_t end);
/* With the purge's mutex: takes the areas out of the tree, at one go, and consumes them. */
void walk_give_list(struct list_head *list);
/* With the purge's mutex: every freed area onto `list`, they stay in the tree.
 * Returns their pages. */
uint64_t walk_take_freed(struct list_head *list);
uint64_t walk_free(void);
uint64_t walk_longest_hold(void);
bool walk_next_free(uintptr_t from, uintptr_t *start, uintptr_t *end);
err_t walk_take_congruent(struct vm_area **areas, const size_t *offsets, const size_t *sizes, int n,
                          uint64_t align);
bool walk_check(uint64_t *free_bytes);

/* vmap_node.c: who is in use, who waits for the purge, who is ready for reuse. */
err_t node_init(unsigned nodes, bool pools);
void node_exit(void);
/* A ready range of exactly `size` bytes from this CPU's node; NULL if none fits the alignment. */
struct vm_area *node_pool_take(uint64_t size, uint64_t align);
/* insert=twice: puts an area that is not described yet into the busy tree. */
void node_busy_reserve(struct vm_area *a);
/* The whole area becomes visible. */
void node_busy_insert(struct vm_area *a);
/* Finds the area that starts at addr, and takes it out if `match` agrees (called with the lock
 * held). NULL if there is none, or *found = its kind if match refused. */
typedef bool (*node_match_fn)(const struct vm_area *a, const void *arg);
struct vm_area *node_busy_unlink(uintptr_t addr, node_match_fn match, const void *arg);
/* Copies the area that contains addr (guard and block areas included). try: do not
 * wait for locks. */
bool node_busy_find(uintptr_t addr, struct vm_area *copy, bool try);
/* The area with the lowest end above addr. */
bool node_busy_next(uintptr_t addr, struct vm_area *copy);
/* Runs fn on the area starting at addr with its lock held; false if there is none. */
bool node_busy_with(uintptr_t addr, bool (*fn)(struct vm_area *a, void *arg), void *arg);
/* Takes out an area that is known to be there. */
void node_busy_remove(struct vm_area *a);
void node_lazy_add(struct vm_area *a);
/* The freed area around addr that still waits; takes locks by trying only. */
bool node_lazy_find(uintptr_t addr, struct vm_area *copy);
/* Moves every lazy area to `list`; returns their pages. */
uint64_t node_lazy_take_all(struct list_head *list);
/* Gives flushed areas to the pool of their node, else to the tree. */
void node_settle(struct list_head *list);
/* A quarter of each pool (rounded up), or all of it, back to the tree. */
void node_pool_decay(bool all);
uint64_t node_pool_len(unsigned pages);
uint64_t node_busy_count(void);
/* The table says who is in use, and the busy trees have congruent areas only. */
extern bool node_by_table; /* constant after node_init() */
/* Live areas that the table does not have: congruent ones. */
uint64_t node_untabled(void);
struct node_sums {
    uint64_t busy_bytes, lazy_bytes, pool_bytes, busy_areas;
};
bool node_check(struct node_sums *sums);
/* Takes the permanent areas out of the busy trees, for a rebuild. */
void node_take_permanent(struct list_head *list);

/* vmap_block.c: per-CPU block queues for vm_map_ram. */
err_t block_init(void);
bool block_exit(void);
err_t block_cpu_init(unsigned cpu);
void *block_map(struct page **pages, unsigned count, void *caller);
enum block_result { BLOCK_OK, BLOCK_NOT_A_BLOCK, BLOCK_BAD };
enum block_result block_unmap(uintptr_t addr, unsigned count);
/* The live mapping around addr. */
bool block_find(uintptr_t addr, struct vm_area_info *out);
/* The first live mapping that ends above addr inside addr's block. */
bool block_next(uintptr_t addr, struct vm_area_info *out);
struct vmap_flush;
/* Adds the dirty ranges of all blocks to a flush; frees (lazily) blocks without a live page that
 * are not worth keeping: less than a quarter never used, or all such blocks if `force`. */
void block_purge(struct vmap_flush *f, bool force);
uint64_t block_count(void);
bool block_check(void);

/* A slot's description, at the first slot of each mapping. */
struct block_slot {
    int32_t caller; /* distance from vmalloc(): all code lies within 2 GiB */
    uint16_t pages;
    uint16_t kind;
};

struct vmap_block {
    /* constant after publication */
    struct vm_area *area;
    pte_t *table;
    struct block_slot *slots; /* BLOCK_PAGES, one page */
    unsigned cpu;             /* whose queue it is linked on */
    /* index lock */
    struct vmap_block *hash_next;
    /* queue lock of `cpu` */
    struct list_head all_list, free_list;
    bool on_free_list;
    /* block lock */
    struct spinlock lock;
    uint16_t free;                 /* never used pages, at the end */
    uint16_t dirty;                /* pages freed and not to be used again */
    uint16_t dirty_min, dirty_max; /* freed since the last flush: [min, max) */
    bool dead;                     /* on its way out */
    uint64_t starts[BITMAP_WORDS(BLOCK_PAGES)];
};

/* vmap_index.c: block by address. */
err_t index_init(void);
void index_exit(void);
void index_insert(struct vmap_block *b);
/* After the return nobody can find b any more; who found it before holds its lock. */
void index_erase(struct vmap_block *b);
/* Finds the block of addr and returns it with its lock held; flags
 * are for spin_unlock_irqrestore. */
struct vmap_block *index_lock_block(uintptr_t addr, unsigned long *flags);

/* vmap_table.c: owner by address, wait-free. Entries are for whole 2 MiB units. */
enum owner_type { OWNER_NOBODY, OWNER_AREA, OWNER_BLOCK };
/* The first fields of struct vm_area and struct pblock. */
struct vmap_owner {
    uintptr_t start;
    struct pqueue *queue; /* a block's owner, else NULL */
    uint32_t owner_type;
};
_Static_assert(offsetof(struct vm_area, queue) == offsetof(struct vmap_owner, queue) &&
                   offsetof(struct vm_area, owner_type) == offsetof(struct vmap_owner, owner_type),
               "an area is an owner");
extern struct vmap_owner ***vmap_table_top; /* NULL: this design has no table */
/* Bytes from VMAP_BASE that the table covers; 0 without one. */
extern uintptr_t vmap_table_range;
err_t table_init(uint64_t range_size);
void table_exit(void);
/* Makes the leaf pages for [start, end). */
err_t table_reserve(uintptr_t start, uintptr_t end);
/* Takes out the leaf for the 1 GiB at addr, whose addresses are the caller's and nobody's; its page
 * may be freed after a generation. NULL: none. */
struct page *table_unlink_leaf(uintptr_t addr);
/* Sets the entries of [start, end), reserved before; start is 2 MiB aligned. */
void table_set(uintptr_t start, uintptr_t end, struct vmap_owner *owner);
void table_set_area(struct vm_area *a);
void table_clear(uintptr_t start, uintptr_t end);
uint64_t table_pages(void);

/* The owner of addr, which must lie in the range; never NULL. In a read section, or by who owns
 * what lies there. */
static inline struct vmap_owner *table_lookup(uintptr_t addr)
{
    uintptr_t offset = addr - VMAP_BASE;
    struct vmap_owner **leaf = LOAD_ACQUIRE(vmap_table_top[offset >> 30]);

    return LOAD_ACQUIRE(leaf[(offset >> PMD_SHIFT) & (PTE_COUNT - 1)]);
}

/* The same as a busy tree does, where the table alone says who is in use (node_by_table). */
struct vm_area *table_claim(uintptr_t addr, bool (*match)(const struct vm_area *a, const void *arg),
                            const void *arg);
bool table_find(uintptr_t addr, struct vm_area *copy);
bool table_next(uintptr_t addr, struct vm_area *copy);
/* Runs fn on the area that starts at addr in a read section; false if there is none. */
bool table_with(uintptr_t addr, bool (*fn)(struct vm_area *a, void *arg), void *arg);
/* Bytes and number of what is in it. */
bool table_check(uint64_t *bytes, uint64_t *areas);
void table_take_permanent(struct list_head *list);

/* vmap_units.c: runs of whole units for large areas, cached by each CPU. */
#define UNITS_MAX 16u      /* units of a cached run */
extern bool vmap_units_on; /* constant between vmap_init() and vmap_exit() */
void units_init(void);
void units_cpu_init(unsigned cpu);
/* A run of `size` bytes, whole units, in the table's reach; NULL: there is none without a purge.
 * leaves: for 2 MiB leaves. Not in NMI. */
struct vm_area *units_take(uint64_t size, bool leaves);
/* vmap_units_on: takes a freed run over, which waits for its generation; false: it is none, do it
 * yourself. Not in NMI, no lock held: may wait for late CPUs. */
bool units_give(struct vm_area *a);
/* What has passed its generation becomes ready or goes back, on all CPUs. */
void units_recycle_all(void);
/* Empties all caches: into the free tree what is ready, onto the lazy lists what waits. */
void units_drain_all(void);
bool units_find_freed(uintptr_t addr, struct vm_area *copy);
/* vmap_units_on: ready frames (mm/vmap_frames.h) may go into such an area. */
bool units_can_fill(unsigned flags, int node);
/* Fills the area's first pages with ready frames; false: out of memory, and all was taken back. */
bool units_fill(struct vm_area *a, uint64_t pages, bool zero);
/* Takes the frames of a `plain` area that nobody finds any more back to the ready ones; false: not
 * here. */
bool units_empty(struct vm_area *a);
uint64_t units_waiting_pages(void);
bool units_check(uint64_t *bytes);

/* vmap_pcpu.c: the default design's blocks, one owner each. */
struct pblock;
#define VM_KIND_PBLOCK_AREA 101
#define PBLOCK_MAX_ALLOC    128 /* pages, without the guard */
#define PBLOCK_MAX_ALIGN    SZ_1M
err_t pblock_init(void);
bool pblock_exit(void);
err_t pblock_cpu_init(unsigned cpu);
void pblock_set_limits(void); /* when the number of CPUs has changed */
/* What a free found; see vmap_pcpu.h for the paths that take and give slots. */
enum pblock_result { PBLOCK_OK, PBLOCK_NOT_ONE, PBLOCK_BAD };
/* In a read section: the live mapping around addr, or the first that ends above it. */
bool pblock_find(struct pblock *b, uintptr_t addr, struct vm_area_info *out);
bool pblock_next(struct pblock *b, uintptr_t addr, struct vm_area_info *out);
/* Recycles all that has passed on this CPU's queues, and gives empty blocks back. */
void pblock_drain_local(void);
/* Addresses are short: every CPU that halts or allocates gives up the blocks that it has no use
 * for; they wait for the flush with everything else. Returns when they have, or after a while. Any
 * context but NMI; handlers and who has interrupts masked do not wait. */
void pblock_shortage(void);
/* After a halt: answers the above. */
void pblock_idle_hook(void);
/* frames=safe, memory is short: all that waits in this context's queue, and the frames that free
 * slots keep, go to the page allocator. */
void pblock_release_frames(void);
/* Frees the bookkeeping of a block whose area is being settled; not while it is on its owner's
 * remote list, where the last who freed in it may have put it after the owner let go of it. */
bool pblock_is_queued(const struct pblock *b);
void pblock_delete(struct pblock *b);
uint64_t pblock_count(void);
bool pblock_check(void);

/* vmap_purge.c. */
bool purge_is_mine(void); /* this CPU has the purge's mutex */
/* Ranges to flush: few small ones stay apart, else one full flush. */
struct vmap_flush {
    uintptr_t start, end; /* empty when start >= end */
};
void flush_add(struct vmap_flush *f, uintptr_t start, uintptr_t end);
/* On return no CPU has a translation of [start, end). Not in NMI, no lock held. */
void purge_flush_now(uintptr_t start, uintptr_t end);
/* Notes [start, end) as unmapped outside of any lazy area (shrunk tails); flushed with the next
 * purge. */
void purge_note_pending(uintptr_t start, uintptr_t end);
void purge_lazy_count(uint64_t pages); /* counts pages that were put onto a lazy list */
void purge_lazy_added(uint64_t pages); /* counts, and purges when the limit is passed */
/* Addresses are short: purges all there is, unless fn(arg) says that there are enough, and asks it
 * once more before anybody hears that the pass has ended. own: a pass of this CPU's; else another
 * CPU's pass that began after the call will do. Returns fn's last word. */
bool purge_until(bool own, bool (*fn)(void *arg), void *arg);
void purge_everything(void);
void purge_reclaim_tables(void); /* empty table pages go back */
void purge_reclaim_tables_if_many(void);
uint64_t purge_lazy_pages(void);
/* Bytes whose generation has not passed; for selfcheck, nobody purges. */
uint64_t purge_waiting_bytes(void);
uint64_t purge_lazy_limit(void);
void purge_set_limit(void); /* when the number of CPUs has changed */
uint64_t purge_count(void);
void purge_init(void);

/* vmap_stat.c: per-CPU counters. */
struct vmap_stat {
    uint64_t alloc_fail, bad_free, pool_hit, pool_miss, tree_visits;
};
DECLARE_PER_CPU(struct vmap_stat, vmap_stat);

/* kvmalloc.c: frees what this CPU has deferred, in task context. */
#define KVFREE_DEFERRED_MAX                                                                        \
    64 /* so many wait on one CPU before a call from task context frees them */
void kvfree_drain(void);
DECLARE_PER_CPU(uint64_t, kvfree_deferred_count);

/* vmalloc.c */
extern uint32_t vmap_up;                           /* 1 between vmap_init and vmap_exit */
extern uintptr_t vmap_start, vmap_end, vmap_range; /* range: their difference */
/* Areas without pages: for blocks, stacks, MMIO, congruent areas. */
struct vm_area *vmap_area_alloc(uint64_t size, uint64_t align, unsigned flags);
void vmap_area_free_unused(struct vm_area *a); /* never mapped, never published */
/* Smallest live mapping whose end is above addr: blocks resolved to their mappings. */
bool vmap_next_live(uintptr_t addr, struct vm_area_info *out);
bool vmap_find(uintptr_t addr, struct vm_area_info *out, bool try);
void vmap_complain(const char *what, const void *addr, void *caller);
/* The allocator is up, and this is not an NMI. */
bool vmap_usable(void);
/* One line, rate-limited, and a counter. */
void vmap_alloc_failed(uint64_t size, const char *why, void *caller);
void vmap_bad_free(const char *what, const void *addr, void *caller);
/* 2 MiB units, free and with their tables, that a CPU keeps of each sort: 4096 over all CPUs, 8 to
 * 64 each. */
unsigned vmap_keep_each(void);
/* Whole pages of a size in bytes; 0 if no allocation of that size can be. */
uint64_t vmap_size_to_pages(uint64_t size);
/* What vmalloc and its kin do once the return address is known. */
void *vmap_alloc(uint64_t size, uint64_t align, unsigned flags, int node, void *caller);
/* Addresses are short: take(arg) is called until it says that it has what it needs, with what
 * waits, the pools, the blocks of other CPUs, and in the end what users can spare. */
void vmap_take_after_purge(bool (*take)(void *arg), void *arg);
/* A whole area becomes visible; addresses that are unpublished and unmapped wait for the flush. */
void vmap_publish(struct vm_area *a, uint64_t pages, enum vm_kind kind, void *caller);
void vmap_retire(struct vm_area *a);
/* Unmaps a's own frames up to `end`; any CPU may have cached what was mapped for a moment. */
void vmap_unmap_owned(struct vm_area *a, uintptr_t end);
/* Frees the area that starts at p if `match` agrees; else reports `what`. */
void vmap_free_area(const void *p, node_match_fn match, const void *arg, enum ptmap_frames frames,
                    const char *what, void *caller);
enum ptmap_frames vmap_frames_of_freed(void);

#endif
