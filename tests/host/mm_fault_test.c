/*
 * mm_fault_test.c: every kind of request (frame, page-table page, object, addresses) fails at the
 * 1st, 2nd, 3rd … request of every call of the API, once and for good, on a machine that has just
 * started and on one in use. After each failure everything is back: frames, tables, addresses,
 * counters; and the call works again.
 */
#include <stdio.h>
#include <string.h>

#include "lib/rng.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "tests/host/sim/boot.h"
#include "tests/host/testlib.h"

#define FRAMES  80
#define NTH_MAX 12
/* Tables and cached slabs that may stay when all is freed. */
#define SLACK 64

enum kind { KIND_FRAME, KIND_TABLE, KIND_OBJECT, KINDS };
static const char *const kind_names[] = {"frame", "page-table page", "object"};

/* The last one is drawn: any design, any options turned round. */
static struct sim_boot configs[] = {
    {.design = DESIGN_2024, .nodes = 2},
    {.design = DESIGN_METALMAP},
    {.design = DESIGN_METALMAP, .frames_safe = true},
    {.design = DESIGN_2023},
    {.design = DESIGN_2010},
    {.nodes = 1},
};
#define FULL_CONFIGS 3
static const struct sim_boot *config; /* in use */

static struct page *frames[FRAMES];
static void *prepared; /* what a call works on */
static uint64_t faults, failed_calls;

struct scenario {
    const char *name;
    void (*prepare)(void);
    void *(*call)(void);
    void (*undo)(void *p); /* after success */
    void (*dispose)(void); /* of what was prepared */
    bool must_succeed;     /* calls that give back cannot fail */
};

/* ---- the calls ---- */

static void *call_vmalloc(void)
{
    return vmalloc(1);
}
static void *call_vmalloc_large(void)
{
    return vmalloc(300 * PAGE_SIZE);
}
static void *call_vzalloc(void)
{
    return vzalloc(5 * PAGE_SIZE);
}
static void *call_vmalloc_node(void)
{
    return vmalloc_node(3 * PAGE_SIZE, 1);
}
static void *call_huge(void)
{
    return vmalloc_huge(2 * PMD_SIZE);
}
static void *call_aligned(void)
{
    return __vmalloc(70 * PAGE_SIZE, PMD_SIZE, VM_ZERO | VM_READONLY, VM_ANY_NODE);
}
static void *call_straddle(void)
{
    /* Two tables. */
    return __vmalloc(PMD_SIZE + PAGE_SIZE, PMD_SIZE, VM_NO_GUARD, VM_ANY_NODE);
}
static void *call_realloc_new(void)
{
    return vrealloc(NULL, 2 * PAGE_SIZE);
}
static void *call_vmap(void)
{
    return vmap(frames, 10, 0, PAGE_KERNEL);
}
static void *call_vmap_many(void)
{
    return vmap(frames, FRAMES, VM_NO_GUARD, PAGE_KERNEL_RO);
}
static void *call_map_ram(void)
{
    return vm_map_ram(frames, 1, VM_ANY_NODE);
}
static void *call_map_ram_64(void)
{
    return vm_map_ram(frames, 64, VM_ANY_NODE);
}
static void *call_map_ram_80(void)
{
    return vm_map_ram(frames, 80, VM_ANY_NODE);
}
static void *call_ioremap(void)
{
    return ioremap(0x200000123, 3 * PAGE_SIZE, CACHE_UC);
}
static void *call_ioremap_large(void)
{
    return ioremap(0x200000000, 2 * PMD_SIZE + PAGE_SIZE, CACHE_WC);
}
static void *call_kvmalloc_small(void)
{
    return kvmalloc(700);
}
static void *call_kvmalloc_large(void)
{
    return kvmalloc(KMALLOC_MAX + 1);
}
static void *call_pcpu(void)
{
    static const size_t offsets[] = {0, 5 * PAGE_SIZE, 64 * PAGE_SIZE};
    static const size_t sizes[] = {2 * PAGE_SIZE, 3 * PAGE_SIZE, 9 * PAGE_SIZE};

    return pcpu_get_vm_areas(offsets, sizes, 3, PAGE_SIZE);
}

