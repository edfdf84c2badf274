/*
 * cache_internal.h: what the files of the object caches share: the cache, its magazines, and the
 * state of a slab. Nobody else includes it.
 *
 * An object is in one of four places: with its user, in a CPU's magazine, in a full magazine of the
 * depot, or on its slab's free list. To the slab the first three are all "out".
 *
 * Layout of an object: `size` bytes; debug builds append a trailer that says whether it is free.
 * The link of a slab's free list lies in the object's first bytes, in debug builds in the trailer,
 * so that the filling of the whole object can be checked.
 */
#ifndef MM_CACHE_INTERNAL_H
#define MM_CACHE_INTERNAL_H

#include <arch/atomic.h>
#include <arch/page.h>
#include <arch/percpu.h>
#include <arch/spinlock.h>

#include "mm/cache.h"

#define CACHE_MAX      128
#define CACHE_NAME_MAX 24
#define SLAB_MAX_ORDER 3
#define SLAB_MAX_EMPTY 2  /* empty slabs that a cache keeps */
#define DEPOT_MAX_FULL 16 /* full magazines that a depot keeps */
#define MAG_ROUNDS     30 /* so that a magazine is 256 bytes */
#define SLAB_END       0xffff

#define POISON_FREE 0x6b
#define POISON_NEW  0xa5

/* Objects on their way between a CPU and the depot. */
struct magazine {
    struct magazine *next;
    uint64_t rounds;
    void *object[MAG_ROUNDS];
};
_Static_assert(sizeof(struct magazine) == 256, "a magazine is one small object");

/*
 * One CPU's part of a cache; all zero is a valid empty one. `rounds` is that of the loaded magazine
 * while it is loaded, `capacity` 0 while none is. `busy` as in struct pcp (mm/page_internal.h): an
 * interrupt handler that finds it set goes to the slabs.
 */
struct cache_cpu {
    uint32_t busy;
    uint32_t rounds;
    uint32_t capacity;
    uint32_t spare_rounds; /* 0 or mag_rounds */
    struct magazine *loaded;
    struct magazine *spare;
};

struct cache {
    /* constant while the cache exists */
    struct cache_cpu *cpu; /* per-CPU variable; NULL: the cache does not exist */
    uint32_t size;         /* bytes for the user */
    uint32_t stride;       /* from object to object */
    uint16_t mag_rounds;   /* objects in a full magazine */
    uint8_t order;         /* of its slabs; min_order when no such block is to be had */
    uint8_t min_order;
    uint16_t id;
    bool is_kmalloc;
    char name[CACHE_NAME_MAX];
    /* under lock */
    struct spinlock lock __cacheline;
    struct list_head partial, full, empty; /* slabs by their first page's list */
    bool has_free; /* one of partial or empty is not; read without the lock as a hint */
    uint64_t slabs, empties;
    uint64_t pages;
    uint64_t out; /* objects that are not on a slab's free list */
    /* under depot_lock */
    struct spinlock depot_lock __cacheline;
    struct magazine *depot_full;
    struct magazine *depot_empty;
    uint64_t depot_fulls;
} __cacheline;

/*
 * A slab is a block of pages; its state lies in page->private of the first one, the others say how
 * far they are from it. Free objects are linked by their offset in the slab in units of 8 bytes.
 */
union slab_state {
    uint64_t word;
    struct {
        uint16_t magic;
        uint16_t cache; /* index in cache_table */
        uint16_t
            free; /* first free object, SLAB_END: none. In other than first pages: pages from it */
        uint16_t out; /* objects that are not free */
    };
};
#define SLAB_MAGIC      0x51ab
#define SLAB_MAGIC_TAIL 0x51ac

/* Debug builds: filling and checking objects (cache_debug.c). */
#ifdef CONFIG_DEBUG
#define TRAILER_SIZE 16
struct trailer {
    uint64_t state;
    uint64_t link;
};
static inline struct trailer *object_trailer(const struct cache *c, const void *obj)
{
    return (struct trailer *)((uintptr_t)obj + ALIGN_UP(c->size, 8u));
}
/* Marks a free object as such and fills it. */
void object_poison(const struct cache *c, void *obj);
bool object_is_poisoned(const struct cache *c, const void *obj);
/* Free to used: reports damage since it was freed. */
void object_take(const struct cache *c, void *obj);
/* Used to free. False, and a report, if it is not a used object of this cache. */
bool object_return(const struct cache *c, void *obj, const void *caller);
#else
#define TRAILER_SIZE 0
static inline void object_poison(const struct cache *c, void *obj)
{
    (void)c, (void)obj;
}
static inline bool object_is_poisoned(const struct cache *c, const void *obj)
{
    (void)c, (void)obj;
    return true;
}
static inline void object_take(const struct cache *c, void *obj)
{
    (void)c, (void)obj;
}
static inline bool object_return(const struct cache *c, void *obj, const void *caller)
{
    (void)c, (void)obj, (void)caller;
    return true;
}
#endif

extern struct cache cache_table[CACHE_MAX];
/* The cache that magazines come from; it has none itself, so that getting one never needs one. */
#define MAGAZINE_CACHE (&cache_table[0])

/* Counts of cache.h's cache_damaged() and cache_bad_frees(). */
extern uint64_t cache_damage_count, cache_bad_free_count;

/* kmalloc.c */
void kmalloc_init(void);

/* cache_slab.c */
err_t slab_layout(struct cache *c, size_t size, size_t align);
/* Up to n objects, at least one unless memory is out. */
unsigned slab_alloc(struct cache *c, void **out, unsigned n);
void slab_free(struct cache *c, void *const *objs, unsigned n);
void slab_release_empties(struct cache *c);
/* The cache that obj came from by its page, NULL if it is not from a slab. */
struct cache *slab_owner(const void *obj);
/* Is obj the first byte of an object of c. */
bool slab_is_object(const struct cache *c, const void *obj);
bool slab_check(struct cache *c);

#endif
