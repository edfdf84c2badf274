/*
 * mm_cache_test.c: object caches on one and on several simulated CPUs: objects with cookies never
 * overlap and come back as they were left, counts are exact, pages come back, damage and refused
 * frees are noticed.
 */
#include "tests/host/mm_testlib.h"
#include <stdlib.h>
#include "mm/cache_internal.h"
#include "sim_point.h"
#include <arch/percpu.h>

#ifdef CONFIG_DEBUG
#define DEBUG_BUILD 1
#else
#define DEBUG_BUILD 0
#endif

static uint64_t pages_before; /* free pages before cache_init() */

static void start_with(const struct sim_options *o)
{
    mm_start(o);
    pages_before = page_free_count();
    cache_init();
    for (unsigned cpu = 0; cpu < o->cpus; cpu++)
        assert_int_equal(cache_cpu_init(cpu), OK);
}

static void start(void)
{
    struct sim_options o = {.seed = test_seed(), .ram = 64 * SZ_1M, .cpus = 1};

    start_with(&o);
}

/* Nothing is used: all pages must come back. */
static void expect_all_back(void)
{
    cache_shrink_all();
    page_drain_local();
    assert_true(cache_check_all());
    assert_true(page_alloc_check());
    assert_int_equal(cache_pages(), 0);
    assert_int_equal(page_free_count(), pages_before);
    assert_int_equal(cache_damaged(), 0);
    assert_int_equal(cache_bad_frees(), 0);
}

/* Every byte of the object says whose it is. */
static void fill(void *obj, size_t size, uint8_t cookie)
{
    memset(obj, cookie, size);
}

static bool filled(const void *obj, size_t size, uint8_t cookie)
{
    const uint8_t *b = obj;

    return b[0] == cookie && memcmp(b, b + 1, size - 1) == 0;
}

/* ---- one CPU ---- */

#define HELD 3000

static void random_sizes(void **state)
{
    static void *held[HELD];
    struct rng r = test_rng(1);

    (void)state;
    start();
    for (int round = 0; round < 150; round++) {
        size_t size = rng_range(&r, 1, rng_below(&r, 2) ? 200 : 16384);
        size_t align = rng_below(&r, 2) ? 0 : 1UL << rng_below(&r, 13);
        struct cache *c = cache_create("random", size, align);
        unsigned n = 0, limit = (unsigned)MIN(HELD, 4 * SZ_1M / (size + align));

        assert_non_null(c);
        for (int i = 0; i < 2000; i++) {
            if (n < limit && rng_below(&r, 2)) {
                void *obj = cache_alloc(c);

                assert_non_null(obj);
                assert_true(IS_ALIGNED((uintptr_t)obj - (uintptr_t)sim_ram, align ? align : 16));
                fill(obj, size, (uint8_t)n);
                held[n++] = obj;
            } else if (n > 0) {
                n--;
                assert_true(filled(held[n], size, (uint8_t)n));
                cache_free(c, held[n]);
            }
            if (i % 100 == 0) {
                assert_int_equal(cache_in_use(c), n);
                assert_true(cache_check(c));
            }
        }
        while (n > 0) {
            n--;
            assert_true(filled(held[n], size, (uint8_t)n));
            cache_free(c, held[n]);
        }
        assert_int_equal(cache_in_use(c), 0);
        assert_true(cache_check(c));
        cache_destroy(c);
    }
    expect_all_back();
}

static void arguments(void **state)
{
    struct cache *all[CACHE_MAX];
    unsigned n = 0;

    (void)state;
    start();
    assert_null(cache_create("none", 0, 0));
    assert_null(cache_create("large", 16385, 0));
    assert_null(cache_create("align", 8, 24));
    assert_null(cache_create("align", 8, 8192));
    while (
        (all[n] = cache_create("a name that is longer than the room that there is for it", 40, 8)))
        n++;
    assert_true(n >= 64);
    cache_destroy(all[0]);
    all[0] = cache_create("again", 64, 64);
    assert_non_null(all[0]);
    while (n > 0)
        cache_destroy(all[--n]);
    all[0] = cache_create("leak", 64, 64);
    assert_non_null(cache_alloc(all[0]));
    EXPECT_PANIC(cache_destroy(all[0]), "out == 0");
}

