/*
 * cache.h: caches of equal objects (a slab allocator with per-CPU magazines), and kmalloc on top.
 *
 * Any context but NMI. Source: Bonwick, "The Slab Allocator" (1994); Bonwick and Adams, "Magazines
 * and Vmem" (2001). Debug builds poison free objects with 0x6b, new ones with 0xa5, and check.
 */
#ifndef MM_CACHE_H
#define MM_CACHE_H

#include "lib/base.h"

struct cache;

/* size and align in bytes; align 0 = 16. NULL when out of memory. Not in interrupt handlers. */
struct cache *cache_create(const char *name, size_t size, size_t align);
/* All objects must have been freed: asserted. Not in interrupt handlers. */
void cache_destroy(struct cache *c);
void *cache_alloc(struct cache *c);
void cache_free(struct cache *c, void *obj);
/* Objects in use, exact when nobody allocates. */
uint64_t cache_in_use(const struct cache *c);
/* Pages held by all caches. */
uint64_t cache_pages(void);
/* Gives empty slabs back to the page allocator, magazines of this CPU and the depot first. */
void cache_shrink(struct cache *c);
void cache_shrink_all(void);
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
bool cache_check(struct cache *c);
bool cache_check_all(void);

#endif
