/*
 * mm_api_test.c: the edges of mm/vmalloc.h, in each design: before the start and after the end, in
 * NMI, arguments that are refused, words about addresses, the list of areas, reading over holes,
 * notifiers, permanent areas, leaks at the end, and vm_unmap_aliases while a block ends.
 */
#include <stdio.h>
#include <string.h>

#include "lib/string.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap_internal.h"
#include "tests/host/sim/boot.h"
#include "tests/host/sim/internal.h"
#include "tests/host/testlib.h"

static const struct sim_boot designs[] = {
    {.design = DESIGN_2010},
    {.design = DESIGN_2023},
    {.design = DESIGN_2024, .nodes = 2},
    {.design = DESIGN_METALMAP},
    {.design = DESIGN_METALMAP, .mix = 1}, /* blocks=ram */
};

static struct page *pages[600];

static void take_pages(unsigned n)
{
    SIM_CHECK(page_alloc_bulk(pages, n, PAGE_ANY_NODE) == n, "no memory");
    for (unsigned i = 0; i < n; i++)
        sim_frame_callers_own(pages[i]);
}

/* fn on CPU 0 of a new machine, in each design; afterwards mm/ goes down without a leak. */
static void in_each_design(void (*fn)(void *), bool shutdown)
{
    for (unsigned i = 0; i < ARRAY_SIZE(designs); i++) {
        test_seconds++;
        sim_machine(&(struct sim_options){.seed = 1, .ram = 32 * SZ_1M, .cpus = 2, .nodes = 2});
        sim_boot(&designs[i]);
        if (!sim_do(fn, NULL) || (shutdown && !sim_shutdown()))
            fail_msg("design %s, mix %#x: %s", vmap_design_names[designs[i].design], designs[i].mix,
                     sim_failure_text());
    }
}

static uint64_t counter(const char *name);
static struct counter {
    const char *name;
    uint64_t value;
    bool found;
} wanted_counter;
static void pick_counter(const char *name, uint64_t value, void *arg)
{
    struct counter *c = arg;

    if (strcmp(name, c->name) == 0) {
        c->value = value;
        c->found = true;
    }
}
static uint64_t counter(const char *name)
{
    wanted_counter = (struct counter){.name = name};
    vmap_for_each_counter(pick_counter, &wanted_counter);
    SIM_CHECK(wanted_counter.found, "no counter %s", name);
    return wanted_counter.value;
}

