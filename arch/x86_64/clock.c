/*
 * clock.c: the TSC's frequency, time from it, delays, the timer interrupt, and the warp test.
 *
 * Sources in order: CPUID 15H, the hypervisor's leaf, PM timer, HPET, PIT (clock_sources.c). What
 * is only told is checked against what can be measured; if the two disagree the measured one is
 * used (case T2). Constant after clock_init().
 */
#include <arch/apic.h>
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/trap.h>

#include "arch/x86_64/clock_sources.h"
#include "lib/printf.h"

#define HZ_MIN       100000000ULL
#define HZ_MAX       10000000000ULL
#define HZ_ASSUMED   5000000000ULL /* faster than any: delays come out too long, not too short */
#define SAMPLES      5
#define SAMPLE_US    5000
#define DISAGREE_PPM 50000

/* clock_us() = ticks * mult >> SHIFT: the largest shift with which 1000000 << SHIFT fits. */
#define SHIFT 44

#define WARP_ROUNDS_VM    3
#define WARP_ROUNDS_METAL 1000
#define WARP_WAIT_US      20000

static uint64_t tsc_hz, spread_ppm, tsc_start;
static uint64_t us_mult = (1000000ULL << SHIFT) / HZ_ASSUMED;
static const char *source = "none";
static bool started;
static uint64_t worst_warp;

typedef void (*timer_fn_t)(void);
enum timer_state { TIMER_OFF, TIMER_ONCE, TIMER_PERIODIC };
static DEFINE_PER_CPU(timer_fn_t, timer_fn);
static DEFINE_PER_CPU(enum timer_state, timer_state);
static DEFINE_PER_CPU(uint64_t, timer_due); /* TSC, while TIMER_ONCE */

/* ---- the frequency ---- */

static bool plausible(uint64_t hz)
{
    return hz >= HZ_MIN && hz <= HZ_MAX;
}

static uint64_t ppm_apart(uint64_t a, uint64_t b)
{
    uint64_t high = MAX(a, b), low = MIN(a, b);

    return low ? (high - low) * 1000000 / low : UINT64_MAX;
}

