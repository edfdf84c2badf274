/*
 * driver.c: plans, choices and runs of the random driver. See driver.h.
 */
#include "tests/host/sim/driver_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/printf.h"
#include "mm/cache.h"
#include "mm/page_alloc.h"
#include "tests/host/sim/internal.h"
#include <arch/cpu.h>
#include <arch/percpu.h>

struct driver_stats driver_stats;
const struct driver_plan *plan;
struct actor *actors, *handlers;

static size_t cursor; /* into plan->data */

/* ---- console ---- */

static char console[8192]; /* the end of what mm/ printed */
static size_t console_used;

/* CPUs that run free print nothing: a lock here would order them. */
void console_write(const char *s, size_t n)
{
    if (sim_opt.free_running)
        return;
    if (sim_running && sim_this->locks_held)
        sim_fail(SIM_CONTEXT, "a line is printed with lock %s held: %.*s", sim_lock_name(), (int)n,
                 s);
    n = MIN(n, sizeof(console) / 2);
    if (console_used + n > sizeof(console)) {
        console_used = sizeof(console) / 4;
        memmove(console, console + sizeof(console) - console_used, console_used);
    }
    memcpy(console + console_used, s, n);
    console_used += n;
}

/* ---- choices ---- */

bool choices_left(void)
{
    return !plan->data || cursor < plan->size;
}

/* From bytes: as many as n needs; zeros at the end. */
uint64_t choose(struct actor *a, uint64_t n)
{
    uint64_t v = 0;

    if (!plan->data)
        return rng_below(&a->rng, n);
    for (uint64_t left = n - 1; left; left >>= 8)
        v = v << 8 | (cursor < plan->size ? plan->data[cursor++] : 0);
    return n ? v % n : 0;
}

bool chance(struct actor *a, unsigned one_in)
{
    return choose(a, one_in) == 0;
}

void call_failed(struct actor *a, const char *what)
{
    a->failed_calls++;
    if (plan->ample)
        sim_fail(SIM_TEST, "%s failed, and memory and addresses suffice", what);
}

/* ---- plans ---- */

void driver_plan_for(struct driver_plan *p, uint64_t seed)
{
    static const uint64_t ranges[] = {16 * SZ_1M, 64 * SZ_1M, SZ_1G, VMAP_SIZE_MAX};
    static const uint64_t lazy[] = {1, 16, 64, 512, 4096};
    static const uint8_t cpus[] = {1, 2, 2, 3, 4, 4, 4, 8};
    struct rng r;

    rng_seed(&r, seed);
    memset(p, 0, sizeof(*p));
    p->machine.seed = seed;
    p->machine.cpus = cpus[rng_below(&r, ARRAY_SIZE(cpus))];
    p->machine.turns = (seed * 0x9e3779b97f4a7c15ULL) >> 63;
    p->machine.nodes = 1 + (unsigned)rng_below(&r, 2);
    p->machine.ram = (12 + rng_below(&r, 3) * 6) * SZ_1M;
    p->machine.caching = rng_below(&r, 4) ? SIM_CACHE_WORST : SIM_CACHE_RANDOM;
    p->boot.design = rng_below(&r, 2) ? DESIGN_2024 : DESIGN_METALMAP;
    p->boot.frames_safe = p->machine.frames_safe = rng_below(&r, 2);
    p->machine.step_ns = rng_below(&r, 4) ? 1000 : 100000000;
    p->boot.range_size = ranges[rng_below(&r, ARRAY_SIZE(ranges))];
    p->boot.nodes = 1 + (unsigned)rng_below(&r, p->machine.cpus);
    p->boot.lazy_max = lazy[rng_below(&r, ARRAY_SIZE(lazy))];
    p->boot.no_pools = rng_below(&r, 3) == 0;
    p->bias = (unsigned)rng_below(&r, DRIVER_BIASES);
    p->slots = 1 + (unsigned)rng_below(&r, DRIVER_SLOTS);
    p->pages_max = 1 + (unsigned)rng_below(&r, 40);
    p->ops = rng_below(&r, 16) ? 20 + (unsigned)rng_below(&r, 60) : 400;
    p->storm = rng_below(&r, 3) ? 0 : 200 + (uint32_t)rng_below(&r, 2000);
    p->nmis = rng_below(&r, 4) ? 0 : 100 + (uint32_t)rng_below(&r, 1000);
    p->inject = rng_below(&r, 3) == 0;
    if (rng_below(&r, 3))
        return;
    /* Any design, and any mixture of their options. */
    p->boot.design = (unsigned)rng_below(&r, DESIGNS);
    if (p->boot.design == DESIGN_2010 || p->boot.design == DESIGN_2023)
        p->boot.nodes = 1;
    if (rng_below(&r, 2))
        p->boot.mix = (uint32_t)rng_below(&r, 1u << SIM_MIXES);
}