/* Evaluates `statement`, which must count one more bad free. */
#define BAD_FREE(statement)                                                                        \
    do {                                                                                           \
        uint64_t was_ = counter("bad_free");                                                       \
        statement;                                                                                 \
        SIM_CHECK(counter("bad_free") == was_ + 1, "%s was not reported", #statement);             \
    } while (0)

/* `call` must give NULL and count a failure. */
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        uint64_t was_ = counter("alloc_fail");                                                     \
        SIM_CHECK(!(call), "%s is not refused", #call);                                            \
        SIM_CHECK(counter("alloc_fail") == was_ + 1, "%s was not counted", #call);                 \
    } while (0)

/* ---- not up, and NMI ---- */

static const size_t one_offset[] = {0}, one_size[] = {PAGE_SIZE};

static void nothing_works(void)
{
    char buf[16];

    SIM_CHECK(!vmalloc(1) && !vzalloc(1) && !vmalloc_node(1, 0) && !vmalloc_huge(PMD_SIZE),
              "an allocation");
    SIM_CHECK(!__vmalloc(1, PAGE_SIZE, 0, VM_ANY_NODE) && !vrealloc(NULL, 1), "an allocation");
    SIM_CHECK(!vmap(pages, 1, 0, PAGE_KERNEL) && !vm_map_ram(pages, 1, VM_ANY_NODE), "a mapping");
    SIM_CHECK(!ioremap(SZ_512G, PAGE_SIZE, CACHE_UC), "a mapping of a device");
    SIM_CHECK(!pcpu_get_vm_areas(one_offset, one_size, 1, PAGE_SIZE), "congruent areas");
    SIM_CHECK(vread(buf, (void *)VMAP_BASE, sizeof(buf)) == 0, "something is read");
}

static void when_down(void *arg)
{
    static const size_t size = 100;
    struct vm_area_info info;
    const char *text;

    (void)arg;
    take_pages(1);
    SIM_CHECK(vmap_exit(), "vmap_exit");
    nothing_works();
    SIM_CHECK(!find_vm_area((void *)VMAP_BASE, &info), "an area");
    SIM_CHECK(!vmalloc_to_page((void *)VMAP_BASE), "a page");
    vm_unmap_aliases();
    vmap_quiesce();
    vfree((void *)VMAP_BASE);
    vunmap((void *)VMAP_BASE);
    vm_unmap_ram((void *)VMAP_BASE, 1);
    SIM_CHECK(vmap_selfcheck(), "not sound when down");
    capture_start();
    vmalloc_dump_obj((void *)VMAP_BASE);
    text = capture_text();
    SIM_CHECK(strstr(text, "is not an address of the vmap range"), "says %s", text);
    kfree(kmalloc(size)); /* is of another layer, and still there */
}

static void test_down(void **state)
{
    (void)state;
    in_each_design(when_down, false);
    /* Before any allocator there are no small objects either. */
    sim_machine(&(struct sim_options){.seed = 1});
    assert_null(kmalloc(8));
    assert_null(kmalloc(KMALLOC_MAX));
}

static void in_nmi_context(void *arg)
{
    struct vm_area_info info;
    void *p[4];
    bool found;

    (void)arg;
    take_pages(4);
    p[0] = vmalloc(3 * PAGE_SIZE);
    p[1] = vmap(pages, 2, 0, PAGE_KERNEL);
    p[2] = vm_map_ram(pages + 2, 2, VM_ANY_NODE);
    p[3] = __vmalloc(200 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE);
    sim_this->nmi_depth++;
    sim_this->irq_depth++;
    nothing_works();
    BAD_FREE(vfree(p[0]));
    BAD_FREE(vunmap(p[1]));
    BAD_FREE(vm_unmap_ram(p[2], 2));
    BAD_FREE(vfree(p[3]));
    found = find_vm_area(p[3], &info);
    SIM_CHECK(found == vmap_config.index_table, "find_vm_area in NMI says %d", found);
    SIM_CHECK(vmalloc_to_page(p[1]) == pages[0], "vmalloc_to_page in NMI");
    sim_this->nmi_depth--;
    sim_this->irq_depth--;
    vfree(p[0]);
    vunmap(p[1]);
    vm_unmap_ram(p[2], 2);
    vfree(p[3]);
    vm_unmap_aliases();
    page_free_bulk(pages, 4);
}

static void test_nmi(void **state)
{
    (void)state;
    in_each_design(in_nmi_context, true);
}

/* ---- arguments ---- */

static void arguments(void *arg)
{
    void *p = vmalloc(2 * PAGE_SIZE), *outside = (void *)(VMAP_BASE + VMAP_SIZE_MAX);
    struct vm_area **areas;

    (void)arg;
    take_pages(200);
    REFUSED(__vmalloc(1, 3, 0, VM_ANY_NODE));
    REFUSED(__vmalloc(1, PAGE_SIZE, VM_FLAGS_PUBLIC + 1, VM_ANY_NODE));
    REFUSED(__vmalloc(1, 1UL << 62, 0, VM_ANY_NODE)); /* no such place in the range */
    REFUSED(vmalloc((page_total() + 1) * PAGE_SIZE));
    REFUSED(vmap(NULL, 1, 0, PAGE_KERNEL));
    REFUSED(vmap(pages, 0, 0, PAGE_KERNEL));
    REFUSED(vmap(pages, 1, VM_FLAGS_PUBLIC + 1, PAGE_KERNEL));
    REFUSED(vmap(pages, 1, 0, PAGE_KERNEL & ~(pgprot_t)PTE_P));
    REFUSED(vmap(pages, 1, 0, PAGE_KERNEL & ~(pgprot_t)PTE_NX));
    REFUSED(vm_map_ram(NULL, 1, VM_ANY_NODE));
    REFUSED(vm_map_ram(pages, 0, VM_ANY_NODE));
    REFUSED(vrealloc(p, SIZE_MAX));
    SIM_CHECK(vmalloc_to_page(p), "vrealloc that failed took the area");
    SIM_CHECK(!vrealloc(outside, 1), "vrealloc outside the range");
    BAD_FREE(vfree(outside));
    BAD_FREE(vm_unmap_ram(outside, 1));
    BAD_FREE(vm_unmap_ram(p, 1));
    BAD_FREE(vm_unmap_ram(p, 0));
    BAD_FREE(kvfree_deferred((char *)p + 4 * PAGE_SIZE)); /* nothing is mapped there */
    kvfree_deferred(NULL);
    vfree(NULL);
    vunmap(NULL);
    vm_unmap_ram(NULL, 3);
    iounmap(NULL);
    pcpu_free_vm_areas(NULL, 1);
    vfree(p);

    /* What is no slot of a block: permanent, or too large. */
    p = vmap(pages, 2, VM_PERMANENT, PAGE_KERNEL);
    SIM_CHECK(p && IS_ALIGNED((uintptr_t)p, PMD_SIZE), "a permanent vmap at %p", p);
    vunmap(p);
    p = vmap(pages, 200, 0, PAGE_KERNEL);
    SIM_CHECK(p && vmalloc_to_page((char *)p + 199 * PAGE_SIZE) == pages[199], "a large vmap");
    BAD_FREE(vfree(p));
    vunmap(p);
    p = vm_map_ram(pages, 200, VM_ANY_NODE);
    SIM_CHECK(p && vmalloc_to_page((char *)p + 199 * PAGE_SIZE) == pages[199], "a large mapping");
    BAD_FREE(vm_unmap_ram(p, 199));
    vm_unmap_ram(p, 200);

    areas = pcpu_get_vm_areas(one_offset, one_size, 1, PAGE_SIZE);
    SIM_CHECK(areas, "no congruent area");
    SIM_CHECK(vm_area_map_pages(areas[0], 8, pages, 1) == ERR_INVAL, "an odd offset");
    SIM_CHECK(vm_area_map_pages(areas[0], 2 * PAGE_SIZE, pages, 1) == ERR_INVAL, "behind it");
    SIM_CHECK(vm_area_map_pages(areas[0], 0, pages, 2) == ERR_INVAL, "beyond its end");
    SIM_CHECK(vm_area_map_pages(areas[0], 0, pages, 1) == OK, "all of it");
    SIM_CHECK(vmalloc_to_page(vm_area_start(areas[0])) == pages[0], "its page");
    vm_area_unmap_pages(areas[0], 0, 1);
    pcpu_free_vm_areas(areas, 1);
    vm_unmap_aliases();
    page_free_bulk(pages, 200);
}

static void congruent_arguments(void *arg)
{
    static const struct {
        size_t offsets[2], sizes[2];
        int n;
        size_t align;
    } bad[] = {
        {{0}, {PAGE_SIZE}, 0, PAGE_SIZE},
        {{0}, {PAGE_SIZE}, -1, PAGE_SIZE},
        {{0}, {PAGE_SIZE}, 1, 0},
        {{0}, {PAGE_SIZE}, 1, 3 * PAGE_SIZE},
        {{0}, {PAGE_SIZE}, 1, PAGE_SIZE / 2},
        {{0}, {0}, 1, PAGE_SIZE},
        {{0}, {PAGE_SIZE + 8}, 1, PAGE_SIZE},
        {{8}, {PAGE_SIZE}, 1, PAGE_SIZE},
        {{-PAGE_SIZE}, {2 * PAGE_SIZE}, 1, PAGE_SIZE},
        {{0, PAGE_SIZE}, {2 * PAGE_SIZE, PAGE_SIZE}, 2, PAGE_SIZE},
        {{PAGE_SIZE, 0}, {PAGE_SIZE, 2 * PAGE_SIZE}, 2, PAGE_SIZE},
        {{0, 0}, {PAGE_SIZE, PAGE_SIZE}, 2, PAGE_SIZE},
    };
    static const size_t offsets[] = {0, 4 * PAGE_SIZE}, sizes[] = {PAGE_SIZE, PAGE_SIZE};
    static const size_t too_far[] = {0, VMAP_SIZE_MAX};
    struct vm_area **areas, *second;

    (void)arg;
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        uint64_t was = counter("alloc_fail");

        SIM_CHECK(!pcpu_get_vm_areas(bad[i].offsets, bad[i].sizes, bad[i].n, bad[i].align),
                  "congruent case %u is not refused", i);
        SIM_CHECK(counter("alloc_fail") == was + 1, "congruent case %u was not counted", i);
    }
    REFUSED(pcpu_get_vm_areas(too_far, sizes, 2, PAGE_SIZE));
    areas = pcpu_get_vm_areas(offsets, sizes, 2, PAGE_SIZE);
    SIM_CHECK(areas, "no congruent areas");
    SIM_CHECK((char *)vm_area_start(areas[1]) - (char *)vm_area_start(areas[0]) == 4 * PAGE_SIZE,
              "not congruent");
    /* The same one twice in the list: the second time it is not live. */
    second = areas[1];
    areas[1] = areas[0];
    BAD_FREE(pcpu_free_vm_areas(areas, 2));
    areas = kvmalloc(sizeof(*areas));
    areas[0] = second;
    pcpu_free_vm_areas(areas, 1);
}

static void test_arguments(void **state)
{
    (void)state;
    in_each_design(arguments, true);
    in_each_design(congruent_arguments, true);
}

static void ioremap_arguments(void *arg)
{
    phys_addr_t device = SZ_512G, ram = 4 * SZ_1M, above = 32 * SZ_1M;
    void *p;

    (void)arg;
    REFUSED(ioremap(device, 0, CACHE_UC));
    REFUSED(ioremap(device, SZ_512G + 1, CACHE_UC));
    REFUSED(ioremap(-PAGE_SIZE, 2 * PAGE_SIZE, CACHE_UC));
    REFUSED(ioremap(BIT(52) - PAGE_SIZE, PAGE_SIZE + 1, CACHE_UC));
    REFUSED(ioremap(ram, PAGE_SIZE, CACHE_UC));
    REFUSED(ioremap(above - 1, 2, CACHE_UC)); /* its first byte is RAM */
    REFUSED(ioremap(SZ_1M - 1, 2, CACHE_UC)); /* its last byte is RAM */
    p = ioremap(above, PAGE_SIZE, CACHE_UC);
    SIM_CHECK(p && vmalloc_to_pfn(p) == above >> PAGE_SHIFT, "the page above RAM");
    BAD_FREE(iounmap((char *)p + 1));
    iounmap(p);
    p = ioremap(device + 0x123, 2 * PAGE_SIZE, CACHE_UC);
    SIM_CHECK(p && ((uintptr_t)p & (PAGE_SIZE - 1)) == 0x123, "an address with an offset: %p", p);
    SIM_CHECK(vmalloc_to_pfn((char *)p + 2 * PAGE_SIZE) == (device >> PAGE_SHIFT) + 2,
              "its last page");
    BAD_FREE(iounmap((char *)p - 0x123));
    BAD_FREE(vfree(p));
    iounmap(p);
    p = ioremap(device, 3 * PMD_SIZE, CACHE_WC);
    SIM_CHECK(p && IS_ALIGNED((uintptr_t)p, PMD_SIZE), "a large device at %p", p);
    iounmap(p);
}

static void test_ioremap(void **state)
{
    (void)state;
    in_each_design(ioremap_arguments, true);
}

/* All of a huge area is cleared. */
static void zeroed_huge(void *arg)
{
    struct page *dirty = alloc_pages(PMD_SHIFT - PAGE_SHIFT);
    char *p;

    (void)arg;
    SIM_CHECK(dirty, "no memory");
    memset(page_address(dirty), 0x77, PMD_SIZE);
    free_pages(dirty, PMD_SHIFT - PAGE_SHIFT);
    p = __vmalloc(PMD_SIZE, PAGE_SIZE, VM_HUGE | VM_ZERO, VM_ANY_NODE);
    SIM_CHECK(p && IS_ALIGNED((uintptr_t)p, PMD_SIZE), "no leaf, but %p", (void *)p);
    for (unsigned i = 0; i < PTE_COUNT; i++) {
        const uint64_t *at = page_address(vmalloc_to_page(p + i * PAGE_SIZE));

        for (unsigned k = 0; k < PAGE_SIZE / sizeof(*at); k++)
            SIM_CHECK(at[k] == 0, "page %u is not cleared", i);
    }
    vfree(p);
}

static void test_huge(void **state)
{
    (void)state;
    in_each_design(zeroed_huge, true);
}

/* ---- words ---- */

static const char *dump_of(const void *p)
{
    capture_start();
    vmalloc_dump_obj(p);
    return capture_text();
}

static void must_say(const void *p, const char *fmt, const void *start)
{
    char expected[120], at[40];
    const char *text = dump_of(p);

    snprintf(at, sizeof(at), "# %p: ", p);
    snprintf(expected, sizeof(expected), fmt, start);
    SIM_CHECK(strncmp(text, at, strlen(at)) == 0 && strstr(text, expected),
              "about %p it says \"%s\", expected \"%s\"", p, text, expected);
}

static void words(void *arg)
{
    char *large, *small, *ram, *io, *last;
    struct vm_area **areas;

    (void)arg;
    take_pages(3);
    large = __vmalloc(200 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE);
    small = vmalloc(4 * PAGE_SIZE);
    ram = vm_map_ram(pages, 3, VM_ANY_NODE);
    io = ioremap(SZ_512G, PAGE_SIZE, CACHE_UC);
    areas = pcpu_get_vm_areas(one_offset, one_size, 1, PAGE_SIZE);
    must_say(large + 5, "byte 5 of the 200-page vmalloc area at %p, allocated by ", large);
    must_say(large + 200 * PAGE_SIZE, "1 byte past the 200-page vmalloc area at %p, allo", large);
    must_say(large + 200 * PAGE_SIZE + 9, "10 bytes past the 200-page vmalloc area at %p", large);
    must_say(small, "byte 0 of the 4-page vmalloc area at %p, allocated by ", small);
    must_say(small + 4 * PAGE_SIZE, "1 byte past the 4-page vmalloc area at %p, allo", small);
    must_say(small + 5 * PAGE_SIZE - 1, "4096 bytes past the 4-page vmalloc area at %p", small);
    must_say(ram + PAGE_SIZE, "byte 4096 of the 3-page vm_map_ram area at %p", ram);
    must_say(io + 1, "byte 1 of the 1-page ioremap area at %p", io);
    must_say(vm_area_start(areas[0]), "byte 0 of the 1-page per-CPU area at %p",
             vm_area_start(areas[0]));
    last = (char *)ALIGN_DOWN((uintptr_t)ram, PMD_SIZE) + PMD_SIZE - PAGE_SIZE;
    must_say(last, "an unused or freed slot of the block at %p", last + PAGE_SIZE - PMD_SIZE);
    must_say((void *)(VMAP_BASE + SZ_512G), "free addresses of the vmap range", NULL);
    SIM_CHECK(strstr(dump_of(pages), "is not an address of the vmap range"), "outside the range");
    vfree(large);
    if (!vmap_config.index_table)
        must_say(large + 7, "in the freed 200-page vmalloc area at %p, allocated by ", large);
    vfree(small);
    vm_unmap_ram(ram, 3);
    if (vmap_config.blocks_all)
        must_say(small + 7, "an unused or freed slot of the block at %p",
                 (char *)ALIGN_DOWN((uintptr_t)small, PMD_SIZE));
    iounmap(io);
    pcpu_free_vm_areas(areas, 1);
    vm_unmap_aliases();
    page_free_bulk(pages, 3);
}

/* A range that ends earlier than the addresses that could be one. */
static void words_beyond(void *arg)
{
    (void)arg;
    must_say((void *)(VMAP_BASE + SZ_1G), "free addresses of the vmap range", NULL);
    must_say((void *)(VMAP_BASE + VMAP_SIZE_MAX - 1), "free addresses of the vmap range", NULL);
}

static void many_bad_frees(void *arg)
{
    unsigned lines = 0;
    const char *text;

    (void)arg;
    capture_start();
    for (unsigned i = 0; i < 50; i++)
        vfree((void *)(VMAP_BASE + 8));
    text = capture_text();
    while ((text = strstr(text, "vfree of what")) != NULL) {
        lines++;
        text++;
    }
    SIM_CHECK(lines == 10, "%u lines about 50 bad frees in a second", lines);
    SIM_CHECK(counter("bad_free") == 50, "not all were counted");
}

static void test_words(void **state)
{
    (void)state;
    in_each_design(words, true);
    in_each_design(many_bad_frees, true);
    sim_machine(&(struct sim_options){.seed = 1});
    sim_boot(&(struct sim_boot){.design = DESIGN_METALMAP, .range_size = SZ_1G});
    assert_true(sim_do(words_beyond, NULL));
}

/* ---- the list ---- */

struct list {
    char text[4096];
    unsigned lines;
};

static void add_line(const char *line, void *arg)
{
    struct list *l = arg;

    SIM_CHECK(strlen(l->text) + strlen(line) + 2 < sizeof(l->text), "too many lines");
    strcat(l->text, line);
    strcat(l->text, "\n");
    l->lines++;
}

static void must_list(const struct list *l, const void *p, unsigned n, const char *end)
{
    char begin[80];
    const char *line, *stop;

    snprintf(begin, sizeof(begin), "0x%016lx-0x%016lx %7lu ", (unsigned long)p,
             (unsigned long)p + n * PAGE_SIZE, n * (unsigned long)PAGE_SIZE);
    line = strstr(l->text, begin);
    SIM_CHECK(line, "no line \"%s\" in:\n%s", begin, l->text);
    stop = strchr(line, '\n');
    SIM_CHECK(stop - line > (long)strlen(end) && !strncmp(stop - strlen(end), end, strlen(end)),
              "the line of %p does not end with \"%s\":\n%s", p, end, l->text);
}

static void listed(void *arg)
{
    static struct list l, empty;
    void *large, *small, *mapped, *ram, *io;
    struct vm_area **areas;

    (void)arg;
    take_pages(5);
    empty.lines = 0;
    vmap_info(add_line, &empty);
    SIM_CHECK(empty.lines == 0, "areas in a new allocator:\n%s", empty.text);
    memset(&l, 0, sizeof(l));
    large = __vmalloc(200 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE);
    small = vmalloc(4 * PAGE_SIZE);
    mapped = vmap(pages, 2, 0, PAGE_KERNEL);
    ram = vm_map_ram(pages + 2, 3, VM_ANY_NODE);
    io = ioremap(SZ_512G + PAGE_SIZE, PAGE_SIZE, CACHE_UC);
    areas = pcpu_get_vm_areas(one_offset, one_size, 1, PAGE_SIZE);
    vmap_info(add_line, &l);
    SIM_CHECK(l.lines == 6, "%u lines of 6 areas:\n%s", l.lines, l.text);
    must_list(&l, large, 200, " pages=200 vmalloc");
    must_list(&l, small, 4, " pages=4 vmalloc");
    must_list(&l, mapped, 2, " pages=2 vmap");
    must_list(&l, ram, 3, " pages=3 vm_map_ram");
    must_list(&l, io, 1, " pages=1 phys=0x0000008000001000 ioremap");
    must_list(&l, vm_area_start(areas[0]), 1, " pages=1 pcpu");
    vfree(large);
    vfree(small);
    vunmap(mapped);
    vm_unmap_ram(ram, 3);
    iounmap(io);
    pcpu_free_vm_areas(areas, 1);
    vm_unmap_aliases();
    page_free_bulk(pages, 5);
    memset(&l, 0, sizeof(l));
    vmap_info(add_line, &l);
    SIM_CHECK(l.lines == 0, "freed areas are listed:\n%s", l.text);
}

static void test_list(void **state)
{
    (void)state;
    in_each_design(listed, true);
}

/* ---- reading ---- */

struct short_sink {
    struct vread_sink sink;
    size_t room, calls;
};
static size_t take_some(struct vread_sink *s, const void *data, size_t n)
{
    struct short_sink *k = CONTAINER_OF(s, struct short_sink, sink);

    (void)data;
    n = MIN(n, k->room);
    k->room -= n;
    k->calls++;
    return n;
}

static void reading(void *arg)
{
    struct short_sink k = {.sink.write = take_some, .room = PAGE_SIZE + 5};
    static char to[8 * PAGE_SIZE];
    char *end = (char *)vmap_end, *p;

    (void)arg;
    p = __vmalloc(2 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE);
    for (unsigned i = 0; i < 2; i++)
        memset(page_address(vmalloc_to_page(p + i * PAGE_SIZE)), 'a' + i, PAGE_SIZE);
    memset(to, 'x', sizeof(to));
    SIM_CHECK(vread(to, p, 0) == 0 && to[0] == 'x', "nothing was asked for");
    SIM_CHECK(vread(to, (char *)vmap_start - 8, 16) == 0, "below the range");
    SIM_CHECK(vread(to, end, 8) == 0, "above the range");
    SIM_CHECK(vread(to, end - 8, 8) == 0, "where no area is");
    /* Two pages, the guard, and what is behind. */
    SIM_CHECK(vread(to, p + PAGE_SIZE - 1, 3 * PAGE_SIZE) == 3 * PAGE_SIZE, "over the end");
    SIM_CHECK(to[0] == 'a' && to[1] == 'b' && to[PAGE_SIZE] == 'b' && to[PAGE_SIZE + 1] == 0 &&
                  to[3 * PAGE_SIZE - 1] == 0 && to[3 * PAGE_SIZE] == 'x',
              "the contents");
    SIM_CHECK(vread_iter(&k.sink, p, 2 * PAGE_SIZE) == PAGE_SIZE + 5, "a sink that is full");
    SIM_CHECK(k.calls == 2, "a full sink is called again: %zu times", k.calls);
    vfree(p);
    SIM_CHECK(vread(to, p, 16) == 0, "a freed area is read");
}

static void test_reading(void **state)
{
    (void)state;
    in_each_design(reading, true);
}

/* ---- shortage ---- */

static void *hogs[64];
static unsigned hog_count, asked[2];

static unsigned long give_hog(struct vmap_purge_notifier *n)
{
    (void)n;
    asked[0]++;
    if (!hog_count)
        return 0;
    pcpu_free_vm_areas(hogs[0], 1); /* the largest */
    hogs[0] = hogs[--hog_count];
    return 1;
}
static unsigned long give_nothing(struct vmap_purge_notifier *n)
{
    (void)n;
    asked[1]++;
    return 0;
}

static void shortage(void *arg)
{
    struct vmap_purge_notifier first = {.purge = give_hog}, second = {.purge = give_nothing};
    static const size_t zero;
    void *p;

    (void)arg;
    hog_count = asked[0] = asked[1] = 0;
    for (size_t size = vmap_config.range_size; size >= PAGE_SIZE; size /= 2)
        while (hog_count < ARRAY_SIZE(hogs) &&
               (hogs[hog_count] = pcpu_get_vm_areas(&zero, &size, 1, PAGE_SIZE)))
            hog_count++;
    SIM_CHECK(!__vmalloc(200 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE), "no addresses are left");
    SIM_CHECK(register_vmap_purge_notifier(&first) == OK, "registering");
    SIM_CHECK(register_vmap_purge_notifier(&second) == OK, "registering");
    sim_this->irq_depth++;
    SIM_CHECK(!__vmalloc(200 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE) && asked[0] + asked[1] == 0,
              "a handler asked the notifiers");
    sim_this->irq_depth--;
    p = __vmalloc(200 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE);
    SIM_CHECK(p && asked[0] == 1 && asked[1] == 1, "the notifiers were asked %u and %u times",
              asked[0], asked[1]);
    vfree(p);
    SIM_CHECK(!__vmalloc(1, 1UL << 62, 0, VM_ANY_NODE) && asked[0] == 1,
              "asked for what cannot be");
    SIM_CHECK(unregister_vmap_purge_notifier(&first) == OK, "taking out the last one");
    SIM_CHECK(unregister_vmap_purge_notifier(&first) == ERR_NOENT, "taking it out twice");
    SIM_CHECK(unregister_vmap_purge_notifier(&second) == OK, "taking out the first one");
    while (hog_count)
        pcpu_free_vm_areas(hogs[--hog_count], 1);
    p = __vmalloc(200 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE);
    SIM_CHECK(p && asked[0] == 1, "who is not registered is asked");
    vfree(p);
}

static void test_shortage(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(designs); i++) {
        struct sim_boot b = designs[i];

        b.range_size = 16 * SZ_1M;
        sim_machine(&(struct sim_options){.seed = 1, .ram = 32 * SZ_1M, .cpus = 2});
        sim_boot(&b);
        if (!sim_do(shortage, NULL) || !sim_shutdown())
            fail_msg("design %s: %s", vmap_design_names[b.design], sim_failure_text());
    }
}

