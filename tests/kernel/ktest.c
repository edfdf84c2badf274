/*
 * ktest.c: what tests call: failures, work on other CPUs, accesses that may fault, counters.
 *
 * A failure goes to the outcome of the CPU it happened on if that has one of its own, else to that
 * of the test which the whole machine runs. Only the first one is kept.
 */
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/runner.h"
#include <arch/atomic.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/trap.h>
#include <arch/watchdog.h>

static struct kt_outcome *global_outcome; /* written by the boot CPU between tests */
static DEFINE_PER_CPU(struct kt_outcome *, cpu_outcome);

void kt_set_outcome(struct kt_outcome *global)
{
    WRITE_ONCE(global_outcome, global);
}

void kt_set_cpu_outcome(struct kt_outcome *mine)
{
    *this_cpu_ptr(&cpu_outcome) = mine;
}

static struct kt_outcome *outcome(void)
{
    struct kt_outcome *o = *this_cpu_ptr(&cpu_outcome);

    return o ? o : READ_ONCE(global_outcome);
}

/* Only the first caller gets to write the reason. */
static bool claim(struct kt_outcome *o)
{
    uint32_t free = 0;

    return ATOMIC_CAS(o->lock, &free, 1u);
}

void kt_fail(const char *file, int line, const char *fmt, ...)
{
    struct kt_outcome *o = outcome();
    va_list ap;

    if (!o)
        return;
    if (claim(o)) {
        const char *name = file;
        size_t n;

        for (const char *p = file; *p; p++) {
            if (*p == '/')
                name = p + 1;
        }
        n = (size_t)ksnprintf(o->why, sizeof(o->why), "%s:%d: cpu %u: ", name, line, this_cpu_id());
        n = MIN(n, sizeof(o->why) - 1);
        va_start(ap, fmt);
        kvsnprintf(o->why + n, sizeof(o->why) - n, fmt, ap);
        va_end(ap);
    }
    ATOMIC_ADD(o->failed, 1u);
}

void kt_skip(const char *fmt, ...)
{
    struct kt_outcome *o = outcome();
    va_list ap;

    if (!o)
        return;
    if (claim(o)) {
        va_start(ap, fmt);
        kvsnprintf(o->why, sizeof(o->why), fmt, ap);
        va_end(ap);
    }
    ATOMIC_ADD(o->skipped, 1u);
}

bool kt_failed(void)
{
    struct kt_outcome *o = outcome();

    return o && READ_ONCE(o->failed) != 0;
}

unsigned kt_cpus(void)
{
    return smp_cpus();
}

struct call {
    void (*fn)(void *);
    void *arg;
};

/* One record for each CPU that runs asynchronously; written by who starts it. */
static struct call calls[SMP_MAX_CPUS];
/* CPUs that have run something since kt_take_used(). Set by who starts it. */
static uint8_t used[SMP_MAX_CPUS];
static const char *task_name = "tests"; /* of what runs; boot CPU writes between tests */

void kt_set_task_name(const char *name)
{
    WRITE_ONCE(task_name, name);
    trap_set_task_name(name);
}

/* A CPU counts as busy for the watchdog while it runs a test's function. */
static void run_busy(void *arg)
{
    struct call *c = arg;

    trap_set_task_name(READ_ONCE(task_name));
    watchdog_touch();
    watchdog_set_busy(true);
    c->fn(c->arg);
    if (this_cpu_id() != 0)
        watchdog_set_busy(false);
}

/* Waiting for others is no work: the watchdog looks at them. */
static void wait_begin(void)
{
    if (this_cpu_id() == 0)
        watchdog_set_busy(false);
}
static void wait_end(void)
{
    if (this_cpu_id() == 0) {
        watchdog_touch();
        watchdog_set_busy(true);
    }
}

bool kt_take_used(unsigned cpu)
{
    return ATOMIC_XCHG(used[cpu], 0);
}

void kt_on_idle_cpu(unsigned cpu, void (*fn)(void *), void *arg)
{
    struct call c = {.fn = fn, .arg = arg};

    wait_begin();
    smp_call(cpu, run_busy, &c);
    wait_end();
}

void kt_on_cpu(unsigned cpu, void (*fn)(void *), void *arg)
{
    WRITE_ONCE(used[cpu], 1);
    kt_on_idle_cpu(cpu, fn, arg);
}

void kt_on_all(void (*fn)(void *), void *arg)
{
    struct call c = {.fn = fn, .arg = arg};
    unsigned cpu;

    for_each_cpu (cpu)
        WRITE_ONCE(used[cpu], 1);
    wait_begin();
    smp_call_all(run_busy, &c);
    wait_end();
}

void kt_start(unsigned cpu, void (*fn)(void *), void *arg)
{
    WRITE_ONCE(used[cpu], 1);
    calls[cpu] = (struct call){.fn = fn, .arg = arg};
    smp_call_async(cpu, run_busy, &calls[cpu]);
}

void kt_join(unsigned cpu)
{
    wait_begin();
    smp_call_wait(cpu);
    wait_end();
}

bool kt_read(const volatile void *addr, uint64_t *value)
{
    return probe_read8(addr, value);
}

bool kt_write(volatile void *addr, uint64_t value)
{
    return probe_write8(addr, value);
}

bool kt_exec(const void *addr)
{
    return probe_exec(addr);
}

struct counter_query {
    const char *name;
    uint64_t value;
    bool found;
};

static void match_counter(const char *name, uint64_t value, void *arg)
{
    struct counter_query *q = arg;

    if (!strcmp(name, q->name)) {
        q->value = value;
        q->found = true;
    }
}

uint64_t kt_counter(const char *name)
{
    struct counter_query q = {.name = name};

    vmap_for_each_counter(match_counter, &q);
    if (!q.found)
        KT_FAIL("there is no counter %s", name);
    return q.value;
}

bool kt_selfcheck(void)
{
    return vmap_selfcheck();
}

uint64_t kt_seed(void)
{
    return kt_options.seed;
}

uint64_t kt_scaled(uint64_t quick)
{
    uint64_t n = quick;

    if (kt_options.profile == PROFILE_SMOKE)
        n = quick / 16;
    else if (kt_options.profile == PROFILE_FULL)
        n = quick * 16;
    return n ? n : 1;
}

uint64_t kt_scaled_areas(uint64_t quick)
{
    return kt_scaled(vmap_config.search_walk ? MAX(quick / 32, 1UL) : quick);
}

void kt_alive(void)
{
    watchdog_touch();
}

uint64_t kt_nr_pages(void)
{
    return kt_options.nr_pages ? kt_options.nr_pages : 1;
}

bool kt_use_huge(void)
{
    return kt_options.use_huge;
}

uint64_t kt_nr_pcpu_objects(void)
{
    return kt_options.nr_pcpu_objects;
}
