/*
 * pcpu_get_vm_areas: areas at one base, searched from the top down (B4).
 *
 * A search that gives up at the first gap that is too small fails although there is room; one that
 * steps below the range, or adds offsets past the end, must fail cleanly; and whatever was cut out
 * before a failure must go back.
 */
#include "mm/cache.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"

#define FRAGMENTS     64
#define FRAGMENT_SIZE (512 * 1024UL)

static struct vm_area *one(size_t size, struct vm_area ***areas)
{
    size_t offset = 0;

    *areas = pcpu_get_vm_areas(&offset, &size, 1, PAGE_SIZE);
    return *areas ? (*areas)[0] : NULL;
}

/* Three areas far apart, while every gap at the top is smaller than one of them. */
static void check_steps_down(const size_t *offsets)
{
    const size_t sizes[3] = {SZ_1M, SZ_1M, SZ_1M};
    struct vm_area **a = pcpu_get_vm_areas(offsets, sizes, 3, SZ_1M);
    uintptr_t base;

    KT_ASSERT(a);
    base = (uintptr_t)vm_area_start(a[0]);
    KT_EXPECT_EQ(base % SZ_1M, 0);
    for (unsigned i = 0; i < 3; i++) {
        struct vm_area_info info;
        uintptr_t start = (uintptr_t)vm_area_start(a[i]);

        KT_EXPECT_EQ(start, base + offsets[i]);
        KT_EXPECT(start >= VMAP_BASE && start + SZ_1M <= VMAP_BASE + vmap_config.range_size);
        KT_EXPECT(find_vm_area((void *)(start + SZ_1M - 1), &info) && info.kind == VM_KIND_PCPU);
    }
    KT_EXPECT(kt_selfcheck());
    pcpu_free_vm_areas(a, 3);
}

KTEST(congruent_fragmented, "B4: congruent areas are found below a fragmented top")
{
    const size_t far[3] = {0, 64 * SZ_1M, SZ_1G}, near[3] = {0, 4 * SZ_1M, 16 * SZ_1M};
    struct vm_area **fragment[FRAGMENTS];

    kt_quiesce();
    for (unsigned i = 0; i < FRAGMENTS; i++)
        KT_ASSERT(one(FRAGMENT_SIZE, &fragment[i]));
    for (unsigned i = 0; i < FRAGMENTS; i += 2)
        pcpu_free_vm_areas(fragment[i], 1);
    kt_quiesce();
    check_steps_down(vmap_config.range_size >= 4 * SZ_1G ? far : near);
    for (unsigned i = 1; i < FRAGMENTS; i += 2)
        pcpu_free_vm_areas(fragment[i], 1);
}

static void check_refused(const size_t *offsets, const size_t *sizes, int n, size_t align)
{
    uint64_t used = kt_counter("va_used");
    struct vm_area **a = pcpu_get_vm_areas(offsets, sizes, n, align);

    if (a) {
        KT_FAIL("offsets %lx, %lx were accepted", (unsigned long)offsets[0],
                (unsigned long)offsets[1]);
        pcpu_free_vm_areas(a, n);
    }
    KT_EXPECT_EQ(kt_counter("va_used"), used);
}

KTEST(congruent_refused, "B4: congruent areas that cannot be are refused, and nothing is lost")
{
    uint64_t range = vmap_config.range_size;
    const size_t two[2] = {PMD_SIZE, PMD_SIZE}, none[2] = {0, PMD_SIZE};
    const size_t whole[2] = {0, range - PMD_SIZE}, beyond[2] = {0, range};
    const size_t wrap[2] = {0, -PMD_SIZE}, overlap[2] = {0, PMD_SIZE / 2};
    const size_t odd[2] = {0, PMD_SIZE + 1}, good[2] = {0, 4 * PMD_SIZE};

    kt_quiesce();
    /* The bottom of the range is in use (stacks), so this base does not exist. */
    check_refused(whole, two, 2, PAGE_SIZE);
    check_refused(beyond, two, 2, PAGE_SIZE);
    check_refused(wrap, two, 2, PAGE_SIZE);
    check_refused(overlap, two, 2, PAGE_SIZE);
    check_refused(odd, two, 2, PAGE_SIZE);
    check_refused(good, none, 2, PAGE_SIZE);
    check_refused(good, two, 0, PAGE_SIZE);
    check_refused(good, two, 2, 3 * PAGE_SIZE);
    for (unsigned after = 0; after < 16; after++) {
        uint64_t used = kt_counter("va_used");
        struct vm_area **a;

        cache_inject(after, UINT64_MAX);
        a = pcpu_get_vm_areas(good, two, 2, PAGE_SIZE);
        cache_inject(0, 0);
        if (a) {
            pcpu_free_vm_areas(a, 2);
            break;
        }
        KT_EXPECT_EQ(kt_counter("va_used"), used);
        KT_EXPECT(kt_selfcheck());
    }
}
