/*
 * vmap: who owns the pages, what maps them, with which cache mode.
 *
 * D6: VM_MAP_PUT_PAGES hands the pages over, once; without it they stay the caller's; flags must
 * not share bits. D12: a frame goes back while something still maps it. E11: an unmapped alias
 * lives on, with the old cache mode, in the tables or in a TLB, while a new one is made.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/percpu.h>

#define PAGES    10
#define CPUS_MAX 4

_Static_assert((VM_MAP_PUT_PAGES ^ VM_NO_GUARD ^ VM_HUGE ^ VM_ZERO ^ VM_EXEC ^ VM_READONLY ^
                VM_PERMANENT) == VM_FLAGS_PUBLIC,
               "each flag is one bit, and all differ");

KTEST(map_put_pages, "D6: vmap's pages are freed once, or stay the caller's")
{
    struct page *pages[PAGES];
    struct kt_pages mine;
    uint64_t frames;
    char *p;

    if (!kt_pages_get(&mine, PAGES, 4))
        return;
    p = vmap(mine.page, PAGES, 0, PAGE_KERNEL);
    KT_ASSERT(p);
    kt_expect_bad_frees(1);
    vfree(p); /* does not own its pages */
    vunmap(p);
    for (unsigned i = 0; i < PAGES; i++)
        KT_EXPECT_EQ(*kt_word(mine.page[i]), kt_tag(4, i));
    kt_pages_put(&mine);

    kt_quiesce();
    frames = page_free_count() + kt_counter("pt_pages");
    KT_ASSERT(page_alloc_bulk(pages, PAGES, PAGE_ANY_NODE) == PAGES);
    p = vmap(pages, PAGES, VM_MAP_PUT_PAGES, PAGE_KERNEL);
    KT_ASSERT(p);
    p[PAGES * PAGE_SIZE - 1] = 1;
    vfree(p);
    kt_quiesce();
    KT_EXPECT_EQ(page_free_count() + kt_counter("pt_pages"), frames);
}

#ifdef CONFIG_DEBUG
static void mixed_operations(void *arg)
{
    struct kt_pages *pages = arg;
    struct rng rng;

    rng_seed(&rng, kt_seed() + this_cpu_id());
    for (uint64_t i = 0; i < kt_scaled(1000); i++) {
        unsigned n = (unsigned)rng_range(&rng, 1, PAGES);
        void *a = vmap(pages->page, n, 0, PAGE_KERNEL);
        void *b = vm_map_ram(pages->page, n, VM_ANY_NODE);
        void *c = vmalloc(n * PAGE_SIZE);

        KT_EXPECT(a && b && c);
        vfree(c);
        vunmap(a);
        vm_unmap_ram(b, n);
        kt_alive();
    }
}

KTEST(map_counts, "D12: no frame goes back while it is mapped")
{
    unsigned n = MIN(kt_cpus(), (unsigned)CPUS_MAX);
    struct kt_pages pages;
    void *p;

    if (!kt_pages_get(&pages, PAGES, 1))
        return;
    p = vmap(pages.page, PAGES, 0, PAGE_KERNEL);
    KT_ASSERT(p);
    KT_EXPECT_EQ(pages.page[0]->mapcount, 1);
    for (unsigned i = 1; i < n; i++)
        kt_start(i, mixed_operations, &pages);
    mixed_operations(&pages);
    for (unsigned i = 1; i < n; i++)
        kt_join(i);
    for (unsigned i = 0; i < PAGES; i++)
        KT_EXPECT_EQ(pages.page[i]->mapcount, 1);
    vunmap(p);
    for (unsigned i = 0; i < PAGES; i++)
        KT_EXPECT_EQ(pages.page[i]->mapcount, 0);
    kt_pages_put(&pages);
}
#endif

KTEST(alias_cache_mode, "E11: no alias with the old cache mode is left after vm_unmap_aliases")
{
    struct page *page = alloc_page();
    unsigned cpu = kt_other_cpu(), level;
    pgprot_t wc = pgprot_cache(PAGE_KERNEL, CACHE_WC);
    uint64_t value;
    void *p, *q;

    KT_ASSERT(page);
    kt_quiesce();
    p = vmap(&page, 1, 0, PAGE_KERNEL);
    KT_ASSERT(p);
    KT_EXPECT(kt_read_on(cpu, p, &value));
    KT_EXPECT_EQ(kt_entry(p, &level) & (PTE_PWT | PTE_PCD | PTE_PAT), 0);
    kt_flush_log_start();
    vunmap(p);
    vm_unmap_aliases();
    KT_EXPECT(kt_flush_log_stop() >= 1);
    KT_EXPECT(kt_flush_covers((uintptr_t)p, (uintptr_t)p + PAGE_SIZE));
    KT_EXPECT(!kt_read_on(cpu, p, &value));
    KT_EXPECT(!pte_present(kt_entry(p, &level)));
    q = vmap(&page, 1, 0, wc);
    KT_ASSERT(q);
    KT_EXPECT_EQ(kt_entry(q, &level) & (PTE_PWT | PTE_PCD), wc & (PTE_PWT | PTE_PCD));
    KT_EXPECT(!(kt_entry(q, &level) & PTE_G));
    vunmap(q);
    free_page(page);
}
