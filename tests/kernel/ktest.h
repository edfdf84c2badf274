/*
 * ktest.h: what a test on the metal is, and what it may use.
 *
 * A test is a KTEST or KBENCH in a C file of this directory; adding the file is all it takes.
 * Correctness tests run on the boot CPU with all others idle, and put work on others with
 * kt_on_cpu, kt_on_all or kt_start. Helpers that several tests share are in tests/kernel/helpers.h.
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
    uint32_t mask;     /* bit of run_test_mask, 0: not in the mask */
    void (*run)(void); /* correctness */
    const struct kbench *bench;
};

/* A measured task: every worker runs `op` in a loop. */
struct kbench {
    /* Once per worker on its own CPU, not measured: make what op needs. False: cannot run (a
     * failure). teardown is called in either case. */
    bool (*setup)(struct kbench_worker *w);
    /* One operation. False: it failed (a failure of the test, xfail if `may_fail`). */
    bool (*op)(struct kbench_worker *w);
    void (*teardown)(struct kbench_worker *w);
    const char *op_name;    /* "pair" (NULL), "alloc", "free", "lookup", "flush", "steps" */
    uint32_t loops_percent; /* of the automatic loop count, for dear operations; 0 = 100 */
    bool may_fail;          /* failures are expected (align_shift_alloc_test) */
    bool single;            /* one worker only */

    /* n operations without timing, returns how many failed. NULL: the runner calls op. KBENCH_OP
     * and KBENCH_PAIR make one with op inlined, so that the mean has no call in it. */
    uint64_t (*loop)(struct kbench_worker *w, uint64_t n);
    /* The halves of a pair, for the lines op=alloc and op=free: `batch` allocations, then as many
     * releases. batch 0: no such lines. */
    void *(*alloc)(struct kbench_worker *w);
    void (*release)(struct kbench_worker *w, void *p);
    uint32_t batch; /* at most KBENCH_BATCH_MAX */
    /* Loops of each worker if not `asked`; NULL: asked. */
    uint64_t (*loops)(uint64_t asked, unsigned workers);
    /* On the boot CPU with all others idle, before the workers start and after they ended. prepare
     * false: the test was failed or skipped, finish is called all the same. */
    bool (*prepare)(unsigned workers);
    void (*finish)(void);
    /* Pages that the worker holds between two repeats, on its own CPU. Given: what the machine
     * needs on top of them must not grow from repeat to repeat (tests/kernel/footprint.c). */
    uint64_t (*held)(const struct kbench_worker *w);
};

#define KBENCH_BATCH_MAX 16

struct kbench_worker {
    unsigned id, cpu;
    unsigned peers;  /* workers that run at the same time, on CPUs 0 .. peers - 1 */
    bool background; /* set by setup: this worker's figures do not count */
    uint64_t loop, loops;
    struct rng rng;
    void *state[4]; /* the task's own; NULL before setup */
    struct histogram *hist;
};