/* ---- what tests ask ---- */

static void figures(void *arg)
{
    uint64_t visits = vmap_tree_visits(), purges = counter("purges");
    struct vm_area_info info;
    struct vmap_purge_report r;
    void *p[3];

    (void)arg;
    for (unsigned i = 0; i < 3; i++)
        p[i] = vmalloc(3 * PAGE_SIZE);
    SIM_CHECK(find_vm_area(p[1], &info) && vmap_tree_visits() > visits, "no node was visited");
    SIM_CHECK(vmap_pool_len(4) == 0, "ranges in a pool, and nothing was freed");
    for (unsigned i = 0; i < 3; i++)
        vfree(p[i]);
    SIM_CHECK(counter("lazy_pages") == 12, "%lu pages wait", (unsigned long)counter("lazy_pages"));
    vmap_force_purge();
    vmap_last_purge(&r);
    SIM_CHECK(counter("purges") > purges && counter("lazy_pages") == 0, "nothing was purged");
    SIM_CHECK(r.areas == 3 && r.pages == 12 && r.worst_cycles >= r.cycles,
              "a purge of %lu areas, %lu pages", (unsigned long)r.areas, (unsigned long)r.pages);
    /* Each range waits for the next allocation of its size (three pages and a guard). */
    SIM_CHECK(vmap_pool_len(4) > 0 && vmap_pool_len(3) == 0 && vmap_pool_len(0) == 0 &&
                  vmap_pool_len(VMAP_POOL_SIZES + 1) == 0,
              "%lu ranges in the pool", (unsigned long)vmap_pool_len(4));
    p[0] = vmalloc(3 * PAGE_SIZE);
    SIM_CHECK(counter("pool_hit") == 1, "the pool was not asked");
    vfree(p[0]);
}

