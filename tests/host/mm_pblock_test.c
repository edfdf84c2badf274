/*
 * mm_pblock_test.c: the blocks of the default design in the long run: holes are used again before
 * new blocks are made, and a CPU that neither calls nor halts holds up no more than the stated
 * number of blocks, which go back later, and is the only one that is interrupted. frames=safe: what
 * a CPU keeps in the entries of what it freed comes back when another one is short of memory, and
 * is bounded while a CPU holds up all generations.
 */
#include <string.h>

#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "mm/vmap_pcpu.h"
#include "tests/host/sim/boot.h"
#include "tests/host/sim/internal.h"
#include "tests/host/testlib.h"

#include <arch/cpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>

#define COUNT 60 /* pages of a mapping, so that eight of them fill most of a block */
#define MAPS  (8 * 100)
#define CHURN 2000
#define WAITING_MAX                                                                                \
    1024 /* blocks that wait for a CPU that does not call: docs/DESIGN.md, section 8 */

static struct page *pages[COUNT];
static void *maps[MAPS];
static uint32_t stop;

/* range: bytes of addresses, 0: the usual ones. */
static void start_in(unsigned cpus, uint64_t range, bool turns)
{
    test_seconds++;
    stop = 0;
    sim_machine(&(struct sim_options){.seed = 1, .ram = 64 * SZ_1M, .cpus = cpus, .turns = turns});
    sim_boot(&(struct sim_boot){.design = DESIGN_METALMAP, .range_size = range});
}

static void start(unsigned cpus)
{
    start_in(cpus, 0, false);
}

static void run(unsigned cpus, void (*fn)(void *), void *arg)
{
    if (!sim_run(cpus, fn, arg) || !sim_shutdown())
        fail_msg("%s", sim_failure_text());
}

static void *map_some(void)
{
    void *p = vm_map_ram(pages, COUNT, VM_ANY_NODE);

    SIM_CHECK(p, "vm_map_ram failed");
    for (unsigned i = 0; i < COUNT; i += COUNT - 1)
        SIM_CHECK(vmalloc_to_page((char *)p + i * PAGE_SIZE) == pages[i], "page %u is another", i);
    return p;
}

static void take_pages(void)
{
    SIM_CHECK(page_alloc_bulk(pages, COUNT, PAGE_ANY_NODE) == COUNT, "no memory");
    for (unsigned i = 0; i < COUNT; i++)
        sim_frame_callers_own(pages[i]);
}

static void give_pages(void)
{
    vm_unmap_aliases();
    page_free_bulk(pages, COUNT);
}

/* One mapping of each block stays, so no block becomes empty; what others have left is used. */
static void holes(void *arg)
{
    uint64_t blocks;
    void *more[150]; /* which stay so few that holes are preferred (PBLOCK_SPARSE) */

    (void)arg;
    take_pages();
    for (unsigned i = 0; i < MAPS; i++)
        maps[i] = map_some();
    for (unsigned i = 0; i < MAPS; i++)
        if (i % 8)
            vm_unmap_ram(maps[i], COUNT);
    for (unsigned i = 0; i < CHURN; i++) /* what was freed comes back bit by bit */
        vm_unmap_ram(map_some(), COUNT);
    blocks = sim_counters().vmap_blocks;
    for (unsigned i = 0; i < ARRAY_SIZE(more); i++)
        more[i] = map_some();
    SIM_CHECK(sim_counters().vmap_blocks <= blocks + 4, /* of 19: a look is at four blocks */
              "%lu blocks, and %lu after mappings for which there was room", (unsigned long)blocks,
              (unsigned long)sim_counters().vmap_blocks);
    SIM_CHECK(vmap_selfcheck(), "not sound");
    for (unsigned i = 0; i < ARRAY_SIZE(more); i++)
        vm_unmap_ram(more[i], COUNT);
    for (unsigned i = 0; i < MAPS; i += 8)
        vm_unmap_ram(maps[i], COUNT);
    give_pages();
}

static void test_holes(void **state)
{
    (void)state;
    start(1);
    run(1, holes, NULL);
}

#define SCRAP (BLOCK_PAGES % COUNT) /* pages that COUNT after COUNT leave of a block */

