/*
 * bench.c: runs a measured task: workers, gates, passes, and what is made of their times.
 *
 * Worker i runs on CPU i modulo the CPUs; those of one CPU run one after another. Each one sets up,
 * warms up, then runs two passes: one with a time for each operation (histogram), one with nothing
 * but the operations (mean, rate); and again so for the halves of the operation if it has any.
 * Passes begin at a gate. Samples that an interrupt of this CPU fell into are dropped and counted.
 *
 * Loop counts follow from options and CPUs only, never from time, so that a run under -icount
 * repeats.
 */
#include "lib/muldiv.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/vmalloc.h"
#include "tests/kernel/runner.h"
#include <arch/fb.h>
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/trap.h>
#include <arch/watchdog.h>

#define QUICK_LOOPS   (64 * 1024) /* of all workers together, in each pass */
#define LOOPS_MIN     16          /* of one worker */
#define WARM_UP_MAX   256
#define CHUNKS        100 /* parts of a pass: progress, and what an interrupt spoils */
#define EMPTY_SAMPLES 64

enum { PASS_TIMED, PASS_MEAN, PASS_HALVES_TIMED, PASS_HALVES_MEAN, PASSES };

/* What one CPU knows about one bench; written by that CPU, read by the boot CPU when all have
 * ended. */
struct bench_cpu {
    struct kbench_worker w;
    struct histogram *hist[BENCH_OPS];
    uint64_t ticks[BENCH_OPS], ops[BENCH_OPS]; /* untimed pass */
    uint64_t spoilt_ticks[BENCH_OPS],
        spoilt_ops[BENCH_OPS]; /* parts with interrupts, one CPU only */
    uint64_t dropped[BENCH_OPS];
    uint64_t empty;                   /* cycles of an empty sample */
    uint64_t usec;                    /* of all untimed passes */
    uint64_t passed, failed, xfailed; /* repeats */
    uint64_t wall;                    /* from gate to gate around the untimed pass */
    bool irqs_count;                  /* interrupts are part of the operation */
    uint32_t started;                 /* passes begun */
    uint32_t chunk;                   /* of the present pass, for the heartbeat */
    bool mine_failed;                 /* this repeat */
} __cacheline;

struct bench_run {
    const struct ktest *test;
    const struct kbench *b;
    struct bench_cpu *cpu; /* [cpus] */
    unsigned cpus;         /* that take part */
    unsigned workers, rounds;
    uint64_t loops;
    bool gated;
    struct smp_gate gate[2];
    struct kt_outcome *outcome; /* NULL: the whole machine's */
    uint64_t population, population_linux;
    struct footprint first;   /* after the first repeat; written by CPU 0 between two gates */
    uint64_t held;            /* pages, of the workers that have come to the gate; atomic */
    uint64_t contended, ipis; /* during gated untimed passes; written by CPU 0 between two gates */
};

static struct bench_run *running[32]; /* what the heartbeat looks at */
static uint32_t running_count;
static uint64_t said_population, said_population_linux;
static uint64_t *worker_cycles; /* of the test_vmalloc family, by worker */
static unsigned workers_seen, workers_room;

void kt_population(uint64_t used, uint64_t linux_has)
{
    said_population = used;
    said_population_linux = linux_has;
}

unsigned kt_workers(const struct kbench *b)
{
    if (b->single)
        return 1;
    return kt_options.nr_threads ? (unsigned)kt_options.nr_threads : smp_cpus();
}

bool bench_reset(void)
{
    unsigned n = kt_options.nr_threads ? (unsigned)kt_options.nr_threads : smp_cpus();

    if (!worker_cycles) {
        worker_cycles = kt_pages_alloc(n * sizeof(uint64_t));
        workers_room = worker_cycles ? n : 0;
    }
    if (worker_cycles)
        memset(worker_cycles, 0, workers_room * sizeof(uint64_t));
    workers_seen = 0;
    return worker_cycles != NULL;
}

uint64_t bench_worker_cycles(unsigned worker)
{
    return worker < workers_room ? worker_cycles[worker] : 0;
}

unsigned bench_workers_seen(void)
{
    return workers_seen;
}

/* ---- one worker, on its CPU
 * ------------------------------------------------------------------------ */

static bool op_empty(struct kbench_worker *w)
{
    (void)w;
    return true;
}