static void test_figures(void **state)
{
    (void)state;
    sim_machine(&(struct sim_options){.seed = 1, .cpus = 2});
    sim_boot(&(struct sim_boot){.design = DESIGN_2024, .nodes = 2, .lazy_max = 1000});
    if (!sim_do(figures, NULL) || !sim_shutdown())
        fail_msg("%s", sim_failure_text());
}

/* ---- start and end ---- */

static struct vmap_config config_for(unsigned i)
{
    struct vmap_config c;
    char text[128];

    SIM_CHECK(vmap_config_for(&c, designs[i].design, text, sizeof(text)), "%s", text);
    sim_mix(&c, designs[i].mix);
    return c;
}

/* A permanent area goes through all designs, and keeps its frames and its addresses. */
static void permanent(void *arg)
{
    struct vm_area_info info;
    struct vmap_config c;
    const char *text;
    struct page *was;
    char *p, *low;
    err_t err;

    (void)arg;
    low = __vmalloc(3 * PAGE_SIZE, PAGE_SIZE, VM_PERMANENT, VM_ANY_NODE);
    p = __vmalloc(3 * PAGE_SIZE, SZ_1G, VM_PERMANENT, VM_ANY_NODE);
    SIM_CHECK(low && p && IS_ALIGNED((uintptr_t)p, SZ_1G), "no permanent area");
    was = vmalloc_to_page(p);
    for (unsigned i = 0; i < ARRAY_SIZE(designs); i++) {
        SIM_CHECK(vmap_exit(), "vmap_exit");
        c = config_for(i);
        SIM_CHECK(vmap_init(&c) == OK, "vmap_init");
        SIM_CHECK(find_vm_area(p + 5, &info) && info.start == p && info.size == 3 * PAGE_SIZE,
                  "a permanent area is lost");
        SIM_CHECK(vmalloc_to_page(p) == was, "a permanent area has other pages");
        SIM_CHECK(vmap_selfcheck(), "not sound");
        vfree(vmalloc(PAGE_SIZE));
    }
    /* A range that leaves it out. */
    SIM_CHECK(vmap_exit(), "vmap_exit");
    c = config_for(ARRAY_SIZE(designs) - 1);
    c.range_size = 16 * SZ_1M;
    capture_start();
    err = vmap_init(&c);
    text = capture_text();
    SIM_CHECK(err != OK && strstr(text, "leaves no room for the kernel's own area at"),
              "err %d, \"%s\"", err, text);
    SIM_CHECK(!vmalloc(1), "an allocation from what did not start");
    for (unsigned i = 0; i < ARRAY_SIZE(designs); i++) { /* nothing is lost by it */
        c = config_for(i);
        SIM_CHECK(vmap_init(&c) == OK, "the next vmap_init");
        SIM_CHECK(find_vm_area(p, &info) && find_vm_area(low, &info), "an area is lost");
        if (i + 1 < ARRAY_SIZE(designs))
            SIM_CHECK(vmap_exit(), "vmap_exit");
    }
    vfree(p);
    vfree(low);
}

