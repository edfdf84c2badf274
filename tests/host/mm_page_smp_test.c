/*
 * mm_page_smp_test.c: the page allocator on several simulated CPUs: thousands of seeded schedules
 * with interrupt handlers that allocate and free in the middle of everything, pages that travel
 * between CPUs, memory that runs out; and the same with real threads.
 */
#include "tests/host/mm_testlib.h"
#include <stdlib.h>
#include "mm/page_internal.h"
#include "sim_point.h"
#include <arch/percpu.h>
#include <arch/smp.h>

#define MAX_CPUS 6
#define HELD     96
#define BOXES    16

struct held {
    struct page *page;
    uint8_t order;
};
/* One CPU's account. The handler has its own, for it comes in between. */
struct account {
    struct rng rng, irq_rng;
    struct held held[HELD], irq_held[HELD];
    unsigned n, irq_n;
};
static struct account cpus[MAX_CPUS];
static struct page *boxes[BOXES]; /* atomic: single pages on their way to whoever takes them */
static unsigned ops_per_cpu;

static uint32_t who(bool irq)
{
    return 2 * this_cpu_id() + irq + 1;
}

static void hold(struct held *held, unsigned *n, struct page *p, unsigned order, bool irq)
{
    if (p == NULL)
        return;
    mm_take(p, order, who(irq));
    held[(*n)++] = (struct held){p, (uint8_t)order};
}

static void let_go(struct held *held, unsigned *n, unsigned i, bool irq)
{
    struct held h = held[i];

    mm_give(h.page, h.order, who(irq));
    held[i] = held[--*n];
    free_pages(h.page, h.order);
}

/* One random operation on an account; returns with everything in order whether memory was there or
 * not. */
static void one_op(struct rng *r, struct held *held, unsigned *n, bool irq)
{
    struct page *out[40];
    unsigned got, i;

    switch (rng_below(r, 9)) {
    case 0:
    case 1:
        if (*n < HELD)
            hold(held, n, alloc_page(), 0, irq);
        break;
    case 2:
        got = (unsigned)rng_below(r, 4);
        if (*n < HELD)
            hold(held, n, alloc_pages_node(got, (int)rng_below(r, 3) - 1), got, irq);
        break;
    case 3:
        got = page_alloc_bulk(out, MIN(HELD - *n, (unsigned)rng_below(r, ARRAY_SIZE(out))),
                              PAGE_ANY_NODE);
        for (i = 0; i < got; i++)
            hold(held, n, out[i], 0, irq);
        break;
    case 4:
        for (got = 0; got < rng_below(r, 40) && *n > 0 && held[*n - 1].order == 0; got++) {
            out[got] = held[--*n].page;
            mm_give(out[got], 0, who(irq));
        }
        page_free_bulk(out, got);
        break;
    case 5: /* to another CPU, or from it */
        i = (unsigned)rng_below(r, BOXES);
        out[0] = *n < HELD ? __atomic_exchange_n(&boxes[i], NULL, __ATOMIC_SEQ_CST) : NULL;
        if (out[0] != NULL) {
            mm_give(out[0], 0, UINT32_MAX);
            hold(held, n, out[0], 0, irq);
        } else if (*n > 0 && held[*n - 1].order == 0) {
            out[0] = held[--*n].page;
            mm_give(out[0], 0, who(irq));
            mm_take(out[0], 0, UINT32_MAX);
            out[0] = __atomic_exchange_n(&boxes[i], out[0], __ATOMIC_SEQ_CST);
            if (out[0] != NULL) {
                mm_give(out[0], 0, UINT32_MAX);
                free_page(out[0]);
            }
        }
        break;
    default:
        for (i = (unsigned)rng_below(r, 4); i-- > 0 && *n > 0;)
            let_go(held, n, (unsigned)rng_below(r, *n), irq);
    }
}

static void handler(void)
{
    struct account *c = &cpus[this_cpu_id()];

    for (uint64_t i = rng_range(&c->irq_rng, 1, 3); i-- > 0;)
        one_op(&c->irq_rng, c->irq_held, &c->irq_n, true);
}

