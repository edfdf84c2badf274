/*
 * cache.c: object caches: per-CPU magazines and the depot they are exchanged with, before the
 * slabs.
 *
 * Any context but NMI, except making and destroying caches. The common path of cache_alloc() and
 * cache_free() is a push or pop in the CPU's loaded magazine: no lock, no atomic, no interrupt
 * masking. Whole magazines go to and come from the depot under one lock acquisition, so objects
 * that one CPU allocates and another frees travel in batches; a full depot passes them on to the
 * slabs.
 */
#include "mm/cache_internal.h"

#include <arch/smp.h>

#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/inject.h"

#define CALLER __builtin_return_address(0)

static struct lock_class slab_lock_class = {.name = "cache.slabs"};
static struct lock_class depot_lock_class = {.name = "cache.depot"};
static struct lock_class table_lock_class = {.name = "cache.table"};

struct cache cache_table[CACHE_MAX];
/* Protects who has which slot. */
static struct spinlock table_lock = SPINLOCK_INIT(&table_lock_class);
static DEFINE_PER_CPU(struct cache_cpu[CACHE_MAX], cache_cpus);
static struct inject injection;
uint64_t cache_damage_count, cache_bad_free_count;

/* This CPU's part. All but cc_enter() are called with cc->busy held, or on a CPU that is still. */

/* False: we are in an interrupt handler that came in the middle of something. */
static __always_inline bool cc_enter(struct cache_cpu *cc)
{
    if (unlikely(READ_ONCE(cc->busy) != 0))
        return false;
    WRITE_ONCE(cc->busy, 1);
    barrier(); /* the rest is touched only between the two stores to busy, by this CPU alone */
    return true;
}
static __always_inline void cc_leave(struct cache_cpu *cc)
{
    barrier();
    WRITE_ONCE(cc->busy, 0);
}
static __always_inline void *cc_pop(struct cache_cpu *cc)
{
    uint32_t rounds = cc->rounds - 1;

    WRITE_ONCE(cc->rounds, rounds);
    return cc->loaded->object[rounds];
}
static __always_inline void cc_push(struct cache_cpu *cc, void *obj)
{
    uint32_t rounds = cc->rounds;

    cc->loaded->object[rounds] = obj;
    WRITE_ONCE(cc->rounds, rounds + 1);
}

/* m, of which m->rounds is valid, becomes the loaded one, and the loaded one the spare one. */
static void cc_load(const struct cache *c, struct cache_cpu *cc, struct magazine *m)
{
    cc->spare = cc->loaded;
    WRITE_ONCE(cc->spare_rounds, cc->rounds);
    if (cc->spare != NULL)
        cc->spare->rounds = cc->rounds;
    cc->loaded = m;
    WRITE_ONCE(cc->rounds, (uint32_t)m->rounds);
    cc->capacity = c->mag_rounds;
}

/* Magazines and the depot */

static struct magazine *magazine_alloc(void)
{
    void *m;

    if (slab_alloc(MAGAZINE_CACHE, &m, 1) == 0)
        return NULL;
    object_take(MAGAZINE_CACHE, m);
    ((struct magazine *)m)->rounds = 0;
    return m;
}

/* Its objects, if any, go to the slabs first. */
static void magazine_free(struct cache *c, struct magazine *m)
{
    void *obj = m;

    if (m->rounds != 0)
        slab_free(c, m->object, (unsigned)m->rounds);
    if (object_return(MAGAZINE_CACHE, m, CALLER))
        slab_free(MAGAZINE_CACHE, &obj, 1);
}

static struct magazine *depot_take(struct cache *c, bool full)
{
    struct magazine **list = full ? &c->depot_full : &c->depot_empty;
    struct magazine *m;
    unsigned long flags;

    /* A hint without the lock: while caches grow nobody has brought anything. */
    if (READ_ONCE(*list) == NULL)
        return NULL;
    flags = spin_lock_irqsave(&c->depot_lock);
    m = *list;
    if (m != NULL) {
        WRITE_ONCE(*list, m->next);
        if (full)
            SUB_ONCE(c->depot_fulls, 1);
    }
    spin_unlock_irqrestore(&c->depot_lock, flags);
    return m;
}