/* What a sample costs with nothing in it, the call through a pointer included. */
static uint64_t empty_cost(struct bench_cpu *bc)
{
    bool (*volatile op)(struct kbench_worker * w) = op_empty;
    uint64_t best = UINT64_MAX;

    for (unsigned i = 0; i < EMPTY_SAMPLES; i++) {
        bool (*fn)(struct kbench_worker * w) = op;
        uint64_t t0 = cycles_begin();
        bool ok = fn(&bc->w);
        uint64_t t1 = cycles_end();

        if (ok && t1 - t0 < best)
            best = t1 - t0;
    }
    return best;
}

static void sample(struct bench_cpu *bc, unsigned op, uint64_t irqs, uint64_t ticks)
{
    /* A flush ends with the interrupt that wakes the waiter: it belongs to the cost. */
    if (trap_irq_count() != irqs && !bc->irqs_count)
        bc->dropped[op]++;
    else
        hist_add(bc->hist[op], ticks > bc->empty ? ticks - bc->empty : 0);
}

static void chunk_done(struct bench_cpu *bc, unsigned chunk)
{
    WRITE_ONCE(bc->chunk, chunk);
    watchdog_touch();
}

static void pass_begin(struct bench_cpu *bc)
{
    bc->w.loop = 0;
    WRITE_ONCE(bc->chunk, 0);
    ADD_ONCE(bc->started, 1);
}

/* Operations of a pass in which each has a time of its own. */
static uint64_t samples_of(const struct kbench_worker *w)
{
    return kt_options.samples ? MIN(kt_options.samples, w->loops) : w->loops;
}

static void timed_pass(struct bench_cpu *bc, const struct kbench *b)
{
    struct kbench_worker *w = &bc->w;

    pass_begin(bc);
    for (unsigned c = 0; c < CHUNKS; c++) {
        uint64_t end = samples_of(w) * (c + 1) / CHUNKS;

        while (w->loop < end) {
            uint64_t irqs = trap_irq_count();
            uint64_t t0 = cycles_begin();
            bool ok = b->op(w);
            uint64_t t1 = cycles_end();

            sample(bc, 0, irqs, t1 - t0);
            bc->mine_failed |= !ok;
            w->loop++;
        }
        chunk_done(bc, c + 1);
    }
}

static uint64_t plain_loop(struct kbench_worker *w, const struct kbench *b, uint64_t n)
{
    uint64_t failed = 0;

    if (b->loop)
        return b->loop(w, n);
    for (; n; n--, w->loop++)
        failed += !b->op(w);
    return failed;
}

/*
 * Adds a part of an untimed pass. Interrupts belong to the cost where there are several CPUs, since
 * the flushes of others come as interrupts; on a single CPU they are only the heartbeat's.
 */
static void add_part(struct bench_cpu *bc, unsigned op, uint64_t irqs, uint64_t ticks, uint64_t n)
{
    ticks = ticks > bc->empty ? ticks - bc->empty : 0;
    if (smp_cpus() == 1 && trap_irq_count() != irqs) {
        bc->spoilt_ticks[op] += ticks;
        bc->spoilt_ops[op] += n;
        return;
    }
    bc->ticks[op] += ticks;
    bc->ops[op] += n;
}

static void mean_pass(struct bench_cpu *bc, const struct kbench *b)
{
    struct kbench_worker *w = &bc->w;
    uint64_t us = clock_us(), done = 0;

    pass_begin(bc);
    for (unsigned c = 0; c < CHUNKS; c++) {
        uint64_t end = w->loops * (c + 1) / CHUNKS, n = end - done;

        if (n) {
            uint64_t irqs = trap_irq_count();
            uint64_t t0 = cycles_begin();
            uint64_t failed = plain_loop(w, b, n);
            uint64_t t1 = cycles_end();

            add_part(bc, 0, irqs, t1 - t0, n);
            bc->mine_failed |= failed != 0;
            done = end;
        }
        chunk_done(bc, c + 1);
    }
    bc->usec += clock_us() - us;
}