static void sort(uint64_t *v, size_t n)
{
    size_t i, j;

    for (i = 1; i < n; i++) {
        for (j = i; j > 0 && v[j - 1] > v[j]; j--) {
            uint64_t t = v[j];

            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    }
}

/* Median of the samples, and how far the middle ones are apart: the outer ones are host noise. */
static uint64_t measure(const struct clock_meter *m, uint64_t *spread)
{
    uint64_t hz[SAMPLES];
    size_t n = 0, i;

    for (i = 0; i < SAMPLES; i++) {
        uint64_t v = m->sample(SAMPLE_US);

        if (!v)
            break;
        if (plausible(v))
            hz[n++] = v;
    }
    if (n < 3)
        return 0;
    sort(hz, n);
    *spread = ppm_apart(hz[n / 2 - 1], hz[n / 2 + 1]);
    return hz[n / 2];
}

/* CPUID 15H with the crystal's rate (SDM 2A): the only exact one. */
static uint64_t hz_cpuid15(void)
{
    uint32_t max, a, b, c, d;

    cpuid(0, 0, &max, &b, &c, &d);
    if (max < 0x15)
        return 0;
    cpuid(0x15, 0, &a, &b, &c, &d);
    return a && b && c ? (uint64_t)c * b / a : 0;
}

/* The timing leaf that several hypervisors share: EAX = kHz of the TSC. */
static uint64_t hz_hypervisor(void)
{
    uint32_t max, a, b, c, d;

    if (!cpu_features.hypervisor_present)
        return 0;
    cpuid(0x40000000, 0, &max, &b, &c, &d);
    if (max < 0x40000010 || max > 0x400000ff)
        return 0;
    cpuid(0x40000010, 0, &a, &b, &c, &d);
    return (uint64_t)a * 1000;
}

struct found {
    uint64_t hz, spread;
    const char *name;
};

/* The first two meters that work: one to use, one to check it by. */
static size_t measure_two(struct found out[2])
{
    size_t n = 0, i;

    for (i = 0; i < clock_meter_count && n < 2; i++) {
        const struct clock_meter *m = &clock_meters[i];
        struct found f = {.name = m->name};

        if (!m->open())
            continue;
        f.hz = measure(m, &f.spread);
        if (m->close)
            m->close();
        if (f.hz)
            out[n++] = f;
    }
    return n;
}

static void find_hz(void)
{
    struct found told = {.hz = hz_cpuid15(), .name = "cpuid15"}, measured[2],
                 best = {.name = "none"};
    size_t n = measure_two(measured);

    if (!plausible(told.hz))
        told = (struct found){.hz = hz_hypervisor(), .name = "hypervisor"};
    if (n)
        best = measured[0];
    if (plausible(told.hz) && (!n || ppm_apart(told.hz, best.hz) <= DISAGREE_PPM))
        best = told;
    else if (plausible(told.hz))
        kprintf("# clock: %s says %lu Hz, %s measured %lu Hz: the measured one is used\n",
                told.name, told.hz, best.name, best.hz);
    if (n == 2 && ppm_apart(measured[0].hz, measured[1].hz) > DISAGREE_PPM)
        kprintf("# clock: %s measured %lu Hz, %s %lu Hz: they disagree\n", measured[0].name,
                measured[0].hz, measured[1].name, measured[1].hz);
    tsc_hz = best.hz;
    spread_ppm = best.spread;
    source = best.name;
    if (tsc_hz)
        us_mult = (1000000ULL << SHIFT) / tsc_hz;
    kprintf("# clock tsc_hz=%lu source=%s spread_ppm=%lu check=%s check_hz=%lu invariant=%s\n",
            tsc_hz, source, spread_ppm, n > 1 ? measured[1].name : "none",
            n > 1 ? measured[1].hz : 0, cpu_features.invariant_tsc ? "yes" : "no");
    if (!tsc_hz)
        kprintf("# clock: no source: times and delays assume %llu Hz\n", HZ_ASSUMED);
}

static void timer_interrupt(struct trap_frame *f)
{
    void (*fn)(void) = *this_cpu_ptr(&timer_fn);

    (void)f;
    if (*this_cpu_ptr(&timer_state) == TIMER_ONCE)
        *this_cpu_ptr(&timer_state) = TIMER_OFF;
    if (fn)
        fn();
}

void clock_init(void)
{
    tsc_start = rdtsc();
    started = true;
    find_hz();
    irq_register(VECTOR_TIMER, timer_interrupt);
    apic_timer_calibrate();
}

/* ---- time ---- */

uint64_t clock_tsc_hz(void)
{
    return tsc_hz;
}

const char *clock_source(void)
{
    return source;
}

uint64_t clock_spread_ppm(void)
{
    return spread_ppm;
}

uint64_t clock_cycles_to_us(uint64_t cycles)
{
    return (uint64_t)((unsigned __int128)cycles * us_mult >> SHIFT);
}

uint64_t clock_us_to_cycles(uint64_t us)
{
    uint64_t hz = tsc_hz ? tsc_hz : HZ_ASSUMED;

    /* Whole seconds apart, so that nothing overflows below 58 years. */
    return us / 1000000 * hz + us % 1000000 * hz / 1000000;
}

uint64_t clock_us(void)
{
    uint64_t now = rdtsc();

    /* Another CPU's TSC may be a little behind the one that started. */
    return started && now > tsc_start ? clock_cycles_to_us(now - tsc_start) : 0;
}

void clock_delay_us(uint64_t us)
{
    struct clock_limit limit;

    clock_limit_start(&limit, us);
    while (!clock_limit_over(&limit)) {
        tlb_poll();
        cpu_relax();
    }
}

/* ---- the timer ---- */

static bool timer_set(uint64_t counts, bool periodic, void (*fn)(void))
{
    unsigned long flags;

    if (!apic_timer_hz())
        return false;
    flags = irq_save();
    *this_cpu_ptr(&timer_fn) = fn;
    *this_cpu_ptr(&timer_state) = periodic ? TIMER_PERIODIC : TIMER_ONCE;
    apic_timer_set((uint32_t)MIN(MAX(counts, 1UL), (uint64_t)UINT32_MAX), periodic);
    irq_restore(flags);
    return true;
}

bool timer_start(unsigned hz, void (*fn)(void))
{
    if (hz == 0) {
        timer_stop();
        return true;
    }
    return timer_set(apic_timer_hz() / hz, true, fn);
}

bool timer_once(uint64_t us, void (*fn)(void))
{
    uint64_t hz = apic_timer_hz();

    *this_cpu_ptr(&timer_due) = rdtsc() + clock_us_to_cycles(us);
    return timer_set(us / 1000000 * hz + us % 1000000 * hz / 1000000, false, fn);
}

void timer_stop(void)
{
    unsigned long flags = irq_save();

    if (apic_present())
        apic_timer_set(0, false);
    *this_cpu_ptr(&timer_state) = TIMER_OFF;
    irq_restore(flags);
}

void timer_ensure(uint64_t us)
{
    unsigned long flags = irq_save();
    enum timer_state state = *this_cpu_ptr(&timer_state);

    /* One that somebody waits for comes when it is due. */
    if (state == TIMER_OFF || (state == TIMER_ONCE && !*this_cpu_ptr(&timer_fn) &&
                               *this_cpu_ptr(&timer_due) > rdtsc() + clock_us_to_cycles(us)))
        timer_once(us, NULL);
    irq_restore(flags);
}

/* ---- warp test ---- */

/*
 * On metal two CPUs play ping-pong: each waits until the other has moved, reads its TSC, and moves;
 * a reading below the other's last one is a warp. Under a hypervisor two spinning vCPUs may not run
 * at the same time: there the other one reads its TSC in a call, between two readings of the
 * caller.
 */
struct warp_game {
    uint32_t turn; /* moves made; the boot CPU makes the even ones */
    uint32_t gave_up;
    uint64_t last; /* reading of the last move */
    uint64_t warp; /* written by whose move it is */
};
static struct warp_game game __cacheline;

static void warp_move(void)
{
    uint64_t now = cycles_begin();

    if (now < game.last)
        game.warp = MAX(game.warp, game.last - now);
    game.last = now;
}

static void warp_play(uint32_t side)
{
    uint32_t move;

    for (move = side; move < 2 * WARP_ROUNDS_METAL; move += 2) {
        struct clock_limit limit;

        clock_limit_start(&limit, WARP_WAIT_US);
        while (LOAD_ACQUIRE(game.turn) != move) {
            if (READ_ONCE(game.gave_up))
                return;
            if (clock_limit_over(&limit)) {
                WRITE_ONCE(game.gave_up, 1);
                return;
            }
            tlb_poll();
            cpu_relax();
        }
        warp_move();
        STORE_RELEASE(game.turn, move + 1);
    }
}

static void warp_play_other(void *arg)
{
    (void)arg;
    warp_play(1);
}

static void warp_move_other(void *arg)
{
    (void)arg;
    warp_move();
}

static void warp_pair(unsigned cpu)
{
    unsigned i;

    game = (struct warp_game){0};
    if (!cpu_features.hypervisor_present) {
        smp_call_async(cpu, warp_play_other, NULL);
        warp_play(0);
        smp_call_wait(cpu);
        return;
    }
    for (i = 0; i < WARP_ROUNDS_VM; i++) {
        warp_move();
        smp_call(cpu, warp_move_other, NULL);
        warp_move();
    }
}

void clock_warp_test(void)
{
    unsigned cpu, worst_cpu = 0, incomplete = 0;

    for (cpu = 1; cpu < smp_cpus(); cpu++) {
        warp_pair(cpu);
        incomplete += game.gave_up;
        if (game.warp > worst_warp) {
            worst_warp = game.warp;
            worst_cpu = cpu;
        }
    }
    kprintf("# clock warp=%lu cpu=%u pairs=%u incomplete=%u method=%s\n", worst_warp, worst_cpu,
            smp_cpus() - 1, incomplete, cpu_features.hypervisor_present ? "call" : "pingpong");
}

uint64_t clock_warp(void)
{
    return worst_warp;
}
