/*
 * boot.c: starts mm/ on the simulated machine, and takes it down. See boot.h.
 */
#include "tests/host/sim/boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/memrange.h"
#include "mm/cache.h"
#include "mm/early_alloc.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap_internal.h"
#include "tests/host/sim/internal.h"

#define MAP_MAX 64

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    if (sim_running)
        sim_fail(SIM_TEST, "%s", what);
    fprintf(stderr, "sim: %s\n", what);
    exit(2);
}

const char *const sim_mix_names[SIM_MIXES] = {"blocks", "index",   "flush", "search", "insert",
                                              "purge",  "vbindex", "lock",  "spins"};

static void mix_one(struct vmap_config *c, unsigned i)
{
    bool *const fields[] = {&c->blocks_all,   &c->index_table, &c->flush_gen,     &c->search_walk,
                            &c->insert_twice, &c->purge_eager, &c->vbindex_global};

    if (i < ARRAY_SIZE(fields))
        *fields[i] = !*fields[i];
    else
        c->lock = i == ARRAY_SIZE(fields) ? LOCK_RW : LOCK_RWSPIN;
    if (c->index_table || c->search_walk)
        c->pools = false;
    if (c->search_walk)
        c->nodes = 1;
}

void sim_mix(struct vmap_config *c, uint32_t mix)
{
    struct vmap_config before;

    /* Blocks go before the table, and come after it. */
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < SIM_MIXES; i++) {
            before = *c;
            if (!(mix >> i & 1))
                continue;
            mix_one(c, i);
            if (vmap_config_refused(c))
                *c = before;
            else
                mix &= ~(1u << i);
        }
}

static void boot(void *arg)
{
    const struct sim_boot *b = arg;
    static struct mem_range map[MAP_MAX];
    struct vmap_config c;
    char msg[128] = "";
    size_t n;
    const struct mem_range *given = sim_memory_map(&n);

    memcpy(map, given, n * sizeof(*map));
    early_init(map, n, MAP_MAX);
    page_alloc_init(early_map(&n), n, false);
    cache_init();
    for (unsigned cpu = 1; cpu < sim_opt.cpus; cpu++)
        must(page_alloc_cpu_init(cpu) == OK && cache_cpu_init(cpu) == OK,
             "a CPU's caches failed to start");
    must(vmap_config_for(&c, b->design, msg, sizeof(msg)), msg);
    if (b->range_size)
        c.range_size = b->range_size;
    if (b->nodes)
        c.nodes = b->nodes;
    if (b->lazy_max)
        c.lazy_max = b->lazy_max;
    if (b->no_pools)
        c.pools = false;
    c.frames_safe = b->frames_safe;
    sim_mix(&c, b->mix);
    must(vmap_init(&c) == OK, "vmap_init failed");
}

void sim_boot(const struct sim_boot *b)
{
    struct sim_boot copy = *b;

    if (sim_running)
        boot(&copy);
    else
        must(sim_do(boot, &copy), "mm/ did not start");
}

struct vmap_counters sim_counters(void)
{
    struct vmap_counters c;

    vmap_read_counters(&c);
    return c;
}

/* On every CPU at once: what is deferred and cached there goes back. */
static void quiesce(void *arg)
{
    vmap_quiesce();
    (void)arg;
}

static void check(void *arg)
{
    struct sim_baseline *now = arg;
    struct vmap_counters c;

    vm_unmap_aliases();
    vmap_quiesce();
    SIM_CHECK(sim_stale_count() == 0, "%lu stale translations after vmap_quiesce",
              (unsigned long)sim_stale_count());
    SIM_CHECK(vmap_selfcheck(), "vmap_selfcheck failed");
    SIM_CHECK(page_alloc_check(), "page_alloc_check failed");
    SIM_CHECK(cache_check_all(), "cache_check_all failed");
    if (!now)
        return;
    vmap_read_counters(&c);
    *now = (struct sim_baseline){
        .free_pages = page_free_count(),
        .tables = c.pt_pages,
        .va_used = c.va_used,
        .cache_pages = cache_pages(),
        .index_pages = vmap_config.index_table ? table_pages() : 0,
    };
}

bool sim_settle(struct sim_baseline *now)
{
    /* The second round empties what the first one's frees filled on other CPUs. */
    return sim_run(sim_opt.cpus, quiesce, NULL) && sim_run(sim_opt.cpus, quiesce, NULL) &&
           sim_do(check, now);
}

struct comparison {
    const struct sim_baseline *was, *now;
    uint64_t slack;
};

static void compare(void *arg)
{
    const struct comparison *c = arg;
    uint64_t kept = c->now->tables - c->was->tables + c->now->cache_pages - c->was->cache_pages +
                    c->now->index_pages - c->was->index_pages;

    SIM_CHECK(c->now->va_used == c->was->va_used, "%ld bytes of addresses are missing",
              (long)(c->now->va_used - c->was->va_used));
    SIM_CHECK(c->was->free_pages - c->now->free_pages == kept,
              "%ld frames are missing, %ld of them are tables, %ld the caches' and %ld the index's",
              (long)(c->was->free_pages - c->now->free_pages),
              (long)(c->now->tables - c->was->tables),
              (long)(c->now->cache_pages - c->was->cache_pages),
              (long)(c->now->index_pages - c->was->index_pages));
    SIM_CHECK(kept <= c->slack || (int64_t)kept < 0,
              "%lu pages of tables and caches stay, the bound is %lu", (unsigned long)kept,
              (unsigned long)c->slack);
}

bool sim_compare(const struct sim_baseline *was, const struct sim_baseline *now, uint64_t slack)
{
    struct comparison c = {was, now, slack};

    return sim_do(compare, &c);
}

static void shutdown(void *arg)
{
    SIM_CHECK(vmap_exit(), "vmap_exit found something left");
    (void)arg;
}

bool sim_shutdown(void)
{
    return sim_do(shutdown, NULL);
}