/* No addresses are left but what full blocks have. */
static void scraps(void *arg)
{
    void *small[MAPS / 8];
    unsigned n = 0, blocks;

    (void)arg;
    take_pages();
    while ((maps[n] = vm_map_ram(pages, COUNT, VM_ANY_NODE)))
        SIM_CHECK(++n < MAPS, "addresses do not end");
    blocks = (unsigned)pblock_count();
    SIM_CHECK(blocks > 4 && n == blocks * (BLOCK_PAGES / COUNT), "%u mappings in %u blocks", n,
              blocks);
    for (unsigned i = 0; i < blocks; i++) {
        small[i] = vm_map_ram(pages, SCRAP, VM_ANY_NODE);
        SIM_CHECK(small[i], "%u of %u full blocks were used", i, blocks);
    }
    SIM_CHECK(vmap_selfcheck(), "not sound");
    for (unsigned i = 0; i < blocks; i++)
        vm_unmap_ram(small[i], SCRAP);
    while (n)
        vm_unmap_ram(maps[--n], COUNT);
    give_pages();
}

static void test_scraps(void **state)
{
    (void)state;
    start_in(1, 16 * SZ_1M, false);
    capture_start();
    run(1, scraps, NULL);
    capture_text();
}

static void laggard(void *arg)
{
    struct vmap_counters before = sim_counters(), now;
    uint64_t most = 0;

    (void)arg;
    if (this_cpu_id() == 1) {
        while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
            cpu_relax();
        return;
    }
    take_pages();
    for (unsigned i = 0; i < 12 * WAITING_MAX; i++) {
        vm_unmap_ram(map_some(), COUNT);
        if (i % 256 == 0)
            most = MAX(most, sim_counters().vmap_blocks);
    }
    now = sim_counters();
    SIM_CHECK(most <= WAITING_MAX + 80, "%lu blocks wait for a CPU that does not call",
              (unsigned long)most);
    SIM_CHECK(now.tlb_ipis > before.tlb_ipis, "nobody told the CPU that does not call");
    SIM_CHECK(now.alloc_fail == before.alloc_fail, "allocations failed");
    give_pages();
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
}

static void test_laggard(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < 2; turns++) {
        start_in(2, 0, turns);
        if (!sim_run(2, laggard, NULL) || !sim_shutdown())
            fail_msg("turns=%u: %s", turns, sim_failure_text());
    }
}

/* Blocks that waited for a CPU that did not call go back once it does, but for a share of memory,
 * however many they were. */
static void give_back(void *arg)
{
    uint64_t kept = page_total() / 32 / PBLOCK_OWN_PAGES / smp_cpus(), most;

    (void)arg;
    if (this_cpu_id() == 1) {
        while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
            cpu_relax();
        return;
    }
    take_pages();
    for (unsigned i = 0; i < 8 * WAITING_MAX; i++)
        vm_unmap_ram(map_some(), COUNT);
    most = pblock_count();
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < 16 * WAITING_MAX; i++)
        vm_unmap_ram(map_some(), COUNT);
    SIM_CHECK(most > 4 * kept && pblock_count() <= kept + 64,
              "of %lu blocks %lu are left, a share is %lu", (unsigned long)most,
              (unsigned long)pblock_count(), (unsigned long)kept);
    give_pages();
}

static void test_give_back(void **state)
{
    (void)state;
    start(2);
    run(2, give_back, NULL);
}

#define SHARE_CPUS  8
#define SHARE_RANGE (512 * SZ_1M)

/* Nor more than the CPU's share of an eighth of a small range. */
static void small_share(void *arg)
{
    const struct pqueue *q = this_cpu_ptr(&vmap_pqueues)->context;
    unsigned kept = SHARE_RANGE / BLOCK_SIZE / 8 / SHARE_CPUS, n = 90 * BLOCK_PAGES / COUNT;

    (void)arg;
    take_pages();
    for (unsigned i = 0; i < n; i++)
        maps[i] = map_some();
    for (unsigned i = 0; i < n; i++)
        vm_unmap_ram(maps[i], COUNT);
    for (unsigned i = 0; i < CHURN; i++)
        vm_unmap_ram(map_some(), COUNT);
    SIM_CHECK(q->peak > 4 * kept && q->empty_blocks <= kept + PBLOCK_STEP_MAX,
              "%u empty blocks are kept, a share is %u; %u have waited", q->empty_blocks, kept,
              q->peak);
    give_pages();
}

static void test_small_share(void **state)
{
    (void)state;
    start_in(SHARE_CPUS, SHARE_RANGE, false);
    run(1, small_share, NULL);
}

#define LATE_PAUSES 60000 /* between two calls of a CPU that is late */
#define LATE_MAX    128   /* blocks */
#define LATE_MASKED 400   /* mappings, in some fifty blocks */

