/*
 * vmap_check.c: selfcheck(): every structure of mm/ against itself and against the others. Only
 * when no other CPU is inside mm/.
 */
#include "lib/printf.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include <arch/atomic.h>

struct entry_check {
    uint64_t leaves, orphans, writable_exec, global;
    uintptr_t first_orphan;
};

/* Each present entry must belong to a live area's pages. */
static void check_entry(uintptr_t va, pte_t e, unsigned level, void *arg)
{
    struct entry_check *c = arg;
    struct vm_area_info info;

    (void)level;
    c->leaves++;
    if ((e & PTE_W) && !(e & PTE_NX))
        c->writable_exec++;
    if (e & PTE_G)
        c->global++;
    if (!vmap_find(va, &info, false)) {
        if (!c->orphans++)
            c->first_orphan = va;
    }
}

static bool check_tables(void)
{
    struct entry_check c = {0};
    uint64_t tables = ptmap_count_tables();
    bool ok = true;

    ptmap_for_each(check_entry, &c);
    if (c.orphans) {
        kprintf("# selfcheck: %lu entries that belong to no area, first at %p\n",
                (unsigned long)c.orphans, (void *)c.first_orphan);
        ok = false;
    }
    if (c.writable_exec || c.global) {
        kprintf("# selfcheck: %lu entries writable and executable, %lu global\n",
                (unsigned long)c.writable_exec, (unsigned long)c.global);
        ok = false;
    }
    if (tables != ptmap_pages()) {
        kprintf("# selfcheck: %lu table pages counted, %lu found\n", (unsigned long)ptmap_pages(),
                (unsigned long)tables);
        ok = false;
    }
    return ok;
}

/* Each live area must have an entry for each page, guards none. */
static bool check_areas(void)
{
    uintptr_t addr = vmap_start, prev_end = 0;
    struct vm_area_info info;

    while (vmap_next_live(addr, &info)) {
        uintptr_t start = (uintptr_t)info.start, end = start + info.size;

        if (start < prev_end) {
            kprintf("# selfcheck: areas overlap at %p\n", info.start);
            return false;
        }
        for (uintptr_t va = start; va < end && info.kind != VM_KIND_PCPU; va += PAGE_SIZE) {
            if (ptmap_translate(va, NULL, NULL))
                continue;
            kprintf("# selfcheck: page %p of a live area is not mapped\n", (void *)va);
            return false;
        }
        prev_end = addr = end;
    }
    return true;
}

bool vmap_selfcheck(void)
{
    struct node_sums sums;
    uint64_t free_bytes, cached_bytes, total;
    bool ok;

    if (!READ_ONCE(vmap_up))
        return true;
    ok = area_space_check(&free_bytes);
    ok = node_check(&sums) && ok;
    ok = block_check() && ok;
    if (vmap_config.blocks_all)
        ok = pblock_check() && ok;
    ok = units_check(&cached_bytes) && ok;
    sums.lazy_bytes += purge_waiting_bytes();
    total = free_bytes + sums.busy_bytes + sums.lazy_bytes + sums.pool_bytes + cached_bytes;
    if (total != vmap_end - vmap_start) {
        kprintf("# selfcheck: free %lu + busy %lu + lazy %lu + pooled %lu + cached %lu != "
                "range %lu\n",
                (unsigned long)free_bytes, (unsigned long)sums.busy_bytes,
                (unsigned long)sums.lazy_bytes, (unsigned long)sums.pool_bytes,
                (unsigned long)cached_bytes, (unsigned long)(vmap_end - vmap_start));
        ok = false;
    }
    if (sums.lazy_bytes >> PAGE_SHIFT != purge_lazy_pages()) {
        kprintf("# selfcheck: %lu lazy pages counted, %lu found\n",
                (unsigned long)purge_lazy_pages(), (unsigned long)(sums.lazy_bytes >> PAGE_SHIFT));
        ok = false;
    }
    ok = check_tables() && ok;
    ok = check_areas() && ok;
    ok = page_alloc_check() && ok;
    ok = cache_check_all() && ok;
    return ok;
}
