/*
 * sim_api.c: watches the calls into mm/: which frames leave the page allocator and come back, when
 * a call that unmaps has returned, and in what state each call leaves its CPU.
 *
 * Linked in front of mm/ by the linker's --wrap (wrap.opts): calls between files go through
 * __wrap_x here, calls inside a file do not, and of nested ones the outermost counts. An interrupt
 * handler is a context of its own.
 */
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap.h"
#include "tests/host/sim/internal.h"
#include <arch/cpu.h>

#define WRAP(type, name, params)                                                                   \
    type __real_##name params;                                                                     \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params

/* ---- frames ---- */

static void taken(struct page *page, uint64_t n)
{
    if (--sim_this->hook_depth == 0 && page)
        oracle_frames_taken(page_to_pfn(page), n);
}

static void giving(struct page *page, uint64_t n)
{
    if (sim_this->hook_depth++ == 0 && page)
        oracle_frames_freed(page_to_pfn(page), n);
}

WRAP(struct page *, alloc_pages, (unsigned order))
{
    sim_this->hook_depth++;
    struct page *p = __real_alloc_pages(order);

    taken(p, 1ULL << order);
    return p;
}
WRAP(struct page *, alloc_pages_node, (unsigned order, int node))
{
    sim_this->hook_depth++;
    struct page *p = __real_alloc_pages_node(order, node);

    taken(p, 1ULL << order);
    return p;
}
WRAP(struct page *, alloc_page, (void))
{
    sim_this->hook_depth++;
    struct page *p = __real_alloc_page();

    taken(p, 1);
    return p;
}
WRAP(struct page *, alloc_page_zeroed, (void))
{
    sim_this->hook_depth++;
    struct page *p = __real_alloc_page_zeroed();

    taken(p, 1);
    return p;
}
WRAP(unsigned, page_alloc_bulk, (struct page * *out, unsigned n, int node))
{
    sim_this->hook_depth++;
    unsigned got = __real_page_alloc_bulk(out, n, node);

    if (--sim_this->hook_depth == 0)
        for (unsigned i = 0; i < got; i++)
            oracle_frames_taken(page_to_pfn(out[i]), 1);
    return got;
}
WRAP(void, free_pages, (struct page * page, unsigned order))
{
    giving(page, 1ULL << order);
    __real_free_pages(page, order);
    sim_this->hook_depth--;
}
WRAP(void, free_page, (struct page * page))
{
    giving(page, 1);
    __real_free_page(page);
    sim_this->hook_depth--;
}
WRAP(void, page_free_bulk, (struct page * *pages, unsigned n))
{
    if (sim_this->hook_depth++ == 0)
        for (unsigned i = 0; i < n; i++)
            oracle_frames_freed(page_to_pfn(pages[i]), 1);
    __real_page_free_bulk(pages, n);
    sim_this->hook_depth--;
}
/* The hog's frames have no owner that maps anything. */
WRAP(void, page_hog, (uint64_t leave))
{
    sim_this->hook_depth++;
    __real_page_hog(leave);
    sim_this->hook_depth--;
}
WRAP(void, page_unhog, (void))
{
    sim_this->hook_depth++;
    __real_page_unhog();
    sim_this->hook_depth--;
}

/* ---- the API ---- */

struct bracket {
    const char *name;
    bool irq_off, outermost;
    uint32_t locks;
};

static struct bracket enter(const char *name)
{
    struct sim_cpu *c = sim_this;
    struct bracket b = {.name = name, .irq_off = c->irq_off, .locks = c->locks_held};

    b.outermost = oracle_call_begin();
    if (c->call_depth++ == 0)
        c->calls++;
    return b;
}

static void leave(const struct bracket *b)
{
    struct sim_cpu *c = sim_this;

    c->call_depth--;
    if (c->irq_off != b->irq_off)
        sim_fail(SIM_CONTEXT, "%s turned interrupts %s", b->name, c->irq_off ? "off" : "on");
    if (c->locks_held != b->locks)
        sim_fail(SIM_CONTEXT, "%s came with %u locks and left with %u", b->name, b->locks,
                 c->locks_held);
    oracle_call_end(b->outermost);
}

