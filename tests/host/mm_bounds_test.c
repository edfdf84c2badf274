/*
 * mm_bounds_test.c: what each CPU may keep, that what one keeps others get back, and that of two
 * frees of one area one is told.
 */
#include <string.h>

#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap_frames.h"
#include "mm/vmap_internal.h"
#include "tests/host/sim/boot.h"
#include "tests/host/testlib.h"

#include <arch/cpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>

#define UNITS_PAGES 500 /* of an area that takes a unit of 2 MiB of its own */
#define AREAS       12

static uint32_t step;
static void *areas[512];

static void start(uint64_t seed, unsigned cpus, size_t ram, struct sim_boot boot)
{
    test_seconds++;
    sim_machine(&(struct sim_options){
        .seed = seed, .ram = ram, .cpus = cpus, .frames_safe = boot.frames_safe});
    sim_boot(&boot);
    step = 0;
}

static void run(unsigned cpus, void (*fn)(void *))
{
    if (!sim_run(cpus, fn, NULL) || !sim_shutdown())
        fail_msg("%s", sim_failure_text());
}

static void reach(uint32_t n)
{
    STORE_RELEASE(step, n);
    cpu_relax();
}

static void wait_for(uint32_t n)
{
    while (LOAD_ACQUIRE(step) < n) {
        tlb_poll();
        cpu_relax();
    }
}

/* ---- ready frames ---- */

static void fill_frames(void *arg)
{
    const struct vmap_frames *f = this_cpu_ptr(&vmap_frames);
    unsigned n = 0;

    (void)arg;
    for (; n < 8; n++) {
        areas[n] = vmalloc(UNITS_PAGES * PAGE_SIZE);
        SIM_CHECK(areas[n], "no memory");
    }
    while (n) {
        vfree(areas[--n]);
        SIM_CHECK(f->n <= f->limit, "%u frames are ready, the bound is %u", f->n, f->limit);
    }
    SIM_CHECK(f->n > f->limit / 2 || tlb_gen_fast_forbidden(), "only %u frames are ready", f->n);
}

/* A CPU's stack of ready frames has a bound, all together have a share of memory. */
static void test_ready_frames(void **state)
{
    static const struct {
        unsigned cpus;
        size_t ram;
    } cases[] = {{1, 16 * SZ_1M}, {1, 160 * SZ_1M}, {8, 64 * SZ_1M}, {8, 160 * SZ_1M}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t sum = 0, least = cases[i].cpus * 2UL * PBLOCK_MAX_ALLOC;

        start(1, cases[i].cpus, cases[i].ram, (struct sim_boot){.design = DESIGN_METALMAP});
        for (unsigned cpu = 0; cpu < cases[i].cpus; cpu++) {
            uint32_t limit = per_cpu_ptr(&vmap_frames, cpu)->limit;

            assert_in_range(limit, 2 * PBLOCK_MAX_ALLOC, VMAP_FRAMES_MAX);
            sum += limit;
        }
        assert_true(sum <= MAX(page_total() / 32, least));
        if (cases[i].ram > 32 * SZ_1M)
            run(1, fill_frames);
    }
}

/* ---- units ---- */

/* What the first area has taken from the tree serves the next ones, with leaves, too. */
static void same_units(void *arg)
{
    bool huge = *(const bool *)arg;
    uint64_t used = 0;

    for (unsigned i = 0; i < 4; i++) {
        areas[i] = huge ? __vmalloc(PMD_SIZE, PMD_SIZE, VM_HUGE | VM_NO_GUARD, VM_ANY_NODE)
                        : vmalloc(UNITS_PAGES * PAGE_SIZE);
        SIM_CHECK(areas[i], "no memory");
        if (i == 0)
            used = sim_counters().va_used;
        SIM_CHECK(sim_counters().va_used == used, "area %u takes more addresses", i);
    }
    for (unsigned i = 0; i < 4; i++)
        vfree(areas[i]);
}

static void test_same_units(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        bool huge = i;

        start(1, 1, 64 * SZ_1M, (struct sim_boot){.design = DESIGN_METALMAP});
        if (!sim_do(same_units, &huge) || !sim_shutdown())
            fail_msg("%s: %s", huge ? "huge" : "small pages", sim_failure_text());
    }
}

/* frames=safe: CPU 1 has freed areas and does nothing more. Who then has everything flushed gets
 * their frames back. */
static void elsewhere(void *arg)
{
    static uint64_t before;

    (void)arg;
    if (this_cpu_id() == 1) {
        for (unsigned i = 0; i < AREAS; i++) {
            areas[i] = vmalloc(UNITS_PAGES * PAGE_SIZE);
            SIM_CHECK(areas[i], "no memory");
        }
        before = page_free_count();
        for (unsigned i = 0; i < AREAS; i++)
            vfree(areas[i]);
        reach(1);
        wait_for(2);
        return;
    }
    wait_for(1);
    vm_unmap_aliases();
    SIM_CHECK(page_free_count() >= before + AREAS * UNITS_PAGES,
              "%ld of %u frames came back from another CPU's cache",
              (long)(page_free_count() - before), AREAS * UNITS_PAGES);
    reach(2);
}

