/*
 * What is decided about the API, so that users can rely on it: sizes that are refused, guards, bad
 * frees, zeroing.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

KTEST(sizes_refused, "0, overflow and more than physical memory: NULL, and nothing changes")
{
    const size_t sizes[] = {
        0,         SIZE_MAX,  SIZE_MAX - PAGE_SIZE + 2,       SIZE_MAX / 2,
        1UL << 63, 1UL << 52, (page_total() + 1) * PAGE_SIZE,
    };
    uint64_t used, areas, frames, failed;

    kt_quiesce();
    used = kt_counter("va_used");
    areas = kt_counter("vmap_areas");
    frames = page_free_count() + kt_counter("pt_pages");
    failed = kt_counter("alloc_fail");
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        KT_EXPECT(!vmalloc(sizes[i]));
        KT_EXPECT(!vzalloc(sizes[i]));
        KT_EXPECT(!vmalloc_node(sizes[i], 0));
        KT_EXPECT(!vmalloc_huge(sizes[i]));
        KT_EXPECT(!vrealloc(NULL, sizes[i]));
    }
    KT_EXPECT_EQ(kt_counter("alloc_fail"), failed + 5 * ARRAY_SIZE(sizes));
    KT_EXPECT_EQ(kt_counter("va_used"), used);
    KT_EXPECT_EQ(kt_counter("vmap_areas"), areas);
    KT_EXPECT_EQ(page_free_count() + kt_counter("pt_pages"), frames);
}

/* The last byte is there, the next one is not, for neither reads nor writes. */
static void check_guard(char *p, size_t size)
{
    struct vm_area_info info;
    uint64_t value;

    KT_ASSERT(p);
    KT_EXPECT(kt_read(p, &value));
    KT_EXPECT(kt_write(p + size - sizeof(value), 1));
    KT_EXPECT(!kt_read(p + size, &value));
    KT_EXPECT(!kt_write(p + size, 1));
    KT_EXPECT(!kt_read(p + size + PAGE_SIZE - sizeof(value), &value));
    KT_EXPECT(!find_vm_area(p + size, &info));
    KT_EXPECT(!vmalloc_to_page(p + size));
}

KTEST(guard_faults, "the page behind an area is not mapped, and not part of it")
{
    struct kt_pages pages;
    uint64_t value;
    char *p, *q;

    kt_quiesce();
    if (!kt_pages_get(&pages, 3, 1))
        return;
    /* Two in a row, so that there is something behind the guard. */
    p = vmalloc(3 * PAGE_SIZE);
    q = vmalloc(PAGE_SIZE);
    check_guard(p, 3 * PAGE_SIZE);
    check_guard(q, PAGE_SIZE);
    vfree(p);
    vfree(q);
    p = vmap(pages.page, 3, 0, PAGE_KERNEL);
    q = vmap(pages.page, 1, 0, PAGE_KERNEL);
    check_guard(p, 3 * PAGE_SIZE);
    check_guard(q, PAGE_SIZE);
    vunmap(p);
    vunmap(q);
    /* vm_map_ram has none: two mappings touch. */
    p = vm_map_ram(pages.page, 1, VM_ANY_NODE);
    q = vm_map_ram(pages.page + 1, 1, VM_ANY_NODE);
    KT_ASSERT(p && q);
    KT_EXPECT(q == p + PAGE_SIZE || vmap_config.blocks_all);
    KT_EXPECT(kt_read(p + PAGE_SIZE - 8, &value) && kt_read(q, &value));
    KT_EXPECT_EQ(value, kt_tag(1, 1));
    vm_unmap_ram(p, 1);
    vm_unmap_ram(q, 1);
    kt_pages_put(&pages);
}

struct bad {
    char *area, *map, *ram, *freed;
    struct page *page;
};