static void random_cpu(void *arg)
{
    struct account *c = &cpus[this_cpu_id()];

    (void)arg;
    for (unsigned i = 0; i < ops_per_cpu; i++) {
        one_op(&c->rng, c->held, &c->n, false);
        if (rng_below(&c->rng, 60) == 0)
            page_drain_local();
    }
}

/* Gives everything back, on the CPU that holds it. */
static void clean_up(void *arg)
{
    struct account *c = &cpus[this_cpu_id()];

    (void)arg;
    while (c->n > 0)
        let_go(c->held, &c->n, c->n - 1, false);
    while (c->irq_n > 0)
        let_go(c->irq_held, &c->irq_n, c->irq_n - 1, true);
    for (unsigned i = 0; i < BOXES; i++) {
        struct page *p = __atomic_exchange_n(&boxes[i], NULL, __ATOMIC_SEQ_CST);

        if (p != NULL) {
            mm_give(p, 0, UINT32_MAX);
            free_page(p);
        }
    }
    page_drain_local();
}

static void state_reset(uint64_t seed, unsigned ncpu)
{
    mm_forget_owners();
    memset(cpus, 0, sizeof(cpus));
    memset(boxes, 0, sizeof(boxes));
    for (unsigned i = 0; i < ncpu; i++) {
        rng_seed(&cpus[i].rng, seed * 64 + i);
        rng_seed(&cpus[i].irq_rng, seed * 64 + 32 + i);
    }
}

static uint64_t held_pages(unsigned ncpu)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < ncpu; i++) {
        for (unsigned j = 0; j < cpus[i].n; j++)
            sum += 1u << cpus[i].held[j].order;
        for (unsigned j = 0; j < cpus[i].irq_n; j++)
            sum += 1u << cpus[i].irq_held[j].order;
    }
    for (unsigned i = 0; i < BOXES; i++)
        sum += boxes[i] != NULL;
    return sum;
}

/* One machine, one run; everything must add up after it. */
static void one_run(struct sim_options *o, unsigned ops, uint32_t storm, uint64_t leave)
{
    unsigned ncpu = o->cpus;
    uint64_t total;

    mm_start(o);
    total = page_total();
    if (leave != 0)
        page_hog(leave);
    state_reset(o->seed, ncpu);
    ops_per_cpu = ops;
    if (storm != 0)
        sim_irq_storm(handler, storm);
    CHECK_MSG(sim_run(ncpu, random_cpu, NULL), "machine seed %#lx: %s", (unsigned long)o->seed,
              sim_failure_text());
    sim_irq_storm(NULL, 0);
    assert_true(page_alloc_check());
    assert_int_equal(page_free_count(),
                     (leave != 0 ? MIN(leave, total) : total) - held_pages(ncpu));
    CHECK_MSG(sim_run(ncpu, clean_up, NULL), "machine seed %#lx: %s", (unsigned long)o->seed,
              sim_failure_text());
    page_unhog();
    page_drain_local();
    assert_int_equal(page_free_count(), total);
    assert_true(page_alloc_check());
    assert_int_equal(page_bad_frees(), 0);
    assert_int_equal(page_damaged(), 0);
}

/* Small memory, so that blocks merge and split, lists overflow, and some runs run out. */
static void schedules(void **state)
{
    struct rng r = test_rng(1);
    const char *env = getenv("MM_SCHEDULES");
    unsigned runs = env != NULL ? (unsigned)atoi(env) : 600;

    (void)state;
    for (unsigned i = 0; i < runs; i++) {
        struct sim_options o = {
            .seed = rng_next(&r),
            .ram = 16 * SZ_1M,
            .cpus = (unsigned)rng_range(&r, 1, MAX_CPUS),
            .nodes = (unsigned)rng_range(&r, 1, 2),
        };
        uint64_t leave = rng_below(&r, 2) ? 0 : rng_range(&r, 1, 400);

        one_run(&o, 300, rng_below(&r, 3) ? (uint32_t)rng_range(&r, 20, 2000) : 0, leave);
    }
}

