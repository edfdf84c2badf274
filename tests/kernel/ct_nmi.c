/*
 * NMIs on CPUs that allocate, and on CPUs that are halted.
 *
 * nmi_lookup: find_vm_area takes no lock and makes nobody wait, so an NMI may ask it whatever it
 * has interrupted: here an allocator in the middle of things, or the way into HLT and out of it.
 * Every second CPU allocates, and its timer at HZ sends NMIs to itself, to the next CPU, which is
 * halted, and to the one behind that. Their handlers know what the answers must be. nmi_wake_up:
 * STI does not hold NMIs off, so one may come between it and HLT; what the CPU waits for may then
 * be handled before the HLT, and must not be waited for. That moment is met by chance, and made:
 * the handler of an NMI that ended the HLT goes back to before it.
 */
#include "lib/string.h"
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>
#include <arch/trap.h>

#define HZ          10000
#define TARGETS_MAX 6
#define SECONDS_MAX 5
#define AREAS       32 /* that stay */
#define PAGES_MAX   8

/* One CPU's. The task writes it, its NMI handler reads it and writes the counts. */
struct target {
    uintptr_t live; /* start of an area of this CPU that is allocated, 0: none */
    uintptr_t gone; /* one that this CPU has freed and not allocated again */
    uint32_t pages; /* of `live` */
    uint64_t ticks, nmis, lookups, wrong;
    uint32_t stopped;
    const char *what; /* of the first wrong answer */
    struct rng rng;
} __cacheline;

static struct {
    struct target target[TARGETS_MAX]; /* by CPU */
    unsigned targets;
    uintptr_t area[AREAS];
    bool exact;      /* every area is in the table, and freed addresses stay with their CPU */
    uint64_t ticks;  /* that each timer is to have */
    uint64_t end_us; /* clock: at the latest */
    uint32_t no_timer;
} nmi;

static void check(struct target *t, bool ok, const char *what)
{
    t->lookups++;
    if (likely(ok))
        return;
    if (!t->wrong++)
        t->what = what;
}

static void look_up_stable(struct target *t)
{
    unsigned i = (unsigned)rng_below(&t->rng, AREAS);
    size_t size = (1 + i % PAGES_MAX) * PAGE_SIZE;
    uintptr_t start = nmi.area[i], addr = start + rng_below(&t->rng, size);
    struct vm_area_info info;
    bool found = find_vm_area((void *)addr, &info);

    check(t, found || !nmi.exact, "an area that is live all the time is not found");
    check(t, !found || vmap_config.index_table, "a lookup in an NMI took locks");
    check(t, !found || ((uintptr_t)info.start == start && info.size == size),
          "an area has another start or size");
    check(t, !find_vm_area((void *)(start + size), &info), "a guard is found");
}

static void look_up_own(struct target *t)
{
    uintptr_t live = READ_ONCE(t->live), gone = READ_ONCE(t->gone);
    struct vm_area_info info;
    bool found;

    if (live) {
        found = find_vm_area((void *)(live + t->pages * PAGE_SIZE - 1), &info);
        check(t, found || !nmi.exact, "what this CPU has allocated is not found");
        check(t, !found || ((uintptr_t)info.start == live && info.size == t->pages * PAGE_SIZE),
              "what this CPU has allocated has another start or size");
    } else if (gone && nmi.exact) {
        check(t, !find_vm_area((void *)gone, &info), "what this CPU has freed is found");
    }
}

/* Another CPU's may come and go meanwhile: the answer must be one that was right at some time. */
static void look_up_others(struct target *t)
{
    uintptr_t live = READ_ONCE(nmi.target[rng_below(&t->rng, nmi.targets)].live);
    struct vm_area_info info;

    if (live && find_vm_area((void *)live, &info))
        check(t,
              live - (uintptr_t)info.start < info.size && IS_ALIGNED(info.size, PAGE_SIZE) &&
                  info.size <= PAGES_MAX * PAGE_SIZE && info.kind == VM_KIND_ALLOC,
              "an area of another CPU is described wrongly");
}

