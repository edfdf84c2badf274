/*
 * driver_look.c: operations that make no area. See driver_look.h.
 */
#include <string.h>

#include "tests/host/sim/driver_look.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/vmap.h"
#include "tests/host/sim/internal.h"

#define COPY_MAX (8 * PAGE_SIZE)

/* ---- reading ---- */

struct sink {
    struct vread_sink sink;
    struct actor *actor;
    char *at;
    size_t left; /* takes no more than this */
    bool allocates;
};

static size_t take_piece(struct vread_sink *s, const void *data, size_t n)
{
    struct sink *k = CONTAINER_OF(s, struct sink, sink);

    n = MIN(n, k->left);
    if (data)
        memcpy(k->at, data, n);
    else
        memset(k->at, 0, n);
    k->at += n;
    k->left -= n;
    /* No lock is held here. */
    if (k->allocates) {
        vfree(vmalloc(1));
        vm_unmap_aliases();
    }
    return n;
}

/* The words of the copy at `to`, which begins at address `from`, are what the area's pages hold. */
static void compare_copy(const struct area *area, uintptr_t from, const char *to, size_t n)
{
    uintptr_t start = area->va & PAGE_MASK;
    unsigned pages = area->type == AREA_PCPU ? area->mapped : area->pages;

    for (unsigned i = 0; i < pages * PAGE_WORDS; i++) {
        unsigned page = i / PAGE_WORDS;
        uintptr_t at = start + page * PAGE_SIZE + word_offsets[i % PAGE_WORDS];
        uint64_t want = area->frames ? page_to_pfn(area->frames[page]) : area_word(area, page), got;

        if (at < from || at + sizeof(got) > from + n)
            continue;
        memcpy(&got, to + (at - from), sizeof(got));
        if (area->type == AREA_IO)
            want = 0;
        SIM_CHECK(got == want, "vread of byte %u of page %u of %#lx gave %#lx, not %#lx",
                  word_offsets[i % PAGE_WORDS], page, (unsigned long)area->va, (unsigned long)got,
                  (unsigned long)want);
    }
}

void op_vread(struct actor *a, struct area *area)
{
    static char copies[SIM_MAX_CPUS][COPY_MAX];
    char *copy = copies[a->cpu];
    struct sink k = {.sink.write = take_piece, .actor = a, .at = copy, .allocates = chance(a, 4)};
    uintptr_t start = area->va & PAGE_MASK, end = start + (uintptr_t)area->pages * PAGE_SIZE, from;
    size_t n, got, want;

    if (area->type == AREA_SMALL || a->handler)
        return;
    from = start + choose(a, end - start);
    if (sim_opt.free_running) {
        /* What lies around may be written while it is read, which is no fault of vread's. */
        n = 1 + choose(a, MIN(end - from, COPY_MAX));
    } else {
        if (chance(a, 3))
            from -= MIN(choose(a, 3 * PAGE_SIZE), from - VMAP_BASE);
        n = MAX(1 + choose(a, COPY_MAX), from < start ? MIN(start - from + 1, COPY_MAX) : 1);
    }
    want = MIN(n, VMAP_BASE + vmap_config.range_size - from);
    a->operations++;
    memset(copy, 0x5a, n);
    if (chance(a, 2)) {
        got = vread(copy, (void *)from, n);
    } else {
        k.left = chance(a, 4) ? choose(a, n + 1) : n;
        want = MIN(want, k.left);
        got = vread_iter(&k.sink, (void *)from, n);
        n = want;
    }
    SIM_CHECK(got == want, "vread at %#lx returned %lu, not %lu", (unsigned long)from,
              (unsigned long)got, (unsigned long)want);
    compare_copy(area, from, copy, got);
}

/* ---- wrong calls ---- */

static void bad_free_of_alloc(struct actor *a, const struct area *area)
{
    void *p = (void *)area->va;

    switch (choose(a, 6)) {
    case 0:
        vunmap(p);
        break;
    case 1:
        iounmap(p);
        break;
    case 2:
        vm_unmap_ram(p, area->pages);
        break;
    case 3:
        vfree((char *)p + 8);
        break;
    case 4:
        SIM_CHECK(!vrealloc((char *)p + 16, PAGE_SIZE), "vrealloc took an interior pointer");
        break;
    default:
        if (area->guard)
            vfree((char *)p + area->pages * PAGE_SIZE);
        else
            vfree((char *)p + 1);
    }
}

