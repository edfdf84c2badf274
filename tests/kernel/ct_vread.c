/*
 * vread: the bytes that are there, zeros for what is not, and never a fault.
 *
 * F1: in a block of vm_map_ram, reads that begin anywhere but at the first mapped page must give
 * that page's bytes, not the first one's. So every start page, several offsets and lengths are
 * compared with a model of what is mapped.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define WINDOW     18 /* pages */
#define LENGTH_MAX (3 * PAGE_SIZE)

/* What should be at each byte: 1 + page number of the map, in every byte; 0: nothing mapped. */
struct model {
    const char *start;
    uint8_t page[WINDOW + 4];
};

static struct kt_pages pages;
static char *buffer;

static void fill_pages(void)
{
    for (unsigned i = 0; i < pages.n; i++)
        memset(page_address(pages.page[i]), (int)i + 1, PAGE_SIZE);
}

static void model_add(struct model *m, const char *p, unsigned first, unsigned n)
{
    size_t at = (size_t)(p - m->start) / PAGE_SIZE;

    for (unsigned i = 0; i < n && at + i < ARRAY_SIZE(m->page); i++)
        m->page[at + i] = (uint8_t)(first + i + 1);
}

static void compare(const struct model *m, size_t from, size_t n)
{
    bool any = false;
    size_t got;

    memset(buffer, 0xee, n + 1);
    for (size_t i = from; i < from + n; i++)
        any |= m->page[i / PAGE_SIZE] != 0;
    got = vread(buffer, m->start + from, n);
    if (got != (any ? n : 0)) {
        KT_FAIL("vread at page %lu + %lu of %lu bytes returned %lu", from / PAGE_SIZE,
                from % PAGE_SIZE, n, got);
        return;
    }
    for (size_t i = 0; any && i < n; i++) {
        if ((uint8_t)buffer[i] != m->page[(from + i) / PAGE_SIZE]) {
            KT_FAIL("vread at page %lu + %lu: byte %lu is %u instead of %u", from / PAGE_SIZE,
                    from % PAGE_SIZE, i, (uint8_t)buffer[i], m->page[(from + i) / PAGE_SIZE]);
            return;
        }
    }
    if ((uint8_t)buffer[n] != 0xee)
        KT_FAIL("vread wrote more than %lu bytes", n);
}

static void compare_all(const struct model *m)
{
    const size_t lengths[] = {1, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 1, LENGTH_MAX};
    const size_t offsets[] = {0, 1, PAGE_SIZE - 1};

    for (unsigned s = 0; s < WINDOW; s++) {
        for (unsigned l = 0; l < ARRAY_SIZE(lengths); l++) {
            for (unsigned o = 0; o < ARRAY_SIZE(offsets); o++)
                compare(m, s * PAGE_SIZE + offsets[o], lengths[l]);
        }
        kt_alive();
    }
}

/* Regions of 4, 1 and 8 pages with a hole of one page between them. */
KTEST(vread_block, "F1: vread from any start in a block gives that page's bytes")
{
    struct model m = {0};
    char *four, *hole, *one, *hole2, *eight;

    kt_quiesce();
    buffer = vmalloc(LENGTH_MAX + PAGE_SIZE);
    KT_ASSERT(buffer);
    if (!kt_pages_get(&pages, 16, 1))
        return;
    fill_pages();
    four = vm_map_ram(pages.page, 4, VM_ANY_NODE);
    hole = vm_map_ram(pages.page + 4, 1, VM_ANY_NODE);
    one = vm_map_ram(pages.page + 5, 1, VM_ANY_NODE);
    hole2 = vm_map_ram(pages.page + 6, 1, VM_ANY_NODE);
    eight = vm_map_ram(pages.page + 7, 8, VM_ANY_NODE);
    KT_ASSERT(four && hole && one && hole2 && eight);
    vm_unmap_ram(hole, 1);
    vm_unmap_ram(hole2, 1);
    m.start = four;
    model_add(&m, four, 0, 4);
    model_add(&m, one, 5, 1);
    model_add(&m, eight, 7, 8);
    /* Otherwise the holes are not where they should be, and the test shows less. */
    KT_EXPECT(one == four + 5 * PAGE_SIZE && eight == four + 7 * PAGE_SIZE);
    compare_all(&m);
    vm_unmap_ram(four, 4);
    vm_unmap_ram(one, 1);
    vm_unmap_ram(eight, 8);
    kt_pages_put(&pages);
    vfree(buffer);
}