static void undo_vfree(void *p)
{
    vfree(p);
}
static void undo_vunmap(void *p)
{
    vunmap(p);
}
static void undo_ram_1(void *p)
{
    vm_unmap_ram(p, 1);
}
static void undo_ram_64(void *p)
{
    vm_unmap_ram(p, 64);
}
static void undo_ram_80(void *p)
{
    vm_unmap_ram(p, 80);
}
static void undo_iounmap(void *p)
{
    iounmap(p);
}
static void undo_kvfree(void *p)
{
    kvfree(p);
}
static void undo_pcpu(void *p)
{
    pcpu_free_vm_areas(p, 3);
}

/* Calls on something that is there. */

static void prepare_alloc(void)
{
    prepared = vmalloc(6 * PAGE_SIZE);
}
static void prepare_huge(void)
{
    prepared = vmalloc_huge(PMD_SIZE);
}
static void prepare_vmap(void)
{
    prepared = vmap(frames, 20, 0, PAGE_KERNEL);
}
static void prepare_ram(void)
{
    prepared = vm_map_ram(frames, 7, VM_ANY_NODE);
}
static void prepare_pcpu(void)
{
    static const size_t zero, size = 2 * PMD_SIZE;

    prepared = pcpu_get_vm_areas(&zero, &size, 1, PMD_SIZE);
}
static void dispose_alloc(void)
{
    vfree(prepared);
}
static void dispose_pcpu(void)
{
    pcpu_free_vm_areas(prepared, 1);
}

static void *call_grow(void)
{
    uint64_t word = 0x77;
    uintptr_t va = (uintptr_t)prepared;
    void *p;

    sim_write8(va + 4 * PAGE_SIZE, word);
    p = vrealloc(prepared, 40 * PAGE_SIZE);
    if (p)
        prepared = p;
    SIM_CHECK(sim_read8((uintptr_t)prepared + 4 * PAGE_SIZE, &word) && word == 0x77,
              "contents are lost");
    return p;
}
static void *call_shrink(void)
{
    void *p = vrealloc(prepared, 3 * PAGE_SIZE);
    uint64_t v;

    SIM_CHECK(p == prepared && sim_read8((uintptr_t)p + 2 * PAGE_SIZE, &v),
              "vrealloc cannot shrink");
    return p;
}
static void *call_map_pages(void)
{
    return vm_area_map_pages(((struct vm_area **)prepared)[0], PMD_SIZE - 10 * PAGE_SIZE, frames,
                             60) == OK
               ? prepared
               : NULL;
}
static void undo_map_pages(void *p)
{
    vm_area_unmap_pages(((struct vm_area **)p)[0], PMD_SIZE - 10 * PAGE_SIZE, 60);
    vm_unmap_aliases();
}
static void undo_nothing(void *p)
{
    (void)p;
}
static void dispose_nothing(void)
{
}
static void *call_vfree(void)
{
    vfree(prepared);
    return prepared;
}
static void *call_kvfree_deferred(void)
{
    kvfree_deferred(prepared);
    vm_unmap_aliases();
    return prepared;
}
static void *call_vunmap(void)
{
    vunmap(prepared);
    return prepared;
}
static void *call_unmap_ram(void)
{
    vm_unmap_ram(prepared, 7);
    return prepared;
}
static void *call_aliases(void)
{
    vm_unmap_aliases();
    return prepared;
}
static void *call_quiesce(void)
{
    vmap_quiesce();
    return prepared;
}

