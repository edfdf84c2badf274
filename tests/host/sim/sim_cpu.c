/*
 * sim_cpu.c: the CPUs of the simulated machine and who runs when.
 *
 * By schedule: one OS thread, each CPU a fiber. A CPU runs for a number of marked points and then a
 * seeded choice says who is next. Three kinds of schedule, chosen by the seed: even chances with
 * short or long turns, and priorities with few random changes (Burckhardt et al., "A Randomized
 * Scheduler with Probabilistic Guarantees of Finding Bugs", 2010), which reaches interleavings that
 * even chances hardly do. Free: a pthread per CPU; marked points only serve interrupts.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif
#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include "tests/host/sim/internal.h"
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/smp.h>
#include <arch/tlb_gen.h>

#define STACK_SIZE          (256 * 1024)
#define HANG_STEPS_DEFAULT  2000000
#define WORKING_POINTS      64
#define RUN_STEPS_MAX       60000000
#define STORM_STEPS_DEFAULT 20000000
#define FREE_TURN           64 /* marked points, mean: threads are more than the host has CPUs */

struct sim_options sim_opt;
struct sim_cpu sim_cpus[SIM_MAX_CPUS];
struct sim_stats sim_stats;
bool sim_running;
uint32_t sim_fence_word;

static struct sim_cpu boot_cpu = {.budget = INT64_MAX};
__thread struct sim_cpu *sim_this = &boot_cpu;

struct fiber {
    void *sp;
    char *stack;
    uint32_t idle; /* atomic; also for pthreads: its function has returned */
    bool halted;   /* until an interrupt */
    uint32_t priority;
    int64_t turn;    /* budget at the turn's start */
    uint64_t points; /* passed since its last pause */
    uint64_t timer;  /* in steps, when an interrupt comes; 0: none */
    struct rng rng;  /* of a CPU that runs free */
    int64_t storm;   /* marked points until its next interrupt */
};
static struct fiber fibers[SIM_MAX_CPUS];
static void *main_sp;
static unsigned running; /* CPUs of the machine; also stands for sim_run()'s caller */
static unsigned active;  /* the first of them run a function */
static uint32_t working; /* atomic: whose function has not returned */
static unsigned current;
static bool abandoned;
static void (*run_fn)(void *);
static void *run_arg;

static struct rng sched_rng;
static uint32_t turn_mean; /* marked points per turn */
static bool by_priority;
static uint64_t steps;     /* turns taken */
static uint64_t run_began; /* steps at the beginning of this run */
static bool calm;          /* storms are over in this run */
static uint64_t trail;     /* hash of who ran when */
static uint64_t pauses;    /* in a row by CPUs that do nothing else */
static void (*storm_fn)(void), (*nmi_fn)(void);
static uint32_t storm_every, nmi_every;
static pthread_barrier_t all_there; /* CPUs that run free start together */

/* Saves the callee-saved registers on the old stack, and takes them from the new one. */
void sim_fiber_switch(void **save_sp, void *load_sp);
__asm__(".text\n"
        ".globl sim_fiber_switch\n"
        ".type sim_fiber_switch, @function\n"
        "sim_fiber_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size sim_fiber_switch, . - sim_fiber_switch\n");

#ifdef SIM_ASAN
static const void *main_stack_bottom;
static size_t main_stack_size;
#endif

