/*
 * driver_model.c: what must be true of a live area, by the API's own words.
 *
 * The set of live intervals is kept in a tree; by schedule there is no marked point between an
 * answer and its entry, so the set is exact. CPUs that run free keep no common set (its lock would
 * order them): there the pages' contents show that nobody else has the area.
 */
#include <string.h>

#include "tests/host/sim/driver_internal.h"
#include "tests/host/sim/internal.h"

const uint16_t word_offsets[PAGE_WORDS] = {0, 1368, PAGE_SIZE - sizeof(uint64_t)};

static struct rb_root live;

void frame_mark(struct page *page, uint64_t word)
{
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        *(uint64_t *)((char *)page_address(page) + word_offsets[i]) = word;
}

bool frame_holds(struct page *page, uint64_t word)
{
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        if (*(uint64_t *)((char *)page_address(page) + word_offsets[i]) != word)
            return false;
    return true;
}

void model_reset(void)
{
    live.node = NULL;
}

static uintptr_t first_byte(const struct area *area)
{
    return area->va & PAGE_MASK;
}

void model_insert(struct area *area)
{
    struct rb_node **link = &live.node, *parent = NULL;
    uintptr_t start = first_byte(area), end = start + area->reserved;

    if (sim_opt.free_running || area->type == AREA_SMALL)
        return;
    while (*link) {
        const struct area *other = rb_entry(*link, struct area, rb);

        parent = *link;
        if (end > first_byte(other) && start < first_byte(other) + other->reserved)
            sim_fail(SIM_TEST, "[%#lx, %#lx) was handed out, and [%#lx, %#lx) is live",
                     (unsigned long)start, (unsigned long)end, (unsigned long)first_byte(other),
                     (unsigned long)(first_byte(other) + other->reserved));
        link = start < first_byte(other) ? &parent->left : &parent->right;
    }
    rb_link(&area->rb, parent, link);
    rb_insert_fixup(&live, &area->rb, NULL);
}

void model_remove(struct area *area)
{
    if (!sim_opt.free_running && area->type != AREA_SMALL)
        rb_erase(&live, &area->rb, NULL);
}

uint64_t area_word(const struct area *area, unsigned page)
{
    return area->cookie + page;
}

static enum vm_kind kind_of(const struct area *area)
{
    switch (area->type) {
    case AREA_MAP:
    case AREA_PUT:
        return VM_KIND_MAP;
    case AREA_RAM:
        return VM_KIND_RAM;
    case AREA_IO:
        return VM_KIND_IOREMAP;
    case AREA_PCPU:
        return VM_KIND_PCPU;
    default:
        return VM_KIND_ALLOC;
    }
}

static unsigned mapped_pages(const struct area *area)
{
    return area->type == AREA_PCPU ? area->mapped : area->pages;
}

/* Pages of frames that belong to the driver hold their tag already. */
void area_fill(struct area *area, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        struct page *page = vmalloc_to_page((void *)(area->va + i * PAGE_SIZE));

        SIM_CHECK(page, "page %u of the new area at %#lx is not mapped", i,
                  (unsigned long)area->va);
        frame_mark(page, area_word(area, i));
    }
}

static void verify_page(struct actor *a, const struct area *area, unsigned i)
{
    uintptr_t va = first_byte(area) + i * PAGE_SIZE;
    struct page *page = vmalloc_to_page((void *)(va + choose(a, PAGE_SIZE)));
    uint64_t want = area->frames ? page_to_pfn(area->frames[i]) : area_word(area, i), got = 0;
    unsigned offset = word_offsets[choose(a, PAGE_WORDS)];

    a->verified_pages++;
    if (area->type == AREA_IO) {
        SIM_CHECK(vmalloc_to_pfn((void *)va) == (area->pa >> PAGE_SHIFT) + i,
                  "page %u of the MMIO at %#lx is pfn %#lx", i, (unsigned long)area->va,
                  vmalloc_to_pfn((void *)va));
        return;
    }
    SIM_CHECK(page && (!area->frames || page == area->frames[i]),
              "page %u of %#lx is frame %p, not %p", i, (unsigned long)area->va, (void *)page,
              area->frames ? (void *)area->frames[i] : NULL);
    SIM_CHECK(vmalloc_to_pfn((void *)va) == page_to_pfn(page), "page and pfn of %#lx differ",
              (unsigned long)va);
    SIM_CHECK(sim_read8(va + offset, &got), "page %u of %u at %#lx cannot be read", i, area->pages,
              (unsigned long)area->va);
    SIM_CHECK(got == want, "page %u of %u at %#lx holds %#lx, not %#lx", i, area->pages,
              (unsigned long)area->va, (unsigned long)got, (unsigned long)want);
    if (!area->writable)
        SIM_CHECK(!sim_write8(va + 8, 0), "page %u of the read-only area at %#lx was written", i,
                  (unsigned long)area->va);
    else if (!area->frames)
        SIM_CHECK(sim_write8(va + 8, got), "page %u of the area at %#lx cannot be written", i,
                  (unsigned long)area->va);
}

