/*
 * cache_slab.c: slabs, the layer of the object caches that deals with pages: blocks of 1 to 8 pages
 * cut into equal objects, with a free list each.
 *
 * Any context but NMI. Under the cache's lock only lists are changed; pages are got and given back
 * outside. Slabs with free objects are used before empty ones, empty ones before new ones.
 */
#include "mm/cache_internal.h"

#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/page_alloc.h"

/* Free objects' links */

static inline uint16_t *object_link(const struct cache *c, void *obj)
{
#ifdef CONFIG_DEBUG
    return (uint16_t *)(void *)&object_trailer(c, obj)->link;
#else
    (void)c;
    return obj;
#endif
}

static inline void *object_at(const struct page *slab, uint16_t offset)
{
    return (uint8_t *)page_address(slab) + offset * 8u;
}

static inline uint16_t object_offset(const struct page *slab, const void *obj)
{
    return (uint16_t)(((uintptr_t)obj - (uintptr_t)page_address(slab)) / 8);
}

/* First page of the slab that obj lies in, or NULL if it lies in none. */
static struct page *slab_of(const void *obj)
{
    struct page *page = virt_to_page(obj);
    union slab_state s = {.word = READ_ONCE(page->private)};

    /* Without the lock magic and cache can be trusted, for they stay as long as an object is out.
     */
    if (s.magic == SLAB_MAGIC_TAIL) {
        page -= s.free;
        s.word = READ_ONCE(page->private);
    }
    return s.magic == SLAB_MAGIC && s.cache < CACHE_MAX ? page : NULL;
}

struct cache *slab_owner(const void *obj)
{
    union slab_state s = {.word = READ_ONCE(virt_to_page(obj)->private)};

    if (unlikely(s.magic != SLAB_MAGIC && s.magic != SLAB_MAGIC_TAIL) || s.cache >= CACHE_MAX)
        return NULL;
    return &cache_table[s.cache];
}

bool slab_is_object(const struct cache *c, const void *obj)
{
    struct page *slab = slab_of(obj);
    uintptr_t at;

    if (slab == NULL || slab_owner(obj) != c)
        return false;
    at = (uintptr_t)obj - (uintptr_t)page_address(slab);
    return at % c->stride == 0 && at + c->stride <= PAGE_SIZE << slab->order;
}

/* Making and returning slabs */

/*
 * The smallest slab that holds at least four objects and wastes at most 1/8; if there is none, the
 * one that wastes least. min_order is the smallest that holds one object, for when memory is in
 * pieces.
 */
err_t slab_layout(struct cache *c, size_t size, size_t align)
{
    size_t best = SIZE_MAX;
    uint32_t stride;

    if (size == 0 || size > (PAGE_SIZE << SLAB_MAX_ORDER) / 2 || !IS_POWER_OF_2(align) ||
        align > PAGE_SIZE)
        return ERR_INVAL;
    align = MAX(align, sizeof(uint64_t));
    stride = (uint32_t)ALIGN_UP(ALIGN_UP(size, sizeof(uint64_t)) + TRAILER_SIZE, align);
    for (unsigned order = SLAB_MAX_ORDER + 1; order-- > 0;) {
        size_t bytes = PAGE_SIZE << order;
        size_t waste = (bytes % stride) << (SLAB_MAX_ORDER - order); /* per largest slab */
        bool fine = bytes / stride >= 4 && bytes % stride <= bytes / 8;

        if (bytes / stride == 0)
            break;
        c->min_order = (uint8_t)order;
        if (fine || waste < best) {
            c->order = (uint8_t)order;
            best = fine ? 0 : waste;
        }
    }
    c->size = (uint32_t)size;
    c->stride = stride;
    return OK;
}

static void slab_link_objects(struct cache *c, struct page *slab)
{
    unsigned n = (unsigned)((PAGE_SIZE << slab->order) / c->stride);
    uint8_t *obj = page_address(slab);

    for (unsigned i = 0; i < n; i++, obj += c->stride) {
        object_poison(c, obj);
        *object_link(c, obj) = i + 1 < n ? object_offset(slab, obj + c->stride) : SLAB_END;
    }
}

static struct page *slab_create(struct cache *c)
{
    struct page *slab = alloc_pages(c->order);
    union slab_state s = {.magic = SLAB_MAGIC, .cache = c->id};

