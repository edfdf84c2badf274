/*
 * cache.h: caches of equal objects (a slab allocator with per-CPU magazines), and kmalloc on top.
 *
 * Any context but NMI. Source: Bonwick, "The Slab Allocator" (1994); Bonwick and Adams, "Magazines
 * and Vmem" (2001). Debug builds poison free objects with 0x6b, new ones with 0xa5, and report: a
 * write to a free object, a write behind an object's end (at its free), and frees of what is not a
 * used object of that cache, which are ignored.
 */
#ifndef MM_CACHE_H
#define MM_CACHE_H

#include "lib/base.h"

struct cache;

/* size (1 .. 16384) and align (power of two up to PAGE_SIZE; 0 = 16) in bytes. NULL when there are
 * CACHE_MAX caches (128) or the arguments cannot be met. Not in interrupt handlers. */
struct cache *cache_create(const char *name, size_t size, size_t align);
/* All objects must have been freed: asserted. No other CPU uses it any more. Not in interrupt
 * handlers. */
void cache_destroy(struct cache *c);
void *cache_alloc(struct cache *c);
void cache_free(struct cache *c, void *obj);
/* Objects in use, exact when nobody allocates. */
uint64_t cache_in_use(const struct cache *c);
/* Pages held by all caches; objects in use of all of them, magazines among them,
 * exact when nobody allocates. */
uint64_t cache_pages(void);
uint64_t cache_objects(void);
/* Gives empty slabs back to the page allocator, magazines of this CPU and the depot first. */
void cache_shrink(struct cache *c);
void cache_shrink_all(void);
/* After page_alloc_init(), on the boot CPU; then caches work on it at once. */
void cache_init(void);
err_t cache_cpu_init(unsigned cpu);

/* Sizes 16 .. KMALLOC_MAX from caches of powers of two and the steps between; larger: NULL. */
#define KMALLOC_MAX 8192
void *kmalloc(size_t size);
void *kzalloc(size_t size);
void kfree(const void *p);
/* Usable bytes of an object from kmalloc. */
size_t kmalloc_size(const void *p);

/* As page_alloc_inject(), for objects. */
void cache_inject(uint64_t after, uint64_t count);
/* Walks slabs and depot: lists, free lists, counts, debug filling. True if sound; prints what is
 * not. Only when nobody allocates. */
bool cache_check(struct cache *c);
bool cache_check_all(void);
/* Damaged objects and refused frees reported since cache_init(). */
uint64_t cache_damaged(void);
uint64_t cache_bad_frees(void);

#endif