static const struct scenario scenarios[] = {
    {"vmalloc", NULL, call_vmalloc, undo_vfree, NULL, false},
    {"vmalloc large", NULL, call_vmalloc_large, undo_vfree, NULL, false},
    {"vzalloc", NULL, call_vzalloc, undo_vfree, NULL, false},
    {"vmalloc_node", NULL, call_vmalloc_node, undo_vfree, NULL, false},
    {"vmalloc_huge", NULL, call_huge, undo_vfree, NULL, false},
    {"__vmalloc aligned", NULL, call_aligned, undo_vfree, NULL, false},
    {"__vmalloc over two tables", NULL, call_straddle, undo_vfree, NULL, false},
    {"vrealloc new", NULL, call_realloc_new, undo_vfree, NULL, false},
    {"vrealloc grow", prepare_alloc, call_grow, undo_nothing, dispose_alloc, false},
    {"vrealloc shrink", prepare_alloc, call_shrink, undo_nothing, dispose_alloc, true},
    {"vrealloc shrink huge", prepare_huge, call_shrink, undo_nothing, dispose_alloc, true},
    {"vmap", NULL, call_vmap, undo_vunmap, NULL, false},
    {"vmap many", NULL, call_vmap_many, undo_vunmap, NULL, false},
    {"vm_map_ram 1", NULL, call_map_ram, undo_ram_1, NULL, false},
    {"vm_map_ram 64", NULL, call_map_ram_64, undo_ram_64, NULL, false},
    {"vm_map_ram 80", NULL, call_map_ram_80, undo_ram_80, NULL, false},
    {"ioremap", NULL, call_ioremap, undo_iounmap, NULL, false},
    {"ioremap large", NULL, call_ioremap_large, undo_iounmap, NULL, false},
    {"kvmalloc small", NULL, call_kvmalloc_small, undo_kvfree, NULL, false},
    {"kvmalloc large", NULL, call_kvmalloc_large, undo_kvfree, NULL, false},
    {"pcpu_get_vm_areas", NULL, call_pcpu, undo_pcpu, NULL, false},
    {"vm_area_map_pages", prepare_pcpu, call_map_pages, undo_map_pages, dispose_pcpu, false},
    {"vfree", prepare_alloc, call_vfree, undo_nothing, dispose_nothing, true},
    {"vfree huge", prepare_huge, call_vfree, undo_nothing, dispose_nothing, true},
    {"kvfree_deferred", prepare_alloc, call_kvfree_deferred, undo_nothing, dispose_nothing, true},
    {"vunmap", prepare_vmap, call_vunmap, undo_nothing, dispose_nothing, true},
    {"vm_unmap_ram", prepare_ram, call_unmap_ram, undo_nothing, dispose_nothing, true},
    {"vm_unmap_aliases", prepare_alloc, call_aliases, undo_nothing, dispose_alloc, true},
    {"vmap_quiesce", prepare_alloc, call_quiesce, undo_nothing, dispose_alloc, true},
};

/* ---- one trial ---- */

struct trial {
    const struct scenario *s;
    enum kind kind;
    uint64_t nth, count;
    bool warm;     /* the call has succeeded once before */
    bool shortage; /* instead of faults: no addresses are left */
};

static void take_frames(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < FRAMES; i++) {
        frames[i] = alloc_page();
        SIM_CHECK(frames[i], "no frames for the test");
        sim_frame_callers_own(frames[i]);
    }
}

static void inject(enum kind kind, uint64_t nth, uint64_t count)
{
    if (kind == KIND_FRAME)
        page_alloc_inject(nth, count);
    else if (kind == KIND_TABLE)
        vmap_inject_pt(nth, count);
    else
        cache_inject(nth, count);
}

static uint64_t counter_alloc_fail(void)
{
    return sim_counters().alloc_fail;
}

static void call_once(const struct scenario *s)
{
    void *p;

    if (s->prepare) {
        s->prepare();
        SIM_CHECK(prepared, "%s: cannot prepare", s->name);
    }
    p = s->call();
    SIM_CHECK(p, "%s fails without a reason", s->name);
    s->undo(p);
    if (s->dispose)
        s->dispose();
}