/* Whole batches on their way between CPUs, around none and all that a zone keeps. */

#define BATCHES_HELD 8

static struct page *batch_held[MAX_CPUS][BATCHES_HELD][PCP_BATCH];
static unsigned batches_held[MAX_CPUS];
static unsigned most, none, too_many; /* how often a zone had all that it keeps, nothing, more */

static void take_batch(unsigned cpu)
{
    struct page **out = batch_held[cpu][batches_held[cpu]];
    unsigned got = page_alloc_bulk(out, PCP_BATCH, PAGE_ANY_NODE);

    for (unsigned i = 0; i < got; i++)
        mm_take(out[i], 0, who(false));
    if (got == PCP_BATCH) {
        batches_held[cpu]++;
        return;
    }
    for (unsigned i = 0; i < got; i++)
        mm_give(out[i], 0, who(false));
    page_free_bulk(out, got);
}

static void give_batch(unsigned cpu)
{
    struct page **held = batch_held[cpu][--batches_held[cpu]];

    for (unsigned i = 0; i < PCP_BATCH; i++)
        mm_give(held[i], 0, who(false));
    page_free_bulk(held, PCP_BATCH);
}

static void batch_cpu(void *arg)
{
    unsigned cpu = this_cpu_id();
    struct rng *r = &cpus[cpu].rng;
    struct page *p;

    (void)arg;
    for (unsigned i = 0; i < ops_per_cpu; i++) {
        if (batches_held[cpu] < BATCHES_HELD && rng_below(r, 2))
            take_batch(cpu);
        else if (batches_held[cpu] > 0)
            give_batch(cpu);
        else if (rng_below(r, 4) == 0 && (p = alloc_pages(PAGE_MAX_ORDER)) != NULL)
            free_pages(p, PAGE_MAX_ORDER);
        page_drain_local();
        most += page_zones[0].batch_count == ZONE_BATCHES;
        too_many += page_zones[0].batch_count > ZONE_BATCHES;
        none += page_zones[0].batch_count == 0;
    }
    while (batches_held[cpu] > 0)
        give_batch(cpu);
    page_drain_local();
}

static void batches(void **state)
{
    static struct page *out[ZONE_BATCHES * PCP_BATCH];
    struct rng r = test_rng(3);

    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        struct sim_options o = {
            .seed = rng_next(&r),
            .ram = 64 * SZ_1M,
            .cpus = (unsigned)rng_range(&r, 2, MAX_CPUS),
            .nodes = 1,
        };
        unsigned first = (unsigned)(rng_below(&r, 3) + (i & 1 ? ZONE_BATCHES - 2 : 0)) * PCP_BATCH;

        mm_start(&o);
        state_reset(o.seed, o.cpus);
        for (unsigned done = page_alloc_bulk(out, first, PAGE_ANY_NODE); done > 0;) {
            done -= PCP_BATCH;
            page_free_bulk(out + done, PCP_BATCH);
            page_drain_local();
        }
        ops_per_cpu = 40;
        if (rng_below(&r, 2))
            sim_irq_storm(handler, (uint32_t)rng_range(&r, 20, 2000));
        CHECK_MSG(sim_run(o.cpus, batch_cpu, NULL), "machine seed %#lx: %s", (unsigned long)o.seed,
                  sim_failure_text());
        sim_irq_storm(NULL, 0);
        assert_true(page_alloc_check());
        CHECK_MSG(sim_run(o.cpus, clean_up, NULL), "machine seed %#lx: %s", (unsigned long)o.seed,
                  sim_failure_text());
        page_drain_local();
        assert_int_equal(page_free_count(), page_total());
        assert_true(page_alloc_check());
        assert_int_equal(page_bad_frees() + page_damaged(), 0);
    }
    assert_int_equal(too_many, 0);
    assert_true(most > 0 && none > 0);
}