#define KTEST_ENTRY_(ident, ...)                                                                   \
    static const struct ktest ktest_##ident __used __section("ktests")                             \
        __aligned(8) = {.name = #ident, __VA_ARGS__}

#define KTEST(ident, description)                                                                  \
    static void ktest_run_##ident(void);                                                           \
    KTEST_ENTRY_(ident, .what = description, .kind = KT_CORRECTNESS, .run = ktest_run_##ident);    \
    static void ktest_run_##ident(void)

/* KBENCH(name, mask bit, "what", .setup = …, .op = …) */
#define KBENCH(ident, bit, description, ...)                                                       \
    static const struct kbench kbench_##ident = {__VA_ARGS__};                                     \
    KTEST_ENTRY_(ident, .what = description, .kind = KT_BENCH, .mask = (bit),                      \
                 .bench = &kbench_##ident)

/* The same; op_fn is inlined into the untimed loop. */
#define KBENCH_OP(ident, bit, description, op_fn, ...)                                             \
    static uint64_t kbench_loop_##ident(struct kbench_worker *w, uint64_t n)                       \
    {                                                                                              \
        uint64_t failed_ = 0;                                                                      \
        for (; n; n--, w->loop++)                                                                  \
            failed_ += !op_fn(w);                                                                  \
        return failed_;                                                                            \
    }                                                                                              \
    KBENCH(ident, bit, description, .op = op_fn, .loop = kbench_loop_##ident, __VA_ARGS__)

/* An operation made of three parts: void *alloc_fn(w), void touch_fn(w, p), void release_fn(w, p).
 */
#define KBENCH_PAIR(ident, bit, description, alloc_fn, touch_fn, release_fn, ...)                  \
    static __always_inline bool kbench_pair_##ident(struct kbench_worker *w)                       \
    {                                                                                              \
        void *p_ = alloc_fn(w);                                                                    \
        if (unlikely(!p_))                                                                         \
            return false;                                                                          \
        touch_fn(w, p_);                                                                           \
        release_fn(w, p_);                                                                         \
        return true;                                                                               \
    }                                                                                              \
    static uint64_t kbench_loop_##ident(struct kbench_worker *w, uint64_t n)                       \
    {                                                                                              \
        uint64_t failed_ = 0;                                                                      \
        for (; n; n--)                                                                             \
            failed_ += !kbench_pair_##ident(w);                                                    \
        return failed_;                                                                            \
    }                                                                                              \
    KBENCH(ident, bit, description, .op = kbench_pair_##ident, .loop = kbench_loop_##ident,        \
           .alloc = alloc_fn, .release = release_fn, __VA_ARGS__)

/* Records the first failure of the running test with file and line; ASSERT also leaves the function
 * it is in. From any CPU, in any context but NMI. */
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
#define KT_FAIL(...) kt_fail(__FILE__, __LINE__, __VA_ARGS__)

unsigned kt_cpus(void); /* online CPUs, numbered 0..n-1 */
void kt_on_cpu(unsigned cpu, void (*fn)(void *),
               void *arg);                     /* run there and wait; the own CPU is allowed */
void kt_on_all(void (*fn)(void *), void *arg); /* on every CPU at once, and wait */
void kt_start(unsigned cpu, void (*fn)(void *), void *arg); /* start on another CPU … */
void kt_join(unsigned cpu);                                 /* … and wait for it */
bool kt_read(const volatile void *addr,
             uint64_t *value); /* one 8-byte access; false if it faulted */
bool kt_write(volatile void *addr, uint64_t value);
bool kt_exec(const void *addr);        /* calls it; false if the fetch faulted */
uint64_t kt_counter(const char *name); /* any value of the `# counter` line */
bool kt_selfcheck(void);
uint64_t kt_seed(void); /* of this run, printed */
/* Scales a count by profile: smoke 1/16, quick 1, full 16; at least 1. */
uint64_t kt_scaled(uint64_t quick);
/* The same for areas that are made by all CPUs together. With search=walk, where each allocation
 * goes past all of them, a thirty-second. */
uint64_t kt_scaled_areas(uint64_t quick);
/* The current test's progress for the heartbeat, 0..100; and lets the watchdog know that it lives.
 */
void kt_progress(unsigned percent);
void kt_alive(void);

/* A line "# note test=… text" in the log; never in a timed region. */
void kt_note(const char *fmt, ...) __printf(1, 2);
/* From prepare: the population used and the one Linux's test has, for the figures' lines. */
void kt_population(uint64_t used, uint64_t linux_has);
/* The test is about to make n bad frees on purpose; any other one fails it. */
void kt_expect_bad_frees(uint64_t n);
/* Every CPU gives back what it keeps: the state in which counters are compared. Boot CPU only. */
void kt_quiesce(void);
/* Takes the allocator down and builds it again; every area but the permanent ones must be free. */
struct vmap_config;
bool kt_rebuild(const struct vmap_config *c);
bool kt_vmap_exit(void);
bool kt_rebuild_from_nothing(const struct vmap_config *c); /* after kt_vmap_exit() */
/* Stops the heartbeat, so that the test can use the boot CPU's timer, and starts it again. */
void kt_timer_borrow(void);
void kt_timer_return(void);

/* Parameters of the test_vmalloc family, as given; 0 = default. */
uint64_t kt_nr_pages(void);
bool kt_use_huge(void);
uint64_t kt_nr_pcpu_objects(void);

#endif