/* `batch` allocations, then as many releases, each one timed. */
static void halves_timed(struct bench_cpu *bc, const struct kbench *b, uint64_t batches)
{
    void *p[KBENCH_BATCH_MAX];
    struct kbench_worker *w = &bc->w;

    pass_begin(bc);
    for (uint64_t i = 0; i < batches; i++) {
        unsigned n = 0;

        for (; n < b->batch; n++) {
            uint64_t irqs = trap_irq_count();
            uint64_t t0 = cycles_begin();
            p[n] = b->alloc(w);
            uint64_t t1 = cycles_end();

            if (!p[n]) {
                bc->mine_failed = true;
                break;
            }
            sample(bc, 1, irqs, t1 - t0);
        }
        for (unsigned j = 0; j < n; j++) {
            uint64_t irqs = trap_irq_count();
            uint64_t t0 = cycles_begin();
            b->release(w, p[j]);
            uint64_t t1 = cycles_end();

            sample(bc, 2, irqs, t1 - t0);
        }
        chunk_done(bc, (unsigned)(i * CHUNKS / batches));
    }
}

static void halves_mean(struct bench_cpu *bc, const struct kbench *b, uint64_t batches)
{
    void *p[KBENCH_BATCH_MAX];
    struct kbench_worker *w = &bc->w;

    pass_begin(bc);
    for (uint64_t i = 0; i < batches; i++) {
        unsigned n = 0;
        uint64_t irqs = trap_irq_count();
        uint64_t t0 = cycles_begin();

        while (n < b->batch && (p[n] = b->alloc(w)) != NULL)
            n++;
        uint64_t t1 = cycles_end();

        add_part(bc, 1, irqs, t1 - t0, n);
        bc->mine_failed |= n < b->batch;
        irqs = trap_irq_count();
        t0 = cycles_begin();
        for (unsigned j = 0; j < n; j++)
            b->release(w, p[j]);
        t1 = cycles_end();
        add_part(bc, 2, irqs, t1 - t0, n);
        chunk_done(bc, (unsigned)(i * CHUNKS / batches));
    }
}

/* All workers of this round meet. A CPU that waits halted is not busy for the watchdog. */
static void gate(struct bench_run *r, struct bench_cpu *bc, unsigned *which)
{
    if (!r->gated)
        return;
    watchdog_set_busy(false);
    smp_gate_wait(&r->gate[*which & 1], bc->w.peers);
    (*which)++;
    watchdog_touch();
    watchdog_set_busy(true);
}

/*
 * The counters of the whole machine, taken while every CPU is at a gate: once with sign -1, once
 * with +1, what is between them stays. With counters=each all of them are printed.
 */
static void add_events(struct bench_run *r, struct bench_cpu *bc, unsigned *which, int sign)
{
    if (!r->gated)
        return;
    if (bc == &r->cpu[0]) {
        r->contended += (uint64_t)sign * kt_counter("lock_contended");
        r->ipis += (uint64_t)sign * kt_counter("tlb_ipis");
        if (kt_options.counters == COUNTERS_EACH)
            report_counters();
    }
    gate(r, bc, which);
}

static void repeat_passes(struct bench_run *r, struct bench_cpu *bc, unsigned *which, bool able)
{
    const struct kbench *b = r->b;
    uint64_t batches = b->batch ? MAX(samples_of(&bc->w) / (2 * b->batch), 1UL) : 0;
    uint64_t t0;

    gate(r, bc, which);
    if (able)
        timed_pass(bc, b);
    gate(r, bc, which);
    add_events(r, bc, which, -1);
    t0 = rdtsc();
    if (able)
        mean_pass(bc, b);
    if (!r->gated)
        bc->wall += rdtsc() - t0;
    gate(r, bc, which);
    if (r->gated)
        bc->wall += rdtsc() - t0;
    add_events(r, bc, which, 1);
    if (!batches)
        return;
    if (able)
        halves_timed(bc, b, batches);
    gate(r, bc, which);
    if (able)
        halves_mean(bc, b, batches);
}

static void count_repeat(struct bench_run *r, struct bench_cpu *bc)
{
    if (!bc->mine_failed)
        bc->passed++;
    else if (r->b->may_fail)
        bc->xfailed++;
    else
        bc->failed++;
    if (bc->mine_failed && !r->b->may_fail)
        KT_FAIL("worker %u: an operation failed", bc->w.id);
    bc->mine_failed = false;
}