/* False: the depot has enough full ones. */
static bool depot_put(struct cache *c, struct magazine *m)
{
    unsigned long flags = spin_lock_irqsave(&c->depot_lock);
    bool full = m->rounds != 0;
    bool room = !full || c->depot_fulls < DEPOT_MAX_FULL;

    if (room) {
        struct magazine **list = full ? &c->depot_full : &c->depot_empty;

        m->next = *list;
        WRITE_ONCE(*list, m);
        if (full)
            ADD_ONCE(c->depot_fulls, 1);
    }
    spin_unlock_irqrestore(&c->depot_lock, flags);
    return room;
}

/* The loaded magazine is empty: gets a full spare one, a full one of the depot, or objects from the
 * slabs, in this order. Without memory it stays empty. */
static void cc_refill(struct cache *c, struct cache_cpu *cc)
{
    struct magazine *m;

    if (cc->spare_rounds != 0) {
        cc_load(c, cc, cc->spare);
        return;
    }
    m = depot_take(c, true);
    if (m != NULL) {
        if (cc->spare != NULL)
            depot_put(c, cc->spare);
        cc_load(c, cc, m);
        return;
    }
    if (cc->loaded == NULL) {
        m = magazine_alloc();
        if (m == NULL)
            return;
        cc_load(c, cc, m);
    }
    WRITE_ONCE(cc->rounds, slab_alloc(c, cc->loaded->object, (c->mag_rounds + 1u) / 2));
}

/* The loaded magazine is full, or there is none: gets an empty one. Without memory for one, the
 * spare one's objects go to the slabs. */
static void cc_make_room(struct cache *c, struct cache_cpu *cc)
{
    struct magazine *spare = cc->spare;
    struct magazine *m = spare;

    if (spare == NULL || spare->rounds != 0) {
        m = depot_take(c, false);
        if (m == NULL)
            m = magazine_alloc();
        if (spare != NULL && (m == NULL || !depot_put(c, spare))) {
            slab_free(c, spare->object, (unsigned)spare->rounds);
            spare->rounds = 0;
            if (m != NULL)
                depot_put(c, spare);
            else
                m = spare;
        }
    }
    if (m != NULL)
        cc_load(c, cc, m);
}

/* Gives back all that a CPU holds. */
static void cc_flush(struct cache *c, struct cache_cpu *cc)
{
    struct magazine *loaded = cc->loaded, *spare = cc->spare;

    if (loaded != NULL)
        loaded->rounds = cc->rounds;
    cc->loaded = cc->spare = NULL;
    cc->capacity = 0;
    WRITE_ONCE(cc->rounds, 0);
    WRITE_ONCE(cc->spare_rounds, 0);
    if (loaded != NULL)
        magazine_free(c, loaded);
    if (spare != NULL)
        magazine_free(c, spare);
}

static void depot_flush(struct cache *c)
{
    struct magazine *m;

    while ((m = depot_take(c, true)) != NULL || (m = depot_take(c, false)) != NULL)
        magazine_free(c, m);
}

/* Objects */

static __noinline void *cache_alloc_slow(struct cache *c)
{
    struct cache_cpu *cc = this_cpu_ptr(c->cpu);
    void *obj = NULL;

    if (unlikely(inject_hit(&injection)))
        return NULL;
    if (likely(cc_enter(cc))) {
        if (cc->rounds == 0)
            cc_refill(c, cc);
        if (likely(cc->rounds != 0))
            obj = cc_pop(cc);
        cc_leave(cc);
    }
    if (unlikely(obj == NULL) && slab_alloc(c, &obj, 1) == 0)
        return NULL;
    object_take(c, obj);
    return obj;
}

void *cache_alloc(struct cache *c)
{
    struct cache_cpu *cc = this_cpu_ptr(c->cpu);
    void *obj;

    if (inject_armed(&injection) || unlikely(!cc_enter(cc)))
        return cache_alloc_slow(c);
    if (unlikely(cc->rounds == 0)) {
        cc_leave(cc);
        return cache_alloc_slow(c);
    }
    obj = cc_pop(cc);
    cc_leave(cc);
    object_take(c, obj);
    return obj;
}

