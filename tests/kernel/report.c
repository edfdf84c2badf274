/*
 * report.c: the lines and the table that the run prints (docs/OUTPUT.md). Boot CPU, between tests.
 */
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/runner.h"
#include <arch/cpu.h>

#define NAME_WIDTH 36
#define CELL_WIDTH 12

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
    unsigned correct[DESIGNS][KTAP_ERROR + 1]; /* correctness tests by design and status */
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

static void print_area(const char *line, void *arg)
{
    (void)arg;
    ktap_note("%s", line);
}

void report_areas(void)
{
    vmap_info(print_area, NULL);
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
        table.correct[vmap_config.design][s]++;
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

static const char *op_of(const struct row *r)
{
    return r->f.op ? r->f.op : "pair";
}

/* "alloc_touch_free alloc"; of a pair only the test. */
static void row_name(const struct row *r, char *name, size_t size)
{
    bool pair = strcmp(op_of(r), "pair") == 0;

    ksnprintf(name, size, "%s%s%s", r->test->name, pair ? "" : " ", pair ? "" : op_of(r));
}

/* test/op design cpus n p50 p99 p99.9 max mean ops/s verdict, in cycles */
static void print_row(const struct row *r)
{
    char name[64], rate[24] = "-";

    if (!r->f.op) {
        kprintf("# %-*s %-8s %4s %9s %8s %8s %8s %10s %8s %10s  %s\n", NAME_WIDTH, r->test->name,
                r->design, "-", "-", "-", "-", "-", "-", "-", "-", status_names[r->status]);
        return;
    }
    row_name(r, name, sizeof(name));
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

/* The last row of a test's operation on a design; NULL: none. */
static const struct row *row_of(const struct row *like, const char *design)
{
    const struct row *found = NULL;

    for (unsigned i = 0; i < table.rows; i++) {
        const struct row *r = &table.row[i];

        if (r->test == like->test && r->design == design && strcmp(op_of(r), op_of(like)) == 0)
            found = r;
    }
    return found;
}

static void print_cell(char *text, const struct row *r)
{
    char number[24] = "-";

    if (r && (r->status != KTAP_PASS || !r->f.op))
        ksnprintf(number, sizeof(number), "%s", status_names[r->status]);
    else if (r)
        ksnprintf(number, sizeof(number), "%lu", (unsigned long)r->f.mean);
    ksnprintf(text, CELL_WIDTH + 2, " %*s", CELL_WIDTH, number);
}

typedef void (*cell_fn)(char *text, const void *arg, unsigned design);

static void print_design_cells(const char *name, cell_fn cell, const void *arg)
{
    char text[KT_DESIGNS_MAX * (CELL_WIDTH + 1) + 1] = "";

    for (unsigned d = 0; d < kt_selection.designs; d++)
        cell(text + d * (CELL_WIDTH + 1), arg, kt_selection.design[d]);
    kprintf("# %-*s%s\n", NAME_WIDTH, name, text);
}

static void heading_cell(char *text, const void *arg, unsigned design)
{
    (void)arg;
    ksnprintf(text, CELL_WIDTH + 2, " %*s", CELL_WIDTH, vmap_design_names[design]);
}

static void mean_cell(char *text, const void *arg, unsigned design)
{
    const struct row *like = arg, *r = row_of(like, vmap_design_names[design]);

    /* Correctness tests that pass have no row. */
    if (!r && like->test->kind == KT_CORRECTNESS)
        ksnprintf(text, CELL_WIDTH + 2, " %*s", CELL_WIDTH, status_names[KTAP_PASS]);
    else
        print_cell(text, r);
}

static void correct_cell(char *text, const void *arg, unsigned design)
{
    const unsigned *n = table.correct[design];
    char cell[40];

    (void)arg;
    ksnprintf(cell, sizeof(cell), "%u/%u/%u", n[KTAP_PASS], n[KTAP_SKIP],
              n[KTAP_FAIL] + n[KTAP_ERROR]);
    ksnprintf(text, CELL_WIDTH + 2, " %*s", CELL_WIDTH, cell);
}

/* Designs beside each other: the mean of one operation, or the verdict where there is none. */
static void print_designs(void)
{
    kprintf("#\n# The same by design: mean ticks of one operation.\n");
    print_design_cells("test", heading_cell, NULL);
    for (unsigned i = 0; i < table.rows; i++) {
        const struct row *r = &table.row[i];
        char name[64];
        unsigned j = 0;

        while (table.row[j].test != r->test || strcmp(op_of(&table.row[j]), op_of(r)) != 0)
            j++;
        if (j != i)
            continue;
        row_name(r, name, sizeof(name));
        print_design_cells(name, mean_cell, r);
    }
    print_design_cells("correctness pass/skip/fail", correct_cell, NULL);
}

void report_table(void)
{
    unsigned sum[KTAP_ERROR + 1] = {0};

    if (table.rows)
        print_heading();
    for (unsigned i = 0; i < table.rows; i++)
        print_row(&table.row[i]);
    if (kt_selection.designs > 1)
        print_designs();
    for (unsigned d = 0; d < DESIGNS; d++)
        for (unsigned s = 0; s <= KTAP_ERROR; s++)
            sum[s] += table.correct[d][s];
    kprintf("# correctness tests: %u passed, %u skipped, %u failed\n#\n", sum[KTAP_PASS],
            sum[KTAP_SKIP], sum[KTAP_FAIL] + sum[KTAP_ERROR]);
}