/* CPU 1 calls now and then, but never halts. */
static void late(void *arg)
{
    uint64_t *most = arg, kicks = tlb_gen_kicks();
    unsigned long flags;

    if (this_cpu_id() == 1) {
        while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
            for (unsigned i = 0; i < LATE_PAUSES && !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++)
                cpu_relax();
            tlb_poll();
        }
        return;
    }
    take_pages();
    /* Where it may not wait, nothing says that waiting is in vain. */
    flags = irq_save();
    for (unsigned i = 0; i < LATE_MASKED; i++)
        vm_unmap_ram(map_some(), COUNT);
    irq_restore(flags);
    for (unsigned i = 0; i < 4 * WAITING_MAX; i++) {
        vm_unmap_ram(map_some(), COUNT);
        *most = MAX(*most, pblock_count());
    }
    SIM_CHECK(tlb_gen_kicks() == kicks, "%lu interrupts", (unsigned long)(tlb_gen_kicks() - kicks));
    give_pages();
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
}

static uint64_t most_blocks(bool turns)
{
    uint64_t most = 0;

    start_in(2, 0, turns);
    run(2, late, &most);
    return most;
}

/* Where CPUs take turns, who is ahead halts meanwhile, and makes no more blocks. */
static void test_gives_way(void **state)
{
    uint64_t gives = most_blocks(true), goes_on = most_blocks(false);

    (void)state;
    if (gives > LATE_MAX || goes_on <= LATE_MAX)
        fail_msg("%lu blocks where it gives way, %lu where it goes on, limit %u",
                 (unsigned long)gives, (unsigned long)goes_on, LATE_MAX);
}

static void start_safe(unsigned cpus, size_t ram)
{
    test_seconds++;
    sim_machine(&(struct sim_options){.seed = 1, .ram = ram, .cpus = cpus, .frames_safe = true});
    sim_boot(&(struct sim_boot){.design = DESIGN_METALMAP, .frames_safe = true});
}

#define HOARD_PAGES 64 /* of an area, of which three quarters of memory are made */

static uint32_t hoarded;
static unsigned areas;

static void take_areas(void **p, unsigned each)
{
    unsigned n = areas * HOARD_PAGES / each;

    for (unsigned i = 0; i < n; i++) {
        p[i] = vmalloc(each * PAGE_SIZE);
        SIM_CHECK(p[i], "area %u of %u on CPU %u: no memory", i, n, this_cpu_id());
    }
}

/* CPU 1 frees what it has, but for an area in some blocks, and halts; CPU 0 needs that memory. */
static void hoard(void *arg)
{
    static void *kept[MAPS], *wanted[32 * SZ_1M / PAGE_SIZE];
    unsigned each = *(const unsigned *)arg;

    if (this_cpu_id() == 1) {
        take_areas(kept, HOARD_PAGES);
        for (unsigned i = 0; i < areas; i++)
            if (i % 32)
                vfree(kept[i]);
        STORE_RELEASE(hoarded, 1);
        smp_wake(0);
        smp_wait_flag(&stop);
        for (unsigned i = 0; i < areas; i += 32)
            vfree(kept[i]);
        return;
    }
    smp_wait_flag(&hoarded);
    take_areas(wanted, each);
    for (unsigned i = 0; i < areas * HOARD_PAGES / each; i++)
        vfree(wanted[i]);
    STORE_RELEASE(stop, 1);
    smp_wake(1);
}

static void test_hoard(void **state)
{
    static const unsigned each[] = {1, HOARD_PAGES, 256};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(each); i++) {
        start_safe(2, 32 * SZ_1M);
        areas = (unsigned)(page_free_count() / 4 * 3 / HOARD_PAGES);
        stop = hoarded = 0;
        if (!sim_run(2, hoard, (void *)&each[i]) || !sim_shutdown())
            fail_msg("%u pages: %s", each[i], sim_failure_text());
    }
}

#define FILL      15 /* pages of an area, with its guard a 32nd of a block */
#define FULL_EACH 32
#define FULL      8

/* Also of blocks that have next to nothing free. */
static void full_blocks(void *arg)
{
    static void *p[FULL * FULL_EACH];
    uint64_t before;

    (void)arg;
    for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
        p[i] = vmalloc(FILL * PAGE_SIZE);
        SIM_CHECK(p[i], "no memory");
    }
    pblock_release_frames();
    before = page_free_count();
    for (unsigned i = 0; i < ARRAY_SIZE(p); i += FULL_EACH)
        vfree(p[i]);
    pblock_release_frames();
    SIM_CHECK(page_free_count() >= before + FULL * FILL, "%lu of %u frames came back",
              (unsigned long)(page_free_count() - before), FULL * FILL);
    for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
        if (i % FULL_EACH)
            vfree(p[i]);
}