static void bad_free_of_map(struct actor *a, const struct area *area)
{
    void *p = (void *)area->va;

    switch (choose(a, 4)) {
    case 0:
        if (area->type == AREA_PUT)
            vm_unmap_ram(p, area->pages);
        else
            vfree(p);
        break;
    case 1:
        vunmap((char *)p + 1);
        break;
    case 2:
        iounmap(p);
        break;
    default:
        SIM_CHECK(!vrealloc(p, 2 * PAGE_SIZE), "vrealloc took a mapping");
    }
}

static void bad_free_of_ram(struct actor *a, const struct area *area)
{
    char *p = (char *)area->va;

    switch (choose(a, 6)) {
    case 0:
        vfree(p);
        break;
    case 1:
        vunmap(p);
        break;
    case 2:
        vm_unmap_ram(p, area->pages + 1);
        break;
    case 3:
        vm_unmap_ram(p, area->pages > 1 ? area->pages - 1 : 0);
        break;
    case 4:
        vm_unmap_ram(p + 1, area->pages);
        break;
    default:
        if (area->pages > 1)
            vm_unmap_ram(p + PAGE_SIZE, area->pages - 1);
        else
            vm_unmap_ram(p + 64, 1);
    }
}

void op_bad_call(struct actor *a, struct area *area)
{
    void *p = (void *)area->va;

    switch (area->type) {
    case AREA_ALLOC:
        bad_free_of_alloc(a, area);
        break;
    case AREA_MAP:
    case AREA_PUT:
        bad_free_of_map(a, area);
        break;
    case AREA_RAM:
        bad_free_of_ram(a, area);
        break;
    case AREA_IO:
        if (chance(a, 2))
            vfree(p);
        else
            iounmap((char *)p + (area->va % PAGE_SIZE ? -1 : 1));
        break;
    case AREA_PCPU:
        if (chance(a, 2))
            vfree(p);
        else
            vunmap(p);
        break;
    default:
        return;
    }
    a->operations++;
    a->bad_calls++;
    area_verify(a, area, false);
}

static void *impossible_vmalloc(struct actor *a)
{
    static const size_t sizes[] = {
        0, SIZE_MAX, SIZE_MAX - PAGE_SIZE + 1, SIZE_MAX - PAGE_SIZE, 1UL << 62, 1UL << 48};
    static const size_t aligns[] = {0, 3, PAGE_SIZE + 1, 1UL << 63, 1UL << 47, 3UL << 40};

    switch (choose(a, 5)) {
    case 0:
        return vmalloc(sizes[choose(a, ARRAY_SIZE(sizes))]);
    case 1:
        return vmalloc_huge(sizes[choose(a, ARRAY_SIZE(sizes))]);
    case 2:
        return __vmalloc(PAGE_SIZE, aligns[choose(a, ARRAY_SIZE(aligns))], 0, VM_ANY_NODE);
    case 3:
        return __vmalloc(PAGE_SIZE, PAGE_SIZE, VM_FLAGS_PUBLIC + 1, VM_ANY_NODE);
    default:
        return kvmalloc(sizes[1 + choose(a, ARRAY_SIZE(sizes) - 1)]);
    }
}

static void *impossible_map(struct actor *a)
{
    static const size_t zero, odd = PAGE_SIZE + 1, page = PAGE_SIZE, wrap = -PAGE_SIZE;

    switch (choose(a, 12)) {
    case 0:
        return vmap(NULL, 1, 0, PAGE_KERNEL);
    case 1:
        return vmap(a->pool, 0, 0, PAGE_KERNEL);
    case 2:
        return vmap(a->pool, 1, 0, PAGE_KERNEL & ~PTE_NX);
    case 3:
        return vmap(a->pool, UINT32_MAX, 0, PAGE_KERNEL);
    case 4:
        return vm_map_ram(NULL, 1, VM_ANY_NODE);
    case 5:
        return vm_map_ram(a->pool, 0, VM_ANY_NODE);
    case 6:
        return ioremap(page_to_phys(a->pool[0]), PAGE_SIZE, CACHE_UC);
    case 7:
        return ioremap(UINT64_MAX - 10, PAGE_SIZE, CACHE_UC);
    case 8:
        return ioremap(0x100000000ULL, 0, CACHE_UC);
    case 9:
        return pcpu_get_vm_areas(&zero, &odd, 1, PAGE_SIZE);
    case 10:
        return pcpu_get_vm_areas(&wrap, &page, 1, PAGE_SIZE);
    default:
        return pcpu_get_vm_areas(&zero, &zero, 1, PAGE_SIZE);
    }
}

