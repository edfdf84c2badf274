/*
 * Long ranges and their ends in the page tables.
 *
 * B10: a range that is longer than what one table covers, and not a multiple of it, must have
 * tables to its last page. D9: an unmap must pass over absent entries, tables and tables of tables
 * at the start, in the middle and at the end, in few steps. The ranges are congruent areas, which
 * need no memory; pages are mapped at their ends and on both sides of each kind of boundary.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define PROBES_MAX 16

struct probes {
    struct vm_area *area;
    uintptr_t start;
    uint64_t size;
    struct kt_pages pages;
    size_t offset[PROBES_MAX];
    unsigned n;
    bool mapped; /* what reads must find */
};

static void add(struct probes *p, uintptr_t va)
{
    size_t offset = va - p->start;

    if (va < p->start || offset >= p->size || p->n == PROBES_MAX)
        return;
    for (unsigned i = 0; i < p->n; i++) {
        if (p->offset[i] == offset)
            return;
    }
    p->offset[p->n++] = offset;
}

/* The first boundary of `unit` bytes inside the area, from both sides. */
static void add_boundary(struct probes *p, uint64_t unit)
{
    uintptr_t at = ALIGN_UP(p->start + 1, unit);

    add(p, at - PAGE_SIZE);
    add(p, at);
}

static void check_probes(void *arg)
{
    struct probes *p = arg;

    for (unsigned i = 0; i < p->n; i++) {
        uint64_t value = 0;
        bool ok = kt_read((void *)(p->start + p->offset[i]), &value);

        if (ok != p->mapped || (ok && value != kt_tag(9, i)))
            KT_FAIL("offset 0x%lx: %s, %lx", (unsigned long)p->offset[i], ok ? "read" : "fault",
                    (unsigned long)value);
    }
}

static void check_area(uint64_t size)
{
    struct probes p = {.size = size, .mapped = true};
    size_t offset = 0, bytes = size;
    struct vm_area **areas = pcpu_get_vm_areas(&offset, &bytes, 1, PAGE_SIZE);

    if (!areas || !kt_pages_get(&p.pages, PROBES_MAX, 9)) {
        KT_FAIL("no area of 0x%lx bytes", (unsigned long)size);
        pcpu_free_vm_areas(areas, 1);
        return;
    }
    p.area = areas[0];
    p.start = (uintptr_t)vm_area_start(areas[0]);
    add(&p, p.start);
    add(&p, p.start + size - PAGE_SIZE);
    add_boundary(&p, PMD_SIZE);
    add_boundary(&p, SZ_1G);
    add_boundary(&p, SZ_512G);
    add(&p, ALIGN_DOWN(p.start + size / 2, PAGE_SIZE));
    for (unsigned i = 0; i < p.n; i++)
        KT_EXPECT_EQ(vm_area_map_pages(p.area, p.offset[i], &p.pages.page[i], 1), OK);
    kt_on_all(check_probes, &p);
    vm_area_unmap_pages(p.area, 0, (unsigned)(size >> PAGE_SHIFT));
    vm_unmap_aliases();
    p.mapped = false;
    kt_on_all(check_probes, &p);
    pcpu_free_vm_areas(areas, 1);
    kt_pages_put(&p.pages);
}

KTEST(range_edges, "B10, D9: the ends of long ranges, and unmapping over holes")
{
    const uint64_t sizes[] = {
        PMD_SIZE - PAGE_SIZE,
        PMD_SIZE,
        PMD_SIZE + PAGE_SIZE,
        SZ_1G - PAGE_SIZE,
        SZ_1G,
        SZ_1G + PAGE_SIZE,
        3 * SZ_1G,
        SZ_512G + 2 * SZ_1G + PAGE_SIZE,
    };

    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        if (sizes[i] <= vmap_config.range_size / 4)
            check_area(sizes[i]);
        kt_progress(i * 100 / ARRAY_SIZE(sizes));
    }
}

struct edges {
    char *p;
    size_t size;
};

static void touch_edges(void *arg)
{
    struct edges *e = arg;
    uintptr_t middle = ALIGN_UP((uintptr_t)e->p, PMD_SIZE) - (uintptr_t)e->p;
    uint64_t value;

    KT_EXPECT(kt_read(e->p, &value));
    KT_EXPECT(kt_read(e->p + e->size - sizeof(value), &value));
    KT_EXPECT(!kt_read(e->p + e->size, &value));
    if (middle && middle < e->size) {
        KT_EXPECT(kt_read(e->p + middle - sizeof(value), &value));
        KT_EXPECT(kt_read(e->p + middle, &value));
    }
}

KTEST(area_edges, "B10: areas around 2 MiB, touched at their ends by all CPUs")
{
    const size_t sizes[] = {PMD_SIZE - PAGE_SIZE, PMD_SIZE, PMD_SIZE + PAGE_SIZE};

    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct edges e = {.p = vmalloc(sizes[i]), .size = sizes[i]};

        KT_ASSERT(e.p);
        kt_on_all(touch_edges, &e);
        vfree(e.p);
    }
}

KTEST(map_outside, "D11: pages cannot be mapped outside of their area")
{
    size_t offset = 0, size = 4 * PAGE_SIZE;
    struct vm_area **a = pcpu_get_vm_areas(&offset, &size, 1, PAGE_SIZE);
    struct kt_pages pages;

    KT_ASSERT(a);
    if (kt_pages_get(&pages, 2, 1)) {
        KT_EXPECT(vm_area_map_pages(a[0], 4 * PAGE_SIZE, pages.page, 1) != OK);
        KT_EXPECT(vm_area_map_pages(a[0], 3 * PAGE_SIZE, pages.page, 2) != OK);
        KT_EXPECT(vm_area_map_pages(a[0], -PAGE_SIZE, pages.page, 2) != OK);
        KT_EXPECT(vm_area_map_pages(a[0], PAGE_SIZE / 2, pages.page, 1) != OK);
        KT_EXPECT(vm_area_map_pages(a[0], SIZE_MAX & PAGE_MASK, pages.page, 1) != OK);
        KT_EXPECT(!vmalloc_to_page(vm_area_start(a[0])));
        kt_pages_put(&pages);
    }
    pcpu_free_vm_areas(a, 1);
}