/* After each repeat, with every worker at a gate: what it takes must be what the first one took. */
static void look_at_footprint(struct bench_run *r, struct bench_cpu *bc, unsigned *which, bool able,
                              uint64_t repeat)
{
    bool last = repeat + 1 == kt_options.test_repeat_count;

    if (!r->b->held || !r->gated || kt_options.test_repeat_count == 1)
        return;
    if (able)
        __atomic_add_fetch(&r->held, r->b->held(&bc->w), __ATOMIC_RELAXED);
    gate(r, bc, which);
    if (bc == &r->cpu[0]) {
        struct footprint now;

        vm_unmap_aliases();
        footprint_read(&now, r->held);
        if (!repeat)
            r->first = now;
        if (!repeat || last)
            footprint_note(r->test->name, last ? "last_repeat" : "first_repeat", &now);
        footprint_grown(&r->first, &now, true);
        r->held = 0;
    }
    gate(r, bc, which);
}

/* A number from the test's name, so that tests do not share their random numbers. */
static uint64_t name_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325ULL; /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 0x100000001b3ULL;
    return h;
}

static void run_worker(struct bench_run *r, unsigned cpu, unsigned id)
{
    struct bench_cpu *bc = &r->cpu[cpu];
    const struct kbench *b = r->b;
    unsigned which = 0, round = id / r->cpus;
    uint64_t before = bc->ticks[0] + bc->spoilt_ticks[0];
    bool able;

    memset(&bc->w, 0, sizeof(bc->w));
    bc->w.id = id;
    bc->irqs_count = b->op_name && strcmp(b->op_name, "flush") == 0;
    bc->w.cpu = cpu;
    bc->w.peers = MIN(r->workers - round * r->cpus, r->cpus);
    bc->w.loops = r->loops;
    bc->w.hist = bc->hist[0];
    rng_seed(&bc->w.rng, kt_options.seed ^ name_hash(r->test->name) ^ ((uint64_t)id << 32));
    kt_set_cpu_outcome(r->outcome);
    able = !b->setup || b->setup(&bc->w);
    if (!able)
        KT_FAIL("worker %u: set-up failed", id);
    gate(r, bc, &which);
    if (able) {
        bc->empty = empty_cost(bc);
        bc->mine_failed |= plain_loop(&bc->w, b, MIN(r->loops / 8 + 1, (uint64_t)WARM_UP_MAX)) != 0;
    }
    for (uint64_t i = 0; i < kt_options.test_repeat_count; i++) {
        repeat_passes(r, bc, &which, able);
        count_repeat(r, bc);
        look_at_footprint(r, bc, &which, able, i);
    }
    gate(r, bc, &which);
    if (b->teardown)
        b->teardown(&bc->w);
    if (r->test->mask && id < workers_room)
        worker_cycles[id] += bc->ticks[0] + bc->spoilt_ticks[0] - before;
    kt_set_cpu_outcome(NULL);
}

static void run_cpu(void *arg)
{
    struct bench_run *r = arg;
    unsigned cpu = this_cpu_id();

    for (unsigned id = cpu; id < r->workers; id += r->cpus)
        run_worker(r, cpu, id);
}

/* ---- the whole, on the boot CPU
 * --------------------------------------------------------------------- */

static uint64_t loops_of(const struct kbench *b, unsigned workers)
{
    uint64_t n = kt_options.test_loop_count;

    if (!n) {
        n = kt_scaled_areas(QUICK_LOOPS) * (b->loops_percent ? b->loops_percent : 100) / 100 /
            workers;
        n = MAX(n, (uint64_t)LOOPS_MIN);
    }
    return b->loops ? b->loops(n, workers) : n;
}

static void run_free(struct bench_run *r)
{
    for (unsigned c = 0; r->cpu && c < r->cpus; c++) {
        for (unsigned i = 0; i < BENCH_OPS; i++)
            kt_pages_free(r->cpu[c].hist[i], sizeof(struct histogram));
    }
    kt_pages_free(r->cpu, r->cpus * sizeof(struct bench_cpu));
    r->cpu = NULL;
}

/* Histograms before anything is measured. */
static bool run_init(struct bench_run *r, const struct ktest *t, bool gated)
{
    memset(r, 0, sizeof(*r));
    r->test = t;
    r->b = t->bench;
    r->workers = kt_workers(t->bench);
    r->cpus = MIN(r->workers, smp_cpus());
    r->gated = gated;
    r->loops = loops_of(t->bench, r->workers);
    r->cpu = kt_pages_alloc(r->cpus * sizeof(struct bench_cpu));
    for (unsigned c = 0; r->cpu && c < r->cpus; c++) {
        for (unsigned i = 0; i < (t->bench->batch ? BENCH_OPS : 1); i++) {
            r->cpu[c].hist[i] = kt_pages_alloc(sizeof(struct histogram));
            if (!r->cpu[c].hist[i]) {
                run_free(r);
                return false;
            }
            hist_init(r->cpu[c].hist[i]);
        }
    }
    return r->cpu != NULL;
}