static void lookup_nmi(struct trap_frame *f)
{
    struct target *t = &nmi.target[this_cpu_id()];

    (void)f;
    t->nmis++;
    look_up_stable(t);
    look_up_own(t);
    look_up_others(t);
    check(t, !vmalloc(PAGE_SIZE), "an allocation in an NMI");
}

/* The timer's handler. */
static void send_nmis(void)
{
    unsigned me = this_cpu_id();
    struct target *t = &nmi.target[me];

    smp_send_nmi(me);
    for (unsigned i = 1; i < MIN(nmi.targets, 3u); i++)
        smp_send_nmi((me + i) % nmi.targets);
    if (++t->ticks >= nmi.ticks || clock_us() >= nmi.end_us) {
        timer_stop();
        WRITE_ONCE(t->stopped, 1);
    }
}

static bool allocate(struct target *t)
{
    unsigned pages = 1 + (unsigned)(t->nmis % PAGES_MAX);
    uint64_t *p;

    WRITE_ONCE(t->gone, 0);
    p = vmalloc(pages * PAGE_SIZE);
    if (!p) {
        KT_FAIL("vmalloc failed");
        return false;
    }
    t->pages = pages;
    barrier();
    WRITE_ONCE(t->live, (uintptr_t)p);
    *p = (uintptr_t)p;
    KT_EXPECT_EQ(*(volatile uint64_t *)p, (uintptr_t)p);
    WRITE_ONCE(t->live, 0);
    vfree(p);
    WRITE_ONCE(t->gone, (uintptr_t)p);
    return true;
}

static void run_allocator(void *arg)
{
    struct target *t = &nmi.target[this_cpu_id()];

    (void)arg;
    if (!timer_start(HZ, send_nmis)) {
        WRITE_ONCE(nmi.no_timer, 1);
        return;
    }
    while (!READ_ONCE(t->stopped) && allocate(t) && clock_us() < nmi.end_us + 1000000)
        kt_alive();
    timer_stop();
    if (!t->stopped)
        KT_FAIL("the timer has stopped by itself");
}