/* From the running context (`save`) to CPU `to`, or to sim_run()'s caller (to == running). */
static void switch_to(void **save, unsigned to)
{
#ifdef SIM_ASAN
    void *fake = NULL;
    const void *bottom = to == running ? main_stack_bottom : fibers[to].stack;
    size_t size = to == running ? main_stack_size : STACK_SIZE;

    __sanitizer_start_switch_fiber(&fake, bottom, size);
#endif
    sim_this = to == running ? &boot_cpu : &sim_cpus[to];
    current = to;
    trail = (trail ^ (to + 1)) * 0x100000001b3ULL + (uint64_t)sim_cpus[to % SIM_MAX_CPUS].budget;
    sim_fiber_switch(save, to == running ? main_sp : fibers[to].sp);
#ifdef SIM_ASAN
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

static void begin_turn(unsigned cpu)
{
    fibers[cpu].turn = sim_cpus[cpu].budget = (int64_t)rng_below(&sched_rng, 2 * turn_mean);
}

/* A waiting loop passes few points from pause to pause. When all CPUs do only that for long,
 * nothing will ever happen. */
static void watch_progress(struct sim_cpu *c, bool relaxed)
{
    uint64_t limit = sim_opt.hang_steps ? sim_opt.hang_steps : HANG_STEPS_DEFAULT;
    struct fiber *f = &fibers[c->id];

    /* Interrupts keep a CPU busy that waits for ever. */
    if (steps > run_began + RUN_STEPS_MAX)
        sim_fail(SIM_HANG, "the run does not end");

    f->points += (uint64_t)(f->turn - c->budget);
    if (f->points >= WORKING_POINTS)
        pauses = 0;
    if (!relaxed)
        return;
    f->points = 0;
    if (++pauses > limit)
        sim_fail(SIM_HANG, "no CPU got anywhere in %lu pauses", (unsigned long)limit);
}

/* No rescue from a wake-up that was lost: when all are halted no time passes. */
void timer_ensure(uint64_t us)
{
    uint64_t due = steps + 1 + us * 1000 / (sim_opt.step_ns ? sim_opt.step_ns : 1000);
    struct fiber *f = &fibers[sim_this->id];

    if (!sim_opt.free_running && (!f->timer || f->timer > due))
        f->timer = due;
}

static void fire_timers(void)
{
    for (unsigned i = 0; i < running; i++) {
        if (!fibers[i].timer || fibers[i].timer > steps)
            continue;
        fibers[i].timer = 0;
        sim_kick(i, SIM_PENDING_WAKE);
    }
}

static bool runnable(unsigned cpu)
{
    return !fibers[cpu].halted || sim_cpus[cpu].pending;
}

/* Both return `running` if no CPU has anything to do. */
static unsigned pick_even(void)
{
    unsigned n = 0, left;

    for (unsigned i = 0; i < running; i++)
        n += runnable(i);
    if (n == 0)
        return running;
    left = (unsigned)rng_below(&sched_rng, n);
    for (unsigned i = 0; i < running; i++)
        if (runnable(i) && left-- == 0)
            return i;
    return running;
}

static unsigned pick_highest(void)
{
    unsigned best = running;

    for (unsigned i = 0; i < running; i++)
        if (runnable(i) && (best == running || fibers[i].priority > fibers[best].priority))
            best = i;
    return best;
}

/* When nobody has anything to do, the run ends, or has met a deadlock. */
static unsigned pick_for_halted(void)
{
    unsigned to = pick_even();

    if (to == running && working)
        sim_fail(SIM_HANG, "every CPU is halted, and nobody will wake one");
    return to;
}

/* Ends this CPU's turn. relaxed: it cannot go on anyway, so it should not be picked again at once.
 */
static void reschedule(struct sim_cpu *c, bool relaxed)
{
    unsigned to;

    steps++;
    fire_timers();
    watch_progress(c, relaxed);
    if (!by_priority) {
        to = pick_even();
    } else {
        if (relaxed)
            fibers[c->id].priority = 0;
        else if (rng_below(&sched_rng, 16) == 0)
            fibers[c->id].priority = (uint32_t)rng_below(&sched_rng, 1u << 20);
        /* All low ones take turns: whoever waits for one of them must get on. */
        to = pick_highest();
        if (fibers[to].priority == 0)
            to = pick_even();
    }
    begin_turn(c->id);
    if (to == c->id)
        return;
    sim_stats.switches++;
    switch_to(&fibers[c->id].sp, to);
}

static void enter_interrupt(struct sim_cpu *c)
{
    c->irq_off = true;
    if (tlb_gen_is_idle()) {
        tlb_gen_idle_exit();
        oracle_idle_end(c->id);
    }
    c->irq_depth++;
    tlb_gen_irq_enter();
}

static void leave_interrupt(struct sim_cpu *c)
{
    c->irq_depth--;
    tlb_gen_irq_exit();
}

/* A handler is a context of its own: what it calls is not part of what was interrupted. Coming and
 * going are those of the machine's dispatcher: out of the halted state first, and a safe point at
 * the end. */
static void run_handler(struct sim_cpu *c, void (*fn)(struct sim_cpu *))
{
    uint32_t held = c->locks_held, hooks = c->hook_depth, calls = c->call_depth;

    enter_interrupt(c);
    c->locks_held = c->hook_depth = c->call_depth = 0;
    c->interrupts++;
    fn(c);
    tlb_gen_check();
    if (c->locks_held)
        sim_fail(SIM_CONTEXT, "an interrupt handler ended with %u locks held", c->locks_held);
    c->locks_held = held;
    c->hook_depth = hooks;
    c->call_depth = calls;
    leave_interrupt(c);
    c->irq_off = false;
}

/* As the machine's dispatcher. What the oracle takes for halted, the way in and out included, is
 * awake meanwhile: the handler must not meet what was reused. */
static void run_nmi(struct sim_cpu *c)
{
    uint32_t held = c->locks_held, hooks = c->hook_depth, calls = c->call_depth;
    bool off = c->irq_off, idle, away;

    c->nmi_masked = c->irq_off = true;
    c->irq_depth++;
    c->nmi_depth++;
    idle = tlb_gen_nmi_enter();
    away = oracle_idle_end(c->id);
    tlb_gen_irq_enter();
    c->locks_held = c->hook_depth = c->call_depth = 0;
    c->interrupts++;
    nmi_fn();
    c->locks_held = held;
    c->hook_depth = hooks;
    c->call_depth = calls;
    if (away)
        oracle_idle_begin(c->id);
    tlb_gen_nmi_exit(idle);
    c->nmi_depth--;
    leave_interrupt(c);
    c->irq_off = off;
    c->nmi_masked = false;
}

static void storm_handler(struct sim_cpu *c)
{
    (void)c;
    storm_fn();
}

static void pending_handler(struct sim_cpu *c)
{
    uint32_t p = __atomic_load_n(&c->pending, __ATOMIC_ACQUIRE);

    if (p & SIM_PENDING_WAKE)
        __atomic_fetch_and(&c->pending, ~SIM_PENDING_WAKE, __ATOMIC_SEQ_CST);
    if (p & SIM_PENDING_TLB)
        sim_serve_tlb(c);
    if (p & SIM_PENDING_CALL)
        sim_serve_calls(c);
}

/* By a CPU's own numbers, so that CPUs that run free share nothing. */
static void free_turn(struct sim_cpu *c)
{
    struct fiber *f = &fibers[c->id];
    bool interrupt = false;

    if (storm_every && (f->storm -= f->turn) < 0) {
        f->storm = (int64_t)(storm_every / 2 + rng_below(&f->rng, storm_every));
        interrupt = !c->irq_off;
    }
    c->budget = f->turn = 1 + (int64_t)rng_below(&f->rng, 2 * FREE_TURN);
    if (interrupt)
        run_handler(c, storm_handler);
    else
        sched_yield();
}

/* Interrupts whose handlers take all the time there is, as when each is short of addresses and
 * purges, leave a run no end that could be told from a hang: one that is so long goes on without.
 */
static bool due(uint32_t every)
{
    uint64_t limit = sim_opt.storm_steps ? sim_opt.storm_steps : STORM_STEPS_DEFAULT;

    if (!every || rng_below(&sched_rng, every) >= turn_mean)
        return false;
    if (steps - run_began < limit)
        return true;
    if (!calm) {
        calm = true;
        sim_stats.calmed++;
    }
    return false;
}

void sim_point_slow(struct sim_cpu *c)
{
    if (c == &boot_cpu) {
        c->budget = INT64_MAX;
        return;
    }
    if (!c->irq_off && __atomic_load_n(&c->pending, __ATOMIC_RELAXED))
        run_handler(c, pending_handler);
    if (c->budget >= 0)
        return;
    if (sim_opt.free_running) {
        free_turn(c);
        return;
    }
    if (!c->irq_off && due(storm_every))
        run_handler(c, storm_handler);
    if (!c->nmi_masked && due(nmi_every))
        run_nmi(c);
    reschedule(c, false);
}

void sim_relax(void)
{
    struct sim_cpu *c = sim_this;

    if (c == &boot_cpu)
        sim_fail(SIM_HANG, "the only CPU waits");
    if (__atomic_load_n(&c->pending, __ATOMIC_RELAXED))
        sim_point_slow(c);
    if (sim_opt.free_running)
        sched_yield();
    else
        reschedule(c, true);
}

static void wait_free(struct sim_cpu *c)
{
    const struct timespec moment = {.tv_nsec = 50000};

    if (fibers[c->id].idle)
        nanosleep(&moment, NULL);
    else
        sched_yield();
}

static void (*idle_hook)(void);

void smp_set_idle_hook(void (*fn)(void))
{
    idle_hook = fn;
}

/* Interrupts are masked on entry and on return; in between one is taken. */
void cpu_idle_wait(void)
{
    struct sim_cpu *c = sim_this;
    struct fiber *f = &fibers[c->id];

    if (c == &boot_cpu)
        sim_fail(SIM_HANG, "the only CPU halts");
    if (c->locks_held)
        sim_fail(SIM_CONTEXT, "CPU %u halts with lock %s held", c->id, sim_lock_name());
    oracle_idle_begin(c->id);
    tlb_gen_idle_enter();
    f->halted = true;
    while (!__atomic_load_n(&c->pending, __ATOMIC_SEQ_CST)) {
        if (!sim_opt.free_running) {
            steps++;
            switch_to(&f->sp, pick_for_halted());
        } else if (f->idle && !__atomic_load_n(&working, __ATOMIC_SEQ_CST)) {
            return; /* the run is over */
        } else {
            wait_free(c);
        }
    }
    f->halted = false;
    run_handler(c, pending_handler);
    c->irq_off = true;
    tlb_gen_idle_exit();
    oracle_idle_end(c->id);
    if (idle_hook)
        idle_hook();
}

void sim_irq_on(void)
{
    sim_this->irq_off = false;
    sim_point();
}

void sim_irq_storm(void (*fn)(void), uint32_t every)
{
    storm_fn = fn;
    storm_every = fn ? every : 0;
}

void sim_nmi_storm(void (*fn)(void), uint32_t every)
{
    nmi_fn = fn;
    nmi_every = fn ? every : 0;
}

void sim_kick(unsigned cpu, uint32_t what)
{
    __atomic_fetch_or(&sim_cpus[cpu].pending, what, __ATOMIC_SEQ_CST);
}

uint64_t sim_trail(void)
{
    return trail;
}

uint64_t sim_steps(void)
{
    return steps;
}

/* What a CPU does from the start of a run on: out of the idle loop, its function, and back. */
static void run_cpu(struct sim_cpu *c)
{
    struct fiber *f = &fibers[c->id];

    if (c->id < active) {
        tlb_gen_idle_exit();
        oracle_idle_end(c->id);
        sim_irq_on();
        run_fn(run_arg);
        if (c->locks_held)
            sim_fail(SIM_CONTEXT, "CPU %u ended with %u locks held", c->id, c->locks_held);
        if (!sim_opt.free_running)
            pauses = 0;
        __atomic_store_n(&f->idle, 1, __ATOMIC_SEQ_CST);
        __atomic_fetch_sub(&working, 1, __ATOMIC_SEQ_CST);
    }
    c->irq_off = true;
    do {
        cpu_idle_wait();
        while (sim_run_task())
            ;
    } while (!sim_opt.free_running || __atomic_load_n(&working, __ATOMIC_SEQ_CST) ||
             __atomic_load_n(&c->pending, __ATOMIC_SEQ_CST));
}

static void fiber_main(void)
{
#ifdef SIM_ASAN
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    run_cpu(sim_this);
    abort(); /* the caller goes on when all are idle, and never comes back here */
}

static void fiber_make(unsigned cpu)
{
    struct fiber *f = &fibers[cpu];
    uintptr_t *sp;

    if (!f->stack) {
        char *map = mmap(NULL, STACK_SIZE + PAGE_SIZE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (map == MAP_FAILED || mprotect(map, PAGE_SIZE, PROT_NONE) != 0) {
            perror("stack of a simulated CPU");
            exit(2);
        }
        f->stack = map + PAGE_SIZE;
    }
#ifdef SIM_ASAN
    /* A run that was abandoned left its frames' marks. */
    __asan_unpoison_memory_region(f->stack, STACK_SIZE);
#endif
    sp = (uintptr_t *)(f->stack + STACK_SIZE) - 1;
    *sp-- = 0; /* return address of fiber_main, for alignment and backtraces */
    *sp = (uintptr_t)fiber_main;
    sp -= 6;
    memset(sp, 0, 6 * sizeof(*sp));
    f->sp = sp;
    f->idle = f->halted = cpu >= active;
    f->priority = 1 + (uint32_t)rng_below(&sched_rng, 1u << 20);
    f->points = 0;
    begin_turn(cpu);
}

void sim_leave_run(void)
{
    void *gone;

    abandoned = true;
    switch_to(&gone, running);
    abort();
}

static void run_by_schedule(void)
{
    static const struct {
        uint32_t mean;
        bool by_priority;
    } kinds[] = {{2, false}, {8, false}, {40, false}, {200, false}, {20, true}, {100, true}};
    unsigned kind = (unsigned)rng_below(&sched_rng, ARRAY_SIZE(kinds));

#ifdef SIM_ASAN
    pthread_attr_t attr;
    void *bottom;

    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &bottom, &main_stack_size);
    pthread_attr_destroy(&attr);
    main_stack_bottom = bottom;
#endif
    turn_mean = kinds[kind].mean;
    by_priority = kinds[kind].by_priority;
    pauses = 0;
    run_began = steps;
    calm = false;
    for (unsigned i = 0; i < running; i++)
        fiber_make(i);
    switch_to(&main_sp, pick_even());
}

static void *thread_main(void *arg)
{
    struct fiber *f;

    sim_this = arg;
    f = &fibers[sim_this->id];
    rng_seed(&f->rng, sim_opt.seed + sim_this->id);
    f->storm = storm_every;
    f->turn = sim_this->budget = 0;
    pthread_barrier_wait(&all_there);
    run_cpu(sim_this);
    return NULL;
}

static void run_free(void)
{
    pthread_t threads[SIM_MAX_CPUS];

    pthread_barrier_init(&all_there, NULL, running);
    for (unsigned i = 0; i < running; i++)
        fibers[i].idle = i >= active;
    for (unsigned i = 0; i < running; i++)
        if (pthread_create(&threads[i], NULL, thread_main, &sim_cpus[i]) != 0) {
            perror("thread of a simulated CPU");
            exit(2);
        }
    for (unsigned i = 0; i < running; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all_there);
}

bool sim_run(unsigned n, void (*fn)(void *arg), void *arg)
{
    if (n > sim_opt.cpus || sim_running || sim_failure() != SIM_OK)
        return false;
    run_fn = fn;
    run_arg = arg;
    running = sim_opt.cpus;
    active = working = n;
    sim_running = true;
    if (sim_opt.free_running)
        run_free();
    else
        run_by_schedule();
    sim_running = false;
    sim_stats.schedules++;
    for (unsigned i = 0; i < running; i++) {
        sim_stats.interrupts += sim_cpus[i].interrupts;
        sim_stats.calls += sim_cpus[i].calls;
        sim_cpus[i].interrupts = sim_cpus[i].calls = 0;
    }
    return sim_failure() == SIM_OK && !abandoned;
}

bool sim_do(void (*fn)(void *arg), void *arg)
{
    return sim_run(1, fn, arg);
}

void sim_cpu_reset(void)
{
    rng_seed(&sched_rng, sim_opt.seed);
    abandoned = false;
    steps = pauses = trail = 0;
    storm_every = nmi_every = 0;
    for (unsigned i = 0; i < SIM_MAX_CPUS; i++) {
        uintptr_t offset = sim_cpus[i].percpu_offset;

        sim_cpus[i] = (struct sim_cpu){.id = i, .percpu_offset = offset};
        fibers[i].idle = 1;
        fibers[i].timer = 0;
        if (i < sim_opt.cpus)
            per_cpu_ptr(&tlb_gen_cpu, i)->idle = 1;
    }
    boot_cpu = (struct sim_cpu){.budget = INT64_MAX, .percpu_offset = sim_cpus[0].percpu_offset};
}
