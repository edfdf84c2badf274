/*
 * vmap_config.c: the designs as presets, the options that change them one by one, and the
 * combinations that cannot be.
 *
 * Before and while the boot CPU is alone; afterwards nothing here changes.
 */
#include "lib/options.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/vmap.h"
#include "mm/vmap_internal.h"
#include <arch/smp.h>

const char *const vmap_design_names[] = {"2010", "2023", "2024", "metalmap", NULL};
static const char *const lock_names[] = {"auto", "tas", "ticket", "mcs", "rw", "rwspin", NULL};

/* Each CPU has blocks in use that are no use to another, and what it can spare comes by a flush:
 * below this much the shortage would be the rule. */
#define RANGE_BASE    (192 * SZ_1M)
#define RANGE_PER_CPU (16 * SZ_1M)

/* key, field of struct vmap_config, its name when false and when true, help */
#define SWITCHES(X)                                                                                \
    X(blocks, blocks_all, "ram", "all",                                                            \
      "what per-CPU blocks are for: vm_map_ram, or every small area")                              \
    X(index, index_table, "tree", "table",                                                         \
      "owner of an address: locked trees, or a wait-free table")                                   \
    X(pools, pools, "off", "on", "ready ranges of 1 to 256 pages in each node")                    \
    X(search, search_walk, "tree", "walk",                                                         \
      "free addresses: tree of free ranges, or a walk over areas")                                 \
    X(insert, insert_twice, "once", "twice", "lock acquisitions to publish an area")               \
    X(vbindex, vbindex_global, "percpu", "global", "index of vm_map_ram's blocks")                 \
    X(purge, purge_eager, "lazy", "eager", "flush when much was freed, or at each free")           \
    X(flush, flush_gen, "ipi", "gen", "drop translations by interrupts, or by generations")        \
    X(frames, frames_safe, "early", "safe",                                                        \
      "frames of freed areas go back at once, or after the flush")

/* What the command line says. */
static struct {
    struct {
        unsigned value;
        bool given;
    }
#define MEMBER(key, ...) key,
    SWITCHES(MEMBER) lock;
#undef MEMBER
    uint64_t range, nodes, lazy; /* 0: not given, or auto */
    bool nodes_given, lazy_given;
} wanted;

static unsigned wanted_design = DESIGN_METALMAP;

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

OPTION_ENUM(design, "design", wanted_design, vmap_design_names, "design of the allocator");
OPTION_UINT(vmalloc, "vmalloc", wanted.range, 16 * SZ_1M, VMAP_SIZE_MAX,
            "size of the vmap range in bytes (16M to 32T, multiple of 2M)");
OPTION_ENTRY_(nodes, .key = "nodes", .type = OPT_STRING, .value = &wanted.nodes,
              .custom = parse_auto, .given = &wanted.nodes_given,
              .help = "nodes that share trees, lists and pools: 1 to 128, or auto");
OPTION_ENTRY_(lazy, .key = "lazy", .type = OPT_STRING, .value = &wanted.lazy, .custom = parse_auto,
              .given = &wanted.lazy_given, .help = "pages that may wait for a purge, or auto");
OPTION_ENTRY_(lock, .key = "lock", .type = OPT_ENUM, .value = &wanted.lock.value,
              .choices = lock_names, .given = &wanted.lock.given, .help = "lock of the busy trees");