static void report(uint64_t us)
{
    uint64_t least = UINT64_MAX, most = 0, lookups = 0;

    for (unsigned cpu = 0; cpu < nmi.targets; cpu++) {
        struct target *t = &nmi.target[cpu];
        uint64_t rate = t->nmis * 1000000 / us;

        KT_EXPECT(t->nmis != 0);
        if (t->wrong)
            KT_FAIL("cpu %u: %lu of %lu answers are wrong: %s", cpu, (unsigned long)t->wrong,
                    (unsigned long)t->lookups, t->what);
        least = MIN(least, rate);
        most = MAX(most, rate);
        lookups += t->lookups;
    }
    kt_note("%u CPUs: NMIs a second on each: %lu to %lu, %u asked; %lu answers", nmi.targets,
            (unsigned long)least, (unsigned long)most, HZ, (unsigned long)lookups);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* The last NMIs may still be under way: to a vCPU that the host does not run, for any time. Who has
 * done some work that was sent later has taken them. */
static void hook_off(void)
{
    clock_delay_us(1000);
    kt_on_all(nothing, NULL);
    nmi_set_hook(NULL);
}

static void run_targets(void)
{
    uint64_t begin = clock_us();

    nmi.end_us = begin + SECONDS_MAX * 1000000UL;
    nmi_set_hook(lookup_nmi);
    kt_timer_borrow();
    for (unsigned cpu = 2; cpu < nmi.targets; cpu += 2)
        kt_start(cpu, run_allocator, NULL);
    run_allocator(NULL);
    for (unsigned cpu = 2; cpu < nmi.targets; cpu += 2)
        kt_join(cpu);
    kt_timer_return();
    hook_off();
    if (nmi.no_timer)
        kt_skip("a CPU has no timer");
    else
        report(MAX(clock_us() - begin, 1UL));
}

KTEST(nmi_lookup, "lookups in NMIs at 10 kHz are right, over allocators and over halted CPUs")
{
    memset(&nmi, 0, sizeof(nmi));
    nmi.targets = MIN(kt_cpus(), (unsigned)TARGETS_MAX);
    nmi.ticks = kt_scaled(20000);
    nmi.exact =
        vmap_config.index_table && vmap_config.blocks_all && vmap_config.range_size >= 512 * SZ_1G;
    for (unsigned cpu = 0; cpu < nmi.targets; cpu++)
        rng_seed(&nmi.target[cpu].rng, kt_seed() + cpu);
    for (unsigned i = 0; i < AREAS; i++) {
        nmi.area[i] = (uintptr_t)vmalloc((1 + i % PAGES_MAX) * PAGE_SIZE);
        KT_ASSERT(nmi.area[i]);
    }
    run_targets();
    for (unsigned i = 0; i < AREAS; i++)
        vfree((void *)nmi.area[i]);
}

/* ---- wake-ups ---- */

#define LOST_US 3000000

static struct {
    uint64_t done, nmis, before_hlt, put_before;
    uint32_t hold; /* the handler waits until it is 0: the wake-up is pending */
} wake;

static void wake_nmi(struct trap_frame *f)
{
    struct clock_limit limit;

    clock_limit_start(&limit, LOST_US);
    while (LOAD_ACQUIRE(wake.hold) && !clock_limit_over(&limit))
        cpu_relax();
    wake.nmis++;
    if (f->rip == (uintptr_t)cpu_halt_hlt) {
        wake.before_hlt++;
    } else if (f->rip == (uintptr_t)cpu_halt_end) {
        f->rip = (uintptr_t)cpu_halt_hlt;
        wake.put_before++;
    }
}

static void work(void *arg)
{
    (void)arg;
    ATOMIC_ADD(wake.done, 1UL);
}

static void short_while(struct rng *r)
{
    for (uint64_t turns = rng_below(r, 1UL << rng_below(r, 12)); turns; turns--)
        cpu_relax();
}

/* No NMI comes after the last wake-up: it would hide that one was lost. */
static bool wait_done(unsigned cpu, uint64_t want, const char *what)
{
    struct clock_limit limit;

    clock_limit_start(&limit, LOST_US);
    while (LOAD_ACQUIRE(wake.done) < want) {
        tlb_poll();
        cpu_relax();
        if (clock_limit_over(&limit)) {
            KT_FAIL("%s: cpu %u does not wake up", what, cpu);
            smp_wake(cpu);
            return false;
        }
    }
    return true;
}

/* Work that comes behind some NMIs, or while the CPU is in the handler of one. */
static bool wake_round(unsigned cpu, bool during, uint64_t want, struct rng *r)
{
    uint64_t nmis = during ? 1 : rng_below(r, 3);

    short_while(r);
    STORE_RELEASE(wake.hold, during);
    while (nmis--)
        smp_send_nmi(cpu);
    short_while(r);
    kt_start(cpu, work, NULL);
    STORE_RELEASE(wake.hold, 0u);
    if (!wait_done(cpu, want, during ? "work during an NMI" : "work behind NMIs"))
        return false;
    kt_join(cpu);
    return true;
}

KTEST(nmi_wake_up, "no wake-up of a halted CPU is lost to an NMI that comes before the HLT")
{
    uint64_t rounds = kt_scaled(3000), end = clock_us() + SECONDS_MAX * 1000000UL;
    unsigned cpu = kt_other_cpu();
    struct rng r;

    if (cpu == 0)
        KT_SKIP("one CPU");
    rng_seed(&r, kt_seed());
    memset(&wake, 0, sizeof(wake));
    nmi_set_hook(wake_nmi);
    for (uint64_t i = 0; i < rounds && clock_us() < end; i++) {
        if (!wake_round(cpu, i % 2, i + 1, &r))
            break;
        kt_progress((unsigned)(i * 100 / rounds));
        kt_alive();
    }
    hook_off();
    KT_EXPECT(wake.put_before != 0);
    kt_note("%lu NMIs, %lu came between STI and HLT, %lu were put there", (unsigned long)wake.nmis,
            (unsigned long)wake.before_hlt, (unsigned long)wake.put_before);
}