static void run_trial(void *arg)
{
    const struct trial *t = arg;
    const struct scenario *s = t->s;
    uint64_t counted;
    void *p;

    if (t->warm)
        call_once(s);
    if (s->prepare) {
        s->prepare();
        SIM_CHECK(prepared, "%s: cannot prepare", s->name);
    }
    counted = counter_alloc_fail();
    inject(t->kind, t->nth, t->count);
    p = s->call();
    inject(t->kind, 0, 0);
    faults++;
    if (p) {
        s->undo(p);
    } else {
        failed_calls++;
        SIM_CHECK(!s->must_succeed, "%s failed", s->name);
        SIM_CHECK(s->call == call_kvmalloc_small || s->call == call_map_pages ||
                      counter_alloc_fail() > counted,
                  "a failure of %s was not counted", s->name);
    }
    if (s->dispose)
        s->dispose();
    call_once(s);
}

static void judge(const struct trial *t)
{
    if (sim_failure() == SIM_OK)
        return;
    fail_msg("MM_SEED=0x%lx design %s, mix 0x%x, frames=%s: %s, %s %lu fails %s, %s: %s: %s",
             (unsigned long)test_seed(), vmap_design_names[config->design], config->mix,
             config->frames_safe ? "safe" : "early", t->s->name, kind_names[t->kind],
             (unsigned long)t->nth, t->count == 1 ? "once" : "for good", t->warm ? "warm" : "cold",
             sim_rule_names[sim_failure()], sim_failure_text());
}

static void start_machine(void)
{
    sim_machine(&(struct sim_options){
        .seed = 1, .ram = 20 * SZ_1M, .cpus = 2, .nodes = 2, .frames_safe = config->frames_safe});
}

static void start(bool small_range)
{
    struct sim_boot b = *config;

    start_machine();
    b.range_size = small_range ? 16 * SZ_1M : SZ_1G;
    sim_boot(&b);
    assert_true(sim_do(take_frames, NULL));
}

static void try_scenario(const struct scenario *s)
{
    /* Older designs share most of what can fail with 2024: the first requests do. */
    unsigned nth_max = config < configs + FULL_CONFIGS ? NTH_MAX : NTH_MAX / 3;
    struct trial t = {.s = s};
    struct sim_baseline before, after;

    for (unsigned i = 0; i < KINDS * nth_max * 4; i++) {
        t.kind = i % KINDS;
        t.nth = i / KINDS % nth_max;
        t.warm = i / KINDS / nth_max % 2;
        t.count = i / KINDS / nth_max / 2 ? UINT64_MAX : 1;
        start(false);
        capture_start();
        if (sim_settle(&before) && sim_do(run_trial, &t) && sim_settle(&after))
            sim_compare(&before, &after, SLACK);
        capture_text();
        judge(&t);
    }
}

static void test_faults(void **state)
{
    (void)state;
    for (config = configs; config < configs + ARRAY_SIZE(configs); config++)
        for (unsigned i = 0; i < ARRAY_SIZE(scenarios); i++)
            try_scenario(&scenarios[i]);
    fprintf(stderr, "faults: %lu trials of %zu calls, %lu calls failed\n", (unsigned long)faults,
            ARRAY_SIZE(scenarios), (unsigned long)failed_calls);
}

/* ---- addresses ---- */

static void *hogs[128];
static unsigned hog_count;

/* Takes addresses in pieces of half of what the last one had, down to single pages. */
static void hog_addresses(void)
{
    static const size_t zero;

    hog_count = 0;
    for (size_t size = vmap_config.range_size; size >= PAGE_SIZE; size /= 2)
        while (hog_count < ARRAY_SIZE(hogs)) {
            void *p = pcpu_get_vm_areas(&zero, &size, 1, PAGE_SIZE);

            if (!p)
                break;
            hogs[hog_count++] = p;
        }
    SIM_CHECK(hog_count < ARRAY_SIZE(hogs), "too many pieces of addresses");
}

static void run_shortage(void *arg)
{
    const struct trial *t = arg;
    const struct scenario *s = t->s;
    void *p;

    if (t->warm)
        call_once(s);
    if (s->prepare) {
        s->prepare();
        SIM_CHECK(prepared, "%s: cannot prepare", s->name);
    }
    hog_addresses();
    p = s->call();
    failed_calls += !p;
    faults++;
    SIM_CHECK(p || !s->must_succeed, "%s failed without addresses", s->name);
    if (p)
        s->undo(p);
    for (unsigned i = 0; i < hog_count; i++)
        pcpu_free_vm_areas(hogs[i], 1);
    if (s->dispose)
        s->dispose();
    call_once(s);
}

