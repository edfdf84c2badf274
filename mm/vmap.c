/*
 * vmap.c: the allocator as a whole: start, stop, and the state for leak checks.
 *
 * Boot CPU, the others idle or inside nothing of mm/.
 */
#include "mm/vmap.h"

#include "lib/printf.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_frames.h"
#include "mm/vmap_internal.h"
#include <arch/atomic.h>
#include <arch/smp.h>
#include <arch/tlb_gen.h>

struct vmap_config vmap_config __read_mostly;

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
        if (vmap_config.index_table && table_reserve(a->start, a->end) != OK) {
            return ERR_NOMEM; /* the tree is thrown away as a whole */
        }
        list_del(&a->list);
        a->queue = NULL;
        a->owner_type = OWNER_AREA;
        node_busy_insert(a);
        if (vmap_config.index_table)
            table_set_area(a);
    }
    return OK;
}

err_t vmap_init(const struct vmap_config *c)
{
    unsigned cpu;
    err_t err;

    if (vmap_config_refused(c))
        return ERR_INVAL;
    vmap_config = *c;
    vmap_start = VMAP_BASE;
    vmap_end = VMAP_BASE + c->range_size;
    vmap_range = c->range_size;
    ptmap_init();
    purge_init();
    units_init();
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
    if (err == OK && c->index_table)
        err = table_init(c->range_size);
    if (err == OK)
        err = adopt_permanent();
    if (err != OK)
        goto err_index;
    for_each_cpu (cpu)
        vmap_cpu_init(cpu);
    smp_set_idle_hook(c->blocks_all ? pblock_idle_hook : NULL);
    STORE_RELEASE(vmap_up, 1);
#ifndef CONFIG_DEBUG /* which follows each frame's mappings in struct page */
    tlb_gen_forbid_fast(TLB_GEN_NO_FAST_DESIGN, !c->blocks_all);
#endif
    return OK;

err_index:
    node_take_permanent(&permanent); /* while there is a table */
    table_exit();
    index_exit();
err_node:
    node_take_permanent(&permanent);
    node_exit();
err_space:
    area_space_exit();
    return err;
}

unsigned vmap_keep_each(void)
{
    return MAX(8u, MIN(64u, 4096 / smp_cpus()));
}

err_t vmap_cpu_init(unsigned cpu)
{
    err_t err = block_cpu_init(cpu);

    frames_cpu_init(cpu);
    purge_set_limit();
    units_cpu_init(cpu);
    pblock_set_limits();
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
    purge_everything();
    purge_everything(); /* blocks freed by the first one */
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
    list_for_each_entry (a, &live, list) {
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
    smp_set_idle_hook(NULL);
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
