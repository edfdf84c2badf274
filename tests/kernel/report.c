/*
 * report.c: the lines and the table that the run prints (docs/OUTPUT.md). Boot CPU, between tests.
 */
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/runner.h"
#include <arch/cpu.h>

#define NAME_WIDTH 36

/* One line of the table for people. */
struct row {
    const struct ktest *test;
    const char *design;
    struct bench_figures f; /* op is NULL: no figures */
    uint64_t ops_per_s;     /* 0: not for this line */
    unsigned cpus;
    enum ktap_status status;
};

static struct {
    struct row *row;
    unsigned rows, room;
    unsigned correct[KTAP_ERROR + 1]; /* correctness tests by status */
} table;

bool report_init(unsigned rows)
{
    table.row = kt_pages_alloc(rows * sizeof(struct row));
    table.room = table.row ? rows : 0;
    return table.row != NULL;
}

void kt_note(const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    kvsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ktap_note("note %s", text);
}

static void print_figures(const struct ktest *t, const struct bench_result *r,
                          const struct bench_figures *f)
{
    char more[96] = "";

    if (r->population != r->population_linux)
        ksnprintf(more, sizeof(more), " population=%lu population_linux=%lu",
                  (unsigned long)r->population, (unsigned long)r->population_linux);
    ktap_note(
        "bench test=%s design=%s cpus=%u op=%s n=%lu min=%lu p50=%lu p90=%lu p99=%lu p999=%lu "
        "max=%lu mean=%lu unit=tsc emulated=%s dropped=%lu%s",
        t->name, kt_design_name(), r->cpus, f->op, (unsigned long)f->n, (unsigned long)f->min,
        (unsigned long)f->p50, (unsigned long)f->p90, (unsigned long)f->p99, (unsigned long)f->p999,
        (unsigned long)f->max, (unsigned long)f->mean, cpu_features.emulated ? "yes" : "no",
        (unsigned long)f->dropped, more);
}

void report_bench(const struct ktest *t, const struct bench_result *r)
{
    char events[64] = "";

    if (t->mask)
        ktap_note("Summary: %s passed: %lu failed: %lu xfailed: %lu repeat: %lu loops: %lu avg: "
                  "%lu usec",
                  t->name, (unsigned long)r->passed, (unsigned long)r->failed,
                  (unsigned long)r->xfailed, (unsigned long)r->repeat, (unsigned long)r->loops,
                  (unsigned long)r->avg_usec);
    for (unsigned i = 0; i < r->ops; i++)
        print_figures(t, r, &r->op[i]);
    if (r->gated)
        ksnprintf(events, sizeof(events), " lock_contended=%lu tlb_ipis=%lu",
                  (unsigned long)r->contended, (unsigned long)r->ipis);
    ktap_note("rate test=%s design=%s cpus=%u ops_per_s=%lu ops=%lu%s", t->name, kt_design_name(),
              r->cpus, (unsigned long)r->ops_per_s, (unsigned long)r->ops_done, events);
}

struct line {
    char text[900];
    size_t n;
};

static void add_counter(const char *name, uint64_t value, void *arg)
{
    struct line *l = arg;

    if (l->n < sizeof(l->text))
        l->n += (size_t)ksnprintf(l->text + l->n, sizeof(l->text) - l->n, " %s=%lu", name,
                                  (unsigned long)value);
}

void report_counters(void)
{
    struct line l = {.n = 0};

    vmap_for_each_counter(add_counter, &l);
    ktap_note("counter%s", l.text);
}

void report_workers(void)
{
    for (unsigned i = 0; i < bench_workers_seen(); i++)
        ktap_note("All test took worker%u=%lu cycles", i, (unsigned long)bench_worker_cycles(i));
}

static void add_row(const struct row *r)
{
    if (table.rows < table.room)
        table.row[table.rows++] = *r;
}

void report_verdict(const struct ktest *t, enum ktap_status s, const struct bench_result *r)
{
    struct row row = {.test = t, .design = kt_design_name(), .status = s};

    if (t->kind == KT_CORRECTNESS)
        table.correct[s]++;
    if (!r || !r->ops) {
        if (t->kind == KT_BENCH || s != KTAP_PASS)
            add_row(&row);
        return;
    }
    for (unsigned i = 0; i < r->ops; i++) {
        row.f = r->op[i];
        row.cpus = r->cpus;
        row.ops_per_s = i ? 0 : r->ops_per_s;
        add_row(&row);
    }
}

static const char *const status_names[] = {"pass", "skip", "FAIL", "ERROR"};

/* test/op design cpus n p50 p99 p99.9 max mean ops/s verdict, in cycles */
static void print_row(const struct row *r)
{
    char name[64], rate[24] = "-";

    if (!r->f.op) {
        kprintf("# %-*s %-8s %4s %9s %8s %8s %8s %10s %8s %10s  %s\n", NAME_WIDTH, r->test->name,
                r->design, "-", "-", "-", "-", "-", "-", "-", "-", status_names[r->status]);
        return;
    }
    ksnprintf(name, sizeof(name), "%s%s%s", r->test->name, strcmp(r->f.op, "pair") == 0 ? "" : " ",
              strcmp(r->f.op, "pair") == 0 ? "" : r->f.op);
    if (r->ops_per_s)
        ksnprintf(rate, sizeof(rate), "%lu", (unsigned long)r->ops_per_s);
    kprintf("# %-*s %-8s %4u %9lu %8lu %8lu %8lu %10lu %8lu %10s  %s\n", NAME_WIDTH, name,
            r->design, r->cpus, (unsigned long)r->f.n, (unsigned long)r->f.p50,
            (unsigned long)r->f.p99, (unsigned long)r->f.p999, (unsigned long)r->f.max,
            (unsigned long)r->f.mean, rate, status_names[r->status]);
}

static void print_heading(void)
{
    kprintf(
        "#\n# Times in %sTSC ticks of one operation; mean without timing in between; ops/s of all "
        "CPUs together.\n",
        cpu_features.emulated ? "emulated " : "");
    kprintf("# %-*s %-8s %4s %9s %8s %8s %8s %10s %8s %10s  %s\n", NAME_WIDTH, "test", "design",
            "cpus", "n", "p50", "p99", "p99.9", "max", "mean", "ops/s", "verdict");
}

void report_table(void)
{
    if (table.rows)
        print_heading();
    for (unsigned i = 0; i < table.rows; i++)
        print_row(&table.row[i]);
    kprintf("# correctness tests: %u passed, %u skipped, %u failed\n#\n", table.correct[KTAP_PASS],
            table.correct[KTAP_SKIP], table.correct[KTAP_FAIL] + table.correct[KTAP_ERROR]);
}