static void test_no_addresses(void **state)
{
    struct sim_baseline before, after;

    (void)state;
    faults = failed_calls = 0;
    for (config = configs; config < configs + ARRAY_SIZE(configs); config++)
        for (unsigned i = 0; i < 2 * ARRAY_SIZE(scenarios); i++) {
            struct trial t = {.s = &scenarios[i / 2], .warm = i % 2, .shortage = true};

            start(true);
            capture_start();
            if (sim_settle(&before) && sim_do(run_shortage, &t) && sim_settle(&after))
                sim_compare(&before, &after, SLACK);
            capture_text();
            judge(&t);
        }
    assert_true(failed_calls >= 20 * ARRAY_SIZE(configs));
    fprintf(stderr, "faults: %lu trials without addresses, %lu calls failed\n",
            (unsigned long)faults, (unsigned long)failed_calls);
}

/* ---- starting ---- */

static void start_with_fault(void *arg)
{
    const struct trial *t = arg;
    struct vmap_config c;
    uint64_t free_before, caches_before;
    char msg[128];
    err_t err;

    sim_boot(config);
    SIM_CHECK(vmap_exit(), "vmap_exit");
    SIM_CHECK(vmap_config_for(&c, config->design, msg, sizeof(msg)), "%s", msg);
    c.range_size = SZ_1G;
    c.frames_safe = config->frames_safe;
    cache_shrink_all();
    page_drain_local();
    free_before = page_free_count();
    caches_before = cache_pages();
    inject(t->kind, t->nth, t->count);
    err = vmap_init(&c);
    inject(t->kind, 0, 0);
    faults++;
    if (err != OK) {
        failed_calls++;
        SIM_CHECK(!vmalloc(1) && !vm_map_ram(frames, 1, -1),
                  "an allocation from what did not start");
        cache_shrink_all();
        page_drain_local();
        SIM_CHECK(page_free_count() + cache_pages() == free_before + caches_before,
                  "%ld frames are lost by a failed start",
                  (long)(free_before + caches_before - page_free_count() - cache_pages()));
        SIM_CHECK(vmap_init(&c) == OK, "the second start fails");
    }
    vfree(vmalloc(1));
    SIM_CHECK(vmap_selfcheck() && vmap_exit(), "not sound after a start with a fault");
}

static void test_start(void **state)
{
    (void)state;
    faults = failed_calls = 0;
    for (unsigned i = 0; i < KINDS * NTH_MAX * 2 * ARRAY_SIZE(configs); i++) {
        struct trial t = {.s = &(struct scenario){.name = "vmap_init"},
                          .kind = i % KINDS,
                          .nth = i / KINDS % NTH_MAX};

        t.count = i / KINDS / NTH_MAX % 2 ? UINT64_MAX : 1;
        config = &configs[i / KINDS / NTH_MAX / 2];
        start_machine();
        capture_start();
        sim_do(start_with_fault, &t);
        capture_text();
        judge(&t);
    }
    assert_true(failed_calls >= 4);
    fprintf(stderr, "faults: %lu starts, %lu failed\n", (unsigned long)faults,
            (unsigned long)failed_calls);
}

static int draw_config(void **state)
{
    struct sim_boot *drawn = &configs[ARRAY_SIZE(configs) - 1];
    struct rng rng;

    (void)state;
    rng_seed(&rng, test_seed());
    drawn->design = (unsigned)rng_below(&rng, DESIGNS);
    drawn->mix = (uint32_t)rng_below(&rng, 1u << SIM_MIXES);
    drawn->frames_safe = rng_below(&rng, 2);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_no_addresses),
        cmocka_unit_test(test_start),
    };

    return cmocka_run_group_tests(tests, draw_config, NULL);
}
