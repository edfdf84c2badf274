/*
 * pcpu_alloc_test (128): per-CPU objects of 1 to 1024 bytes, aligned to 2 to 2048, from chunks made
 * by pcpu_get_vm_areas.
 *
 * A chunk has a unit of 64 KiB for each CPU, in two areas at one base; pages appear in all units
 * when the first object needs them. Linux allocates nr_pcpu_objects and then frees them all; here
 * half of them live at a time, first in first out, so that one operation is one allocation and one
 * free, and chunks come and go. Facts: Linux lib/test_vmalloc.c, mm/percpu.c.
 */
#include "lib/bitmap.h"
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

#define LINUX_OBJECTS 35000
#define UNIT_SIZE     (64 * 1024UL)
#define UNIT_PAGES    (UNIT_SIZE / PAGE_SIZE)
#define GRAIN         16 /* bytes */
#define GRAINS        (UNIT_SIZE / GRAIN)
#define MEAN_SIZE     512

struct chunk {
    struct chunk *next;
    struct vm_area **areas;
    struct page **pages; /* [cpus * UNIT_PAGES], unit by unit; NULL: not there yet */
    unsigned objects;
    uint64_t used[BITMAP_WORDS(GRAINS)];
};

struct object {
    struct chunk *chunk;
    uint32_t grain, grains;
};

/* One worker's. */
struct pool {
    struct chunk *chunks;
    uint64_t window, head; /* objects that live, place of the oldest */
    struct object object[];
};

static unsigned groups, per_group; /* areas of a chunk, CPUs in each */

static uint64_t objects_of(unsigned workers)
{
    uint64_t n = kt_nr_pcpu_objects(), cpus = kt_cpus();
    uint64_t room = page_free_count() / 4;

    if (!n)
        n = MIN(kt_scaled(LINUX_OBJECTS) / (cpus * workers) + 1, (uint64_t)LINUX_OBJECTS);
    /* n / 2 objects of MEAN_SIZE live for each worker, in a unit for each CPU. */
    n = MIN(n, room * (2 * PAGE_SIZE / MEAN_SIZE) / (workers * cpus) + 2);
    return n;
}

static bool prepare(unsigned workers)
{
    groups = kt_cpus() > 1 ? 2 : 1;
    per_group = DIV_ROUND_UP(kt_cpus(), groups);
    kt_population(objects_of(workers), LINUX_OBJECTS);
    return true;
}

static uint64_t loops(uint64_t asked, unsigned workers)
{
    (void)asked;
    return objects_of(workers);
}

/* Unit of a CPU: its area and the offset in it. */
static struct vm_area *unit_of(struct chunk *c, unsigned cpu, size_t *offset)
{
    *offset = (cpu % per_group) * UNIT_SIZE;
    return c->areas[cpu / per_group];
}

static void chunk_free(struct chunk *c)
{
    for (unsigned cpu = 0; c->areas && cpu < kt_cpus(); cpu++) {
        size_t offset;
        struct vm_area *a = unit_of(c, cpu, &offset);

        for (unsigned i = 0; i < UNIT_PAGES; i++) {
            struct page *page = c->pages[cpu * UNIT_PAGES + i];

            if (!page)
                continue;
            vm_area_unmap_pages(a, offset + i * PAGE_SIZE, 1);
            free_page(page);
        }
    }
    if (c->areas)
        pcpu_free_vm_areas(c->areas, (int)groups);
    kvfree(c->pages);
    kvfree(c);
}

static struct chunk *chunk_new(void)
{
    size_t size = per_group * UNIT_SIZE;
    size_t offsets[2] = {0, 4 * size}, sizes[2] = {size, size};
    size_t bytes = kt_cpus() * UNIT_PAGES * sizeof(struct page *);
    struct chunk *c = kvmalloc(sizeof(*c));

    if (!c)
        return NULL;
    memset(c, 0, sizeof(*c));
    c->pages = kvmalloc(bytes);
    if (c->pages) {
        memset(c->pages, 0, bytes);
        c->areas = pcpu_get_vm_areas(offsets, sizes, (int)groups, PAGE_SIZE);
    }
    if (!c->areas) {
        chunk_free(c);
        return NULL;
    }
    return c;
}