static void threads(void **state)
{
    struct rng r = test_rng(2);

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct sim_options o = {.seed = rng_next(&r),
                                .ram = 16 * SZ_1M,
                                .cpus = 4,
                                .nodes = 1 + i % 2,
                                .free_running = true};

        one_run(&o, 20000, 0, i % 3 == 2 ? 150 : 0);
    }
}

/* ---- pages that one CPU allocates and another one frees ---- */

#define RING 64
static struct page *ring[RING];
static uint32_t ring_in, ring_out;
static uint64_t most_listed;

static uint64_t listed(void)
{
    uint64_t n = 0;

    for (unsigned cpu = 0; cpu < smp_cpus(); cpu++) {
        struct pcp *p = per_cpu_ptr(&page_pcp, cpu);

        n = MAX(n, (uint64_t)READ_ONCE(p->count));
    }
    return n;
}

static void produce_consume(void *arg)
{
    unsigned total = *(unsigned *)arg;

    for (unsigned i = 0; i < total; i++) {
        if (this_cpu_id() == 0) {
            while (ring_in - LOAD_ACQUIRE(ring_out) == RING)
                sim_relax();
            ring[ring_in % RING] = alloc_page();
            if (ring[ring_in % RING] == NULL)
                sim_fail(SIM_TEST, "memory ran out after %u pages", i);
            STORE_RELEASE(ring_in, ring_in + 1);
        } else {
            while (LOAD_ACQUIRE(ring_in) == ring_out)
                sim_relax();
            if (ring_out % 7 == 0)
                free_page(ring[ring_out % RING]);
            else
                page_free_bulk(&ring[ring_out % RING], 1);
            STORE_RELEASE(ring_out, ring_out + 1);
        }
        most_listed = MAX(most_listed, listed());
    }
}

/* 20 times the memory goes through; no list may grow beyond its limit. */
static void no_pile_up(void **state)
{
    struct sim_options o = {.seed = test_seed(), .ram = 16 * SZ_1M, .cpus = 2};
    unsigned n;

    (void)state;
    mm_start(&o);
    n = (unsigned)(20 * page_total());
    ring_in = ring_out = 0;
    most_listed = 0;
    assert_true(sim_run(2, produce_consume, &n));
    assert_true(most_listed <= page_config.limit && page_config.limit <= PCP_MAX);
    assert_true(2 * page_config.limit <= page_total() / 16);
    assert_true(page_alloc_check());
    assert_int_equal(page_free_count(), page_total());
}

/* ---- memory runs out while others have pages in their lists ---- */

static struct page *one_page;

static void fill_list(void *arg)
{
    struct page *pages[40];
    unsigned n = page_alloc_bulk(pages, ARRAY_SIZE(pages), PAGE_ANY_NODE);

    (void)arg;
    if (this_cpu_id() == 0)
        return;
    page_free_bulk(pages, n - 1);
    one_page = pages[n - 1];
}

static void free_one(void *arg)
{
    (void)arg;
    if (this_cpu_id() == 1)
        free_page(one_page);
}

static void lists_come_back(void **state)
{
    struct sim_options o = {.seed = test_seed(), .ram = 16 * SZ_1M, .cpus = 2};
    struct pcp *other;
    struct page *p, *list = NULL;

    (void)state;
    mm_start(&o);
    other = per_cpu_ptr(&page_pcp, 1);
    assert_true(sim_run(2, fill_list, NULL));
    assert_true(other->count != 0);
    while ((p = alloc_page()) != NULL) {
        p->private = (uintptr_t)list;
        list = p;
    }
    assert_true(page_free_count() != 0); /* all of it with the other CPU, which is asked for it */
    assert_int_equal(other->limit, 0);
    assert_true(sim_run(2, free_one, NULL));
    assert_int_equal(other->count, 1);
    assert_int_equal(other->limit, page_config.limit);
    assert_non_null(alloc_page());
    assert_non_null(list);
    assert_true(page_alloc_check());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules),  cmocka_unit_test(batches),         cmocka_unit_test(threads),
        cmocka_unit_test(no_pile_up), cmocka_unit_test(lists_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
