/*
 * vmap_lookup.c: from an address to what is there: areas, pages, contents, and words for people.
 *
 * Reading goes through the page table and the direct map, never through the vmap address itself, so
 * that nothing here can fault whatever runs beside it. No lock is held while a sink runs.
 */
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"
#include "mm/vmap_pcpu.h"
#include <arch/atomic.h>
#include <arch/tlb_gen.h>

bool is_vmalloc_addr(const void *addr)
{
    return (uintptr_t)addr >= VMAP_BASE && (uintptr_t)addr - VMAP_BASE < VMAP_SIZE_MAX;
}

static void describe(const struct vm_area *a, struct vm_area_info *out)
{
    out->start = (void *)a->start;
    out->size = (a->nr_pages ? (size_t)a->nr_pages << PAGE_SHIFT : a->end - a->start);
    out->kind = a->kind;
    out->caller = a->caller;
}

/* The trees: locks, and the caller's copy of the area. */
static bool find_in_trees(uintptr_t addr, struct vm_area_info *out, struct vm_area *area, bool try)
{
    if (!node_busy_find(addr, area, try) || area->kind == VM_KIND_PBLOCK_AREA)
        return false;
    if (area->kind == VM_KIND_BLOCK_AREA)
        return block_find(addr, out);
    describe(area, out);
    return addr - area->start < out->size;
}

/* The table: no lock, no store that others see. *owned: somebody has the unit; a block of
 * vm_map_ram (blocks=ram) has an index of its own, as with the trees. */
static bool find_in_table(uintptr_t addr, struct vm_area_info *out, bool *owned)
{
    bool found = false;
    struct vmap_owner *o;

    tlb_gen_read_begin();
    o = table_lookup(addr);
    *owned = o->owner_type != OWNER_NOBODY;
    if (o->owner_type == OWNER_AREA) {
        const struct vm_area *a = (const struct vm_area *)o;

        describe(a, out);
        found = addr - a->start < out->size;
        if (unlikely(out->kind == VM_KIND_BLOCK_AREA)) {
            tlb_gen_read_end();
            return !in_nmi() && block_find(addr, out);
        }
    } else if (*owned) {
        found = pblock_find((struct pblock *)o, addr, out);
    }
    tlb_gen_read_end();
    return found;
}

bool vmap_find(uintptr_t addr, struct vm_area_info *out, bool try)
{
    struct vm_area area;
    bool owned;

    if (addr < vmap_start || addr >= vmap_end)
        return false;
    if (vmap_config.index_table) {
        if (find_in_table(addr, out, &owned))
            return true;
        if (owned || !node_untabled() || in_nmi())
            return false;
    }
    return find_in_trees(addr, out, &area, try);
}

static __noinline bool find_long(const void *addr, struct vm_area_info *out)
{
    if (!READ_ONCE(vmap_up) || (in_nmi() && !vmap_config.index_table))
        return false;
    return vmap_find((uintptr_t)addr, out, false);
}

static __noinline bool find_elsewhere(const void *addr, struct vm_area_info *out)
{
    tlb_gen_read_end();
    return find_long(addr, out);
}

/* Most often addr lies in the first page of a mapping in a block: its slot says all. Calls are in
 * tail position only: the common path saves no registers. */
bool find_vm_area(const void *p, struct vm_area_info *out)
{
    uintptr_t addr = (uintptr_t)p;
    const struct pblock *b;
    struct pslot d;

    if (unlikely(addr - VMAP_BASE >= vmap_table_range))
        return find_long(p, out);
    tlb_gen_read_begin();
    b = pblock_of(table_lookup(addr));
    if (unlikely(!b))
        return find_elsewhere(p, out);
    d = pslot_read(&b->slots[(addr & (BLOCK_SIZE - 1)) >> PAGE_SHIFT]);
    if (unlikely(d.kind == VM_KIND_NONE))
        return find_elsewhere(p, out);
    out->start = (void *)(addr & PAGE_MASK);
    out->size = (size_t)d.pages << PAGE_SHIFT;
    out->kind = d.kind & VM_KIND_SEEN;
    out->caller = pslot_caller(d);
    if (unlikely(tlb_gen_read_leave()))
        return tlb_gen_read_settle();
    return true;
}

/* The first live mapping in the unit of addr, if a block of the default design is there. */
static bool next_in_pblock(uintptr_t addr, struct vm_area_info *out)
{
    struct pblock *b;
    bool found;

    tlb_gen_read_begin();
    b = pblock_of(table_lookup(addr));
    found = b && pblock_next(b, addr, out);
    tlb_gen_read_end();
    return found;
}

bool vmap_next_live(uintptr_t addr, struct vm_area_info *out)
{
    struct vm_area area;

    addr = MAX(addr, vmap_start);
    while (addr < vmap_end && node_busy_next(addr, &area)) {
        addr = MAX(addr, area.start);
        if (area.kind == VM_KIND_BLOCK_AREA) {
            if (block_next(addr, out))
                return true;
        } else if (area.kind == VM_KIND_PBLOCK_AREA) {
            if (next_in_pblock(addr, out))
                return true;
        } else {
            describe(&area, out);
            if (addr - area.start < out->size)
                return true;
        }
        addr = area.end;
    }
    return false;
}

struct page *vmalloc_to_page(const void *addr)
{
    phys_addr_t pa = is_vmalloc_addr(addr) ? ptmap_translate((uintptr_t)addr, NULL, NULL) : 0;

    return pa ? phys_to_page(pa) : NULL;
}