static void test_full_blocks(void **state)
{
    (void)state;
    start_safe(1, 64 * SZ_1M);
    run(1, full_blocks, NULL);
}

static void *unguarded(unsigned n)
{
    void *p = __vmalloc(n * PAGE_SIZE, PAGE_SIZE, VM_NO_GUARD, VM_ANY_NODE);

    SIM_CHECK(p, "no memory");
    return p;
}

/* An area is made of entries that have kept frames, more of them than there is room for among the
 * ready ones: those of mappings without frames of their own have filled that. */
static void kept_in_parts(void *arg)
{
    void *ram[7], *one, *large;
    uint64_t before = 0;

    (void)arg;
    take_pages();
    for (unsigned turn = 0; turn < 20; turn++) {
        for (unsigned i = 0; i < 4 * BLOCK_PAGES; i++)
            vfree(unguarded(1));
        vm_unmap_aliases();
        one = unguarded(1);
        for (unsigned i = 0; i < ARRAY_SIZE(ram); i++)
            ram[i] = map_some();
        large = unguarded(PBLOCK_MAX_ALLOC);
        vfree(large);
        for (unsigned i = 0; i < ARRAY_SIZE(ram); i++)
            vm_unmap_ram(ram[i], COUNT);
        vfree(one);
        if (turn % 4)
            continue;
        vmap_quiesce();
        if (turn)
            SIM_CHECK(page_free_count() >= before, "%lu frames are lost",
                      (unsigned long)(before - page_free_count()));
        before = page_free_count();
    }
    give_pages();
}

static void test_kept_in_parts(void **state)
{
    (void)state;
    start_safe(1, 64 * SZ_1M);
    run(1, kept_in_parts, NULL);
}

/* What waits with its frames, small areas and large ones, while CPU 1 does not call: as much as
 * lazy= says at most, and what is in use or ready. */
static void safe_laggard(void *arg)
{
    unsigned n = *(const unsigned *)arg;
    uint64_t bound = purge_lazy_limit() + 24 * SZ_1M / PAGE_SIZE, start, least;

    if (this_cpu_id() == 1) {
        while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
            cpu_relax();
        return;
    }
    start = least = page_free_count();
    for (unsigned i = 0; i < 2 * start / n; i++) {
        void *p = vmalloc(n * PAGE_SIZE);

        SIM_CHECK(p, "no memory");
        vfree(p);
        least = MIN(least, page_free_count());
    }
    SIM_CHECK(start - least <= bound, "%lu frames wait, of %u pages each",
              (unsigned long)(start - least), n);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
}

static void test_safe_laggard(void **state)
{
    static const unsigned each[] = {COUNT, 500};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(each); i++) {
        start_safe(2, 160 * SZ_1M);
        stop = 0;
        run(2, safe_laggard, (void *)&each[i]);
    }
}

#define RAM_BLOCKS 4

/* CPU 1 frees what fills some blocks of CPU 0, which collects a block of it at a time: those that
 * wait for the next time are not lost, else vmap_exit() finds them. */
static void collect(void *arg)
{
    static void *ram[RAM_BLOCKS * BLOCK_PAGES];

    (void)arg;
    if (this_cpu_id() == 1) {
        smp_wait_flag(&hoarded);
        for (unsigned i = 0; i < ARRAY_SIZE(ram); i++)
            vm_unmap_ram(ram[i], 1);
        STORE_RELEASE(stop, 1);
        smp_wake(0);
        return;
    }
    take_pages();
    for (unsigned i = 0; i < ARRAY_SIZE(ram); i++) {
        ram[i] = vm_map_ram(pages, 1, VM_ANY_NODE);
        SIM_CHECK(ram[i], "vm_map_ram failed");
    }
    STORE_RELEASE(hoarded, 1);
    smp_wake(1);
    smp_wait_flag(&stop);
    for (unsigned i = 0; i < CHURN; i++)
        vm_unmap_ram(map_some(), COUNT);
    SIM_CHECK(vmap_selfcheck(), "not sound");
    give_pages();
}

static void test_collect(void **state)
{
    (void)state;
    start(2);
    stop = hoarded = 0;
    run(2, collect, NULL);
}

#define TURNS 64

/* Ready frames go with the protection of the entries they came from: those of a read-only area must
 * not be among them, whatever its addresses were used for before. */