void driver_plan_from(struct driver_plan *p, const uint8_t *data, size_t size)
{
    uint64_t seed = 0;

    for (size_t i = 0; i < MIN(size, sizeof(seed)); i++)
        seed = seed << 8 | data[i];
    driver_plan_for(p, seed);
    p->ops = 100000; /* as far as the bytes reach */
    p->data = data + MIN(size, sizeof(seed));
    p->size = size - MIN(size, sizeof(seed));
}

void driver_print_plan(const struct driver_plan *p)
{
    fprintf(stderr,
            "plan: MM_SEED=0x%lx design=%s mix=0x%x frames=%s cpus=%u turns=%u ram=%luM numa=%u "
            "caching=%u "
            "range=%luM nodes=%u lazy=%lu pools=%s ops=%u "
            "slots=%u pages=%u bias=%u storm=%u nmis=%u inject=%u\n",
            (unsigned long)p->machine.seed, vmap_design_names[p->boot.design], p->boot.mix,
            p->boot.frames_safe ? "safe" : "early", p->machine.cpus, p->machine.turns,
            (unsigned long)(p->machine.ram >> 20), p->machine.nodes, p->machine.caching,
            (unsigned long)(p->boot.range_size >> 20), p->boot.nodes,
            (unsigned long)p->boot.lazy_max, p->boot.no_pools ? "off" : "on", p->ops, p->slots,
            p->pages_max, p->bias, p->storm, p->nmis, p->inject);
    fprintf(stderr, "the end of what was printed:\n%.*s\n", (int)console_used, console);
}

/* What a sanitizer finds ends the program: it must say how to get there again. */
void __sanitizer_set_death_callback(void (*callback)(void)) __weak;
const char *__ubsan_default_options(void);

const char *__ubsan_default_options(void)
{
    return "print_stacktrace=1";
}

static void last_words(void)
{
    if (plan && sim_running)
        driver_print_plan(plan);
}

static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
static struct sigaction at_start[ARRAY_SIZE(deadly)];

__attribute__((constructor)) static void save_handlers(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(deadly); i++)
        sigaction(deadly[i], NULL, &at_start[i]);
}

static void die(int sig)
{
    last_words();
    signal(sig, SIG_DFL);
    raise(sig);
}

/* The test framework would go on after a crash, with a machine that stands still in the middle. So
 * a crash is the sanitizer's to report, or ends the program here. */
static void take_crashes(void)
{
    static char stack[65536];
    const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof(stack)};
    struct sigaction mine = {.sa_handler = die, .sa_flags = SA_ONSTACK};

    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(last_words);
    } else {
        sigaltstack(&alternative, NULL);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(deadly); i++)
        sigaction(deadly[i], __sanitizer_set_death_callback ? &at_start[i] : &mine, NULL);
}

/* ---- runs ---- */

static void make_pools(void *arg)
{
    (void)arg;
    for (unsigned cpu = 0; cpu < plan->machine.cpus; cpu++)
        for (unsigned i = 0; i < POOL_FRAMES; i++) {
            struct page *page = alloc_page();

            SIM_CHECK(page, "no memory for the driver's own frames");
            sim_frame_callers_own(page);
            frame_mark(page, page_to_pfn(page));
            actors[cpu].pool[i] = handlers[cpu].pool[i] = page;
        }
}

