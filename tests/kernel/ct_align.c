/*
 * Alignments and sizes at which the address arithmetic could wrap (B1).
 *
 * align(start, 2^63) wraps to 0, start + size and size + align - 1 wrap to small numbers, and then
 * every free range, or one at address 0, looks large enough. Every call must give an aligned
 * address in the range, or NULL.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define LARGEST_SIZE (32 * SZ_1M) /* that is really allocated */

static void check(const void *p, size_t size, size_t align)
{
    uintptr_t va = (uintptr_t)p;

    if (va % align != 0 || va < VMAP_BASE || va + size > VMAP_BASE + vmap_config.range_size ||
        va + size < va)
        KT_FAIL("%p for 0x%lx bytes aligned to 0x%lx", p, (unsigned long)size,
                (unsigned long)align);
    vfree(p);
}

KTEST(align_overflow, "B1: no alignment or size overflows the search")
{
    uint64_t total = page_total() * PAGE_SIZE;
    void *p;

    kt_quiesce();
    for (unsigned i = 0; i < 64; i++) {
        p = __vmalloc(PAGE_SIZE, 1UL << i, 0, VM_ANY_NODE);
        if (p)
            check(p, PAGE_SIZE, 1UL << i);
        else
            KT_EXPECT(1UL << i > vmap_config.range_size / 4);
    }
    for (unsigned i = 0; i < 52; i++) {
        size_t size = PAGE_SIZE << i;

        if (size > LARGEST_SIZE && size <= total)
            continue;
        p = vmalloc(size);
        if (p && size > total)
            KT_FAIL("0x%lx bytes are more than there is", (unsigned long)size);
        if (p)
            check(p, size, PAGE_SIZE);
        KT_EXPECT(!__vmalloc(size, 1UL << 63, 0, VM_ANY_NODE));
    }
    KT_EXPECT(!__vmalloc(SIZE_MAX, 1UL << 63, 0, VM_ANY_NODE));
    KT_EXPECT(!__vmalloc(PAGE_SIZE, 0, 0, VM_ANY_NODE));
    KT_EXPECT(!__vmalloc(PAGE_SIZE, 3, 0, VM_ANY_NODE));
    KT_EXPECT(!__vmalloc(PAGE_SIZE, PAGE_SIZE + 1, 0, VM_ANY_NODE));
    KT_EXPECT(!__vmalloc(PAGE_SIZE, 3 * PAGE_SIZE, 0, VM_ANY_NODE));
    KT_EXPECT(!__vmalloc(PAGE_SIZE, SIZE_MAX, 0, VM_ANY_NODE));
    p = vmalloc(PAGE_SIZE);
    KT_ASSERT(p);
    check(p, PAGE_SIZE, PAGE_SIZE);
}