/* Waste of a slab, for all sizes: a quarter at most (6 objects of 5461 bytes are the worst of the
 * small). */
static void layouts(void **state)
{
    (void)state;
    start();
    for (size_t size = 1; size <= 16384; size += size < 1024 ? 1 : 37) {
        struct cache c;
        size_t bytes, n;

        memset(&c, 0, sizeof(c));
        assert_int_equal(slab_layout(&c, size, 16), OK);
        bytes = PAGE_SIZE << c.order;
        n = bytes / c.stride;
        assert_true(n >= 1 && c.stride >= size + TRAILER_SIZE && c.order <= SLAB_MAX_ORDER);
        assert_true((PAGE_SIZE << c.min_order) >= c.stride && c.min_order <= c.order);
        if (size <= 4096)
            CHECK_MSG((bytes - n * c.stride) * 8 <= bytes, "size %zu wastes %zu of %zu", size,
                      bytes - n * c.stride, bytes);
        if (size <= 8192)
            assert_true((bytes - n * c.stride) * 3 <= bytes);
    }
}

static void kmalloc_sizes(void **state)
{
    static void *held[KMALLOC_MAX + 1];

    (void)state;
    start();
    for (size_t size = 1; size <= KMALLOC_MAX; size++) {
        held[size] = size % 2 ? kmalloc(size) : kzalloc(size);
        assert_non_null(held[size]);
        assert_true(IS_ALIGNED((uintptr_t)held[size] - (uintptr_t)sim_ram, 16));
        if (size % 2 == 0)
            assert_true(filled(held[size], size, 0));
        assert_true(kmalloc_size(held[size]) >= size);
        assert_true(kmalloc_size(held[size]) <= MAX(16, size + size / 2 + 16));
        fill(held[size], kmalloc_size(held[size]), (uint8_t)size);
    }
    for (size_t size = 1; size <= KMALLOC_MAX; size++) {
        assert_true(filled(held[size], kmalloc_size(held[size]), (uint8_t)size));
        kfree(held[size]);
    }
    kfree(NULL);
    assert_int_equal(kmalloc_size(NULL), 0);
    assert_null(kmalloc(0));
    assert_null(kmalloc(KMALLOC_MAX + 1));
    assert_null(kmalloc(SIZE_MAX));
    assert_null(kzalloc(SIZE_MAX));
    expect_all_back();
}

static void injection(void **state)
{
    void *obj[8];

    (void)state;
    start();
    for (uint64_t after = 0; after < 30; after++) {
        cache_inject(after, 2);
        for (uint64_t i = 0; i < after + 10; i++) {
            obj[0] = kmalloc(1 + i * 13);
            if (i >= after && i < after + 2)
                assert_null(obj[0]);
            else
                kfree(obj[0]);
        }
    }
    cache_inject(1, UINT64_MAX);
    kfree(kmalloc(5));
    for (int i = 0; i < 50; i++)
        assert_null(kzalloc(5));
    cache_inject(0, 0);
    /* Pages that fail, at each request: objects are had or not, and nothing is lost. */
    for (uint64_t after = 0; after < 6; after++) {
        cache_shrink_all();
        page_alloc_inject(after, UINT64_MAX);
        for (unsigned i = 0; i < ARRAY_SIZE(obj); i++)
            obj[i] = kmalloc(300 << i % 5);
        page_alloc_inject(0, 0);
        for (unsigned i = 0; i < ARRAY_SIZE(obj); i++)
            kfree(obj[i]);
        assert_true(cache_check_all());
    }
    /* A magazine cannot be had, at each free. */
    for (uint64_t after = 0; after < 4; after++) {
        cache_shrink_all();
        for (unsigned i = 0; i < ARRAY_SIZE(obj); i++)
            obj[i] = kmalloc(6000);
        page_alloc_inject(after, UINT64_MAX);
        for (unsigned i = 0; i < ARRAY_SIZE(obj); i++)
            kfree(obj[i]);
        page_alloc_inject(0, 0);
        assert_true(cache_check_all());
    }
    expect_all_back();
}