KTEST(vread_areas, "vread over areas, guards, holes, MMIO and the end of the range")
{
    size_t offset = 0, size = PAGE_SIZE;
    struct model m = {0};
    struct vm_area **top;
    char *a, *mmio, *end;

    kt_quiesce();
    buffer = vmalloc(LENGTH_MAX + PAGE_SIZE);
    KT_ASSERT(buffer);
    if (!kt_pages_get(&pages, 16, 1))
        return;
    fill_pages();
    a = vmap(pages.page, 6, 0, PAGE_KERNEL);
    KT_ASSERT(a);
    m.start = a;
    model_add(&m, a, 0, 6);
    compare(&m, 0, LENGTH_MAX);
    compare(&m, 5 * PAGE_SIZE - 3, PAGE_SIZE);
    compare(&m, 5 * PAGE_SIZE + 7, PAGE_SIZE); /* runs into the guard */
    compare(&m, 6 * PAGE_SIZE, 1);             /* the guard alone */
    vunmap(a);

    /* Not RAM, so it is not read at all: zeros. */
    mmio = ioremap(0xfed00000, PAGE_SIZE, CACHE_UC);
    KT_EXPECT(mmio);
    memset(buffer, 0xee, 64);
    KT_EXPECT_EQ(vread(buffer, mmio + 8, 64), 64);
    for (unsigned i = 0; i < 64; i++)
        KT_EXPECT_EQ(buffer[i], 0);
    iounmap(mmio);

    top = pcpu_get_vm_areas(&offset, &size, 1, PAGE_SIZE);
    KT_ASSERT(top);
    end = (char *)vm_area_start(top[0]) + PAGE_SIZE;
    KT_EXPECT_EQ(vm_area_map_pages(top[0], 0, &pages.page[2], 1), OK);
    if ((uintptr_t)end == VMAP_BASE + vmap_config.range_size) {
        KT_EXPECT_EQ(vread(buffer, end - 100, 1000), 100);
        KT_EXPECT_EQ(vread(buffer, end - 1, SIZE_MAX), 1);
    } else {
        KT_FAIL("congruent areas do not begin at the top: %p", (void *)end);
    }
    pcpu_free_vm_areas(top, 1);
    kt_pages_put(&pages);
    vfree(buffer);
}

struct slow_sink {
    struct vread_sink sink;
    size_t bytes, zeros, limit;
    unsigned calls;
};

/* Allocates, purges, and stops at its limit. */
static size_t write_slowly(struct vread_sink *s, const void *data, size_t n)
{
    struct slow_sink *slow = CONTAINER_OF(s, struct slow_sink, sink);
    size_t take = MIN(n, slow->limit - slow->bytes);
    void *p = vmalloc(PAGE_SIZE);

    KT_EXPECT(p);
    vfree(p);
    vm_unmap_aliases();
    slow->calls++;
    slow->bytes += take;
    if (!data)
        slow->zeros += take;
    else
        KT_EXPECT(!is_vmalloc_addr(data));
    return take;
}

KTEST(vread_sink, "vread_iter: a sink that allocates, is slow, and stops early")
{
    struct slow_sink all = {.sink.write = write_slowly, .limit = SIZE_MAX};
    struct slow_sink some = {.sink.write = write_slowly, .limit = PAGE_SIZE + 10};
    char *p = vzalloc(3 * PAGE_SIZE);

    KT_ASSERT(p);
    KT_EXPECT_EQ(vread_iter(&all.sink, p, 3 * PAGE_SIZE + 50), 3 * PAGE_SIZE + 50);
    KT_EXPECT_EQ(all.bytes, 3 * PAGE_SIZE + 50);
    KT_EXPECT_EQ(all.zeros, 50);
    KT_EXPECT_EQ(vread_iter(&some.sink, p + 5, 3 * PAGE_SIZE), PAGE_SIZE + 10);
    KT_EXPECT(some.calls <= 3);
    vfree(p);
}
