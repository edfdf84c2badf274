/*
 * vmap.c: the allocator as a whole: configuration, start, stop, and the state for leak checks.
 *
 * Boot CPU, the others idle or inside nothing of mm/.
 */
#include "mm/vmap.h"

#include "lib/options.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_frames.h"
#include "mm/vmap_internal.h"
#include <arch/atomic.h>
#include <arch/smp.h>
#include <arch/tlb_gen.h>

struct vmap_config vmap_config __read_mostly;

/* Blocks of a CPU are no use to another: below this much, one could find no addresses while others
 * have some to spare. */
#define RANGE_BASE    (256 * SZ_1M)
#define RANGE_PER_CPU (64 * SZ_1M)

const char *const vmap_design_names[] = {"2010", "2023", "2024", "metalmap", NULL};
static const char *const pools_names[] = {"off", "on", NULL};
static const char *const frames_names[] = {"early", "safe", NULL};

/* What the command line says; 0 or not given: the design's preset. */
static struct {
    uint64_t range, nodes, lazy;
    unsigned pools, frames;
    bool pools_given;
} wanted;

static bool parse_auto(const char *value, void *target)
{
    uint64_t v = 0;

    if (strcmp(value, "auto") != 0) {
        for (; *value >= '0' && *value <= '9'; value++)
            v = v * 10 + (uint64_t)(*value - '0');
        if (*value || v == 0 || v > BIT(40))
            return false;
    }
    *(uint64_t *)target = v;
    return true;
}

static unsigned wanted_design = DESIGN_METALMAP;

OPTION_ENUM(design, "design", wanted_design, vmap_design_names, "design of the allocator");
OPTION_UINT(vmalloc, "vmalloc", wanted.range, 16 * SZ_1M, VMAP_SIZE_MAX,
            "size of the vmap range in bytes (16M to 32T, multiple of 2M)");
OPTION_ENTRY_(nodes, .key = "nodes", .type = OPT_STRING, .value = &wanted.nodes,
              .custom = parse_auto, .help = "nodes of the 2024 design: 1 to 128, or auto");
OPTION_ENTRY_(lazy, .key = "lazy", .type = OPT_STRING, .value = &wanted.lazy,
              .custom = parse_auto, .help = "pages that may wait for a purge, or auto");
OPTION_ENTRY_(pools, .key = "pools", .type = OPT_ENUM, .value = &wanted.pools,
              .choices = pools_names, .given = &wanted.pools_given,
              .help = "size pools of the 2024 design: on or off");

OPTION_ENUM(frames, "frames", wanted.frames, frames_names,
            "frames of freed areas go back at once (early) or after the flush (safe)");

unsigned vmap_design_wanted(void)
{
    return wanted_design;
}

bool vmap_config_for(struct vmap_config *c, unsigned design, char *msg, size_t msg_size)
{
    uint64_t range = wanted.range ? wanted.range : VMAP_SIZE_MAX;

    *c = (struct vmap_config){.design = design, .range_size = range, .pools = true};
    if (design != DESIGN_2024 && design != DESIGN_METALMAP) {
        ksnprintf(msg, msg_size, "design '%s' is not built in; there are: 2024, metalmap",
                  design < ARRAY_SIZE(vmap_design_names) - 1 ? vmap_design_names[design] : "?");
        return false;
    }
    if (!IS_ALIGNED(range, BLOCK_SIZE)) {
        ksnprintf(msg, msg_size, "vmalloc= must be a multiple of 2M");
        return false;
    }
    if (design == DESIGN_METALMAP && range < RANGE_BASE + smp_cpus_possible() * RANGE_PER_CPU) {
        ksnprintf(msg, msg_size,
                  "design=metalmap needs vmalloc= of at least %luM for %u CPUs, whose blocks are "
                  "their own; design=2024 does with less",
                  (unsigned long)((RANGE_BASE + smp_cpus_possible() * RANGE_PER_CPU) / SZ_1M),
                  smp_cpus_possible());
        return false;
    }
    if (wanted.nodes > VMAP_NODES_MAX) {
        ksnprintf(msg, msg_size, "nodes= must be at most %u", VMAP_NODES_MAX);
        return false;
    }
    c->nodes = (unsigned)wanted.nodes;
    if (!c->nodes)
        c->nodes = MIN(smp_cpus_possible(), (unsigned)VMAP_NODES_MAX);
    c->lazy_max = wanted.lazy;
    if (wanted.pools_given)
        c->pools = wanted.pools;
    c->blocks_all = design == DESIGN_METALMAP;
    if (c->blocks_all)
        c->pools = false; /* the tree has whole units only */
    c->frames_safe = wanted.frames;
    return true;
}

