/*
 * The list of areas, and counters, beside allocations (B5, F5).
 *
 * A list that holds the allocator's lock while it walks makes everybody wait (Linux spent half of
 * its time in it once); one that does not must cope with areas that vanish under it. Judged are the
 * median, not the worst time, which on an emulated CPU is the host's; and that lines are whole and
 * in order.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/clock.h>

#define SAMPLES   256
#define SLOWER    20 /* times the median without a list running, at most */
#define CHURN_CPU 2  /* first of those that allocate and free in info_race */

static uint32_t stop;

struct listing {
    uint64_t lines, last_start, disorder;
};

static uint64_t hex(const char *s)
{
    uint64_t v = 0;

    for (s += 2; *s && *s != '-' && *s != ' '; s++)
        v = v * 16 + (uint64_t)(*s <= '9' ? *s - '0' : *s - 'a' + 10);
    return v;
}

/* "0x<start>-0x<end> <size> …" */
static void check_line(const char *line, void *arg)
{
    struct listing *l = arg;
    const char *dash = strchr(line, '-');
    uint64_t start = hex(line), end = dash ? hex(dash + 1) : 0;

    l->lines++;
    if (start <= l->last_start || end <= start)
        l->disorder++;
    l->last_start = start;
    kt_alive();
}

static void list_until_stopped(void *arg)
{
    (void)arg;
    while (!LOAD_ACQUIRE(stop)) {
        struct listing l = {0};

        vmap_info(check_line, &l);
        KT_EXPECT_EQ(l.disorder, 0);
        kt_alive();
    }
}

/* Median ticks of vmalloc and vfree of a page. */
static uint64_t median(void)
{
    struct histogram *h = kvmalloc(sizeof(*h));
    uint64_t m = 0;

    if (h) {
        hist_init(h);
        for (unsigned i = 0; i < SAMPLES; i++) {
            uint64_t t0 = cycles_begin();

            vfree(vmalloc(PAGE_SIZE));
            hist_add(h, cycles_end() - t0);
            kt_alive();
        }
        m = hist_percentile(h, 5000);
    }
    kvfree(h);
    return m;
}

KTEST(report_vs_alloc, "B5: listing all areas does not block allocations")
{
    uint64_t n = kt_scaled(1000), alone, beside;
    unsigned cpu = kt_other_cpu();
    struct page *page = alloc_page();
    void **p = vzalloc(n * sizeof(*p));
    struct listing l = {0};

    KT_ASSERT(page && p);
    kt_quiesce();
    for (uint64_t i = 0; i < n; i++) {
        p[i] = vmap(&page, 1, 0, PAGE_KERNEL);
        KT_EXPECT(p[i]);
    }
    vmap_info(check_line, &l);
    KT_EXPECT_EQ(l.disorder, 0);
    if (!vmap_config.blocks_all) /* there the counter has blocks in it */
        KT_EXPECT_EQ(l.lines, kt_counter("vmap_areas"));
    alone = median();
    stop = 0;
    if (cpu)
        kt_start(cpu, list_until_stopped, NULL);
    beside = median();
    STORE_RELEASE(stop, 1u);
    if (cpu)
        kt_join(cpu);
    kt_note("test=report_vs_alloc areas=%lu median_alone=%lu median_beside=%lu", (unsigned long)n,
            (unsigned long)alone, (unsigned long)beside);
    KT_EXPECT(beside <= SLOWER * alone);
    for (uint64_t i = 0; i < n; i++)
        vunmap(p[i]);
    vfree(p);
    free_page(page);
}

static void churn_until_stopped(void *arg)
{
    struct page *page = arg;

    while (!LOAD_ACQUIRE(stop)) {
        void *a = vmalloc(3 * PAGE_SIZE), *b = vm_map_ram(&page, 1, VM_ANY_NODE);

        KT_EXPECT(a && b);
        vfree(a);
        vm_unmap_ram(b, 1);
        kt_alive();
    }
}

KTEST(info_race, "F5: listing areas and counters while all are allocated and freed")
{
    unsigned churners = kt_cpus() > CHURN_CPU ? MIN(kt_cpus() - CHURN_CPU, 2U) : 0;
    struct page *page = alloc_page();
    struct vmap_counters c;

    KT_ASSERT(page);
    stop = 0;
    if (kt_cpus() > 1)
        kt_start(1, list_until_stopped, NULL);
    for (unsigned i = 0; i < churners; i++)
        kt_start(CHURN_CPU + i, churn_until_stopped, page);
    for (uint64_t i = 0; i < kt_scaled(200); i++) {
        struct listing l = {0};

        vmap_info(check_line, &l);
        KT_EXPECT_EQ(l.disorder, 0);
        vmap_read_counters(&c);
        KT_EXPECT(c.va_used <= vmap_config.range_size);
        KT_EXPECT(c.free_pages <= page_total());
        vfree(vmalloc(PAGE_SIZE));
    }
    STORE_RELEASE(stop, 1u);
    if (kt_cpus() > 1)
        kt_join(1);
    for (unsigned i = 0; i < churners; i++)
        kt_join(CHURN_CPU + i);
    free_page(page);
}
