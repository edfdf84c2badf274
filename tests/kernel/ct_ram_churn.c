/*
 * Blocks of vm_map_ram between CPUs: mapped on one, unmapped on the next, purged by a third, all at
 * once.
 *
 * A2: the queue that owns a block and the index that finds it are both per CPU; taking the wrong
 * one's lock while a block is linked or unlinked breaks the lists. A6: a walker on the list node of
 * a block that is being freed. A4: a block that is found by a purge before it is complete. Data:
 * each mapping shows its own worker's pages.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/percpu.h>

#define WORKERS_MAX 4
#define RING        32

struct passed {
    uint64_t *p;
    uint32_t count, tag;
};

struct worker {
    uint64_t head __cacheline; /* written by the one before */
    uint64_t tail __cacheline; /* written by this one */
    struct passed slot[RING];
    struct kt_pages pages;
    struct rng rng;
    uint64_t loops;
    uint32_t id, workers;
    struct worker *next;
};

static uint32_t stop;

static bool push(struct worker *to, const struct passed *m)
{
    if (to->head - LOAD_ACQUIRE(to->tail) == RING)
        return false;
    to->slot[to->head % RING] = *m;
    STORE_RELEASE(to->head, to->head + 1);
    return true;
}

static bool pop(struct worker *w, struct passed *m)
{
    if (LOAD_ACQUIRE(w->head) == w->tail)
        return false;
    *m = w->slot[w->tail % RING];
    STORE_RELEASE(w->tail, w->tail + 1);
    return true;
}

static void check_and_unmap(const struct passed *m)
{
    unsigned last = m->count - 1;
    uint64_t *word = m->p + last * (PAGE_SIZE / sizeof(uint64_t));

    if (*m->p != kt_tag(m->tag, 0) || *word != kt_tag(m->tag, last))
        KT_FAIL("%p, %u pages: %lx and %lx instead of tag %u", (void *)m->p, m->count,
                (unsigned long)*m->p, (unsigned long)*word, m->tag);
    vm_unmap_ram(m->p, m->count);
}

static void churn(void *arg)
{
    struct worker *w = (struct worker *)arg + this_cpu_id();
    struct passed m;

    for (uint64_t i = 0; i < w->loops && !kt_failed(); i++) {
        m.count = (uint32_t)rng_range(&w->rng, 1, KT_BLOCK_ALLOC);
        m.tag = w->id + 1;
        m.p = vm_map_ram(w->pages.page, m.count, VM_ANY_NODE);
        if (!m.p) {
            KT_FAIL("no mapping of %u pages", m.count);
            return;
        }
        if (!push(w->next, &m))
            check_and_unmap(&m);
        if (pop(w, &m))
            check_and_unmap(&m);
        if (w->workers == 1 && i % 64 == 0)
            vm_unmap_aliases();
        kt_alive();
    }
}

static void purge_until_stopped(void *arg)
{
    (void)arg;
    while (!LOAD_ACQUIRE(stop)) {
        vm_unmap_aliases();
        kt_alive();
    }
}

static bool make_workers(struct worker *w, unsigned n)
{
    bool ok = true;

    for (unsigned i = 0; i < n; i++) {
        w[i].id = i;
        w[i].workers = n;
        w[i].next = &w[(i + 1) % n];
        w[i].loops = kt_scaled(2000);
        rng_seed(&w[i].rng, kt_seed() + i);
        ok = kt_pages_get(&w[i].pages, KT_BLOCK_ALLOC, i + 1) && ok;
    }
    return ok;
}

KTEST(ram_cross_cpu, "A2, A6: map on one CPU, unmap on the next, purge on a third")
{
    unsigned n = MIN(MAX(kt_cpus() - 1, 1u), (unsigned)WORKERS_MAX);
    bool purger = kt_cpus() > n;
    struct worker *w = vzalloc(n * sizeof(*w));
    uint64_t blocks;
    struct passed m;

    KT_ASSERT(w);
    kt_quiesce();
    blocks = kt_counter("vmap_blocks");
    stop = 0;
    if (make_workers(w, n)) {
        if (purger)
            kt_start(n, purge_until_stopped, NULL);
        for (unsigned i = 1; i < n; i++)
            kt_start(i, churn, w);
        churn(w);
        for (unsigned i = 1; i < n; i++)
            kt_join(i);
        STORE_RELEASE(stop, 1u);
        if (purger)
            kt_join(n);
    }
    for (unsigned i = 0; i < n; i++) {
        while (pop(&w[i], &m))
            check_and_unmap(&m);
    }
    for (unsigned i = 0; i < n; i++)
        kt_pages_put(&w[i].pages);
    vm_unmap_aliases();
    KT_EXPECT(kt_counter("vmap_blocks") <= kt_cpus() || vmap_config.blocks_all);
    KT_EXPECT(kt_selfcheck());
    kt_quiesce();
    KT_EXPECT_EQ(kt_counter("vmap_blocks"), blocks);
    vfree(w);
}

/* Each round makes a block, and has it freed by the last unmap. */
static void make_blocks(struct kt_pages *pages)
{
    void *m[KT_BLOCK_PAGES / KT_BLOCK_ALLOC];

    for (uint64_t i = 0; i < kt_scaled_flushes(100); i++) {
        for (unsigned j = 0; j < ARRAY_SIZE(m); j++) {
            m[j] = vm_map_ram(pages->page, KT_BLOCK_ALLOC, VM_ANY_NODE);
            KT_ASSERT(m[j]);
        }
        for (unsigned j = 0; j < ARRAY_SIZE(m); j++)
            vm_unmap_ram(m[j], KT_BLOCK_ALLOC);
        kt_alive();
    }
}

KTEST(block_init_race, "A4: purges while blocks are made and freed")
{
    unsigned others = MIN(kt_cpus() - 1, 3U);
    struct kt_pages pages;

    if (!kt_pages_get(&pages, KT_BLOCK_ALLOC, 1))
        return;
    stop = 0;
    for (unsigned i = 1; i <= others; i++)
        kt_start(i, purge_until_stopped, NULL);
    make_blocks(&pages);
    STORE_RELEASE(stop, 1u);
    for (unsigned i = 1; i <= others; i++)
        kt_join(i);
    kt_pages_put(&pages);
}
