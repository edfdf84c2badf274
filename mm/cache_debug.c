/*
 * cache_debug.c: debug builds of the object caches: free objects are filled and checked, and each
 * has a trailer that says whether it is free, which also shows writes behind its end.
 *
 * Reports are rate-limited and counted, and the caller goes on: a test looks at the counts.
 */
#include "mm/cache_internal.h"

#ifdef CONFIG_DEBUG

#include "lib/printf.h"
#include "lib/string.h"

#define TRAILER_FREE 0x6b6bf4ee6b6bf4eeULL
#define TRAILER_USED 0xa5a5ca11a5a5ca11ULL

/* Offset of the first byte in [from, to) that is not `fill`, or `to`. */
static size_t first_other(const void *obj, size_t from, size_t to, uint8_t fill)
{
    const uint8_t *b = obj;

    while (from < to && b[from] == fill)
        from++;
    return from;
}

static void report_damage(const struct cache *c, const void *obj, size_t at, const char *when)
{
    ATOMIC_ADD(cache_damage_count, 1);
    kprintf_ratelimited("# cache: %s: object %p of %u bytes was written %s: byte %zu is %#x\n",
                        c->name, obj, c->size, when, at, ((const uint8_t *)obj)[at]);
}

void object_poison(const struct cache *c, void *obj)
{
    memset(obj, POISON_FREE, ALIGN_UP(c->size, 8u));
    object_trailer(c, obj)->state = TRAILER_FREE;
}

bool object_is_poisoned(const struct cache *c, const void *obj)
{
    return first_other(obj, 0, ALIGN_UP(c->size, 8u), POISON_FREE) == ALIGN_UP(c->size, 8u) &&
           object_trailer(c, obj)->state == TRAILER_FREE;
}

void object_take(const struct cache *c, void *obj)
{
    struct trailer *t = object_trailer(c, obj);
    size_t end = ALIGN_UP(c->size, 8u);
    size_t at = first_other(obj, 0, end, POISON_FREE);

    if (at == end && READ_ONCE(t->state) != TRAILER_FREE)
        at = end + first_other(&t->state, 0, sizeof(t->state) - 1, (uint8_t)TRAILER_FREE);
    if (at != end || READ_ONCE(t->state) != TRAILER_FREE)
        report_damage(c, obj, at, "while free");
    /* Bytes between the size and its multiple of 8 stay filled, to be checked when it is freed. */
    memset(obj, POISON_NEW, c->size);
    WRITE_ONCE(t->state, TRAILER_USED);
}

bool object_return(const struct cache *c, void *obj, const void *caller)
{
    const char *what = "is not an object of this cache";
    size_t end = ALIGN_UP(c->size, 8u);
    uint64_t state = TRAILER_USED;

    if (slab_is_object(c, obj)) {
        struct trailer *t = object_trailer(c, obj);
        size_t at = first_other(obj, c->size, end, POISON_FREE);

        /* Atomic, so that of two CPUs that free it at once one is told. */
        if (ATOMIC_CAS(t->state, &state, TRAILER_FREE) || state != TRAILER_FREE) {
            if (state != TRAILER_USED || at != end)
                report_damage(c, obj, at, "behind its end");
            object_poison(c, obj);
            return true;
        }
        what = "is free already";
    }
    ATOMIC_ADD(cache_bad_free_count, 1);
    kprintf_ratelimited("# cache: %s: bad free of %p by %pS: it %s\n", c->name, obj, caller, what);
    return false;
}

#endif
