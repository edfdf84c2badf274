/*
 * aging: areas of mixed sizes and lifetimes, by vmalloc and by vm_map_ram: what a system looks like
 * after days of work. Fragmentation shows in the tail and in va_used, which is noted at the end.
 *
 * Each worker has slots; an operation replaces the area of one of them. Half of the operations hit
 * the first eighth of the slots, so there are short and long lives. Sizes: 70 % up to 4 pages, 25 %
 * up to 32, 5 % up to 128. The first and the last word of each area carry a cookie.
 */
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"

#define SLOTS_MAX  128
#define MEAN_PAGES 10
#define RAM_PAGES  32 /* the largest vm_map_ram here */

struct slot {
    uint64_t *p;
    uint32_t pages;
    bool ram;
};

struct aged {
    struct page *page[RAM_PAGES];
    unsigned pages;
    struct slot slot[SLOTS_MAX];
};

static unsigned slots; /* constant while workers run */

static bool prepare(unsigned workers)
{
    uint64_t room = page_free_count() / 4 / MEAN_PAGES / workers;

    slots = (unsigned)MAX(MIN(room, (uint64_t)SLOTS_MAX), 16UL);
    return true;
}

static bool setup(struct kbench_worker *w)
{
    struct aged *a = vzalloc(sizeof(*a));

    w->state[0] = a;
    if (!a)
        return false;
    a->pages = page_alloc_bulk(a->page, RAM_PAGES, PAGE_ANY_NODE);
    return a->pages == RAM_PAGES;
}

static uint64_t cookie(const struct slot *s)
{
    return (uintptr_t)s->p * 0x9e3779b97f4a7c15ULL ^ s->pages;
}

static uint64_t *last_word(const struct slot *s)
{
    return s->p + s->pages * (PAGE_SIZE / sizeof(uint64_t)) - 1;
}

/* The pages under a vm_map_ram are mapped by several slots, so only vmalloc's contents are checked.
 */
static void slot_free(struct slot *s)
{
    if (!s->p)
        return;
    if (!s->ram && (*s->p != cookie(s) || *last_word(s) != cookie(s)))
        KT_FAIL("%p, %u pages: cookies %lx %lx", (void *)s->p, s->pages, (unsigned long)*s->p,
                (unsigned long)*last_word(s));
    if (s->ram)
        vm_unmap_ram(s->p, s->pages);
    else
        vfree(s->p);
    s->p = NULL;
}

static __always_inline bool op(struct kbench_worker *w)
{
    struct aged *a = w->state[0];
    uint64_t rnd = rng_next(&w->rng);
    unsigned pick = (unsigned)(rnd >> 8) % (rnd & 1 ? slots : slots / 8);
    unsigned kind = (unsigned)(rnd >> 32) % 100;
    struct slot *s = &a->slot[pick];

    slot_free(s);
    s->pages = 1 + (unsigned)(rnd >> 40) % (kind < 70 ? 4 : kind < 95 ? 32 : 128);
    s->ram = (rnd & 2) && s->pages <= RAM_PAGES;
    s->p = s->ram ? vm_map_ram(a->page, s->pages, VM_ANY_NODE) : vmalloc(s->pages * PAGE_SIZE);
    if (!s->p)
        return false;
    if (!s->ram)
        *s->p = *last_word(s) = cookie(s);
    return true;
}

static void teardown(struct kbench_worker *w)
{
    struct aged *a = w->state[0];

    if (!a)
        return;
    if (w->id == 0)
        kt_note("test=aging va_used=%lu lazy_pages=%lu slots=%u",
                (unsigned long)kt_counter("va_used"), (unsigned long)kt_counter("lazy_pages"),
                slots);
    for (unsigned i = 0; i < slots; i++)
        slot_free(&a->slot[i]);
    page_free_bulk(a->page, a->pages);
    vfree(a);
}

static uint64_t held(const struct kbench_worker *w)
{
    const struct aged *a = w->state[0];
    uint64_t pages = a->pages;

    for (unsigned i = 0; i < slots; i++) {
        if (a->slot[i].p && !a->slot[i].ram)
            pages += a->slot[i].pages;
    }
    return pages;
}

KBENCH_OP(aging, 0, "mixed sizes and lifetimes", op, .prepare = prepare, .setup = setup,
          .teardown = teardown, .held = held, .loops_percent = 50);