static __noinline void cache_free_slow(struct cache *c, void *obj)
{
    struct cache_cpu *cc = this_cpu_ptr(c->cpu);

    if (likely(cc_enter(cc))) {
        if (cc->rounds == cc->capacity)
            cc_make_room(c, cc);
        if (likely(cc->rounds != cc->capacity)) {
            cc_push(cc, obj);
            obj = NULL;
        }
        cc_leave(cc);
    }
    if (unlikely(obj != NULL))
        slab_free(c, &obj, 1);
}

void cache_free(struct cache *c, void *obj)
{
    struct cache_cpu *cc = this_cpu_ptr(c->cpu);

    if (unlikely(!object_return(c, obj, CALLER)))
        return;
    if (unlikely(!cc_enter(cc))) {
        cache_free_slow(c, obj);
        return;
    }
    if (unlikely(cc->rounds == cc->capacity)) {
        cc_leave(cc);
        cache_free_slow(c, obj);
        return;
    }
    cc_push(cc, obj);
    cc_leave(cc);
}

/* Making and destroying */

static bool cache_exists(const struct cache *c)
{
    return LOAD_ACQUIRE(c->cpu) != NULL; /* partner: STORE_RELEASE in cache_set_up */
}

/* Fewer rounds for large objects, so that a CPU's two magazines hold about 32 KiB. */
static uint16_t magazine_rounds(size_t size)
{
    size_t rounds = 4 * PAGE_SIZE / size;

    return (uint16_t)MIN(MAX(rounds, (size_t)4), (size_t)MAG_ROUNDS);
}

/* In slot `id`, which is free and ours. */
static struct cache *cache_set_up(unsigned id, const char *name, size_t size, size_t align)
{
    struct cache *c = &cache_table[id];

    if (slab_layout(c, size, align != 0 ? align : 16) != OK)
        return NULL;
    c->id = (uint16_t)id;
    c->is_kmalloc = false;
    str_copy(c->name, name, sizeof(c->name));
    spin_init(&c->lock, &slab_lock_class);
    spin_init(&c->depot_lock, &depot_lock_class);
    list_init(&c->partial);
    list_init(&c->full);
    list_init(&c->empty);
    c->has_free = false;
    c->slabs = c->empties = c->pages = c->out = 0;
    c->depot_full = c->depot_empty = NULL;
    c->depot_fulls = 0;
    c->mag_rounds = magazine_rounds(size);
    STORE_RELEASE(c->cpu, &cache_cpus[id]);
    return c;
}

struct cache *cache_create(const char *name, size_t size, size_t align)
{
    struct cache *c = NULL;
    unsigned long flags = spin_lock_irqsave(&table_lock);

    ASSERT(cache_exists(MAGAZINE_CACHE));
    for (unsigned id = 0; id < CACHE_MAX; id++) {
        if (!cache_exists(&cache_table[id])) {
            c = cache_set_up(id, name, size, align);
            break;
        }
    }
    spin_unlock_irqrestore(&table_lock, flags);
    return c;
}

void cache_destroy(struct cache *c)
{
    unsigned long flags;
    unsigned cpu;

    for_each_cpu (cpu)
        cc_flush(c, per_cpu_ptr(c->cpu, cpu));
    depot_flush(c);
    slab_release_empties(c);
    if (c->out != 0)
        kprintf("# cache: %s is destroyed with %llu objects in use\n", c->name,
                (unsigned long long)c->out);
    ASSERT(c->out == 0);
    flags = spin_lock_irqsave(&table_lock);
    STORE_RELEASE(c->cpu, NULL);
    spin_unlock_irqrestore(&table_lock, flags);
}

void cache_init(void)
{
    unsigned cpu;

    memset(cache_table, 0, sizeof(cache_table));
    for_each_cpu (cpu)
        memset(per_cpu_ptr(&cache_cpus, cpu), 0, sizeof(cache_cpus));
    inject_arm(&injection, 0, 0);
    cache_damage_count = cache_bad_free_count = 0;
    ASSERT(cache_set_up(0, "magazine", sizeof(struct magazine), CACHE_LINE) == MAGAZINE_CACHE);
    kmalloc_init();
}

err_t cache_cpu_init(unsigned cpu)
{
    (void)cpu; /* zeroed per-CPU memory is ready for use */
    return OK;
}

/* Counts and checks */