static void test_elsewhere(void **state)
{
    (void)state;
    start(1, 2, 64 * SZ_1M, (struct sim_boot){.design = DESIGN_METALMAP, .frames_safe = true});
    run(2, elsewhere);
}

/* A freed area of whole units is told from addresses that were never used. */
static void told(void *arg)
{
    const char *text;
    void *p = vmalloc(UNITS_PAGES * PAGE_SIZE);

    (void)arg;
    SIM_CHECK(p, "no memory");
    vfree(p);
    capture_start();
    vmalloc_dump_obj((char *)p + 3 * PAGE_SIZE);
    text = capture_text();
    SIM_CHECK(strstr(text, "in the freed 500-page"), "told: %s", text);
}

static void test_told(void **state)
{
    (void)state;
    start(1, 1, 64 * SZ_1M, (struct sim_boot){.design = DESIGN_METALMAP});
    run(1, told);
}

/* ---- page tables ---- */

/* Empty ones go back by themselves once they are many: each area here needs one of its own. */
static void sparse(void *arg)
{
    uint64_t most = 0;

    (void)arg;
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < ARRAY_SIZE(areas); i++) {
            areas[i] = __vmalloc(PAGE_SIZE, PMD_SIZE, 0, VM_ANY_NODE);
            SIM_CHECK(areas[i], "no memory");
        }
        most = MAX(most, sim_counters().pt_pages);
        for (unsigned i = 0; i < ARRAY_SIZE(areas); i++)
            vfree(areas[i]);
        /* What waits now is less than a limit's worth. */
        for (unsigned i = 0; i < 64; i++)
            vfree(vmalloc(PAGE_SIZE));
    }
    SIM_CHECK(most > ARRAY_SIZE(areas), "areas share page tables");
    SIM_CHECK(sim_counters().pt_pages <= 300, "%lu pages of tables, and next to nothing is mapped",
              (unsigned long)sim_counters().pt_pages);
}

static void test_sparse(void **state)
{
    (void)state;
    start(1, 1, 64 * SZ_1M,
          (struct sim_boot){.design = DESIGN_2024, .lazy_max = 64, .no_pools = true, .nodes = 1});
    run(1, sparse);
}

/* ---- two frees ---- */

static unsigned twice_pages;

/* CPU 0 allocates, 1 and 2 free the same area at once. */
static void twice(void *arg)
{
    uint64_t bad = sim_counters().bad_free;

    (void)arg;
    if (this_cpu_id() != 0) {
        wait_for(1);
        vfree(areas[0]);
        ATOMIC_ADD(step, 1);
        return;
    }
    areas[0] = vmalloc(twice_pages * PAGE_SIZE);
    SIM_CHECK(areas[0], "no memory");
    reach(1);
    wait_for(3);
    SIM_CHECK(sim_counters().bad_free == bad + 1, "of two frees %lu were refused",
              (unsigned long)(sim_counters().bad_free - bad));
}

static void test_twice(void **state)
{
    static const unsigned pages[] = {1, 40, UNITS_PAGES};
    static const unsigned designs[] = {DESIGN_METALMAP, DESIGN_2024};

    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        twice_pages = pages[i % ARRAY_SIZE(pages)];
        start(test_seed() + i, 3, 16 * SZ_1M,
              (struct sim_boot){.design = designs[i / ARRAY_SIZE(pages) % 2]});
        capture_start();
        run(3, twice);
        capture_text();
    }
}

/* A mapping is unmapped with the count that it was made with, and no other. */
static void other_count(void *arg)
{
    struct page *pages[4];
    uint64_t bad = sim_counters().bad_free;
    void *p;

    (void)arg;
    SIM_CHECK(page_alloc_bulk(pages, 4, PAGE_ANY_NODE) == 4, "no memory");
    p = vm_map_ram(pages, 4, VM_ANY_NODE);
    SIM_CHECK(p, "vm_map_ram failed");
    capture_start();
    vm_unmap_ram(p, 3);
    vm_unmap_ram(p, 5);
    vm_unmap_ram((char *)p + PAGE_SIZE, 3);
    capture_text();
    SIM_CHECK(sim_counters().bad_free == bad + 3, "%lu of 3 were refused",
              (unsigned long)(sim_counters().bad_free - bad));
    SIM_CHECK(vmalloc_to_page(p) == pages[0], "it is unmapped");
    vm_unmap_ram(p, 4);
    vm_unmap_aliases();
    for (unsigned i = 0; i < 4; i++)
        sim_frame_callers_own(pages[i]);
    page_free_bulk(pages, 4);
}

static void test_other_count(void **state)
{
    (void)state;
    start(1, 1, 16 * SZ_1M, (struct sim_boot){.design = DESIGN_METALMAP});
    run(1, other_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready_frames), cmocka_unit_test(test_same_units),
        cmocka_unit_test(test_elsewhere),    cmocka_unit_test(test_told),
        cmocka_unit_test(test_sparse),       cmocka_unit_test(test_twice),
        cmocka_unit_test(test_other_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
