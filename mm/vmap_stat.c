/*
 * vmap_stat.c: counters and the list of areas. Totals are counters, not walks (case B5); the list
 * takes each lock for one step at a time.
 */
#include "lib/printf.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>

DEFINE_PER_CPU(struct vmap_stat, vmap_stat);

uint64_t vmap_tree_visits(void)
{
    return this_cpu_ptr(&vmap_stat)->tree_visits;
}

uint64_t vmap_pool_len(unsigned pages)
{
    return node_pool_len(pages);
}

void vmap_inject_pt(uint64_t after, uint64_t count)
{
    ptmap_inject(after, count);
}

void vmap_read_counters(struct vmap_counters *c)
{
    struct tlb_counters tlb;
    unsigned cpu;

    *c = (struct vmap_counters){0};
    tlb_read_counters(&tlb);
    c->free_pages = page_free_count();
    c->pt_pages = ptmap_pages();
    c->va_used = vmap_end - vmap_start - area_space_free();
    c->lazy_pages = purge_lazy_pages() + units_waiting_pages();
    c->lazy_limit = purge_lazy_limit();
    c->purges = purge_count();
    c->tlb_full = tlb.full + tlb_gen_begun();
    c->tlb_range = tlb.range;
    c->tlb_ipis = tlb.ipis + tlb_gen_kicks();
    c->vmap_areas = node_busy_count();
    c->vmap_blocks = block_count() + pblock_count();
    c->lock_contended = spin_contended_total();
    for_each_cpu (cpu) {
        struct vmap_stat *s = per_cpu_ptr(&vmap_stat, cpu);

        c->alloc_fail += READ_ONCE(s->alloc_fail);
        c->bad_free += READ_ONCE(s->bad_free);
        c->pool_hit += READ_ONCE(s->pool_hit);
        c->pool_miss += READ_ONCE(s->pool_miss);
    }
}

void vmap_for_each_counter(void (*fn)(const char *name, uint64_t value, void *arg), void *arg)
{
    struct vmap_counters c;

    vmap_read_counters(&c);
#define COUNTER(name) fn(#name, c.name, arg)
    COUNTER(free_pages);
    COUNTER(pt_pages);
    COUNTER(va_used);
    COUNTER(lazy_pages);
    COUNTER(lazy_limit);
    COUNTER(purges);
    COUNTER(tlb_full);
    COUNTER(tlb_range);
    COUNTER(tlb_ipis);
    COUNTER(vmap_areas);
    COUNTER(vmap_blocks);
    COUNTER(alloc_fail);
    COUNTER(bad_free);
    COUNTER(lock_contended);
    COUNTER(pool_hit);
    COUNTER(pool_miss);
#undef COUNTER
}

void vmap_info(void (*fn)(const char *line, void *arg), void *arg)
{
    static const char *const words[] = {"", "vmalloc", "vmap", "vm_map_ram", "ioremap", "pcpu"};
    uintptr_t addr = vmap_start;
    struct vm_area_info info;
    char line[160], phys[32];

    while (vmap_next_live(addr, &info)) {
        uintptr_t start = (uintptr_t)info.start;

        phys[0] = '\0';
        if (info.kind == VM_KIND_IOREMAP)
            ksnprintf(phys, sizeof(phys), " phys=0x%016lx",
                      (unsigned long)ptmap_translate(start, NULL, NULL));
        ksnprintf(line, sizeof(line), "0x%016lx-0x%016lx %7lu %pS pages=%lu%s %s", start,
                  start + info.size, (unsigned long)info.size, info.caller,
                  (unsigned long)(info.size >> PAGE_SHIFT), phys, words[info.kind]);
        fn(line, arg);
        addr = start + info.size;
    }
}