/* Objects in magazines. Exact while nobody allocates or frees. */
static uint64_t cache_idle(const struct cache *c)
{
    uint64_t sum = READ_ONCE(c->depot_fulls) * c->mag_rounds;
    unsigned cpu;

    for_each_cpu (cpu) {
        const struct cache_cpu *cc = per_cpu_ptr(c->cpu, cpu);

        sum += READ_ONCE(cc->rounds) + READ_ONCE(cc->spare_rounds);
    }
    return sum;
}

uint64_t cache_in_use(const struct cache *c)
{
    uint64_t out = READ_ONCE(c->out), idle = cache_idle(c);

    return out > idle ? out - idle : 0;
}

uint64_t cache_pages(void)
{
    uint64_t sum = 0;

    for (unsigned id = 0; id < CACHE_MAX; id++) {
        if (cache_exists(&cache_table[id]))
            sum += READ_ONCE(cache_table[id].pages);
    }
    return sum;
}

uint64_t cache_objects(void)
{
    uint64_t sum = 0;

    for (unsigned id = 0; id < CACHE_MAX; id++) {
        if (cache_exists(&cache_table[id]))
            sum += cache_in_use(&cache_table[id]);
    }
    return sum;
}

void cache_shrink(struct cache *c)
{
    struct cache_cpu *cc = this_cpu_ptr(c->cpu);

    if (cc_enter(cc)) {
        cc_flush(c, cc);
        cc_leave(cc);
    }
    depot_flush(c);
    slab_release_empties(c);
}

void cache_shrink_all(void)
{
    /* Number 0 comes last: it takes back the magazines of all others. */
    for (unsigned id = CACHE_MAX; id-- > 0;) {
        if (cache_exists(&cache_table[id]))
            cache_shrink(&cache_table[id]);
    }
}

void cache_inject(uint64_t after, uint64_t count)
{
    inject_arm(&injection, after, count);
}

uint64_t cache_damaged(void)
{
    return READ_ONCE(cache_damage_count);
}

uint64_t cache_bad_frees(void)
{
    return READ_ONCE(cache_bad_free_count);
}

static bool check_magazine(const struct cache *c, const struct magazine *m, uint64_t rounds)
{
    bool sound = rounds <= c->mag_rounds;

    for (uint64_t i = 0; sound && i < rounds; i++)
        sound = slab_is_object(c, m->object[i]) && object_is_poisoned(c, m->object[i]);
    if (!sound)
        kprintf("# cache_check: %s: a magazine of %llu holds what is no free object\n", c->name,
                (unsigned long long)rounds);
    return sound;
}

static bool check_depot(const struct cache *c)
{
    uint64_t fulls = 0;

    for (const struct magazine *m = c->depot_full; m != NULL; m = m->next, fulls++) {
        if (fulls > DEPOT_MAX_FULL || m->rounds != c->mag_rounds ||
            !check_magazine(c, m, m->rounds))
            return false;
    }
    for (const struct magazine *m = c->depot_empty; m != NULL; m = m->next) {
        if (m->rounds != 0)
            return false;
    }
    return fulls == c->depot_fulls;
}

bool cache_check(struct cache *c)
{
    bool sound = slab_check(c);
    unsigned cpu;

    for_each_cpu (cpu) {
        const struct cache_cpu *cc = per_cpu_ptr(c->cpu, cpu);
        bool fits =
            (cc->loaded != NULL || cc->rounds == 0) &&
            (cc->spare != NULL ? cc->spare_rounds == cc->spare->rounds : cc->spare_rounds == 0);

        if (cc->busy != 0 || !fits || !check_magazine(c, cc->loaded, cc->rounds) ||
            !check_magazine(c, cc->spare, cc->spare_rounds)) {
            sound = false;
            kprintf("# cache_check: %s: cpu %u's magazines are damaged\n", c->name, cpu);
        }
    }
    if (!check_depot(c) || cache_idle(c) > c->out) {
        sound = false;
        kprintf("# cache_check: %s: the depot is damaged\n", c->name);
    }
    return sound;
}

bool cache_check_all(void)
{
    bool sound = true;

    for (unsigned id = 0; id < CACHE_MAX; id++) {
        if (cache_exists(&cache_table[id]))
            sound &= cache_check(&cache_table[id]);
    }
    return sound;
}