unsigned long vmalloc_to_pfn(const void *addr)
{
    return is_vmalloc_addr(addr) ? ptmap_translate((uintptr_t)addr, NULL, NULL) >> PAGE_SHIFT : 0;
}

/* Bytes at addr that can be passed on in one piece, and where they are; NULL: zeros. `want` > 0. */
static size_t next_piece(uintptr_t addr, size_t want, const void **data)
{
    size_t in_page = PAGE_SIZE - (addr & (PAGE_SIZE - 1));
    struct vm_area_info info;
    phys_addr_t pa;

    *data = NULL;
    if (!vmap_next_live(addr, &info))
        return want;
    if ((uintptr_t)info.start > addr)
        return MIN(want, (uintptr_t)info.start - addr);
    if (info.kind == VM_KIND_IOREMAP)
        return MIN(want, (uintptr_t)info.start + info.size - addr);
    pa = ptmap_translate(addr, NULL, NULL);
    if (pa)
        *data = phys_to_virt(pa);
    return MIN(want, in_page);
}

size_t vread_iter(struct vread_sink *to, const void *from, size_t n)
{
    uintptr_t addr = (uintptr_t)from;
    struct vm_area_info info;
    size_t total = 0;

    if (!READ_ONCE(vmap_up) || in_nmi() || addr < vmap_start || addr >= vmap_end || n == 0)
        return 0;
    n = MIN(n, vmap_end - addr);
    if (!vmap_next_live(addr, &info) ||
        ((uintptr_t)info.start > addr && (uintptr_t)info.start - addr >= n))
        return 0;
    while (total < n) {
        const void *data;
        size_t piece = next_piece(addr, n - total, &data), took = to->write(to, data, piece);

        total += took;
        addr += took;
        if (took < piece)
            break;
    }
    return total;
}

struct buffer_sink {
    struct vread_sink sink;
    char *at;
};

static size_t write_buffer(struct vread_sink *s, const void *data, size_t n)
{
    struct buffer_sink *b = CONTAINER_OF(s, struct buffer_sink, sink);

    if (data)
        memcpy(b->at, data, n);
    else
        memset(b->at, 0, n);
    b->at += n;
    return n;
}

size_t vread(void *dst, const void *addr, size_t n)
{
    struct buffer_sink b = {.sink.write = write_buffer, .at = dst};

    return vread_iter(&b.sink, addr, n);
}

static const char *kind_name(unsigned kind)
{
    static const char *const names[] = {"unused",     "vmalloc", "vmap",
                                        "vm_map_ram", "ioremap", "per-CPU"};

    return kind < ARRAY_SIZE(names) ? names[kind] : "block";
}

/* The mapping whose guard addr lies in, if it is in a block of the default design. */
static bool guarded_in_pblock(uintptr_t addr, struct vm_area_info *out)
{
    bool guard = false;
    struct pblock *b;

    if (!vmap_config.blocks_all || addr < vmap_start || addr >= vmap_end)
        return false;
    tlb_gen_read_begin();
    b = pblock_of(table_lookup(addr));
    if (b && addr - PAGE_SIZE >= b->start && pblock_find(b, addr - PAGE_SIZE, out)) {
        uintptr_t start = (uintptr_t)out->start;
        struct pslot d = pslot_read(&b->slots[(start & (BLOCK_SIZE - 1)) >> PAGE_SHIFT]);

        guard = d.span > d.pages && start + out->size == (addr & PAGE_MASK);
    }
    tlb_gen_read_end();
    return guard;
}

static void print_past(const void *p, const struct vm_area_info *info)
{
    unsigned long past = (uintptr_t)p - (uintptr_t)info->start - info->size + 1;

    kprintf_ratelimited("# %p: %lu byte%s past the %lu-page %s area at %p, allocated by %pS\n", p,
                        past, past == 1 ? "" : "s", (unsigned long)(info->size >> PAGE_SHIFT),
                        kind_name(info->kind), info->start, info->caller);
}

void vmalloc_dump_obj(const void *p)
{
    uintptr_t addr = (uintptr_t)p;
    struct vm_area_info info;
    struct vm_area area;

    if (!READ_ONCE(vmap_up) || !is_vmalloc_addr(p)) {
        kprintf_ratelimited("# %p is not an address of the vmap range\n", p);
        return;
    }
    if (vmap_find(addr, &info, true)) {
        kprintf_ratelimited("# %p: byte %lu of the %lu-page %s area at %p, allocated by %pS\n", p,
                            (unsigned long)(addr - (uintptr_t)info.start),
                            (unsigned long)(info.size >> PAGE_SHIFT), kind_name(info.kind),
                            info.start, info.caller);
        return;
    }
    if (guarded_in_pblock(addr, &info)) {
        print_past(p, &info);
        return;
    }
    if (node_busy_find(addr, &area, true)) {
        describe(&area, &info);
        if (area.kind == VM_KIND_BLOCK_AREA || area.kind == VM_KIND_PBLOCK_AREA)
            kprintf_ratelimited("# %p: an unused or freed slot of the block at %p\n", p,
                                (void *)area.start);
        else
            print_past(p, &info);
        return;
    }
    if (node_lazy_find(addr, &area) || units_find_freed(addr, &area))
        kprintf_ratelimited("# %p: in the freed %u-page %s area at %p, allocated by %pS\n", p,
                            area.nr_pages, kind_name(area.kind), (void *)area.start, area.caller);
    else
        kprintf_ratelimited("# %p: free addresses of the vmap range\n", p);
}