/* Memory is in pieces of one page: caches go on with smaller slabs. */
static void pieces(void **state)
{
    static struct page *pages[8192];
    struct cache *c;
    unsigned n;
    void *a, *b;

    (void)state;
    start();
    page_hog(4000);
    n = page_alloc_bulk(pages, 4000, PAGE_ANY_NODE);
    for (unsigned i = 0; i < n; i++) {
        if (page_to_pfn(pages[i]) % 2 == 0)
            free_page(pages[i]);
    }
    page_drain_local();
    assert_null(alloc_pages(1));
    a = kmalloc(2000);
    c = slab_owner(a);
    assert_true(c->min_order == 0 && c->order > 0);
    b = kmalloc(8192); /* no piece is large enough */
    assert_null(b);
    assert_true(cache_check_all());
    kfree(a);
    for (unsigned i = 0; i < n; i++) {
        if (page_to_pfn(pages[i]) % 2 == 1)
            free_page(pages[i]);
    }
    page_unhog();
    expect_all_back();
}

/* Out of memory and back: every object that fits can be had, and all pages return. */
static void exhaustion(void **state)
{
    struct cache *c;
    void **list = NULL, *obj;
    uint64_t n = 0;

    (void)state;
    start();
    c = cache_create("all", 700, 0);
    while ((obj = cache_alloc(c)) != NULL) {
        *(void **)obj = list;
        list = obj;
        n++;
    }
    assert_int_equal(cache_in_use(c), n);
    assert_true(n * 700 > 50 * SZ_1M);
    assert_true(cache_check(c));
    while ((obj = list) != NULL) {
        list = *(void **)obj;
        cache_free(c, obj);
    }
    assert_true(cache_pages() <= 8 * (SLAB_MAX_EMPTY + DEPOT_MAX_FULL + 8));
    cache_destroy(c);
    expect_all_back();
}

/* ---- debug builds ---- */

static void damage(void **state)
{
    struct cache *c;
    uint8_t *obj;

    (void)state;
    if (!DEBUG_BUILD)
        skip();
    for (unsigned size = 1; size < 300; size += 17) {
        for (unsigned at = 0; at < size; at += 1 + size / 5) {
            const char *text;
            char want[40];

            start();
            c = cache_create("damaged", size, 0);
            obj = cache_alloc(c);
            assert_true(filled(obj, size, POISON_NEW));
            cache_free(c, obj);
            assert_true(filled(obj, size, POISON_FREE));
            assert_true(cache_check(c));
            obj[at] ^= 1;
            capture_start();
            assert_false(cache_check(c));
            assert_ptr_equal(cache_alloc(c), obj);
            text = capture_text();
            snprintf(want, sizeof(want), "byte %u is 0x6a", at);
            if (size == 1)
                CHECK_MSG(strstr(text, want) != NULL, "expected \"%s\" in \"%s\"", want, text);
            assert_int_equal(cache_damaged(), 1);
            /* Behind its end, from the first byte on. */
            obj[size] ^= 1;
            capture_start();
            cache_free(c, obj);
            capture_text();
            assert_int_equal(cache_damaged(), 2);
            assert_ptr_equal(cache_alloc(c), obj);
            assert_int_equal(cache_damaged(), 2);
            cache_free(c, obj);
            cache_destroy(c);
        }
    }
}

