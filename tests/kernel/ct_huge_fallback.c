/*
 * 2 MiB areas where there is no contiguous memory, and leaves over old tables.
 *
 * D2: an area that gets some 2 MiB blocks and some single pages must not be mapped with the 2 MiB
 * stride: its addresses would show frames it does not own. D3: a leaf is put where an empty page
 * table was, which is freed: others may be walking it.
 */
#include "lib/list.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>

#define BIG_ORDER   (PMD_SHIFT - PAGE_SHIFT)
#define SPLIT       4 /* blocks of PAGE_MAX_ORDER that become single pages, every other one free */
#define AREA_LEAVES 3
#define FRAMES_LEFT 16

struct hog {
    struct list_head top, big, single;
};

static void hold(struct list_head *list, struct page *page)
{
    list_add(&page->list, list);
}

static void release(struct list_head *list, unsigned order)
{
    while (!list_empty(list)) {
        struct page *page = list_first_entry(list, struct page, list);

        list_del(&page->list);
        free_pages(page, order);
    }
}

/* One 2 MiB block stays free, and SPLIT * 512 single pages that cannot merge. */
static bool hog_contiguous(struct hog *h)
{
    struct page *page, *spare = alloc_pages(BIG_ORDER);

    list_init(&h->top);
    list_init(&h->big);
    list_init(&h->single);
    while ((page = alloc_pages(PAGE_MAX_ORDER)) != NULL) {
        hold(&h->top, page);
        kt_alive();
    }
    while ((page = alloc_pages(BIG_ORDER)) != NULL)
        hold(&h->big, page);
    for (unsigned i = 0; i < SPLIT && !list_empty(&h->top); i++) {
        page = list_first_entry(&h->top, struct page, list);
        list_del(&page->list);
        page_split(page, PAGE_MAX_ORDER);
        for (unsigned j = 0; j < 1U << PAGE_MAX_ORDER; j++) {
            if (j % 2)
                hold(&h->single, page + j);
            else
                free_page(page + j);
        }
    }
    if (spare)
        free_pages(spare, BIG_ORDER);
    return spare != NULL && !list_empty(&h->single);
}

static void hog_release(struct hog *h)
{
    release(&h->top, PAGE_MAX_ORDER);
    release(&h->big, BIG_ORDER);
    release(&h->single, 0);
}

KTEST(huge_fallback, "D2: a 2 MiB area that has to fall back to single pages")
{
    uint64_t frames;
    struct hog h;
    char *p;

    kt_quiesce();
    frames = page_free_count() + kt_counter("pt_pages");
    if (!hog_contiguous(&h)) {
        hog_release(&h);
        KT_SKIP("memory could not be fragmented");
    }
    p = vmalloc_huge(AREA_LEAVES * PMD_SIZE);
    KT_EXPECT(p);
    if (p) {
        /* Two pages on one frame would show here. */
        kt_fill(p, AREA_LEAVES * PMD_SIZE, 3);
        kt_verify(p, AREA_LEAVES * PMD_SIZE, 3);
        for (unsigned i = 0; i < AREA_LEAVES * PTE_COUNT; i += 37) {
            char *at = p + i * PAGE_SIZE;
            struct page *page = vmalloc_to_page(at);

            KT_EXPECT(page && *kt_word(page) == *(uint64_t *)at);
        }
    }
    vfree(p);
    hog_release(&h);
    kt_quiesce();
    KT_EXPECT(page_free_count() + kt_counter("pt_pages") + FRAMES_LEFT >= frames);
    p = vmalloc_huge(PMD_SIZE);
    KT_EXPECT(p);
    vfree(p);
}

static struct {
    uint32_t stop;
    char *slot;
} walk;

/* Walks over a slot that is mapped small, huge and not at all, in turn. */
static void walk_until_stopped(void *arg)
{
    uint64_t buffer[8];
    uint64_t i = 0;

    (void)arg;
    while (!LOAD_ACQUIRE(walk.stop)) {
        char *at = READ_ONCE(walk.slot) + (i++ % PTE_COUNT) * PAGE_SIZE;
        unsigned long pfn = vmalloc_to_pfn(at);
        size_t n;

        /* Poison, or data taken for an entry, is not a frame of this machine. */
        if (pfn && pfn >> (46 - PAGE_SHIFT))
            KT_FAIL("%p is mapped to frame %lx", (void *)at, pfn);
        n = vread(buffer, at, sizeof(buffer));
        if (n != 0 && n != sizeof(buffer))
            KT_FAIL("vread returned %lu", (unsigned long)n);
        kt_alive();
    }
}

KTEST(huge_over_small, "D3: a 2 MiB leaf over an old page table, while others walk it")
{
    unsigned cpu = kt_other_cpu();
    uint64_t same = 0, rounds = kt_scaled_flushes(32);

    kt_quiesce();
    walk.stop = 0;
    walk.slot = (char *)VMAP_BASE;
    if (cpu)
        kt_start(cpu, walk_until_stopped, NULL);
    for (uint64_t i = 0; i < rounds; i++) {
        char *small = __vmalloc(3 * PAGE_SIZE, PMD_SIZE, VM_ZERO, VM_ANY_NODE), *huge;

        KT_EXPECT(small);
        WRITE_ONCE(walk.slot, small);
        vfree(small);
        vm_unmap_aliases();
        /* Pools would keep the small range apart from the free addresses around it. */
        if (i % 4 == 0)
            vmap_quiesce();
        huge = vmalloc_huge(PMD_SIZE);
        KT_EXPECT(huge);
        if (huge)
            *(volatile uint64_t *)(huge + PMD_SIZE - PAGE_SIZE) = i;
        same += huge == small;
        vfree(huge);
        vm_unmap_aliases();
        kt_progress((unsigned)(i * 100 / rounds));
    }
    STORE_RELEASE(walk.stop, 1u);
    if (cpu)
        kt_join(cpu);
    kt_note("test=huge_over_small rounds=%lu same_slot=%lu", (unsigned long)rounds,
            (unsigned long)same);
    KT_EXPECT(same != 0);
}