    if (slab == NULL && c->min_order < c->order)
        slab = alloc_pages(c->min_order);
    if (slab == NULL)
        return NULL;
    slab_link_objects(c, slab);
    slab->private = s.word;
    s.magic = SLAB_MAGIC_TAIL;
    for (unsigned i = 1; i < 1u << slab->order; i++) {
        s.free = (uint16_t)i;
        slab[i].private = s.word;
    }
    return slab;
}

static void slab_discard(struct page *slab)
{
    for (unsigned i = 0; i < 1u << slab->order; i++)
        slab[i].private = 0;
    free_pages(slab, slab->order);
}

static void slab_discard_list(struct list_head *slabs)
{
    while (!list_empty(slabs)) {
        struct page *slab = list_first_entry(slabs, struct page, list);

        list_del(&slab->list);
        slab_discard(slab);
    }
}

/* Empty slabs beyond `keep` go to `to`. */
static void slab_detach_empties_locked(struct cache *c, unsigned keep, struct list_head *to)
{
    while (c->empties > keep) {
        struct page *slab = list_last_entry(&c->empty, struct page, list);

        list_del(&slab->list);
        list_add(&slab->list, to);
        c->empties--;
        c->slabs--;
        SUB_ONCE(c->pages, 1u << slab->order);
    }
}

/* Objects in and out */

static struct page *slab_with_free_locked(struct cache *c)
{
    struct page *slab;

    if (!list_empty(&c->partial))
        return list_first_entry(&c->partial, struct page, list);
    if (list_empty(&c->empty))
        return NULL;
    slab = list_first_entry(&c->empty, struct page, list);
    list_del(&slab->list);
    c->empties--;
    list_add(&slab->list, &c->partial);
    return slab;
}

/* Takes up to n objects from a slab that the caller has the lock for, or that nobody else knows. */
static unsigned slab_cut(struct cache *c, struct page *slab, void **out, unsigned n)
{
    union slab_state s = {.word = slab->private};
    unsigned got = 0;

    for (; got < n && s.free != SLAB_END; s.out++) {
        void *obj = object_at(slab, s.free);

        s.free = *object_link(c, obj);
        out[got++] = obj;
    }
    WRITE_ONCE(slab->private, s.word);
    return got;
}

static bool slab_is_full(const struct page *slab)
{
    return (union slab_state){.word = slab->private}.free == SLAB_END;
}

static unsigned slab_take_locked(struct cache *c, void **out, unsigned n)
{
    unsigned got = 0;
    struct page *slab;

    while (got < n && (slab = slab_with_free_locked(c)) != NULL) {
        got += slab_cut(c, slab, out + got, n - got);
        if (slab_is_full(slab)) {
            list_del(&slab->list);
            list_add(&slab->list, &c->full);
        }
    }
    ADD_ONCE(c->out, got);
    return got;
}

/* A new slab, of which `out` objects are taken. */
static void slab_add_locked(struct cache *c, struct page *slab, unsigned out)
{
    list_add(&slab->list, slab_is_full(slab) ? &c->full : &c->partial);
    c->slabs++;
    ADD_ONCE(c->pages, 1u << slab->order);
    ADD_ONCE(c->out, out);
}

static bool slab_lists_have_free(const struct cache *c)
{
    return !list_empty(&c->partial) || !list_empty(&c->empty);
}

static void slab_unlock(struct cache *c, unsigned long flags)
{
    bool has_free = slab_lists_have_free(c);

    if (has_free != c->has_free)
        WRITE_ONCE(c->has_free, has_free);
    spin_unlock_irqrestore(&c->lock, flags);
}

unsigned slab_alloc(struct cache *c, void **out, unsigned n)
{
    struct page *slab;
    unsigned long flags;
    unsigned got;

    /* Who must make a slab anyway takes the lock once. */
    if (READ_ONCE(c->has_free)) {
        flags = spin_lock_irqsave(&c->lock);
        got = slab_take_locked(c, out, n);
        slab_unlock(c, flags);
        if (got != 0)
            return got;
    }
    slab = slab_create(c);
    got = slab != NULL ? slab_cut(c, slab, out, n) : 0;
    flags = spin_lock_irqsave(&c->lock);
    if (slab != NULL)
        slab_add_locked(c, slab, got);
    else
        got = slab_take_locked(c, out, n); /* others may have freed meanwhile */
    slab_unlock(c, flags);
    return got;
}

