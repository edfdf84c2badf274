/*
 * 2 MiB leaves: what maps what.
 *
 * D1: a lookup that takes a leaf for a table, or forgets the offset in the leaf, gives a wrong
 * page. D8: changing a part of a leaf without splitting it writes entries into the data. D10: an
 * exact 2 MiB must not go one level too deep, and what is not aligned must not be mapped by a leaf.
 * B8: what a guard page costs behind a 2 MiB area.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define LEAVES     8
#define LIKE_A_PTE 0x0000000000123067UL /* present, writable, a frame */

static unsigned level_of(const void *p)
{
    unsigned level;

    kt_entry(p, &level);
    return level;
}

/* Pages 0 .. n-1 of the area at p, by every way there is. */
static void check_pages(char *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        char *at = p + i * PAGE_SIZE;
        struct page *page;

        *(volatile uint64_t *)at = kt_tag(7, i);
        page = vmalloc_to_page(at + (i * 7) % PAGE_SIZE);
        if (!page || *kt_word(page) != kt_tag(7, i)) {
            KT_FAIL("page %u of %p", i, (void *)p);
            return;
        }
        KT_EXPECT_EQ(vmalloc_to_pfn(at), page_to_pfn(page));
    }
}

KTEST(huge_to_page, "D1: vmalloc_to_page in 2 MiB leaves, guards and holes")
{
    unsigned n = 2 * PTE_COUNT;
    char *p = vmalloc_huge(n * PAGE_SIZE);
    uintptr_t far = VMAP_BASE + vmap_config.range_size - PMD_SIZE;

    KT_ASSERT(p);
    kt_note("test=huge_to_page level=%u", level_of(p));
    check_pages(p, n);
    KT_EXPECT(!vmalloc_to_page(p + n * PAGE_SIZE));
    KT_EXPECT(!vmalloc_to_pfn(p + n * PAGE_SIZE + 5));
    KT_EXPECT(!vmalloc_to_page((void *)far));
    KT_EXPECT(!vmalloc_to_page((void *)(VMAP_BASE + vmap_config.range_size / 2 + 3 * PAGE_SIZE)));
    vfree(p);
    vm_unmap_aliases();
    KT_EXPECT(!vmalloc_to_page(p));
}

static void check_size(size_t size, size_t align, unsigned level)
{
    char *p = __vmalloc(size, align, VM_HUGE, VM_ANY_NODE);
    uint64_t value;

    KT_ASSERT(p);
    if (level_of(p) != level)
        KT_FAIL("0x%lx bytes: level %u", (unsigned long)size, level_of(p));
    kt_fill(p, size, size);
    kt_verify(p, size, size);
    KT_EXPECT(!kt_read(p + size, &value));
    KT_EXPECT(kt_read(p + size - sizeof(value), &value));
    vfree(p);
}

/* The pages of one block, one page off: contiguous, and on no 2 MiB boundary. */
static void check_misaligned_frames(void)
{
    struct page *block = alloc_pages(PAGE_MAX_ORDER);
    struct page **pages = kvmalloc(PTE_COUNT * sizeof(*pages));
    char *p = NULL;

    if (block && pages) {
        for (unsigned i = 0; i < PTE_COUNT; i++)
            pages[i] = block + 1 + i;
        p = vmap(pages, PTE_COUNT, VM_HUGE, PAGE_KERNEL);
    }
    if (p) {
        KT_EXPECT_EQ(level_of(p), 1);
        check_pages(p, PTE_COUNT);
        KT_EXPECT_EQ(vmalloc_to_pfn(p), page_to_pfn(block) + 1);
    }
    vunmap(p);
    kvfree(pages);
    if (block)
        free_pages(block, PAGE_MAX_ORDER);
}

KTEST(huge_exact, "D10: leaves exactly where size and alignment allow them")
{
    struct page *probe = alloc_pages(PAGE_MAX_ORDER);

    if (!probe)
        KT_SKIP("no contiguous memory");
    free_pages(probe, PAGE_MAX_ORDER);
    check_size(PMD_SIZE, PAGE_SIZE, 2);
    check_size(2 * PMD_SIZE, PMD_SIZE, 2);
    check_size(PMD_SIZE, 4 * PMD_SIZE, 2);
    check_size(PMD_SIZE - PAGE_SIZE, PAGE_SIZE, 1);
    check_size(PAGE_SIZE, PAGE_SIZE, 1);
    check_misaligned_frames();
}

KTEST(huge_shrink, "D8: a part of a 2 MiB leaf goes, the rest keeps its contents")
{
    unsigned words = PMD_SIZE / sizeof(uint64_t), keep = 300;
    uint64_t *p = vmalloc_huge(PMD_SIZE), *q, value;

    KT_ASSERT(p);
    /* Looks like present entries, for a walk that takes the data for a table. */
    for (unsigned i = 0; i < words; i++)
        p[i] = LIKE_A_PTE + ((uint64_t)i << PAGE_SHIFT);
    q = vrealloc(p, keep * PAGE_SIZE);
    KT_ASSERT(q);
    vm_unmap_aliases();
    for (unsigned i = 0; i < keep * PAGE_SIZE / sizeof(*q); i++) {
        if (q[i] != LIKE_A_PTE + ((uint64_t)i << PAGE_SHIFT)) {
            KT_FAIL("word %u is %lx", i, (unsigned long)q[i]);
            break;
        }
    }
    KT_EXPECT(!kt_read((char *)q + keep * PAGE_SIZE, &value));
    KT_EXPECT(!kt_read((char *)q + PMD_SIZE - sizeof(value), &value));
    check_pages((char *)q, keep);
    kt_expect_bad_frees(1);
    vfree((char *)q + PAGE_SIZE);
    KT_EXPECT(kt_read(q, &value));
    vfree(q);
}

KTEST(huge_guard, "B8: addresses used by 2 MiB areas with their guards")
{
    void *p[LEAVES];
    unsigned leaves = 0;
    uint64_t used;

    if (page_free_count() < 4 * LEAVES * PTE_COUNT)
        KT_SKIP("little memory");
    kt_quiesce();
    used = kt_counter("va_used");
    for (unsigned i = 0; i < LEAVES; i++) {
        p[i] = vmalloc_huge(PMD_SIZE);
        KT_ASSERT(p[i]);
        leaves += level_of(p[i]) == 2;
    }
    used = kt_counter("va_used") - used;
    kt_note("test=huge_guard areas=%u leaves=%u va_each=%lu", LEAVES, leaves,
            (unsigned long)(used / LEAVES));
    KT_EXPECT_EQ(leaves, LEAVES);
    /* The guard itself is one page; the hole to the next boundary stays usable for others. */
    KT_EXPECT(used <= LEAVES * (PMD_SIZE + PAGE_SIZE) || vmap_config.index_table);
    for (unsigned i = 0; i < LEAVES; i++)
        vfree(p[i]);
}