static void fill_figures(struct bench_run *r, unsigned op, struct bench_figures *f)
{
    uint64_t ticks = 0, ops = 0, spoilt_ticks = 0, spoilt_ops = 0;
    struct histogram *all = NULL;

    memset(f, 0, sizeof(*f));
    f->op = op == 1 ? "alloc" : op == 2 ? "free" : r->b->op_name ? r->b->op_name : "pair";
    for (unsigned c = 0; c < r->cpus; c++) {
        struct bench_cpu *bc = &r->cpu[c];

        if (bc->w.background)
            continue;
        ticks += bc->ticks[op];
        ops += bc->ops[op];
        spoilt_ticks += bc->spoilt_ticks[op];
        spoilt_ops += bc->spoilt_ops[op];
        f->dropped += bc->dropped[op];
        if (!all)
            all = bc->hist[op];
        else
            hist_merge(all, bc->hist[op]);
    }
    if (!ops) {
        ticks = spoilt_ticks;
        ops = spoilt_ops;
    }
    f->mean = ops ? (ticks + ops / 2) / ops : 0;
    if (!all || !all->n)
        return;
    f->n = all->n;
    f->min = all->min;
    f->p50 = hist_percentile(all, 5000);
    f->p90 = hist_percentile(all, 9000);
    f->p99 = hist_percentile(all, 9900);
    f->p999 = hist_percentile(all, 9990);
    f->max = all->max;
}

/*
 * With gates: all operations by the longest way from gate to gate that any CPU's own clock has
 * seen. The first through the gate sees all of it; the boot CPU may come late, when the others are
 * done. Without: the sum of each CPU's own rate.
 */
static uint64_t rate_of(struct bench_run *r)
{
    uint64_t hz = clock_tsc_hz(), ops = 0, sum = 0, wall = 0;

    for (unsigned c = 0; c < r->cpus; c++) {
        struct bench_cpu *bc = &r->cpu[c];
        uint64_t n = bc->w.background ? 0 : bc->ops[0] + bc->spoilt_ops[0];

        ops += n;
        wall = MAX(wall, bc->wall);
        if (bc->wall)
            sum += mul_div_u64(n, hz, bc->wall);
    }
    if (!r->gated)
        return sum;
    return wall ? mul_div_u64(ops, hz, wall) : 0;
}

/* Operations of the untimed passes. */
static uint64_t ops_of(const struct bench_run *r)
{
    uint64_t n = 0;

    for (unsigned c = 0; c < r->cpus; c++) {
        if (!r->cpu[c].w.background)
            n += r->cpu[c].ops[0] + r->cpu[c].spoilt_ops[0];
    }
    return n;
}

static void run_result(struct bench_run *r, struct bench_result *out)
{
    memset(out, 0, sizeof(*out));
    out->cpus = r->cpus;
    out->workers = r->workers;
    out->repeat = kt_options.test_repeat_count;
    out->loops = r->loops;
    out->population = r->population;
    out->population_linux = r->population_linux;
    for (unsigned c = 0; c < r->cpus; c++) {
        out->passed += r->cpu[c].passed;
        out->failed += r->cpu[c].failed;
        out->xfailed += r->cpu[c].xfailed;
        out->avg_usec += r->cpu[c].usec;
    }
    out->avg_usec /= r->workers * out->repeat;
    out->ops_per_s = rate_of(r);
    out->ops_done = ops_of(r);
    out->gated = r->gated;
    out->contended = r->contended;
    out->ipis = r->ipis;
    out->ops = r->b->batch ? BENCH_OPS : 1;
    for (unsigned i = 0; i < out->ops; i++)
        fill_figures(r, i, &out->op[i]);
    if (r->test->mask)
        workers_seen = MAX(workers_seen, MIN(r->workers, workers_room));
}

