/*
 * The kinds of lock, and what is counted of them.
 *
 * Exclusion: a counter that is not atomic loses nothing under any way of waiting, counted or not; a
 * writer of the reader-writer lock is alone, its readers see both halves of what it writes, and
 * nobody sleeps for ever, interrupt handlers that come over a waiting task included. Statistics:
 * one wait that is known in advance is found again, in every field. Reports: a long wait is a line
 * in the log; hundreds of them at once must not keep each other from the console.
 */
#include "lib/string.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/rwlock.h>
#include <arch/smp.h>

#define HOLD_US   2000
#define INTERRUPT 8 /* every so many-th turn */
#define TRIES     100
#define WAITERS   32u
#define LINES     10 /* in a second: lib/printf.c */

static struct lock_class spin_class = {.name = "ct_locks.spin"};
static struct lock_class read_class = {.name = "ct_locks.rw-R"};
static struct lock_class write_class = {.name = "ct_locks.rw-W"};

static struct {
    struct spinlock lock;
    struct rwlock rw;
    uint64_t count, twin; /* under the lock */
    uint64_t turns;       /* of each CPU */
    uint64_t seen;        /* atomic */
} shared;

static void spin_turns(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < shared.turns; i++) {
        unsigned long flags = spin_lock_irqsave(&shared.lock);

        WRITE_ONCE(shared.count, READ_ONCE(shared.count) + 1);
        spin_unlock_irqrestore(&shared.lock, flags);
        flags = irq_save();
        if (spin_trylock(&shared.lock)) {
            WRITE_ONCE(shared.twin, READ_ONCE(shared.twin) + 1);
            spin_unlock(&shared.lock);
            ATOMIC_ADD(shared.seen, 1UL);
        }
        irq_restore(flags);
        kt_alive();
    }
}

static void check_spin(unsigned wait, bool counted)
{
    static const char *const names[] = {"auto", "tas", "ticket", "mcs"};
    bool was_on = lockstat_on;

    spin_class.wait = wait;
    lockstat_on = counted;
    spin_init(&shared.lock, &spin_class);
    lockstat_on = was_on;
    shared.count = shared.twin = shared.seen = 0;
    kt_on_few(spin_turns, NULL);
    if (shared.count != kt_few() * shared.turns || shared.twin != shared.seen)
        KT_FAIL("%s%s: %lu of %lu turns, %lu of %lu tries", names[wait], counted ? ", counted" : "",
                (unsigned long)shared.count, (unsigned long)(kt_few() * shared.turns),
                (unsigned long)shared.twin, (unsigned long)shared.seen);
    /* Free, without a trace of who waited: else the fast path would never work again. */
    KT_EXPECT_EQ(shared.lock.val, counted ? SPIN_COUNTED : 0);
}

KTEST(lock_kinds, "test-and-set, tickets and the queue exclude, counted or not, and end up free")
{
    shared.turns = kt_scaled(800);
    for (unsigned wait = SPIN_AUTO; wait <= SPIN_MCS; wait++) {
        check_spin(wait, false);
        check_spin(wait, true);
        kt_progress(25 * (wait + 1));
    }
    spin_class.wait = SPIN_AUTO;
}

static void check_pair(void)
{
    if (READ_ONCE(shared.count) != READ_ONCE(shared.twin))
        KT_FAIL("a reader sees %lu and %lu", (unsigned long)shared.count,
                (unsigned long)shared.twin);
}

static void read_in_handler(void *arg)
{
    unsigned long flags = rw_read_lock(&shared.rw);

    (void)arg;
    check_pair();
    rw_read_unlock(&shared.rw, flags);
    ATOMIC_ADD(shared.seen, 1UL);
}

static void write_one(void)
{
    unsigned long flags = rw_write_lock(&shared.rw);

    WRITE_ONCE(shared.count, READ_ONCE(shared.count) + 1);
    cpu_relax();
    WRITE_ONCE(shared.twin, READ_ONCE(shared.twin) + 1);
    rw_write_unlock(&shared.rw, flags);
}