static void test_permanent(void **state)
{
    (void)state;
    in_each_design(permanent, true);
}

static void leaks(void *arg)
{
    const char *text;
    bool ok;

    (void)arg;
    SIM_CHECK(__vmalloc(200 * PAGE_SIZE, PAGE_SIZE, 0, VM_ANY_NODE), "no memory");
    capture_start();
    ok = vmap_exit();
    text = capture_text();
    SIM_CHECK(!ok, "an area is left, and vmap_exit says nothing");
    SIM_CHECK(strstr(text, "# leak: 1 areas, 0 lazy bytes, 0 pooled bytes at exit"), "it says %s",
              text);
    SIM_CHECK(strstr(text, " bytes of addresses at exit"), "it says %s", text);
}
static void leaks_small(void *arg)
{
    const char *text;
    bool ok;

    (void)arg;
    take_pages(1);
    SIM_CHECK(vm_map_ram(pages, 1, VM_ANY_NODE), "no memory");
    capture_start();
    ok = vmap_exit();
    text = capture_text();
    SIM_CHECK(!ok && strstr(text, "# leak: "), "a mapping is left, and vmap_exit says \"%s\"",
              text);
}

static void test_leaks(void **state)
{
    (void)state;
    in_each_design(leaks, false);
    in_each_design(leaks_small, false);
}

