/*
 * report_locks.c: what lockstat=on prints: "# lock" lines, and the table of Linux's /proc/lock_stat
 * for those who know how to read it (Documentation/locking/lockstat.rst). Its times are
 * microseconds, those of the lines ticks.
 *
 * Counted is what runs inside tests, not what the runner does between them.
 */
#include "lib/muldiv.h"
#include "lib/printf.h"
#include "tests/kernel/runner.h"
#include <arch/clock.h>
#include <arch/lockstat.h>
#include <arch/smp.h>

#define NAME_WIDTH 30
#define CELL_WIDTH 14

bool locks_init(void)
{
    unsigned cpu;

    if (!lockstat_on)
        return true;
    for_each_cpu (cpu) {
        void *mem = kt_pages_alloc(lockstat_cpu_size());

        if (!mem)
            return false;
        lockstat_attach(cpu, mem);
    }
    return true;
}

static uint64_t average(uint64_t total, uint64_t n)
{
    return n ? total / n : 0;
}

static void print_line(const char *test, const char *name, const struct lockstat *s)
{
    char text[700];
    size_t n = 0;

    n += (size_t)ksnprintf(
        text, sizeof(text),
        "lock class=%s design=%s test=%s acquisitions=%lu contentions=%lu bounces=%lu "
        "con_bounces=%lu wait_min=%lu wait_max=%lu wait_total=%lu wait_avg=%lu hold_min=%lu "
        "hold_max=%lu hold_total=%lu hold_avg=%lu unit=tsc",
        name, kt_design_name(), test, (unsigned long)s->acquisitions, (unsigned long)s->contentions,
        (unsigned long)s->acq_bounces, (unsigned long)s->con_bounces, (unsigned long)s->wait.min,
        (unsigned long)s->wait.max, (unsigned long)s->wait.total,
        (unsigned long)average(s->wait.total, s->contentions), (unsigned long)s->hold.min,
        (unsigned long)s->hold.max, (unsigned long)s->hold.total,
        (unsigned long)average(s->hold.total, s->acquisitions));
    for (unsigned i = 0; i < LOCKSTAT_POINTS && s->point[i].ip && n < sizeof(text); i++)
        n += (size_t)ksnprintf(text + n, sizeof(text) - n, "%s%pS:%lu",
                               i ? "," : " site=", (void *)s->point[i].ip,
                               (unsigned long)s->point[i].count);
    ktap_note("%s", text);
}

/* Ticks as microseconds with two decimals. */
static void print_time(char *text, uint64_t ticks)
{
    uint64_t hz = clock_tsc_hz(), hundredths = mul_div_u64(ticks, 100000000, hz ? hz : 1000000000);
    char number[24];

    ksnprintf(number, sizeof(number), "%lu.%02lu", (unsigned long)(hundredths / 100),
              (unsigned long)(hundredths % 100));
    ksnprintf(text, CELL_WIDTH + 2, " %*s", CELL_WIDTH, number);
}

static void print_times(char *text, const struct lockstat_times *t, uint64_t n)
{
    print_time(text, t->min);
    print_time(text + CELL_WIDTH + 1, t->max);
    print_time(text + 2 * (CELL_WIDTH + 1), t->total);
    print_time(text + 3 * (CELL_WIDTH + 1), average(t->total, n));
}

static void print_row(const char *name, const struct lockstat *s)
{
    char wait[4 * (CELL_WIDTH + 1) + 1], hold[4 * (CELL_WIDTH + 1) + 1];

    print_times(wait, &s->wait, s->contentions);
    print_times(hold, &s->hold, s->acquisitions);
    kprintf("# %*s: %*lu %*lu%s %*lu %*lu%s\n", NAME_WIDTH - 1, name, CELL_WIDTH,
            (unsigned long)s->con_bounces, CELL_WIDTH, (unsigned long)s->contentions, wait,
            CELL_WIDTH, (unsigned long)s->acq_bounces, CELL_WIDTH, (unsigned long)s->acquisitions,
            hold);
    if (!s->contentions)
        return;
    kprintf("# %*s\n", NAME_WIDTH, "---------------");
    for (unsigned i = 0; i < LOCKSTAT_POINTS && s->point[i].ip; i++)
        kprintf("# %*s %*lu          [<%016lx>] %pS\n", NAME_WIDTH, name, CELL_WIDTH,
                (unsigned long)s->point[i].count, (unsigned long)s->point[i].ip,
                (void *)s->point[i].ip);
}

static void print_heading(void)
{
    static const char *const columns[] = {"con-bounces",  "contentions",    "waittime-min",
                                          "waittime-max", "waittime-total", "waittime-avg",
                                          "acq-bounces",  "acquisitions",   "holdtime-min",
                                          "holdtime-max", "holdtime-total", "holdtime-avg"};
    char text[ARRAY_SIZE(columns) * (CELL_WIDTH + 1) + 1];

    for (unsigned i = 0; i < ARRAY_SIZE(columns); i++)
        ksnprintf(text + i * (CELL_WIDTH + 1), CELL_WIDTH + 2, " %*s", CELL_WIDTH, columns[i]);
    kprintf("#\n# lock_stat of design %s, times in us\n", kt_design_name());
    kprintf("# %*s%s\n", NAME_WIDTH, "class name", text);
}

/* Classes by contentions, the most contended first; true while there is another one. */
static bool next_class(uint32_t *done, const char **name, struct lockstat *best)
{
    unsigned at = LOCKSTAT_CLASSES;
    struct lockstat s;
    const char *n;

    for (unsigned i = 0; (n = lockstat_read(i, &s)) != NULL; i++) {
        if (*done & BIT(i) || !s.acquisitions)
            continue;
        if (at < LOCKSTAT_CLASSES &&
            (s.contentions < best->contentions ||
             (s.contentions == best->contentions && s.acquisitions <= best->acquisitions)))
            continue;
        at = i;
        *name = n;
        *best = s;
    }
    if (at < LOCKSTAT_CLASSES)
        *done |= (uint32_t)BIT(at);
    return at < LOCKSTAT_CLASSES;
}

void locks_report(const char *test)
{
    struct lockstat s;
    const char *name;
    uint32_t done = 0;

    if (!lockstat_on)
        return;
    while (next_class(&done, &name, &s))
        print_line(test, name, &s);
    print_heading();
    done = 0;
    while (next_class(&done, &name, &s))
        print_row(name, &s);
    kprintf("#\n");
}