static void slab_put_locked(struct cache *c, void *obj)
{
    struct page *slab = slab_of(obj);
    union slab_state s;

    ASSERT(slab != NULL);
    s.word = slab->private;
    ASSERT(s.cache == c->id && s.out != 0);
    if (s.free == SLAB_END) {
        list_del(&slab->list);
        list_add(&slab->list, &c->partial);
    }
    *object_link(c, obj) = s.free;
    s.free = object_offset(slab, obj);
    s.out--;
    WRITE_ONCE(slab->private, s.word);
    if (s.out == 0) {
        list_del(&slab->list);
        list_add(&slab->list, &c->empty);
        c->empties++;
    }
}

void slab_free(struct cache *c, void *const *objs, unsigned n)
{
    struct list_head spare = LIST_HEAD_INIT(spare);
    unsigned long flags = spin_lock_irqsave(&c->lock);

    for (unsigned i = 0; i < n; i++)
        slab_put_locked(c, objs[i]);
    SUB_ONCE(c->out, n);
    slab_detach_empties_locked(c, SLAB_MAX_EMPTY, &spare);
    slab_unlock(c, flags);
    slab_discard_list(&spare);
}

void slab_release_empties(struct cache *c)
{
    struct list_head spare = LIST_HEAD_INIT(spare);
    unsigned long flags = spin_lock_irqsave(&c->lock);

    slab_detach_empties_locked(c, 0, &spare);
    slab_unlock(c, flags);
    slab_discard_list(&spare);
}

/* Checks */

struct slab_check {
    struct cache *cache;
    uint64_t slabs, pages, out;
    bool sound;
};

static void slab_complain(struct slab_check *k, const struct page *slab, const char *what)
{
    k->sound = false;
    kprintf_ratelimited("# cache_check: %s: slab %#llx: %s\n", k->cache->name,
                        (unsigned long long)page_to_phys(slab), what);
}

static void slab_check_one(struct slab_check *k, struct page *slab)
{
    struct cache *c = k->cache;
    union slab_state s = {.word = slab->private};
    unsigned capacity = (unsigned)((PAGE_SIZE << slab->order) / c->stride);
    unsigned free = 0;

    if (s.magic != SLAB_MAGIC || s.cache != c->id || s.out > capacity) {
        slab_complain(k, slab, "has a damaged state");
        return;
    }
    k->slabs++;
    k->pages += 1u << slab->order;
    k->out += s.out;
    for (uint16_t at = s.free; at != SLAB_END && free <= capacity; free++) {
        void *obj = object_at(slab, at);

        if (at * 8u % c->stride != 0 || at * 8u / c->stride >= capacity) {
            slab_complain(k, slab, "has a free list that leads out of it");
            return;
        }
        if (!object_is_poisoned(c, obj))
            slab_complain(k, slab, "has a free object that was written");
        at = *object_link(c, obj);
    }
    if (free + s.out != capacity)
        slab_complain(k, slab, "has objects that are neither free nor out");
}

/* kind: 0 = empty, 1 = partial, 2 = full */
static void slab_check_list(struct slab_check *k, struct list_head *list, int kind)
{
    uint64_t left = k->cache->slabs + 1;

    for (struct list_head *at = list->next; at != list && left-- != 0; at = at->next) {
        struct page *slab = list_entry(at, struct page, list);
        union slab_state s = {.word = slab->private};
        int is = s.free == SLAB_END ? 2 : s.out != 0;

        if (at->next->prev != at) {
            slab_complain(k, slab, "is in a broken list");
            return;
        }
        slab_check_one(k, slab);
        if (is != kind)
            slab_complain(k, slab, "is in the wrong list");
    }
}

bool slab_check(struct cache *c)
{
    struct slab_check k = {.cache = c, .sound = true};
    uint64_t before;

    slab_check_list(&k, &c->empty, 0);
    before = k.slabs;
    slab_check_list(&k, &c->partial, 1);
    slab_check_list(&k, &c->full, 2);
    if (c->has_free != slab_lists_have_free(c)) {
        k.sound = false;
        kprintf("# cache_check: %s: has free objects, or none, and does not know\n", c->name);
    }
    if (before != c->empties || k.slabs != c->slabs || k.pages != c->pages || k.out != c->out) {
        k.sound = false;
        kprintf("# cache_check: %s: counts are wrong: %llu slabs (%llu), %llu empty (%llu), "
                "%llu pages (%llu), %llu objects out (%llu)\n",
                c->name, (unsigned long long)k.slabs, (unsigned long long)c->slabs,
                (unsigned long long)before, (unsigned long long)c->empties,
                (unsigned long long)k.pages, (unsigned long long)c->pages,
                (unsigned long long)k.out, (unsigned long long)c->out);
    }
    return k.sound;
}
