/*
 * Every allocation inside an allocation fails once (B7, D9, and "out of memory in any call").
 *
 * For each kind of inner request (objects, frames, page-table pages) and each operation, the k-th
 * request fails, then it and all later ones, k = 0, 1, 2, 3 and places further apart. The call must
 * give NULL or work without it; then everything is back. Splitting a free range in the middle needs
 * an object: the case in which an allocator calls itself. Areas that fail half-way are unmapped
 * over parts that were never mapped. What was made is freed with the same requests failing.
 */
#include "mm/cache.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define STEPS_MAX 24
#define SLACK     32 /* frames that caches may have taken for good */

static struct page *some_pages[KT_BLOCK_ALLOC];

static void *make_aligned(void)
{
    return __vmalloc(5 * PAGE_SIZE, 16 * PAGE_SIZE, 0, VM_ANY_NODE);
}
static void *make_long(void)
{
    return vmalloc(1025 * PAGE_SIZE); /* crosses two page tables */
}
static void *make_huge(void)
{
    return vmalloc_huge(2 * PMD_SIZE);
}
static void *make_map(void)
{
    return vmap(some_pages, 3, 0, PAGE_KERNEL);
}
static void *make_ram(void)
{
    return vm_map_ram(some_pages, KT_BLOCK_ALLOC, VM_ANY_NODE);
}
static void drop_ram(void *p)
{
    vm_unmap_ram(p, KT_BLOCK_ALLOC);
}
static void *make_kv(void)
{
    return kvmalloc(20000);
}
static void *make_small(void)
{
    return kvmalloc(100);
}
static void *make_grown(void)
{
    void *p = vmalloc(PAGE_SIZE), *q = p ? vrealloc(p, 9 * PAGE_SIZE) : NULL;

    if (!q)
        vfree(p);
    return q;
}
static void *make_congruent(void)
{
    const size_t offsets[2] = {0, 4 * PMD_SIZE}, sizes[2] = {PMD_SIZE, PMD_SIZE};

    return pcpu_get_vm_areas(offsets, sizes, 2, PAGE_SIZE);
}
static void *make_page(void)
{
    return vmalloc(PAGE_SIZE);
}
static void *make_zeroed(void)
{
    return vzalloc(3 * PAGE_SIZE);
}
static void *make_on_node(void)
{
    return vmalloc_node(3 * PAGE_SIZE, 0);
}
static void drop_congruent(void *p)
{
    pcpu_free_vm_areas(p, 2);
}
static void drop_free(void *p)
{
    vfree(p);
}
static void drop_map(void *p)
{
    vunmap(p);
}
static void drop_kv(void *p)
{
    kvfree(p);
}

static const struct operation {
    const char *name;
    void *(*make)(void);
    void (*drop)(void *);
} operations[] = {
    {"vmalloc", make_page, drop_free},
    {"vzalloc", make_zeroed, drop_free},
    {"vmalloc_node", make_on_node, drop_free},
    {"aligned vmalloc", make_aligned, drop_free},
    {"vmalloc over two tables", make_long, drop_free},
    {"vmalloc_huge", make_huge, drop_free},
    {"vmap", make_map, drop_map},
    {"vm_map_ram", make_ram, drop_ram},
    {"kvmalloc, large", make_kv, drop_kv},
    {"kvmalloc, small", make_small, drop_kv},
    {"vrealloc", make_grown, drop_free},
    {"congruent areas", make_congruent, drop_congruent},
};

static const struct kind {
    const char *name;
    void (*inject)(uint64_t after, uint64_t count);
} kinds[] = {
    {"object", cache_inject},
    {"frame", page_alloc_inject},
    {"page-table page", vmap_inject_pt},
};

/* The first places one by one, then further apart: 0 1 2 3 8 12 18 … */
static uint64_t place(uint64_t step)
{
    return step < 4 ? step : step * step / 2;
}

/* One request of the allocation fails, or all from there on; then of the free, which needs none. */
static bool fail_at(const struct operation *op, const struct kind *kind, uint64_t after,
                    uint64_t count)
{
    void *p;

    kind->inject(after, count);
    p = op->make();
    kind->inject(0, 0);
    if (!p)
        return true;
    kind->inject(after, count);
    op->drop(p);
    kind->inject(0, 0);
    return false;
}

/* True if the operation failed at least once. */
static bool fail_each(const struct operation *op, const struct kind *kind)
{
    uint64_t frames, used;
    bool failed = false;

    vmap_quiesce();
    frames = page_free_count() + kt_counter("pt_pages");
    used = kt_counter("va_used");
    for (uint64_t step = 0; step < STEPS_MAX; step++) {
        failed |= fail_at(op, kind, place(step), 1);
        failed |= fail_at(op, kind, place(step), UINT64_MAX);
        kt_alive();
    }
    vmap_quiesce();
    if (kt_counter("va_used") != used)
        KT_FAIL("%s, %s fails: va_used=%lu, before %lu", op->name, kind->name,
                (unsigned long)kt_counter("va_used"), (unsigned long)used);
    if (page_free_count() + kt_counter("pt_pages") + SLACK < frames)
        KT_FAIL("%s, %s fails: %lu frames, before %lu", op->name, kind->name,
                (unsigned long)(page_free_count() + kt_counter("pt_pages")), (unsigned long)frames);
    if (!kt_selfcheck())
        KT_FAIL("%s, %s fails: selfcheck", op->name, kind->name);
    return failed;
}

KTEST(inject_failures, "B7, D9: each inner request fails once, nothing is lost")
{
    unsigned failed = 0, n = 0;
    struct kt_pages pages;
    void *p;

    if (!kt_pages_get(&pages, KT_BLOCK_ALLOC, 1))
        return;
    for (unsigned i = 0; i < KT_BLOCK_ALLOC; i++)
        some_pages[i] = pages.page[i];
    for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
        for (unsigned i = 0; i < ARRAY_SIZE(operations); i++) {
            failed += fail_each(&operations[i], &kinds[k]);
            kt_progress(++n * 100 / (ARRAY_SIZE(operations) * ARRAY_SIZE(kinds)));
        }
    }
    /* Otherwise nothing was injected. Some operations need no object or table of their own. */
    KT_EXPECT(failed >= ARRAY_SIZE(operations));
    p = make_aligned();
    KT_EXPECT(p);
    vfree(p);
    kt_pages_put(&pages);
}