static void free_pools(void *arg)
{
    (void)arg;
    vm_unmap_aliases();
    for (unsigned cpu = 0; cpu < plan->machine.cpus; cpu++)
        for (unsigned i = 0; i < POOL_FRAMES; i++) {
            struct page *page = actors[cpu].pool[i];

            SIM_CHECK(frame_holds(page, page_to_pfn(page)), "a frame of the driver was written");
            free_page(page);
        }
}

static void prepare_actor(struct actor *a, unsigned cpu, bool handler)
{
    struct page *pool[POOL_FRAMES];

    memcpy(pool, a->pool, sizeof(pool));
    memset(a, 0, sizeof(*a));
    memcpy(a->pool, pool, sizeof(pool));
    a->cpu = cpu;
    a->handler = handler;
    a->slot_count = handler ? IRQ_SLOTS : plan->slots;
    rng_seed(&a->rng, plan->machine.seed * 2654435761u + cpu * 2 + handler);
    rng_seed(&a->nmi_rng, plan->machine.seed + cpu);
}

static void storm(void)
{
    op_in_handler(&handlers[this_cpu_id()]);
}

static void nmi(void)
{
    op_in_nmi(&actors[this_cpu_id()]);
}

static void act(void *arg)
{
    struct actor *a = &actors[this_cpu_id()];

    (void)arg;
    for (unsigned i = 0; i < plan->ops && choices_left(); i++)
        op_any(a);
}

/* What is left is freed on a CPU that did not make it. */
static void clean_up(void *arg)
{
    struct actor *a = &actors[this_cpu_id()];
    unsigned next = (this_cpu_id() + 1) % plan->machine.cpus;

    (void)arg;
    op_take_mail(a);
    for (unsigned i = 0; i < DRIVER_SLOTS; i++)
        op_free(a, &actors[next].slots[i]);
    for (unsigned i = 0; i < IRQ_SLOTS; i++)
        op_free(a, &handlers[next].slots[i]);
}

static void stop_injection(void *arg)
{
    (void)arg;
    page_alloc_inject(0, 0);
    cache_inject(0, 0);
    vmap_inject_pt(0, 0);
}

static void check_counters(void *arg)
{
    struct vmap_counters c;
    uint64_t bad = 0;

    (void)arg;
    vmap_read_counters(&c);
    for (unsigned cpu = 0; cpu < plan->machine.cpus; cpu++)
        bad += actors[cpu].bad_calls + handlers[cpu].bad_calls;
    SIM_CHECK(c.bad_free == bad, "%lu bad calls were counted, %lu were made",
              (unsigned long)c.bad_free, (unsigned long)bad);
}

static void add_stats(const struct actor *a)
{
    driver_stats.operations += a->operations;
    driver_stats.failed_calls += a->failed_calls;
    driver_stats.bad_calls += a->bad_calls;
    driver_stats.verified_pages += a->verified_pages;
}

bool driver_run(const struct driver_plan *p)
{
    static struct actor all[2 * SIM_MAX_CPUS];
    unsigned cpus = p->machine.cpus;
    struct sim_baseline before, after;
    bool ok;

    take_crashes();
    plan = p;
    cursor = 0;
    console_used = 0;
    actors = all;
    handlers = all + SIM_MAX_CPUS;
    sim_machine(&p->machine);
    sim_boot(&p->boot);
    model_reset();
    op_reset();
    ok = sim_settle(&before) && sim_do(make_pools, NULL);
    for (unsigned cpu = 0; ok && cpu < cpus; cpu++) {
        prepare_actor(&actors[cpu], cpu, false);
        prepare_actor(&handlers[cpu], cpu, true);
    }
    if (ok) {
        sim_irq_storm(p->storm ? storm : NULL, p->storm);
        sim_nmi_storm(p->nmis ? nmi : NULL, p->nmis);
        ok = sim_run(cpus, act, NULL);
        sim_irq_storm(NULL, 0);
        sim_nmi_storm(NULL, 0);
    }
    ok = ok && sim_do(stop_injection, NULL) && sim_settle(NULL) && sim_run(cpus, clean_up, NULL) &&
         sim_do(check_counters, NULL) && sim_do(free_pools, NULL) && sim_settle(&after) &&
         sim_compare(&before, &after, 256) && sim_shutdown();
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        add_stats(&actors[cpu]);
        add_stats(&handlers[cpu]);
    }
    return ok;
}