void op_impossible(struct actor *a)
{
    void *p = chance(a, 2) ? impossible_vmalloc(a) : impossible_map(a);

    a->operations++;
    SIM_CHECK(!p, "an impossible request gave %p", p);
    vfree(NULL);
    vunmap(NULL);
    vm_unmap_ram(NULL, 3);
    iounmap(NULL);
    kvfree(NULL);
    kvfree_deferred(NULL);
}

/* ---- about everything ---- */

static void count_line(const char *line, void *arg)
{
    SIM_CHECK(line[0] == '0' && strlen(line) > 40, "a line of vmap_info: %s", line);
    ++*(uint64_t *)arg;
}

static void count_value(const char *name, uint64_t value, void *arg)
{
    (void)value;
    SIM_CHECK(name && *name, "a counter without a name");
    ++*(uint64_t *)arg;
}

static const void *some_address(struct actor *a)
{
    switch (choose(a, 8)) {
    case 0:
        return NULL;
    case 1:
        return (void *)(VMAP_BASE - 1);
    case 2:
        return (void *)(VMAP_BASE + vmap_config.range_size);
    case 3:
        return (void *)0x800000000000UL;
    case 4:
        return a;
    case 5:
        return (void *)(VMAP_BASE + vmap_config.range_size - 1);
    default:
        return (void *)(VMAP_BASE + choose(a, MIN(vmap_config.range_size, SZ_512G)));
    }
}

/* Anything may be there; it must only be answered. */
static void look_anywhere(struct actor *a)
{
    const void *at = some_address(a);
    struct vm_area_info info;
    char buf[64];

    find_vm_area(at, &info);
    vmalloc_to_page(at);
    vmalloc_to_pfn(at);
    if (!sim_opt.free_running)
        vread(buf, at, sizeof(buf));
    vmalloc_dump_obj(at);
    SIM_CHECK(is_vmalloc_addr(at) ==
                  ((uintptr_t)at >= VMAP_BASE && (uintptr_t)at < VMAP_BASE + VMAP_SIZE_MAX),
              "is_vmalloc_addr(%p)", at);
}

static void inject(struct actor *a)
{
    uint64_t after = choose(a, 20), count = choose(a, 5);

    if (!plan->inject)
        return;
    switch (choose(a, 3)) {
    case 0:
        page_alloc_inject(after, count);
        break;
    case 1:
        cache_inject(after, count);
        break;
    default:
        vmap_inject_pt(after, count);
    }
}

static unsigned long release_nothing(struct vmap_purge_notifier *n)
{
    (void)n;
    return 0;
}

void op_global(struct actor *a)
{
    static struct vmap_purge_notifier notifiers[SIM_MAX_CPUS];
    struct vmap_counters c;
    uint64_t n = 0;

    a->operations++;
    switch (choose(a, 12)) {
    case 0:
    case 1:
    case 2:
        vm_unmap_aliases();
        break;
    case 3:
        vmap_force_purge();
        break;
    case 4:
        vmap_info(count_line, &n);
        break;
    case 5:
        vmap_for_each_counter(count_value, &n);
        SIM_CHECK(n >= 14, "%lu counters", (unsigned long)n);
        break;
    case 6:
        vmap_read_counters(&c);
        SIM_CHECK(c.va_used <= vmap_config.range_size, "more addresses in use than there are");
        break;
    case 7:
    case 8:
        inject(a);
        break;
    case 9:
        /* Taking a notifier out is for when nobody allocates: a machine of one CPU. */
        if (plan->machine.cpus > 1 || plan->storm)
            break;
        notifiers[a->cpu].purge = release_nothing;
        SIM_CHECK(register_vmap_purge_notifier(&notifiers[a->cpu]) == OK, "a notifier was refused");
        SIM_CHECK(unregister_vmap_purge_notifier(&notifiers[a->cpu]) == OK,
                  "a notifier was not found");
        SIM_CHECK(unregister_vmap_purge_notifier(&notifiers[a->cpu]) != OK,
                  "a notifier was found twice");
        break;
    case 10:
        vmap_quiesce();
        break;
    default:
        look_anywhere(a);
    }
}