/* ---- vm_unmap_aliases while a block ends ---- */

#define PART 64 /* pages; the blocks of vm_map_ram have a multiple of it */

static uint32_t ended;

static void end_blocks(void)
{
    void *parts[2 * BLOCK_PAGES / PART];

    take_pages(PART);
    for (unsigned i = 0; i < ARRAY_SIZE(parts); i++) {
        parts[i] = vm_map_ram(pages, PART, VM_ANY_NODE);
        SIM_CHECK(parts[i], "no memory");
    }
    for (unsigned i = 0; i < ARRAY_SIZE(parts); i++)
        vm_unmap_ram(parts[i], PART);
    for (unsigned i = 0; i < PART; i++)
        free_page(pages[i]);
}
static void end_blocks_or_flush(void *arg)
{
    (void)arg;
    if (this_cpu_id() == 0) {
        end_blocks();
        STORE_RELEASE(ended, 1);
        return;
    }
    while (!LOAD_ACQUIRE(ended)) {
        vm_unmap_aliases();
        cpu_relax();
    }
}

/* What was unmapped in a block is flushed, wherever the block is on its way to the freed areas:
 * the oracle judges each call, by another CPU and by a handler over the last vm_unmap_ram. */
static void test_block_ends(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(designs); i++)
        for (uint64_t seed = 1; seed <= 40; seed++) {
            bool storm = seed % 2;

            test_seconds++;
            sim_machine(&(struct sim_options){.seed = seed, .ram = 32 * SZ_1M, .cpus = 2});
            sim_boot(&designs[i]);
            ended = 0;
            if (storm)
                sim_irq_storm(vm_unmap_aliases, 20);
            if (!sim_run(storm ? 1 : 2, end_blocks_or_flush, NULL))
                fail_msg("design %s, mix %#x, seed %lu: %s", vmap_design_names[designs[i].design],
                         designs[i].mix, (unsigned long)seed, sim_failure_text());
            sim_irq_storm(NULL, 0);
            if (!sim_shutdown())
                fail_msg("%s", sim_failure_text());
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_down),       cmocka_unit_test(test_nmi),
        cmocka_unit_test(test_arguments),  cmocka_unit_test(test_ioremap),
        cmocka_unit_test(test_huge),       cmocka_unit_test(test_words),
        cmocka_unit_test(test_list),       cmocka_unit_test(test_reading),
        cmocka_unit_test(test_shortage),   cmocka_unit_test(test_figures),
        cmocka_unit_test(test_permanent),  cmocka_unit_test(test_leaks),
        cmocka_unit_test(test_block_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