/* Done of all passes of all workers, in percent; called in the heartbeat's interrupt. */
unsigned bench_percent(void)
{
    uint64_t done = 0, all = 0;

    for (uint32_t i = 0; i < LOAD_ACQUIRE(running_count); i++) {
        struct bench_run *r = running[i];
        uint64_t passes = (r->b->batch ? PASSES : PASS_HALVES_TIMED) * kt_options.test_repeat_count;

        for (unsigned c = 0; c < r->cpus; c++) {
            uint32_t started = READ_ONCE(r->cpu[c].started);

            if (started)
                done += (started - 1) * CHUNKS + READ_ONCE(r->cpu[c].chunk);
        }
        all += passes * CHUNKS * r->workers;
    }
    return all ? (unsigned)MIN(done * 100 / all, 100UL) : 0;
}

static void run_on_cpus(unsigned cpus, void (*fn)(void *), void *arg)
{
    for (unsigned c = 1; c < cpus; c++)
        kt_start(c, fn, arg);
    kt_on_cpu(0, fn, arg);
    for (unsigned c = 1; c < cpus; c++)
        kt_join(c);
}

static bool prepare(struct bench_run *r)
{
    bool ok;

    said_population = said_population_linux = 0;
    ok = !r->b->prepare || r->b->prepare(r->workers);
    r->population = said_population;
    r->population_linux = said_population_linux;
    return ok;
}

void bench_run(const struct ktest *t, struct bench_result *out)
{
    static struct bench_run run;

    memset(out, 0, sizeof(*out));
    if (!run_init(&run, t, true)) {
        KT_FAIL("no memory for the figures");
        return;
    }
    running[0] = &run;
    if (prepare(&run)) {
        STORE_RELEASE(running_count, 1u);
        fb_pause(true); /* drawing would be timed with the rest (pitfall 36) */
        run_on_cpus(run.cpus, run_cpu, &run);
        fb_pause(false);
        STORE_RELEASE(running_count, 0u);
        run_result(&run, out);
    }
    if (run.b->finish)
        run.b->finish();
    run_free(&run);
}

/* ---- Linux's order: each worker shuffles the family for itself
 * -------------------------------------- */

static struct {
    struct bench_run run[ARRAY_SIZE(running)];
    unsigned n;
} shuffled;

static void run_cpu_shuffled(void *arg)
{
    unsigned cpu = this_cpu_id(), cpus = shuffled.run[0].cpus;
    uint8_t order[ARRAY_SIZE(running)];
    struct rng rng;

    (void)arg;
    for (unsigned id = cpu; id < shuffled.run[0].workers; id += cpus) {
        rng_seed(&rng, kt_options.seed + id);
        for (unsigned i = 0; i < shuffled.n; i++)
            order[i] = (uint8_t)i;
        for (unsigned i = shuffled.n; i > 1; i--) {
            unsigned j = (unsigned)rng_below(&rng, i);
            uint8_t o = order[i - 1];

            order[i - 1] = order[j];
            order[j] = o;
        }
        for (unsigned i = 0; i < shuffled.n; i++) {
            struct bench_run *r = &shuffled.run[order[i]];

            if (id < r->workers)
                run_worker(r, cpu, id);
        }
    }
}

void bench_run_shuffled(const struct ktest *const *tests, unsigned n, struct kt_outcome *outcomes,
                        struct bench_result *out)
{
    unsigned ready = 0;

    n = MIN(n, (unsigned)ARRAY_SIZE(running));
    for (; ready < n; ready++) {
        struct bench_run *r = &shuffled.run[ready];

        if (!run_init(r, tests[ready], false)) {
            KT_FAIL("no memory for the figures");
            break;
        }
        r->outcome = &outcomes[ready];
        running[ready] = r;
        if (!prepare(r))
            KT_FAIL("%s cannot be prepared", tests[ready]->name);
    }
    shuffled.n = ready;
    if (ready == n && !kt_failed()) {
        STORE_RELEASE(running_count, n);
        fb_pause(true);
        run_on_cpus(shuffled.run[0].cpus, run_cpu_shuffled, NULL);
        fb_pause(false);
        STORE_RELEASE(running_count, 0u);
        for (unsigned i = 0; i < n; i++)
            run_result(&shuffled.run[i], &out[i]);
    }
    for (unsigned i = 0; i < ready; i++) {
        if (shuffled.run[i].b->finish)
            shuffled.run[i].b->finish();
        run_free(&shuffled.run[i]);
    }
}
