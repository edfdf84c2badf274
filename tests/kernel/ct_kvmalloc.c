/*
 * kvmalloc, kvfree, deferred frees, vrealloc: sizes, contents, failures.
 */
#include "lib/string.h"
#include "mm/cache.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define LINK_BYTES 8 /* a deferred object's first word is the allocator's (mm/vmalloc.h) */

KTEST(kvmalloc_sizes, "kvmalloc: small from caches, large by vmalloc, contents kept")
{
    const size_t sizes[] = {
        1, 8, 16, 17, 100, 512, 1000, 4096, KMALLOC_MAX, KMALLOC_MAX + 1, 3 * PAGE_SIZE, 100000};
    void *p[ARRAY_SIZE(sizes)];

    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        p[i] = kvmalloc(sizes[i]);
        KT_ASSERT(p[i]);
        KT_EXPECT_EQ(is_vmalloc_addr(p[i]), sizes[i] > KMALLOC_MAX);
        memset(p[i], (int)i + 1, sizes[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        for (size_t j = 0; j < sizes[i]; j++) {
            if (((uint8_t *)p[i])[j] != i + 1) {
                KT_FAIL("%lu bytes: byte %lu", (unsigned long)sizes[i], (unsigned long)j);
                break;
            }
        }
        kvfree(p[i]);
    }
    KT_EXPECT(!kvmalloc(SIZE_MAX));
    KT_EXPECT(!kvmalloc(page_total() * PAGE_SIZE + PAGE_SIZE));
}

KTEST(deferred_free, "kvfree_deferred: the object stays until the batch goes")
{
    size_t size = 2 * PAGE_SIZE;
    char *p = vmalloc(size), *small = kvmalloc(64);
    struct vm_area_info info;

    KT_ASSERT(p && small);
    vm_unmap_aliases(); /* an empty batch */
    kt_fill(p, size, 9);
    kvfree_deferred(small);
    kvfree_deferred(p);
    kvfree_deferred(NULL);
    KT_EXPECT(find_vm_area(p, &info) && info.size == size);
    for (size_t i = LINK_BYTES; i < size; i += 8) {
        uint64_t want;

        kt_fill(&want, sizeof(want), 9 + i / 8);
        if (*(uint64_t *)(p + i) != want) {
            KT_FAIL("byte %lu changed before it was freed", (unsigned long)i);
            break;
        }
    }
    vm_unmap_aliases();
    KT_EXPECT(!find_vm_area(p, &info));
}

static void check_step(uint64_t **p, size_t *size, size_t next)
{
    uint64_t *q = vrealloc(*p, next);

    KT_ASSERT(q);
    kt_verify(q, MIN(*size, next) & ~7UL, 11);
    kt_fill(q, next & ~7UL, 11);
    *p = q;
    *size = next;
}

KTEST(vrealloc_contents,
      "vrealloc: contents survive growing and shrinking, failures change nothing")
{
    size_t size = PAGE_SIZE;
    uint64_t *p = vrealloc(NULL, size);
    struct vm_area_info info;
    struct rng rng;

    KT_ASSERT(p);
    rng_seed(&rng, kt_seed());
    kt_fill(p, size, 11);
    for (uint64_t i = 0; i < kt_scaled(64); i++) {
        check_step(&p, &size, rng_range(&rng, 8, 40 * PAGE_SIZE));
        KT_EXPECT(find_vm_area(p, &info) && info.size >= size);
    }
    KT_EXPECT(!vrealloc(p, SIZE_MAX));
    KT_EXPECT(!vrealloc(p, (page_total() + 1) * PAGE_SIZE));
    page_alloc_inject(0, UINT64_MAX);
    KT_EXPECT(!vrealloc(p, size + 100 * PAGE_SIZE));
    page_alloc_inject(0, 0);
    kt_verify(p, size & ~7UL, 11);
    kt_expect_bad_frees(1);
    KT_EXPECT(!vrealloc((char *)p + 16, 2 * PAGE_SIZE));
    KT_EXPECT(!vrealloc(p, 0)); /* frees */
    KT_EXPECT(!find_vm_area(p, &info));
}