/* The pages of an object, in every CPU's unit. */
static bool populate(struct chunk *c, const struct object *o)
{
    unsigned last = (o->grain + o->grains - 1) * GRAIN / PAGE_SIZE;

    for (unsigned i = o->grain * GRAIN / PAGE_SIZE; i <= last; i++) {
        for (unsigned cpu = 0; cpu < kt_cpus(); cpu++) {
            struct page **slot = &c->pages[cpu * UNIT_PAGES + i];
            size_t offset;
            struct vm_area *a = unit_of(c, cpu, &offset);

            if (*slot)
                continue;
            *slot = alloc_page();
            if (!*slot)
                return false;
            if (vm_area_map_pages(a, offset + i * PAGE_SIZE, slot, 1) != OK) {
                free_page(*slot);
                *slot = NULL;
                return false;
            }
        }
    }
    return true;
}

static void *object_address(const struct object *o, unsigned cpu)
{
    size_t offset;
    struct vm_area *a = unit_of(o->chunk, cpu, &offset);

    return (char *)vm_area_start(a) + offset + o->grain * GRAIN;
}

static void object_free(struct pool *p, struct object *o)
{
    struct chunk *c = o->chunk, **link = &p->chunks;

    if (!c)
        return;
    bitmap_clear(c->used, o->grain, o->grains);
    o->chunk = NULL;
    if (--c->objects)
        return;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    chunk_free(c);
}

static bool object_alloc(struct pool *p, struct object *o, size_t size, size_t align)
{
    unsigned grains = (unsigned)DIV_ROUND_UP(size, GRAIN);
    unsigned at = GRAINS;
    struct chunk *c;

    for (c = p->chunks; c; c = c->next) {
        at =
            bitmap_find_clear_run(c->used, GRAINS, 0, grains, (unsigned)DIV_ROUND_UP(align, GRAIN));
        if (at < GRAINS)
            break;
    }
    if (!c) {
        c = chunk_new();
        if (!c)
            return false;
        c->next = p->chunks;
        p->chunks = c;
        at = 0;
    }
    *o = (struct object){.chunk = c, .grain = at, .grains = grains};
    bitmap_set(c->used, at, grains);
    c->objects++;
    if (populate(c, o))
        return true;
    object_free(p, o);
    return false;
}

static bool setup(struct kbench_worker *w)
{
    uint64_t window = MAX(w->loops / 2, 1UL);
    struct pool *p = kvmalloc(sizeof(*p) + window * sizeof(struct object));

    w->state[0] = p;
    if (!p)
        return false;
    memset(p, 0, sizeof(*p) + window * sizeof(struct object));
    p->window = window;
    return true;
}

static void teardown(struct kbench_worker *w)
{
    struct pool *p = w->state[0];

    for (uint64_t i = 0; p && i < p->window; i++)
        object_free(p, &p->object[i]);
    kvfree(p);
}

static __always_inline bool op(struct kbench_worker *w)
{
    struct pool *p = w->state[0];
    struct object *o = &p->object[p->head];
    size_t size = rng_range(&w->rng, 1, PAGE_SIZE / 4);
    size_t align = 1UL << rng_range(&w->rng, 1, PAGE_SHIFT - 1);

    object_free(p, o);
    p->head = p->head + 1 < p->window ? p->head + 1 : 0;
    if (!object_alloc(p, o, size, align))
        return false;
    /* The first and the last CPU's copy are there and are not the same. */
    *(volatile uint8_t *)object_address(o, 0) = 1;
    *(volatile uint8_t *)object_address(o, kt_cpus() - 1) = 2;
    if (kt_cpus() > 1 && *(volatile uint8_t *)object_address(o, 0) != 1)
        KT_FAIL("the per-CPU copies of an object share memory");
    return true;
}

KBENCH_OP(pcpu_alloc_test, 128, "per-CPU objects from congruent areas", op, .prepare = prepare,
          .setup = setup, .teardown = teardown, .loops = loops);
