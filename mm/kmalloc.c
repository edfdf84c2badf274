/*
 * kmalloc.c: memory of any small size, from object caches of powers of two and the steps between,
 * so that at most a third of an object is unused above 32 bytes.
 *
 * Any context but NMI. It never falls back to vmalloc: that is kvmalloc's part.
 */
#include "mm/cache_internal.h"

#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"

#define SMALL_MAX 1024 /* up to here a table finds the cache, in steps of 16 bytes */

static const uint16_t kmalloc_sizes[] = {16,  32,  48,   64,   96,   128,  192,  256,  384,
                                         512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192};
static struct cache *kmalloc_caches[ARRAY_SIZE(kmalloc_sizes)];
static struct cache *kmalloc_small[SMALL_MAX / 16]; /* [i]: for up to 16 (i + 1) bytes */

_Static_assert(KMALLOC_MAX == 8192, "the last of kmalloc_sizes");

void kmalloc_init(void)
{
    unsigned next = 0;

    for (unsigned i = 0; i < ARRAY_SIZE(kmalloc_sizes); i++) {
        char name[CACHE_NAME_MAX];

        ksnprintf(name, sizeof(name), "kmalloc-%u", kmalloc_sizes[i]);
        kmalloc_caches[i] = cache_create(name, kmalloc_sizes[i], 0);
        ASSERT(kmalloc_caches[i] != NULL);
        kmalloc_caches[i]->is_kmalloc = true;
        for (; next < ARRAY_SIZE(kmalloc_small) && 16 * (next + 1) <= kmalloc_sizes[i]; next++)
            kmalloc_small[next] = kmalloc_caches[i];
    }
}

static __noinline struct cache *kmalloc_find_large(size_t size)
{
    unsigned i = 0;

    while (kmalloc_sizes[i] < size)
        i++;
    return kmalloc_caches[i];
}

void *kmalloc(size_t size)
{
    struct cache *c;

    if (likely(size - 1 < SMALL_MAX))
        c = kmalloc_small[(size - 1) / 16];
    else if (size == 0 || size > KMALLOC_MAX)
        return NULL;
    else
        c = kmalloc_find_large(size);
    if (unlikely(c == NULL))
        return NULL; /* before cache_init() */
    return cache_alloc(c);
}

void *kzalloc(size_t size)
{
    void *p = kmalloc(size);

    if (p != NULL)
        memset(p, 0, size);
    return p;
}

void kfree(const void *p)
{
    struct cache *c;

    if (p == NULL)
        return;
    c = slab_owner(p);
    if (likely(c != NULL && c->is_kmalloc)) {
        cache_free(c, (void *)(uintptr_t)p);
        return;
    }
    ATOMIC_ADD(cache_bad_free_count, 1);
    kprintf_ratelimited("# kfree: bad free of %p by %pS: it is not from kmalloc\n", p,
                        __builtin_return_address(0));
}

size_t kmalloc_size(const void *p)
{
    struct cache *c = p != NULL ? slab_owner(p) : NULL;

    return c != NULL ? c->size : 0;
}