static unsigned do_bad_frees(struct bad *b)
{
    static char not_vmalloc[16];
    unsigned n = 0;

    n++, vfree(b->area + 1);
    n++, vfree(b->area + PAGE_SIZE);     /* interior */
    n++, vfree(b->area + 3 * PAGE_SIZE); /* its guard */
    n++, vunmap(b->area);                /* another kind */
    n++, iounmap(b->area);
    n++, vm_unmap_ram(b->area, 3);
    n++, vfree(b->map);
    n++, vm_unmap_ram(b->map, 1);
    n++, vfree(b->ram);
    n++, vunmap(b->ram);
    n++, vm_unmap_ram(b->ram, 1); /* count too small */
    n++, vm_unmap_ram(b->ram, 3); /* too large */
    n++, vm_unmap_ram(b->ram, 0);
    n++, vm_unmap_ram(b->ram + PAGE_SIZE, 1); /* interior */
    n++, vfree(b->freed);                     /* twice */
    n++, vunmap(b->freed);
    n++, vfree(not_vmalloc);
    n++, vfree((void *)(VMAP_BASE + vmap_config.range_size - PAGE_SIZE));
    n++, vfree((void *)8);
    return n;
}

KTEST(bad_frees, "frees of what was not returned: reported, counted, nothing changes")
{
    struct kt_pages pages;
    struct bad b;
    uint64_t counted, used, value;
    unsigned n;

    kt_quiesce();
    if (!kt_pages_get(&pages, 2, 1))
        return;
    b.freed = vmalloc(PAGE_SIZE);
    b.area = vmalloc(3 * PAGE_SIZE);
    b.map = vmap(pages.page, 1, 0, PAGE_KERNEL);
    b.ram = vm_map_ram(pages.page, 2, VM_ANY_NODE);
    KT_ASSERT(b.freed && b.area && b.map && b.ram);
    kt_fill(b.area, 3 * PAGE_SIZE, 5);
    vfree(b.freed);
    counted = kt_counter("bad_free");
    used = kt_counter("va_used");
    n = do_bad_frees(&b);
    kt_expect_bad_frees(n);
    KT_EXPECT_EQ(kt_counter("bad_free") - counted, n);
    KT_EXPECT_EQ(kt_counter("va_used"), used);
    vm_unmap_aliases();
    kt_verify(b.area, 3 * PAGE_SIZE, 5);
    KT_EXPECT(kt_read(b.map, &value) && value == kt_tag(1, 0));
    KT_EXPECT(kt_read(b.ram + PAGE_SIZE, &value) && value == kt_tag(1, 1));
    KT_EXPECT(kt_selfcheck());
    vfree(NULL);
    vunmap(NULL);
    iounmap(NULL);
    vm_unmap_ram(NULL, 7);
    kvfree(NULL);
    KT_EXPECT_EQ(kt_counter("bad_free") - counted, n);
    vm_unmap_ram(b.ram, 2);
    vunmap(b.map);
    vfree(b.area);
    kt_pages_put(&pages);
}

KTEST(zeroed, "vzalloc gives zeros where there was something else")
{
    size_t size = 5 * PAGE_SIZE;

    for (unsigned i = 0; i < 4; i++) {
        uint8_t *p = vmalloc(size);

        KT_ASSERT(p);
        memset(p, 0xff, size);
        vfree(p);
        p = i % 2 ? vzalloc(size) : __vmalloc(size, PMD_SIZE, VM_ZERO, VM_ANY_NODE);
        KT_ASSERT(p);
        for (size_t j = 0; j < size; j++) {
            if (p[j]) {
                KT_FAIL("byte %lu is 0x%x", (unsigned long)j, p[j]);
                break;
            }
        }
        vfree(p);
    }
}

KTEST(contents, "areas of many sizes keep what was written, and do not overlap")
{
    unsigned n = (unsigned)MIN(kt_scaled(64), 200UL);
    struct slot {
        void *p;
        size_t size;
    } *s = vzalloc(n * sizeof(*s));
    struct rng rng;

    KT_ASSERT(s);
    rng_seed(&rng, kt_seed());
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < n; i++) {
            s[i].size = rng_range(&rng, 1, 64 * 1024) & ~7UL;
            s[i].p = s[i].size ? vmalloc(s[i].size) : NULL;
            if (s[i].p)
                kt_fill(s[i].p, s[i].size, (uintptr_t)s[i].p);
        }
        for (unsigned i = 0; i < n; i++) {
            if (s[i].p)
                kt_verify(s[i].p, s[i].size, (uintptr_t)s[i].p);
            vfree(s[i].p);
            kt_alive();
        }
    }
    vfree(s);
}