static void protection(void *arg)
{
    static const unsigned sizes[] = {1, 8, COUNT, 256};

    (void)arg;
    for (unsigned i = 0; i < TURNS * ARRAY_SIZE(sizes); i++) {
        unsigned n = sizes[i % ARRAY_SIZE(sizes)], flags = i / ARRAY_SIZE(sizes) % 3;
        char *p = flags == 1 ? __vmalloc(n * PAGE_SIZE, PAGE_SIZE, VM_READONLY, VM_ANY_NODE)
                             : vmalloc(n * PAGE_SIZE);

        SIM_CHECK(p, "no memory");
        for (unsigned k = 0; k < n; k++) {
            pte_t entry;

            ptmap_translate((uintptr_t)p + k * PAGE_SIZE, &entry, NULL);
            SIM_CHECK((entry & PTE_NX) && !(entry & PTE_W) == (flags == 1),
                      "page %u of %u has the protection 0x%lx", k, n, (unsigned long)entry);
        }
        vfree(p);
        if (n == 256) /* the next one gets these addresses */
            vm_unmap_aliases();
    }
    SIM_CHECK(vmap_selfcheck(), "not sound");
}

static void test_protection(void **state)
{
    (void)state;
    start(1);
    run(1, protection, NULL);
}

/* A block that became active, and of which nothing was taken for want of frames, goes back. */
static void untaken(void *arg)
{
    (void)arg;
    SIM_CHECK(pblock_refill(2), "no block");
    vmap_quiesce();
    SIM_CHECK(sim_counters().vmap_blocks == 0, "%lu blocks stay",
              (unsigned long)sim_counters().vmap_blocks);
}

static void test_untaken(void **state)
{
    (void)state;
    start(1);
    run(1, untaken, NULL);
}

/* The queue of a CPU's handlers is emptied by its task while they come. */
static void handler(void)
{
    void *p[3];

    for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
        p[i] = map_some();
    for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
        vm_unmap_ram(p[i], COUNT);
}

static void drain_all(void *arg)
{
    (void)arg;
    take_pages();
    sim_irq_storm(handler, 20);
    for (unsigned i = 0; i < 200; i++)
        vmap_quiesce();
    sim_irq_storm(NULL, 0);
    SIM_CHECK(vmap_selfcheck(), "not sound");
    give_pages();
}

static void test_drain_under_handlers(void **state)
{
    bool sound;

    (void)state;
    start(1);
    sound = sim_do(drain_all, NULL);
    sim_irq_storm(NULL, 0);
    if (!sound || !sim_shutdown())
        fail_msg("%s", sim_failure_text());
}

/* A CPU that halts or calls answers a shortage, with all blocks but the active one, but not from a
 * handler, which came over who knows what, nor in the middle of something. */
static void at_rest(void *arg)
{
    struct pqueue *q = this_cpu_ptr(&vmap_pqueues)->context;
    uint32_t before = q->answered;

    (void)arg;
    take_pages();
    for (unsigned i = 0; i < 32; i++)
        maps[i] = map_some();
    for (unsigned i = 0; i < 32; i++)
        vm_unmap_ram(maps[i], COUNT);
    SIM_CHECK(q->blocks >= 4, "%u blocks", q->blocks);
    sim_this->irq_depth++;
    pblock_shortage();
    pblock_idle_hook();
    SIM_CHECK(q[0].answered == before && q[1].answered == before, "answered in a handler");
    sim_this->irq_depth--;
    q->busy++;
    pblock_idle_hook();
    SIM_CHECK(q[0].answered == before && q[1].answered == before + 1, "answered while busy");
    q->busy--;
    pblock_idle_hook();
    SIM_CHECK(q[0].answered == before + 1, "not answered");
    SIM_CHECK(q->blocks == 1, "%u blocks stay", q->blocks);
    sim_this->irq_depth++;
    pblock_shortage();
    sim_this->irq_depth--;
    for (unsigned i = 0; i < 2 * BLOCK_PAGES / COUNT; i++)
        vm_unmap_ram(map_some(), COUNT);
    SIM_CHECK(q[0].answered == before + 2, "not answered by calls");
    give_pages();
}

static void test_at_rest(void **state)
{
    (void)state;
    start(1);
    run(1, at_rest, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_laggard),
        cmocka_unit_test(test_hoard),
        cmocka_unit_test(test_collect),
        cmocka_unit_test(test_protection),
        cmocka_unit_test(test_untaken),
        cmocka_unit_test(test_full_blocks),
        cmocka_unit_test(test_kept_in_parts),
        cmocka_unit_test(test_safe_laggard),
        cmocka_unit_test(test_gives_way),
        cmocka_unit_test(test_give_back),
        cmocka_unit_test(test_scraps),
        cmocka_unit_test(test_drain_under_handlers),
        cmocka_unit_test(test_small_share),
        cmocka_unit_test(test_at_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