static void read_one(uint64_t turn)
{
    unsigned long flags;

    if (turn % 2) {
        flags = rw_read_lock(&shared.rw);
    } else {
        flags = irq_save();
        if (!rw_read_trylock(&shared.rw)) {
            irq_restore(flags);
            return;
        }
    }
    check_pair();
    rw_read_unlock(&shared.rw, flags);
}

/* Every second CPU writes, the others read; some with interrupts off, and handlers in between. */
static void rw_turns(void *arg)
{
    unsigned me = this_cpu_id();

    (void)arg;
    for (uint64_t i = 0; i < shared.turns; i++) {
        unsigned long flags = i % 4 == 0 ? irq_save() : 0;

        if (me % 2 == 0)
            write_one();
        else
            read_one(i);
        if (i % 4 == 0)
            irq_restore(flags);
        if (i % INTERRUPT == 0)
            smp_interrupt((me + 1) % kt_few(), read_in_handler, NULL);
        kt_alive();
    }
}

static void check_rw(bool spins)
{
    shared.turns = kt_scaled(spins ? 800 : 4000);
    shared.count = shared.twin = shared.seen = 0;
    rw_init(&shared.rw, &read_class, &write_class, spins);
    kt_on_few(rw_turns, NULL);
    KT_EXPECT_EQ(shared.count, (kt_few() + 1) / 2 * shared.turns);
    KT_EXPECT_EQ(shared.twin, shared.count);
    KT_EXPECT(shared.seen != 0);
    KT_EXPECT_EQ(shared.rw.val, 0);
    KT_EXPECT(!shared.rw.head);
}

KTEST(rw_lock,
      "the sleeping lock: writers alone, readers together, handlers in between, nobody left asleep")
{
    check_rw(false);
}

KTEST(rw_lock_spins, "the same lock where all waiters spin")
{
    check_rw(true);
}

/* ---- statistics ---- */

#define PAIRS 1000

/* Ticks of taking and leaving the lock, which is free, PAIRS times. */
static uint64_t ticks_of_pairs(bool counted)
{
    bool was_on = lockstat_on;
    uint64_t begin;

    lockstat_on = counted;
    spin_init(&shared.lock, &spin_class);
    lockstat_on = was_on;
    begin = rdtsc();
    for (unsigned i = 0; i < PAIRS; i++) {
        unsigned long flags = spin_lock_irqsave(&shared.lock);

        spin_unlock_irqrestore(&shared.lock, flags);
    }
    return rdtsc() - begin;
}

KTEST(lock_cost, "a lock that is not counted costs what it would without statistics")
{
    struct lockstat before;
    uint64_t plain, counted;

    KT_ASSERT(kt_lockstat_begin());
    before = kt_lockstat(spin_class.name);
    plain = ticks_of_pairs(false);
    KT_EXPECT_EQ(kt_lockstat(spin_class.name).acquisitions, before.acquisitions);
    counted = ticks_of_pairs(true);
    KT_EXPECT_EQ(kt_lockstat(spin_class.name).acquisitions, before.acquisitions + PAIRS);
    kt_lockstat_end();
    /* Exact where the counter counts instructions; tests/qemu/test_findings.py judges it there. */
    kt_note("test=lock_cost pairs=%u plain=%lu counted=%lu", PAIRS, (unsigned long)plain,
            (unsigned long)counted);
}

static struct {
    uint64_t held, wants; /* atomic */
} steps;

static __noinline void wait_for_it(void *arg)
{
    unsigned long flags;

    (void)arg;
    if (!kt_wait_for(&steps.held, 1))
        KT_FAIL("the lock was not taken");
    STORE_RELEASE(steps.wants, 1UL);
    flags = spin_lock_irqsave(&shared.lock);
    spin_unlock_irqrestore(&shared.lock, flags);
}

/* Returns what was counted of it. */
static struct lockstat hold_for_a_while(void)
{
    struct lockstat before = kt_lockstat(spin_class.name), s;
    struct clock_limit limit;
    unsigned long flags;