static void bad_frees(void **state)
{
    struct cache *c, *d;
    uint8_t *obj, *other;
    void *large[6], *first, *second;
    uint64_t bad, all;

    (void)state;
    start();
    c = cache_create("one", 100, 0);
    d = cache_create("two", 100, 0);
    obj = cache_alloc(c);
    other = cache_alloc(d);
    capture_start();
    kfree(obj); /* not from kmalloc */
    kfree(page_address(pfn_to_page(300)));
    assert_int_equal(cache_bad_frees(), 2);
    if (DEBUG_BUILD) {
        cache_free(d, obj);
        cache_free(c, obj + 16);
        cache_free(c, page_address(pfn_to_page(300)));
        assert_int_equal(cache_bad_frees(), 5);
        cache_free(c, obj);
        cache_free(c, obj);
        assert_int_equal(cache_bad_frees(), 6);
        cache_shrink(c);
        cache_free(c, obj);
        assert_int_equal(cache_bad_frees(), 7);
        obj = kmalloc(40);
        kfree(obj);
        kfree(obj);
        assert_int_equal(cache_bad_frees(), 8);
    } else {
        cache_free(c, obj);
    }
    /* Objects of slabs that are no more, in first and other pages. */
    bad = cache_bad_frees();
    for (unsigned i = 0; i < ARRAY_SIZE(large); i++)
        large[i] = kmalloc(8192);
    for (unsigned i = 0; i < ARRAY_SIZE(large); i++)
        kfree(large[i]);
    cache_shrink_all();
    for (unsigned i = 0; i < ARRAY_SIZE(large); i++)
        kfree(large[i]);
    assert_int_equal(cache_bad_frees(), bad + ARRAY_SIZE(large));
    capture_text();
    assert_int_equal(cache_in_use(c), 0);
    assert_int_equal(cache_in_use(d), 1);
    first = cache_alloc(d);
    all = cache_objects();
    second = cache_alloc(d); /* from the magazine that the first one has filled */
    assert_int_equal(cache_objects(), all + 1);
    cache_free(d, second);
    assert_int_equal(cache_objects(), all);
    cache_free(d, first);
    cache_free(d, other);
    cache_destroy(c);
    cache_destroy(d);
    assert_true(cache_check_all());
}

/* The validator itself must notice what is wrong. */
static void check_notices(void **state)
{
    struct cache *c;
    struct cache_cpu *cc;
    struct page *slab;
    union slab_state s;
    void *obj;

    (void)state;
    start();
    c = cache_create("checked", 100, 0);
    obj = cache_alloc(c);
    cc = this_cpu_ptr(c->cpu);
    slab = virt_to_page(obj);
    s.word = slab->private;
    assert_true(cache_check(c));
    capture_start();
    s.out++;
    slab->private = s.word;
    assert_false(cache_check(c));
    s.out--;
    s.free += 1;
    slab->private = s.word;
    assert_false(cache_check(c));
    s.free -= 1;
    slab->private = s.word;
    c->out++;
    assert_false(cache_check(c));
    c->out--;
    cc->loaded->object[0] = (uint8_t *)cc->loaded->object[0] + 8;
    assert_false(cache_check(c));
    cc->loaded->object[0] = (uint8_t *)cc->loaded->object[0] - 8;
    cc->rounds += 1000;
    assert_false(cache_check(c));
    cc->rounds -= 1000;
    c->depot_fulls++;
    assert_false(cache_check(c));
    c->depot_fulls--;
    list_del(&slab->list);
    list_add(&slab->list, &c->empty);
    assert_false(cache_check(c));
    list_del(&slab->list);
    list_add(&slab->list, &c->partial);
    c->has_free = !c->has_free;
    assert_false(cache_check(c));
    c->has_free = !c->has_free;
    capture_text();
    assert_true(cache_check(c));
}

/* ---- several CPUs ---- */

#define MAX_CPUS 6
#define CACHES   3
#define SMP_HELD 150
#define BOXES    32

struct object {
    void *p;
    uint8_t cache, cookie;
};
struct account {
    struct rng rng, irq_rng;
    struct object held[SMP_HELD], irq_held[SMP_HELD];
    unsigned n, irq_n;
    uint8_t cookie;
};
static struct account cpus[MAX_CPUS];
static struct cache *caches[CACHES];
static const size_t sizes[CACHES] = {24, 200, 1500};
static void *boxes[CACHES][BOXES]; /* atomic: objects on their way to whoever takes them */
static unsigned ops_per_cpu;

static void give(struct object o)
{
    if (!filled(o.p, sizes[o.cache], o.cookie))
        sim_fail(SIM_TEST, "object %p of %zu bytes lost its contents", o.p, sizes[o.cache]);
    cache_free(caches[o.cache], o.p);
}