#define OPTION(name, field, no, yes, text)                                                         \
    static const char *const name##_names[] = {no, yes, NULL};                                     \
    OPTION_ENTRY_(name, .key = #name, .type = OPT_ENUM, .value = &wanted.name.value,               \
                  .choices = name##_names, .given = &wanted.name.given, .help = text);
SWITCHES(OPTION)
#undef OPTION

/* nodes 0: one for each CPU. */
static const struct vmap_config presets[] = {
    [DESIGN_2010] = {.nodes = 1, .search_walk = true, .insert_twice = true, .vbindex_global = true},
    [DESIGN_2023] = {.nodes = 1, .insert_twice = true, .vbindex_global = true},
    [DESIGN_2024] = {.pools = true},
    [DESIGN_METALMAP] = {.blocks_all = true, .index_table = true, .flush_gen = true},
};

unsigned vmap_design_wanted(void)
{
    return wanted_design;
}

const char *vmap_config_refused(const struct vmap_config *c)
{
    if (!IS_ALIGNED(c->range_size, BLOCK_SIZE))
        return "vmalloc= must be a multiple of 2M";
    if (c->nodes > VMAP_NODES_MAX)
        return "nodes= must be at most 128";
    if (c->blocks_all && !c->index_table)
        return "blocks=all needs index=table: a free finds its block by the table alone";
    if (c->blocks_all && !c->flush_gen)
        return "blocks=all needs flush=gen: freed slots wait for a generation";
    if (c->blocks_all && c->purge_eager)
        return "purge=eager needs blocks=ram: freed slots wait for a generation together";
    if (c->index_table && !c->flush_gen)
        return "index=table needs flush=gen: an interrupt may come in the middle of a lookup "
               "that holds no lock";
    if (c->index_table && c->pools)
        return "pools=on needs index=tree: with the table every area is whole 2 MiB units";
    if (c->search_walk && c->nodes > 1)
        return "search=walk needs nodes=1: it walks one tree of all areas";
    return NULL;
}

/* Given, and without any effect. */
static const char *pointless(const struct vmap_config *c)
{
    if (wanted.vbindex.given && c->blocks_all)
        return "vbindex= needs blocks=ram: other blocks are found by the table";
    if (wanted.pools.given && c->pools && c->nodes == 1)
        return "pools=on needs more than one node";
    if (wanted.lazy_given && c->purge_eager)
        return "lazy= needs purge=lazy";
    return NULL;
}

static bool range_suffices(const struct vmap_config *c, char *msg, size_t msg_size)
{
    uint64_t needed = RANGE_BASE + smp_cpus_possible() * RANGE_PER_CPU;

    if (!c->blocks_all || c->range_size >= needed)
        return true;
    ksnprintf(msg, msg_size,
              "design %s: blocks=all needs vmalloc= of at least %luM for %u CPUs, whose blocks are "
              "their own; blocks=ram does with less",
              vmap_design_names[c->design], (unsigned long)(needed / SZ_1M), smp_cpus_possible());
    return false;
}

bool vmap_config_for(struct vmap_config *c, unsigned design, char *msg, size_t msg_size)
{
    const char *why;

    *c = presets[design];
    c->design = design;
    c->range_size = wanted.range ? wanted.range : VMAP_SIZE_MAX;
    if (wanted.nodes_given)
        c->nodes = (unsigned)MIN(wanted.nodes, VMAP_NODES_MAX + 1UL);
    c->lazy_max = wanted.lazy;
#define APPLY(name, field, ...)                                                                    \
    if (wanted.name.given)                                                                         \
        c->field = wanted.name.value;
    SWITCHES(APPLY)
#undef APPLY
    c->lock = wanted.lock.value;
    /* What a preset has and what was given instead leaves no use for. */
    if (!wanted.pools.given && c->index_table)
        c->pools = false;
    if (!c->nodes && c->search_walk)
        c->nodes = 1;
    why = vmap_config_refused(c);
    if (!why)
        why = pointless(c);
    if (!c->nodes)
        c->nodes = MIN(smp_cpus_possible(), (unsigned)VMAP_NODES_MAX);
    if (why)
        ksnprintf(msg, msg_size, "design %s: %s", vmap_design_names[design], why);
    return !why && range_suffices(c, msg, msg_size);
}

void vmap_config_print(const struct vmap_config *c, char *text, size_t size)
{
    size_t n = (size_t)ksnprintf(text, size, "design=%s nodes=%u lock=%s lazy=%lu",
                                 vmap_design_names[c->design], c->nodes, lock_names[c->lock],
                                 (unsigned long)c->lazy_max);

#define PRINT(name, field, ...)                                                                    \
    if (n < size)                                                                                  \
        n += (size_t)ksnprintf(text + n, size - n, " " #name "=%s", name##_names[c->field]);
    SWITCHES(PRINT)
#undef PRINT
}