/* Areas that outlive one allocator: stacks and MMIO of the kernel itself. */
static LIST_HEAD(permanent);

static err_t adopt_permanent(void)
{
    while (!list_empty(&permanent)) {
        struct vm_area *a = list_first_entry(&permanent, struct vm_area, list);
        err_t err = area_space_take_at(a, a->start, a->end);

        if (err != OK) {
            kprintf("# vmap: vmalloc= leaves no room for the kernel's own area at %p\n",
                    (void *)a->start);
            return err;
        }
        if (vmap_config.blocks_all && table_reserve(a->start, a->end) != OK) {
            return ERR_NOMEM; /* the tree is thrown away as a whole */
        }
        list_del(&a->list);
        a->queue = NULL;
        a->owner_type = OWNER_AREA;
        node_busy_insert(a);
        if (vmap_config.blocks_all)
            table_set_area(a);
    }
    return OK;
}

err_t vmap_init(const struct vmap_config *c)
{
    unsigned cpu;
    err_t err;

    vmap_config = *c;
    vmap_start = VMAP_BASE;
    vmap_end = VMAP_BASE + c->range_size;
    vmap_range = c->range_size;
    ptmap_init();
    purge_init();
    err = area_space_init(vmap_start, c->range_size);
    if (err != OK)
        return err;
    err = node_init(c->nodes, c->pools);
    if (err != OK)
        goto err_space;
    err = index_init();
    if (err != OK)
        goto err_node;
    err = block_init();
    if (err == OK)
        err = pblock_init();
    if (err == OK && c->blocks_all)
        err = table_init(c->range_size);
    if (err == OK)
        err = adopt_permanent();
    if (err != OK)
        goto err_index;
    for_each_cpu(cpu)
        vmap_cpu_init(cpu);
    STORE_RELEASE(vmap_up, 1);
#ifndef CONFIG_DEBUG /* which follows each frame's mappings in struct page */
    tlb_gen_forbid_fast(TLB_GEN_NO_FAST_DESIGN, !c->blocks_all || c->frames_safe);
#endif
    return OK;

err_index:
    table_exit();
    index_exit();
err_node:
    node_take_permanent(&permanent);
    node_exit();
err_space:
    area_space_exit();
    return err;
}

err_t vmap_cpu_init(unsigned cpu)
{
    err_t err = block_cpu_init(cpu);

    frames_cpu_init(cpu);
    return err == OK ? pblock_cpu_init(cpu) : err;
}

void vmap_quiesce(void)
{
    if (!READ_ONCE(vmap_up))
        return;
    kvfree_drain();
    if (vmap_config.blocks_all)
        pblock_drain_local();
    frames_drain_local();
    purge_everything(false);
    purge_everything(false); /* blocks freed by the first one */
    vm_unmap_aliases();
    purge_reclaim_tables();
    cache_shrink_all();
    page_drain_local();
}

/* Only permanent areas may be left: everything else must be back in the tree. */
static bool all_given_back(void)
{
    struct node_sums sums;
    struct list_head live;
    struct vm_area *a;
    uint64_t kept = 0, count = 0;
    bool ok = node_check(&sums);

    list_init(&live);
    node_take_permanent(&live);
    list_for_each_entry(a, &live, list)
    {
        kept += a->end - a->start;
        count++;
    }
    list_splice_tail_init(&live, &permanent);
    if (sums.busy_areas != count || sums.lazy_bytes || sums.pool_bytes) {
        kprintf("# leak: %lu areas, %lu lazy bytes, %lu pooled bytes at exit\n",
                (unsigned long)(sums.busy_areas - count), (unsigned long)sums.lazy_bytes,
                (unsigned long)sums.pool_bytes);
        ok = false;
    }
    if (area_space_free() + kept != vmap_config.range_size) {
        kprintf("# leak: %lu bytes of addresses at exit\n",
                (unsigned long)(vmap_config.range_size - kept - area_space_free()));
        ok = false;
    }
    return ok;
}

static void quiesce_this(void *arg)
{
    (void)arg;
    vmap_quiesce();
}

bool vmap_exit(void)
{
    unsigned cpu;
    bool ok;

    for_each_cpu (cpu)
        smp_call(cpu, quiesce_this, NULL); /* each has blocks of its own */
    vmap_quiesce();
    ok = vmap_selfcheck();
    WRITE_ONCE(vmap_up, 0);
    tlb_gen_forbid_fast(TLB_GEN_NO_FAST_DESIGN, true);
    ok = block_exit() && ok;
    ok = pblock_exit() && ok;
    ok = all_given_back() && ok;
    if (!ok)
        return false; /* what is left stays readable for the report */
    table_exit();
    index_exit();
    node_exit();
    area_space_exit();
    return true;
}
