/*
 * congruent.c: groups of areas at the same distances from a common base, for per-CPU allocators.
 *
 * They are page-granular and have no guards, so the table of the default design does not hold them.
 */
#include "mm/ptmap.h"
#include "mm/vmap_internal.h"

#define CALLER __builtin_return_address(0)

static bool congruent_ok(const size_t *offsets, const size_t *sizes, int n, size_t align)
{
    if (n <= 0 || !IS_POWER_OF_2(align) || align < PAGE_SIZE)
        return false;
    for (int i = 0; i < n; i++) {
        uint64_t end = offsets[i] + sizes[i];

        if (!sizes[i] || !IS_ALIGNED(offsets[i] | sizes[i], align) || end < offsets[i])
            return false;
        for (int j = 0; j < i; j++)
            if (offsets[i] < offsets[j] + sizes[j] && offsets[j] < end)
                return false;
    }
    return true;
}

struct wanted_areas {
    struct vm_area **areas;
    const size_t *offsets, *sizes;
    int n;
    size_t align;
    err_t err;
};

static bool take_wanted(void *arg)
{
    struct wanted_areas *w = arg;

    w->err = area_space_take_congruent(w->areas, w->offsets, w->sizes, w->n, w->align);
    return w->err != ERR_NOSPACE;
}

struct vm_area **pcpu_get_vm_areas(const size_t *offsets, const size_t *sizes, int n, size_t align)
{
    struct wanted_areas w = {.offsets = offsets, .sizes = sizes, .n = n, .align = align};
    struct vm_area **areas;
    err_t err = ERR_NOMEM;
    int made = 0;

    if (!vmap_usable())
        return NULL;
    if (!congruent_ok(offsets, sizes, n, align)) {
        vmap_alloc_failed(0, "congruent areas that cannot be", CALLER);
        return NULL;
    }
    areas = kvmalloc((size_t)n * sizeof(*areas));
    if (!areas) {
        vmap_alloc_failed(0, "no memory", CALLER);
        return NULL;
    }
    for (; made < n; made++) {
        areas[made] = area_new();
        if (!areas[made])
            goto err_areas;
        areas[made]->pool = VMAP_NO_POOL;
    }
    w.areas = areas;
    if (!take_wanted(&w))
        vmap_take_after_purge(take_wanted, &w);
    err = w.err;
    if (err != OK)
        goto err_areas;
    for (int i = 0; i < n; i++)
        vmap_publish(areas[i], 0, VM_KIND_PCPU, CALLER);
    return areas;

err_areas:
    vmap_alloc_failed(0, err == ERR_NOSPACE ? "no congruent addresses" : "no memory", CALLER);
    while (made--)
        area_delete(areas[made]);
    kvfree(areas);
    return NULL;
}

static bool match_same(const struct vm_area *a, const void *arg)
{
    return a == arg;
}

void pcpu_free_vm_areas(struct vm_area **areas, int n)
{
    if (!areas)
        return;
    for (int i = 0; i < n; i++) {
        struct vm_area *a = node_busy_unlink(areas[i]->start, match_same, areas[i]);

        if (!a) {
            vmap_bad_free("congruent area that is not live", areas[i], CALLER);
            continue;
        }
        ptmap_unmap_noflush(a->start, a->end, PTMAP_KEEP);
        vmap_retire(a);
    }
    kvfree(areas);
}

void *vm_area_start(const struct vm_area *area)
{
    return (void *)area->start;
}

err_t vm_area_map_pages(struct vm_area *area, size_t offset, struct page **pages, unsigned count)
{
    uint64_t size = area->end - area->start;
    unsigned done;
    err_t err;

    if (!IS_ALIGNED(offset, PAGE_SIZE) || offset > size || (size - offset) >> PAGE_SHIFT < count ||
        area->kind != VM_KIND_PCPU)
        return ERR_INVAL;
    err = ptmap_map_pages(area->start + offset, pages, count, PAGE_KERNEL, &done);
    if (err != OK)
        vm_area_unmap_pages(area, offset, done);
    return err;
}

void vm_area_unmap_pages(struct vm_area *area, size_t offset, unsigned count)
{
    uintptr_t start = area->start + offset, end = start + (uintptr_t)count * PAGE_SIZE;

    ptmap_unmap_noflush(start, end, PTMAP_KEEP);
    purge_note_pending(start, end);
}