static void verify_lookup(struct actor *a, const struct area *area)
{
    uintptr_t start = first_byte(area), end = start + (uintptr_t)area->pages * PAGE_SIZE;
    uintptr_t at[] = {start, end - 1, start + choose(a, end - start)};
    struct vm_area_info info;
    uint64_t v;

    for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
        SIM_CHECK(is_vmalloc_addr((void *)at[i]), "%#lx is outside the vmap range",
                  (unsigned long)at[i]);
        SIM_CHECK(find_vm_area((void *)at[i], &info),
                  "no area is found at %#lx, byte %lu of a live one", (unsigned long)at[i],
                  (unsigned long)(at[i] - start));
        SIM_CHECK((uintptr_t)info.start == start && info.size == end - start &&
                      info.kind == kind_of(area),
                  "at %#lx an area [%p, + %lu) of kind %u is found, not [%#lx, + %lu) of kind %u",
                  (unsigned long)at[i], info.start, (unsigned long)info.size, info.kind,
                  (unsigned long)start, (unsigned long)(end - start), kind_of(area));
    }
    if (!area->guard)
        return;
    SIM_CHECK(!find_vm_area((void *)end, &info) &&
                  !find_vm_area((void *)(end + PAGE_SIZE - 1), &info),
              "an area is found at %#lx, in a guard page", (unsigned long)end);
    SIM_CHECK(!vmalloc_to_page((void *)end) && !vmalloc_to_pfn((void *)end),
              "the guard page at %#lx has a page", (unsigned long)end);
    /* Behind what was shrunk this CPU may reach the old page until the next flush. */
    SIM_CHECK(sim_stale_here(end, sizeof(v)) || !sim_read8(end, &v),
              "the guard page at %#lx is mapped", (unsigned long)end);
}

void area_verify(struct actor *a, struct area *area, bool deep)
{
    unsigned pages = mapped_pages(area);

    if (area->type == AREA_SMALL) {
        SIM_CHECK(*(uint64_t *)area->va == area->cookie, "a small object of %lu bytes changed",
                  (unsigned long)area->size);
        return;
    }
    verify_lookup(a, area);
    if (deep && pages <= 64) {
        for (unsigned i = 0; i < pages; i++)
            verify_page(a, area, i);
    } else if (pages) {
        verify_page(a, area, 0);
        verify_page(a, area, pages - 1);
        verify_page(a, area, (unsigned)choose(a, pages));
    }
}

void area_begin(struct actor *a, struct area *area)
{
    if (area->type == AREA_SMALL) {
        *(uint64_t *)area->va = area->cookie;
        return;
    }
    model_insert(area);
    SIM_CHECK(first_byte(area) >= VMAP_BASE &&
                  first_byte(area) + area->reserved <= VMAP_BASE + vmap_config.range_size,
              "[%#lx, + %lu) is outside the range", (unsigned long)area->va,
              (unsigned long)area->reserved);
    sim_check_handed_out(first_byte(area), area->reserved);
    if (!area->frames && area->type != AREA_IO && area->type != AREA_PCPU) {
        if (area->flags & VM_ZERO)
            for (unsigned i = 0; i < area->pages; i++) {
                const uint64_t *w =
                    page_address(vmalloc_to_page((void *)(area->va + i * PAGE_SIZE)));

                SIM_CHECK(!w[0] && !memcmp(w, w + 1, PAGE_SIZE - sizeof(*w)),
                          "page %u of a cleared area is not", i);
            }
        area_fill(area, 0, area->pages);
    }
    area_verify(a, area, true);
}