#define WRAP_CALL(type, name, params, args)                                                        \
    WRAP(type, name, params)                                                                       \
    {                                                                                              \
        struct bracket b = enter(#name);                                                           \
        type result = __real_##name args;                                                          \
                                                                                                   \
        leave(&b);                                                                                 \
        return result;                                                                             \
    }
#define WRAP_VOID(name, params, args)                                                              \
    WRAP(void, name, params)                                                                       \
    {                                                                                              \
        struct bracket b = enter(#name);                                                           \
                                                                                                   \
        __real_##name args;                                                                        \
        leave(&b);                                                                                 \
    }

WRAP_CALL(void *, vmalloc, (size_t size), (size))
WRAP_CALL(void *, vzalloc, (size_t size), (size))
WRAP_CALL(void *, vmalloc_node, (size_t size, int node), (size, node))
WRAP_CALL(void *, vmalloc_huge, (size_t size), (size))
WRAP_CALL(void *, __vmalloc, (size_t size, size_t align, unsigned flags, int node),
          (size, align, flags, node))
WRAP_CALL(void *, vrealloc, (const void *p, size_t size), (p, size))
WRAP_VOID(vfree, (const void *p), (p))
WRAP_CALL(void *, vmap, (struct page * *pages, unsigned count, unsigned flags, pgprot_t prot),
          (pages, count, flags, prot))
WRAP_VOID(vunmap, (const void *p), (p))
WRAP_CALL(void *, vm_map_ram, (struct page * *pages, unsigned count, int node),
          (pages, count, node))
WRAP_VOID(vm_unmap_ram, (const void *p, unsigned count), (p, count))
WRAP_CALL(size_t, vread, (void *dst, const void *addr, size_t n), (dst, addr, n))
WRAP_CALL(size_t, vread_iter, (struct vread_sink * to, const void *addr, size_t n), (to, addr, n))
WRAP_CALL(void *, kvmalloc, (size_t size), (size))
WRAP_VOID(kvfree, (const void *p), (p))
WRAP_VOID(kvfree_deferred, (const void *p), (p))
WRAP_VOID(vmalloc_dump_obj, (const void *addr), (addr))
WRAP_CALL(bool, find_vm_area, (const void *addr, struct vm_area_info *out), (addr, out))
WRAP_CALL(struct page *, vmalloc_to_page, (const void *addr), (addr))
WRAP_CALL(unsigned long, vmalloc_to_pfn, (const void *addr), (addr))
WRAP_CALL(void *, ioremap, (phys_addr_t pa, size_t size, enum cache_mode mode), (pa, size, mode))
WRAP_VOID(iounmap, (void *p), (p))
WRAP_CALL(struct vm_area **, pcpu_get_vm_areas,
          (const size_t *offsets, const size_t *sizes, int n, size_t align),
          (offsets, sizes, n, align))
WRAP_VOID(pcpu_free_vm_areas, (struct vm_area * *areas, int n), (areas, n))
WRAP_CALL(err_t, vm_area_map_pages,
          (struct vm_area * area, size_t offset, struct page **pages, unsigned count),
          (area, offset, pages, count))
WRAP_VOID(vm_area_unmap_pages, (struct vm_area * area, size_t offset, unsigned count),
          (area, offset, count))
WRAP_CALL(bool, vmap_exit, (void), ())
WRAP_VOID(vmap_quiesce, (void), ())
WRAP_VOID(vmap_force_purge, (void), ())
WRAP_VOID(vmap_read_counters, (struct vmap_counters * c), (c))

WRAP(void, vm_unmap_aliases, (void))
{
    struct bracket b = enter("vm_unmap_aliases");
    struct oracle_promise p;

    oracle_aliases_begin(&p);
    __real_vm_unmap_aliases();
    oracle_aliases_end(&p);
    leave(&b);
}