static void pass_on(struct rng *r, struct object o)
{
    void **box = &boxes[o.cache][rng_below(r, BOXES)];

    if (!filled(o.p, sizes[o.cache], o.cookie))
        sim_fail(SIM_TEST, "object %p of %zu bytes lost its contents", o.p, sizes[o.cache]);
    fill(o.p, sizes[o.cache], 0x11);
    o.p = __atomic_exchange_n(box, o.p, __ATOMIC_SEQ_CST);
    o.cookie = 0x11;
    if (o.p != NULL)
        give(o);
}

static void one_op(struct account *a, struct rng *r, struct object *held, unsigned *n)
{
    struct object o = {.cache = (uint8_t)rng_below(r, CACHES), .cookie = ++a->cookie};

    switch (rng_below(r, 6)) {
    case 0:
    case 1:
    case 2:
        if (*n == SMP_HELD)
            break;
        o.p = cache_alloc(caches[o.cache]);
        if (o.p == NULL)
            break;
        fill(o.p, sizes[o.cache], o.cookie);
        held[(*n)++] = o;
        break;
    case 3:
        if (*n > 0)
            pass_on(r, held[--*n]);
        break;
    default:
        if (*n > 0) {
            unsigned i = (unsigned)rng_below(r, *n);

            o = held[i];
            held[i] = held[--*n];
            give(o);
        }
    }
}

static void handler(void)
{
    struct account *a = &cpus[this_cpu_id()];

    for (uint64_t i = rng_range(&a->irq_rng, 1, 4); i-- > 0;)
        one_op(a, &a->irq_rng, a->irq_held, &a->irq_n);
}

static void random_cpu(void *arg)
{
    struct account *a = &cpus[this_cpu_id()];

    (void)arg;
    for (unsigned i = 0; i < ops_per_cpu; i++) {
        one_op(a, &a->rng, a->held, &a->n);
        if (rng_below(&a->rng, 80) == 0)
            cache_shrink(caches[rng_below(&a->rng, CACHES)]);
    }
}

static void clean_up(void *arg)
{
    struct account *a = &cpus[this_cpu_id()];

    (void)arg;
    while (a->n > 0)
        give(a->held[--a->n]);
    while (a->irq_n > 0)
        give(a->irq_held[--a->irq_n]);
    for (unsigned c = 0; c < CACHES; c++) {
        for (unsigned i = 0; i < BOXES; i++) {
            void *p = __atomic_exchange_n(&boxes[c][i], NULL, __ATOMIC_SEQ_CST);

            if (p != NULL)
                give((struct object){p, (uint8_t)c, 0x11});
        }
    }
}

static void drain(void *arg)
{
    (void)arg;
    cache_shrink_all();
    page_drain_local();
}

static uint64_t in_use_by_test(unsigned c)
{
    uint64_t n = 0;

    for (unsigned cpu = 0; cpu < MAX_CPUS; cpu++) {
        for (unsigned i = 0; i < cpus[cpu].n; i++)
            n += cpus[cpu].held[i].cache == c;
        for (unsigned i = 0; i < cpus[cpu].irq_n; i++)
            n += cpus[cpu].irq_held[i].cache == c;
    }
    for (unsigned i = 0; i < BOXES; i++)
        n += boxes[c][i] != NULL;
    return n;
}

static void one_run(struct sim_options *o, unsigned ops, uint32_t storm, uint64_t leave)
{
    start_with(o);
    if (leave != 0)
        page_hog(leave);
    memset(cpus, 0, sizeof(cpus));
    memset(boxes, 0, sizeof(boxes));
    for (unsigned i = 0; i < o->cpus; i++) {
        rng_seed(&cpus[i].rng, o->seed * 64 + i);
        rng_seed(&cpus[i].irq_rng, o->seed * 64 + 32 + i);
    }
    for (unsigned c = 0; c < CACHES; c++)
        caches[c] = cache_create("smp", sizes[c], 0);
    ops_per_cpu = ops;
    if (storm != 0)
        sim_irq_storm(handler, storm);
    CHECK_MSG(sim_run(o->cpus, random_cpu, NULL), "machine seed %#lx: %s", (unsigned long)o->seed,
              sim_failure_text());
    sim_irq_storm(NULL, 0);
    assert_true(cache_check_all());
    for (unsigned c = 0; c < CACHES; c++)
        assert_int_equal(cache_in_use(caches[c]), in_use_by_test(c));
    CHECK_MSG(sim_run(o->cpus, clean_up, NULL), "machine seed %#lx: %s", (unsigned long)o->seed,
              sim_failure_text());
    assert_true(cache_check_all());
    for (unsigned c = 0; c < CACHES; c++)
        assert_int_equal(cache_in_use(caches[c]), 0);
    /* The first to drain leaves what later ones put into the magazines' own cache. */
    assert_true(sim_run(o->cpus, drain, NULL));
    for (unsigned c = 0; c < CACHES; c++)
        cache_destroy(caches[c]);
    page_unhog();
    assert_true(sim_run(o->cpus, drain, NULL));
    expect_all_back();
}