    steps.held = steps.wants = 0;
    kt_start(1, wait_for_it, NULL);
    flags = spin_lock_irqsave(&shared.lock);
    clock_limit_start(&limit, 2 * HOLD_US);
    STORE_RELEASE(steps.held, 1UL);
    KT_EXPECT(kt_wait_for(&steps.wants, 1));
    while (!clock_limit_over(&limit))
        cpu_relax();
    spin_unlock_irqrestore(&shared.lock, flags);
    kt_join(1);
    s = kt_lockstat(spin_class.name);
    s.acquisitions -= before.acquisitions;
    s.acq_bounces -= before.acq_bounces;
    s.contentions -= before.contentions;
    s.con_bounces -= before.con_bounces;
    s.wait.total -= before.wait.total;
    s.hold.total -= before.hold.total;
    return s;
}

KTEST(lock_statistics, "one wait of a known length: acquisitions, bounces, times, and where it was")
{
    uint64_t least = clock_us_to_cycles(HOLD_US);
    struct lockstat s;
    unsigned tries = 0;

    if (kt_cpus() < 2)
        KT_SKIP("one CPU");
    KT_ASSERT(kt_lockstat_begin());
    spin_init(&shared.lock, &spin_class);
    /* The other CPU may get there when all is over, if the host does not run it. */
    do
        s = hold_for_a_while();
    while (!s.contentions && ++tries < TRIES);
    KT_EXPECT_EQ(s.contentions, 1);
    KT_EXPECT_EQ(s.con_bounces, 1);
    KT_EXPECT_EQ(s.acquisitions, 2);
    KT_EXPECT_EQ(s.acq_bounces, tries ? 2 : 1);
    KT_EXPECT(s.hold.total >= least && s.hold.max >= least && s.hold.min <= s.hold.max);
    KT_EXPECT(s.wait.total > 0 && s.wait.max > 0 && s.wait.min <= s.wait.max);
    KT_EXPECT(s.point[0].ip - (uintptr_t)wait_for_it < 256);
    kt_lockstat_end();
}

/* ---- reports ---- */

static void wait_long(void *arg)
{
    unsigned long flags;

    (void)arg;
    ATOMIC_ADD(steps.wants, 1UL);
    flags = spin_lock_irqsave(&shared.lock);
    spin_unlock_irqrestore(&shared.lock, flags);
}

/* Holds the lock until somebody has reported it, and then so long that all would have. */
static void hold_until_reported(unsigned waiters, uint64_t before)
{
    struct clock_limit limit;
    unsigned long flags = spin_lock_irqsave(&shared.lock);

    for (unsigned cpu = 1; cpu <= waiters; cpu++)
        kt_start(cpu, wait_long, NULL);
    KT_EXPECT(kt_wait_for(&steps.wants, waiters));
    clock_limit_start(&limit, 10 * 1000000);
    while (spin_reports() == before && !clock_limit_over(&limit))
        cpu_relax();
    clock_delay_us(waiters * HOLD_US * 4);
    spin_unlock_irqrestore(&shared.lock, flags);
    for (unsigned cpu = 1; cpu <= waiters; cpu++)
        kt_join(cpu);
}

KTEST(lock_reports, "a long wait is reported, and many at once are a few lines")
{
    uint64_t before = spin_reports(), lines, first = clock_us() / 1000000, seconds;
    unsigned waiters = MIN(kt_cpus() - 1, WAITERS);

    if (!waiters)
        KT_SKIP("one CPU");
    steps.wants = 0;
    spin_init(&shared.lock, &spin_class);
    spin_class.report_ms = 1;
    hold_until_reported(waiters, before);
    spin_class.report_ms = 0;
    lines = spin_reports() - before;
    seconds = clock_us() / 1000000 - first + 1;
    KT_EXPECT(lines != 0);
    /* A CPU that lost its time slice over the end of a second may begin the old one again. */
    if (lines > LINES * (seconds + 1))
        KT_FAIL("%lu lines in %lu s", (unsigned long)lines, (unsigned long)seconds);
}
