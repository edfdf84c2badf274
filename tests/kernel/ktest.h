/*
 * ktest.h: what a test on the metal is, and what it may use.
 *
 * A test is one C file with one KTEST or KBENCH; adding the file is all it takes. Correctness tests run on the boot CPU
 * with all others idle, and put work on others with kt_on_cpu, kt_on_all or kt_start.
 */
#ifndef TESTS_KERNEL_KTEST_H
#define TESTS_KERNEL_KTEST_H

#include "lib/base.h"
#include "lib/histogram.h"
#include "lib/rng.h"
#include <arch/page.h>

enum kt_kind { KT_CORRECTNESS, KT_BENCH };

struct kbench_worker; /* below */

struct ktest {
    const char *name;
    const char *what; /* one line: what it shows */
    enum kt_kind kind;
    uint32_t mask;        /* bit of run_test_mask, 0: not in the mask */
    void (*run)(void);    /* correctness */
    const struct kbench *bench;
};

/* A measured task: every worker runs `op` in a loop. */
struct kbench {
    /* Once per worker on its own CPU, not measured: make what op needs. False: cannot run (a failure). */
    bool (*setup)(struct kbench_worker *w);
    /* One operation; its parts may be timed apart with kt_time_*. Returns false when the operation failed
     * (counted as failed; xfail if `may_fail`). */
    bool (*op)(struct kbench_worker *w);
    void (*teardown)(struct kbench_worker *w);
    const char *op_name;      /* "pair", "alloc", "free", "lookup", "flush" */
    uint32_t loops_percent;   /* of test_loop_count, for dear operations; 0 = 100 */
    bool may_fail;            /* failures are expected (align_shift_alloc_test) */
    bool single;              /* one worker only */
};

struct kbench_worker {
    unsigned id, cpu;
    uint64_t loop, loops;
    struct rng rng;
    void *state[4]; /* the task's own */
    struct histogram *hist;
};

#define KTEST(ident, description)                                                                  \
    static void ktest_run_##ident(void);                                                           \
    static const struct ktest ktest_##ident __used __section("ktests") __aligned(8) = {           \
        .name = #ident, .what = description, .kind = KT_CORRECTNESS, .run = ktest_run_##ident};     \
    static void ktest_run_##ident(void)

/* KBENCH(name, mask bit, "what", .setup = …, .op = …) */
#define KBENCH(ident, bit, description, ...)                                                       \
    static const struct kbench kbench_##ident = {.op_name = "pair", __VA_ARGS__};                  \
    static const struct ktest ktest_##ident __used __section("ktests") __aligned(8) = {           \
        .name = #ident, .what = description, .kind = KT_BENCH, .mask = (bit),                      \
        .bench = &kbench_##ident}

/* Records the first failure of the running test with file and line; ASSERT also leaves the test
 * function. From any CPU. */
void kt_fail(const char *file, int line, const char *fmt, ...) __printf(3, 4);
void kt_skip(const char *fmt, ...) __printf(1, 2);
bool kt_failed(void);
#define KT_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            kt_fail(__FILE__, __LINE__, "%s", #cond);                                              \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define KT_EXPECT(cond)                                                                            \
    do {                                                                                           \
        if (!(cond))                                                                               \
            kt_fail(__FILE__, __LINE__, "%s", #cond);                                              \
    } while (0)
#define KT_EXPECT_EQ(a, b)                                                                         \
    do {                                                                                           \
        uint64_t kt_a_ = (uint64_t)(a), kt_b_ = (uint64_t)(b);                                     \
        if (kt_a_ != kt_b_)                                                                        \
            kt_fail(__FILE__, __LINE__, "%s = %lu, %s = %lu", #a, (unsigned long)kt_a_, #b,        \
                    (unsigned long)kt_b_);                                                         \
    } while (0)
#define KT_SKIP(why)                                                                               \
    do {                                                                                           \
        kt_skip("%s", why);                                                                        \
        return;                                                                                    \
    } while (0)

unsigned kt_cpus(void);                                     /* online CPUs, numbered 0..n-1 */
void kt_on_cpu(unsigned cpu, void (*fn)(void *), void *arg); /* run there and wait; the own CPU is allowed */
void kt_on_all(void (*fn)(void *), void *arg);              /* on every CPU at once, and wait */
void kt_start(unsigned cpu, void (*fn)(void *), void *arg); /* start on another CPU … */
void kt_join(unsigned cpu);                                 /* … and wait for it */
bool kt_read(const volatile void *addr, uint64_t *value);   /* one 8-byte access; false if it faulted */
bool kt_write(volatile void *addr, uint64_t value);
bool kt_exec(const void *addr);                             /* calls it; false if the fetch faulted */
uint64_t kt_counter(const char *name);                      /* any value of the `# counter` line */
bool kt_selfcheck(void);
uint64_t kt_seed(void);                                     /* of this run, printed */
/* Scales a count by profile: smoke 1/16, quick 1, full 16; at least 1. */
uint64_t kt_scaled(uint64_t quick);
/* The current test's progress for the heartbeat, 0..100; and lets the watchdog know that it lives. */
void kt_progress(unsigned percent);
void kt_alive(void);

#endif