static void schedules(void **state)
{
    struct rng r = test_rng(2);
    const char *env = getenv("MM_SCHEDULES");
    unsigned runs = env != NULL ? (unsigned)atoi(env) : 200;

    (void)state;
    for (unsigned i = 0; i < runs; i++) {
        struct sim_options o = {
            .seed = rng_next(&r),
            .ram = 16 * SZ_1M,
            .cpus = (unsigned)rng_range(&r, 1, MAX_CPUS),
        };
        uint64_t leave = rng_below(&r, 2) ? 0 : rng_range(&r, 4, 60);

        one_run(&o, 600, rng_below(&r, 3) ? (uint32_t)rng_range(&r, 20, 2000) : 0, leave);
    }
}

static void threads(void **state)
{
    struct rng r = test_rng(3);

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct sim_options o = {
            .seed = rng_next(&r), .ram = 16 * SZ_1M, .cpus = 4, .free_running = true};

        one_run(&o, 20000, 0, i % 2 ? 60 : 0);
    }
}

/* ---- objects that one CPU allocates and another one frees ---- */

#define RING 64
static void *ring[RING];
static uint32_t ring_in, ring_out;
static uint64_t most_pages;

static void produce_consume(void *arg)
{
    struct cache *c = caches[0];

    for (unsigned i = 0; i < *(unsigned *)arg; i++) {
        if (this_cpu_id() == 0) {
            while (ring_in - LOAD_ACQUIRE(ring_out) == RING)
                sim_relax();
            ring[ring_in % RING] = cache_alloc(c);
            STORE_RELEASE(ring_in, ring_in + 1);
        } else {
            while (LOAD_ACQUIRE(ring_in) == ring_out)
                sim_relax();
            cache_free(c, ring[ring_out % RING]);
            STORE_RELEASE(ring_out, ring_out + 1);
        }
        most_pages = MAX(most_pages, cache_pages());
    }
}

static void no_pile_up(void **state)
{
    struct sim_options o = {.seed = test_seed(), .ram = 16 * SZ_1M, .cpus = 2};
    unsigned n = 60000;

    (void)state;
    start_with(&o);
    caches[0] = cache_create("flow", 256, 0);
    ring_in = ring_out = 0;
    most_pages = 0;
    assert_true(sim_run(2, produce_consume, &n));
    assert_true(cache_check_all());
    assert_int_equal(cache_in_use(caches[0]), 0);
    /* In flight, in four magazines and in the depot. */
    assert_true(most_pages <= (RING + 4 * MAG_ROUNDS + DEPOT_MAX_FULL * MAG_ROUNDS) / 14 + 8);
    assert_true(sim_run(2, drain, NULL));
    cache_destroy(caches[0]);
    assert_true(sim_run(2, drain, NULL));
    expect_all_back();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sizes),  cmocka_unit_test(arguments), cmocka_unit_test(layouts),
        cmocka_unit_test(kmalloc_sizes), cmocka_unit_test(injection), cmocka_unit_test(pieces),
        cmocka_unit_test(exhaustion),    cmocka_unit_test(damage),    cmocka_unit_test(bad_frees),
        cmocka_unit_test(check_notices), cmocka_unit_test(schedules), cmocka_unit_test(threads),
        cmocka_unit_test(no_pile_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
