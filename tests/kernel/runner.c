/*
 * runner.c: the run: all selected tests for each design, KTAP around them, and the verdict.
 *
 * Boot CPU, all other CPUs online and idle. Memory of the runner itself comes from the page
 * allocator, by the direct map, so that it is no user of the addresses under test and may live
 * while designs change.
 */
#include "tests/kernel/runner.h"
#include "boot/kmain.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmap.h"
#include <arch/clock.h>
#include <arch/lockstat.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/watchdog.h>

static struct ktap ktap;

static unsigned order_of(size_t bytes)
{
    return bytes > PAGE_SIZE ? fls64((bytes - 1) >> PAGE_SHIFT) : 0;
}

void *kt_pages_alloc(size_t bytes)
{
    struct page *page = order_of(bytes) <= PAGE_MAX_ORDER ? alloc_pages(order_of(bytes)) : NULL;

    return page ? memset(page_address(page), 0, PAGE_SIZE << order_of(bytes)) : NULL;
}

void kt_pages_free(void *p, size_t bytes)
{
    if (p)
        free_pages(virt_to_page(p), order_of(bytes));
}

const char *kt_design_name(void)
{
    return vmap_design_names[vmap_config.design];
}

static enum ktap_status status_of(const struct kt_outcome *o)
{
    return o->failed ? KTAP_FAIL : o->skipped ? KTAP_SKIP : KTAP_PASS;
}

/* The result line, and the figures before it. */
static void finish_test(const struct ktest *t, struct kt_outcome *o, const struct bench_result *r)
{
    enum ktap_status s = status_of(o);
    char name[96];

    if (r && r->ops)
        report_bench(t, r);
    if (kt_options.counters == COUNTERS_EACH) {
        report_counters();
        locks_report(t->name);
    }
    ksnprintf(name, sizeof(name), "%s%s%s", t->name, kt_selection.designs > 1 ? "/" : "",
              kt_selection.designs > 1 ? kt_design_name() : "");
    ktap_result(&ktap, name, s, o->why[0] ? o->why : NULL);
    report_verdict(t, s, r);
}

static void begin_test(const char *name, struct kt_outcome *o)
{
    memset(o, 0, sizeof(*o));
    kt_set_outcome(o);
    heartbeat_test(name);
    kt_set_task_name(name);
    if (kt_options.counters == COUNTERS_EACH)
        lockstat_reset();
    lockstat_run(true);
}

/* What the runner does from here on is not the test's. */
static void end_test(const char *name)
{
    lockstat_run(false);
    leak_check(name);
    heartbeat_test(NULL);
}

static void run_test(const struct ktest *t)
{
    static struct kt_outcome o;
    static struct bench_result result;

    begin_test(t->name, &o);
    memset(&result, 0, sizeof(result));
    if (t->kind == KT_BENCH)
        bench_run(t, &result);
    else
        t->run();
    end_test(t->name);
    finish_test(t, &o, &result);
    kt_set_outcome(NULL);
}

/* The family at once, each worker in its own order. Leaks are seen at the end, and blamed on all.
 */
static void run_family(const struct ktest *const *tests, unsigned n)
{
    static struct kt_outcome o, each[32];
    static struct bench_result result[32];

    n = MIN(n, (unsigned)ARRAY_SIZE(each));
    begin_test("test_vmalloc", &o);
    memset(each, 0, sizeof(each));
    memset(result, 0, sizeof(result));
    bench_run_shuffled(tests, n, each, result);
    end_test("test_vmalloc");
    for (unsigned i = 0; i < n; i++)
        finish_test(tests[i], o.failed ? &o : &each[i], &result[i]);
    kt_set_outcome(NULL);
}

static void run_all(void)
{
    const struct kt_selection *s = &kt_selection;
    unsigned family = 0, i;

    while (family < s->tests && s->test[family]->mask)
        family++;
    bench_reset();
    if (kt_options.sequential || family < 2) {
        for (i = 0; i < family; i++)
            run_test(s->test[i]);
    } else {
        run_family(s->test, family);
    }
    report_workers();
    for (i = family; i < s->tests; i++)
        run_test(s->test[i]);
}

static void init_cpu(void *arg)
{
    err_t *worst = arg;

    if (vmap_cpu_init(this_cpu_id()) != OK)
        *worst = ERR_NOMEM;
}

/* Mostly a wait for other CPUs, which give back what they keep. */
bool kt_vmap_exit(void)
{
    bool ok;

    watchdog_set_busy(false);
    ok = vmap_exit();
    watchdog_touch();
    watchdog_set_busy(true);
    return ok;
}

bool kt_rebuild_from_nothing(const struct vmap_config *c)
{
    err_t worst = OK;

    if (vmap_init(c) != OK)
        return false;
    kt_on_all(init_cpu, &worst);
    return worst == OK;
}

bool kt_rebuild(const struct vmap_config *c)
{
    kt_quiesce();
    return kt_vmap_exit() && kt_rebuild_from_nothing(c);
}

/* Takes the present design down and builds another one. */
static bool switch_design(unsigned design)
{
    struct vmap_config c;
    char msg[200];

    if (vmap_config.design == design)
        return true;
    if (!vmap_config_for(&c, design, msg, sizeof(msg))) {
        ktap_note("error: %s", msg);
        return false;
    }
    if (kt_rebuild(&c))
        return true;
    ktap_note("error: the allocator could not be rebuilt as design %s", vmap_design_names[design]);
    return false;
}

static void print_design(void)
{
    char text[300];

    vmap_config_print(&vmap_config, text, sizeof(text));
    ktap_note("design %s", text);
}

static void run_designs(uint64_t round)
{
    for (unsigned d = 0; d < kt_selection.designs; d++) {
        if (!switch_design(kt_selection.design[d])) {
            ktap.errors++;
            return;
        }
        print_design();
        if (!round || kt_selection.designs > 1)
            leak_baseline();
        lockstat_reset();
        run_all();
        if (kt_options.counters == COUNTERS_END)
            locks_report("all");
        if (kt_options.vmallocinfo)
            report_areas();
    }
}

static uint32_t verdict_of(enum ktap_status s)
{
    static const uint32_t verdicts[] = {
        [KTAP_PASS] = VERDICT_PASS,
        [KTAP_SKIP] = VERDICT_SKIP,
        [KTAP_FAIL] = VERDICT_FAIL,
        [KTAP_ERROR] = VERDICT_ERROR,
    };

    return verdicts[s];
}

uint32_t tests_main(void)
{
    const struct kt_selection *s = &kt_selection;
    unsigned n = s->tests * s->designs * (unsigned)kt_options.repeat;

    ktap_plan(&ktap, n);
    ktap_note("run seed=%lu profile=%s tests=%u designs=%u repeat=%lu cpus=%u",
              (unsigned long)kt_options.seed,
              kt_options.profile == PROFILE_SMOKE   ? "smoke"
              : kt_options.profile == PROFILE_QUICK ? "quick"
                                                    : "full",
              s->tests, s->designs, (unsigned long)kt_options.repeat, smp_cpus());
    if (!report_init(MIN(n * BENCH_OPS, 4096U)) || !bench_reset() || !locks_init())
        return verdict_of(ktap_bail(&ktap, "no memory for the test runner"));
    heartbeat_start();
    for (uint64_t i = 0; i < kt_options.repeat; i++)
        run_designs(i);
    heartbeat_stop();
    report_counters();
    report_table();
    return verdict_of(ktap_finish(&ktap));
}
