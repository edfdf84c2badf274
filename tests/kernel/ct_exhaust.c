/*
 * No addresses left (B9).
 *
 * Every call must give NULL and one line, and change nothing; the purge notifiers are asked before
 * that; and when there is room again everything works.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define ROOM   (64 * 1024UL)
#define TRIES  2048
#define MAPS   128 /* of 64 pages: 16 blocks */
#define LARGE  300 /* pages: more than a block's mapping can have */
#define ROUNDS 8

static void *held;

static unsigned long give_back(struct vmap_purge_notifier *n)
{
    (void)n;
    if (!held)
        return 0;
    vfree(held);
    held = NULL;
    return 4;
}

/* Uses up the last bit; the area it could not allocate would have had `pages` pages. */
static unsigned take_all(void **p, unsigned pages)
{
    unsigned n = 0;

    while (n < TRIES / 2 && (p[n] = vmalloc(pages * PAGE_SIZE)) != NULL)
        n++;
    KT_EXPECT(n < TRIES / 2);
    return n;
}

static void check_all_fail(struct page *page)
{
    struct page *many[KT_BLOCK_ALLOC];

    for (unsigned i = 0; i < KT_BLOCK_ALLOC; i++)
        many[i] = page;
    KT_EXPECT(!vmalloc(PAGE_SIZE));
    KT_EXPECT(!vzalloc(3 * PAGE_SIZE));
    KT_EXPECT(!vmalloc_huge(PMD_SIZE));
    KT_EXPECT(!vmap(&page, 1, 0, PAGE_KERNEL));
    KT_EXPECT(!vm_map_ram(many, KT_BLOCK_ALLOC, VM_ANY_NODE));
    KT_EXPECT(!kvmalloc(100000));
    KT_EXPECT(!ioremap(0xfed00000, PAGE_SIZE, CACHE_UC));
}

KTEST(exhaust_addresses, "B9: no addresses left: NULL from every call, notifiers asked first")
{
    struct vmap_purge_notifier notifier = {.purge = give_back};
    void **p = vzalloc(TRIES * sizeof(*p)), *one, *four;
    struct page *page = alloc_page();
    uint64_t failed;
    unsigned n;

    KT_ASSERT(page && p);
    four = vmalloc(4 * PAGE_SIZE);
    KT_EXPECT(kt_eat_addresses(ROOM));
    n = take_all(p, 4);
    n += take_all(p + n, 1);
    failed = kt_counter("alloc_fail");
    check_all_fail(page);
    KT_EXPECT(kt_counter("alloc_fail") >= failed + 7);
    held = four;
    register_vmap_purge_notifier(&notifier);
    one = vmalloc(3 * PAGE_SIZE);
    KT_EXPECT(one);
    KT_EXPECT(!held);
    KT_EXPECT(unregister_vmap_purge_notifier(&notifier) == OK);
    vfree(one);
    if (held)
        vfree(held);
    while (n)
        vfree(p[--n]);
    kt_spit_addresses();
    vfree(p);
    vm_unmap_aliases();
    one = vmalloc(100 * PAGE_SIZE);
    KT_EXPECT(one);
    vfree(one);
    free_page(page);
}

static void *maps[MAPS];

static void map_many(void *arg)
{
    struct page *many[64];

    for (unsigned i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = arg;
    for (unsigned i = 0; i < MAPS; i++)
        KT_EXPECT((maps[i] = vm_map_ram(many, ARRAY_SIZE(many), VM_ANY_NODE)) != NULL);
}

static void unmap_many(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < MAPS; i++)
        vm_unmap_ram(maps[i], 64);
}

KTEST(exhaust_but_others, "B9: what another CPU keeps is found when addresses are short")
{
    struct page *page = alloc_page();
    void *large = NULL;

    KT_ASSERT(page);
    if (kt_cpus() < 2) {
        free_page(page);
        KT_SKIP("one CPU");
    }
    for (unsigned round = 0; round < ROUNDS && !kt_failed(); round++) {
        unsigned other = 1 + round % (kt_cpus() - 1);

        kt_on_cpu(other, map_many, page);
        KT_EXPECT(kt_eat_addresses(ROOM));
        KT_EXPECT(!vmalloc(LARGE * PAGE_SIZE));
        /* Its blocks are its own: freed, stamped or empty, and that CPU sleeps. */
        kt_on_cpu(other, unmap_many, NULL);
        large = vmalloc(LARGE * PAGE_SIZE);
        KT_EXPECT(large);
        vfree(large);
        kt_spit_addresses();
    }
    free_page(page);
}
