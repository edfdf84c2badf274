/*
 * runner.h: what the parts of the test runner share: selection (select.c), the run itself
 * (runner.c), measured tasks (bench.c), leak checks (leak.c), heartbeat and watchdog (heartbeat.c),
 * and the lines and tables (report.c, report_locks.c). Tests include ktest.h only.
 */
#ifndef TESTS_KERNEL_RUNNER_H
#define TESTS_KERNEL_RUNNER_H

#include "lib/ktap.h"
#include "mm/vmap.h"
#include "tests/kernel/ktest.h"

enum kt_profile { PROFILE_SMOKE, PROFILE_QUICK, PROFILE_FULL };
enum kt_counters { COUNTERS_END, COUNTERS_EACH };

/* The options; constant once the run has begun. */
struct kt_options {
    unsigned profile, counters;
    uint64_t seed, repeat, nr_threads, test_repeat_count, test_loop_count, samples, nr_pages,
        nr_pcpu_objects;
    bool use_huge, sequential, vmallocinfo;
};
extern struct kt_options kt_options;

/* What the run goes through. */
#define KT_TESTS_MAX   256
#define KT_DESIGNS_MAX 8
struct kt_selection {
    const struct ktest *test[KT_TESTS_MAX];
    unsigned tests;
    unsigned design[KT_DESIGNS_MAX]; /* enum vmap_design */
    unsigned designs;
};
extern struct kt_selection kt_selection;

/* How a test ended. Written under its lock from any CPU, read by the boot CPU when the test is
 * over. */
struct kt_outcome {
    uint32_t lock; /* 0 free, 1 somebody writes `why` */
    uint32_t failed, skipped;
    char why[240];
};

/* ktest.c */
/* The test that `cpu`'s failures belong to; NULL: that of the whole machine. */
void kt_set_outcome(struct kt_outcome *global);
void kt_set_cpu_outcome(struct kt_outcome *mine);
/* What the CPUs are said to run when they crash. */
void kt_set_task_name(const char *name);
/* Has `cpu` run a test's function since the last call? */
bool kt_take_used(unsigned cpu);
/* As kt_on_cpu, for what leaves nothing behind. */
void kt_on_idle_cpu(unsigned cpu, void (*fn)(void *), void *arg);

/* runner.c */
const char *kt_design_name(void);
/* Workers of a bench and how many run at once. */
unsigned kt_workers(const struct kbench *b);
/* Memory for the runner itself: whole pages of the direct map, zeroed, so that it is no user of
 * what is being tested. NULL: out of memory. */
void *kt_pages_alloc(size_t bytes);
void kt_pages_free(void *p, size_t bytes);

/* leak.c */
/* The state that the following tests are compared with. */
void leak_baseline(void);
/* Everything back? Otherwise the running test fails and the present state is the new baseline. */
void leak_check(const char *test);
/* The same without a word: what is not back, bits of enum leak. */
enum leak {
    LEAK_FRAMES = 1,
    LEAK_TABLES = 2,
    LEAK_ADDRESSES = 4,
    LEAK_AREAS = 8,
    LEAK_LAZY = 16,
    LEAK_OBJECTS = 32,
    LEAK_BAD_FREES = 64,
};
unsigned leak_look(void);
/* Frames and objects that may stay with caches. */
uint64_t leak_frames_bound(void);
uint64_t leak_objects_bound(void);

/* footprint.c */
struct footprint {
    struct vmap_counters c;
    uint64_t used_pages; /* of the page allocator, but not those that workers hold */
    uint64_t cache_pages, cache_objects;
};
void footprint_read(struct footprint *f, uint64_t held_pages);
void footprint_note(const char *test, const char *when, const struct footprint *f);
/* How many figures have grown by more than they may; `say`: and the running test fails. */
unsigned footprint_grown(const struct footprint *from, const struct footprint *to, bool say);

/* heartbeat.c */
void heartbeat_start(void);
void heartbeat_stop(void);
void heartbeat_test(const char *name); /* NULL: between tests */

/* bench.c */
struct bench_figures {
    uint64_t n, min, p50, p90, p99, p999, max, mean, dropped;
    const char *op;
};
#define BENCH_OPS 3 /* the operation, alloc, free */
struct bench_result {
    struct bench_figures op[BENCH_OPS];
    unsigned ops;
    unsigned cpus, workers;
    uint64_t ops_per_s;
    /* Of the untimed passes; events are counted only where all workers begin and end together. */
    uint64_t ops_done, contended, ipis;
    bool gated;
    uint64_t passed, failed, xfailed, repeat, loops, avg_usec;
    uint64_t population, population_linux; /* 0: not said */
};
/* Runs one bench, or the family in each worker's own order, and fills the results. */
void bench_run(const struct ktest *t, struct bench_result *out);
void bench_run_shuffled(const struct ktest *const *tests, unsigned n, struct kt_outcome *outcomes,
                        struct bench_result *out);
unsigned bench_percent(void);
/* Cycles that each worker spent in untimed passes since bench_reset(). */
bool bench_reset(void);
uint64_t bench_worker_cycles(unsigned worker);
unsigned bench_workers_seen(void);

/* report.c */
bool report_init(unsigned rows);
void report_bench(const struct ktest *t, const struct bench_result *r);
void report_counters(void);
void report_workers(void);
/* Remembers the verdict for the table. */
void report_verdict(const struct ktest *t, enum ktap_status s, const struct bench_result *r);
/* vmallocinfo=on: one line for each area. */
void report_areas(void);
void report_table(void);

/* report_locks.c; all do nothing without lockstat=on. False: no memory. */
bool locks_init(void);
/* What was counted since lockstat_reset(), in `test` or in "all". */
void locks_report(const char *test);

#endif
