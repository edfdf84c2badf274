/*
 * Areas of more than a block's pages, which the default design takes in whole 2 MiB units from a
 * cache of each CPU.
 *
 * What such a cache can get wrong: addresses that come back while another CPU still has their
 * translation (everybody hands areas on, to be read and freed elsewhere); addresses that are lost
 * to the others while they lie in one CPU's cache (all but a few are taken, one CPU frees those,
 * another one must get them); caches that only grow; two CPUs that free one area at the same time;
 * a handler that comes over the task in the middle of it.
 */
#include "mm/vmap.h"
#include "tests/kernel/helpers.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>

#define LARGE       (129 * PAGE_SIZE) /* with the guard more than a block's largest mapping */
#define MAIL_MAX    1024
#define AREAS_MAX   512
#define LEFT        (24 * SZ_1M)
#define HZ          2000
#define SECONDS_MAX 20

/* ---- from CPU to CPU ---- */

struct parcel {
    uint64_t *p;
    size_t size;
} __cacheline;
static struct parcel mail[MAIL_MAX]; /* [cpu]: for that CPU; p is set last */
static uint32_t sending;             /* CPUs that are not done */

static uint64_t *word_of(const struct parcel *m, unsigned which)
{
    size_t at[] = {0, m->size / 2 & PAGE_MASK, m->size - PAGE_SIZE};

    return (uint64_t *)((uintptr_t)m->p + at[which]);
}

static void poll(void)
{
    tlb_poll();
    cpu_relax();
}

static void take_mail(void)
{
    struct parcel *m = &mail[this_cpu_id()], copy = {.p = LOAD_ACQUIRE(m->p)};

    if (!copy.p)
        return;
    copy.size = m->size;
    STORE_RELEASE(m->p, NULL);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t *w = word_of(&copy, i), value = 0;

        if (!kt_read(w, &value) || value != ((uintptr_t)w ^ 0x77))
            KT_FAIL("%p of %lu bytes at %p: %lx", (void *)w, (unsigned long)copy.size,
                    (void *)copy.p, (unsigned long)value);
        WRITE_ONCE(*w, 0);
    }
    vfree(copy.p);
}

static void send_one(struct rng *r, struct parcel *to)
{
    unsigned extra = (unsigned)rng_below(r, 1 + 1024 / (1 + kt_cpus() / 8));
    struct parcel made = {.size = LARGE + extra * PAGE_SIZE};

    made.p = vmalloc(made.size);
    if (!made.p) {
        KT_FAIL("no area of %lu bytes", (unsigned long)made.size);
        return;
    }
    for (unsigned i = 0; i < 3; i++)
        *word_of(&made, i) = (uintptr_t)word_of(&made, i) ^ 0x77;
    to->size = made.size;
    STORE_RELEASE(to->p, made.p);
}

static void send_and_take(void *arg)
{
    struct parcel *to = &mail[(this_cpu_id() + 1) % kt_cpus()];
    uint64_t rounds = *(uint64_t *)arg;
    struct rng r;

    rng_seed(&r, kt_seed() + this_cpu_id());
    for (uint64_t i = 0; i < rounds; i++) {
        while (LOAD_ACQUIRE(to->p)) {
            take_mail();
            poll();
            kt_alive(); /* who does not come to take it is not: the watchdog names that one */
        }
        send_one(&r, to);
        kt_alive();
    }
    ATOMIC_SUB(sending, 1);
    while (READ_ONCE(sending) || READ_ONCE(mail[this_cpu_id()].p)) {
        take_mail();
        poll();
        kt_alive();
    }
}

KTEST(units_handed_on, "large areas of all CPUs, each read and freed by another one")
{
    uint64_t rounds = kt_scaled_areas(400) / (1 + kt_cpus() / 16) + 2;

    if (kt_cpus() > MAIL_MAX)
        KT_SKIP("more CPUs than the test has boxes");
    sending = kt_cpus();
    kt_on_all(send_and_take, &rounds);
    for (unsigned cpu = 0; cpu < kt_cpus(); cpu++)
        KT_EXPECT(!mail[cpu].p);
}

/* ---- shortage ---- */

static void *areas[AREAS_MAX];
static unsigned area_count;

/* As many areas as there are addresses or room in the list. */
static void take_all(void *arg)
{
    (void)arg;
    for (area_count = 0; area_count < AREAS_MAX; area_count++) {
        areas[area_count] = vmalloc(LARGE);
        if (!areas[area_count])
            break;
        kt_alive();
    }
}

static void free_all(void *arg)
{
    (void)arg;
    while (area_count)
        vfree(areas[--area_count]);
}

KTEST(units_shortage, "what one CPU has freed and keeps, another one gets when addresses are short")
{
    uint64_t each = vmap_config.index_table ? PMD_SIZE : LARGE + PAGE_SIZE, used;
    unsigned first, cpu = kt_other_cpu();

    if (!kt_eat_addresses(LEFT)) {
        kt_spit_addresses();
        KT_SKIP("the addresses could not be taken");
    }
    for (unsigned round = 0; round < 4 && !kt_failed(); round++) {
        kt_on_cpu(round % 2 ? 0 : cpu, take_all, NULL);
        first = area_count;
        KT_EXPECT(first > 0 && first < AREAS_MAX);
        used = kt_counter("va_used");
        kt_on_cpu(round % 2 ? 0 : cpu, free_all, NULL);
        /* Some at least wait with the one who freed them, or on lazy lists. */
        if (!vmap_config.purge_eager)
            KT_EXPECT(kt_counter("va_used") > used - first * each);
        kt_on_cpu(round % 2 ? cpu : 0, take_all, NULL);
        KT_EXPECT_EQ(area_count, first);
        free_all(NULL);
    }
    kt_spit_addresses();
}

/* ---- the bound ---- */

KTEST(units_bound, "a CPU that frees more units than it may keep gives the others back")
{
    uint64_t each = MAX(8u, MIN(64u, 4096 / kt_cpus())), used;
    uint64_t fair = vmap_config.range_size / PMD_SIZE / 8 / kt_cpus();

    if (!vmap_config.index_table)
        KT_SKIP("areas are not whole units");
    each = MIN(each, fair);
    kt_quiesce();
    if (kt_counter("free_pages") < 5 * each * (LARGE / PAGE_SIZE))
        KT_SKIP("not enough memory for so many areas");
    used = kt_counter("va_used");
    for (area_count = 0; area_count < 4 * each; area_count++) {
        areas[area_count] = vmalloc(LARGE);
        if (!areas[area_count])
            break;
    }
    KT_EXPECT_EQ(area_count, 4 * each);
    KT_EXPECT(kt_counter("va_used") - used >= area_count * PMD_SIZE);
    free_all(NULL);
    vm_unmap_aliases(); /* then nothing has to wait */
    KT_EXPECT_EQ(kt_counter("lazy_pages"), 0);
    KT_EXPECT(kt_counter("va_used") - used <= each * PMD_SIZE);
    kt_quiesce();
    KT_EXPECT_EQ(kt_counter("va_used"), used);
}

/* ---- two frees at once ---- */

static struct {
    void *p;
    uint64_t round; /* begun by the first CPU */
    uint64_t done;
    uint64_t rounds;
} twice;

static void free_second(void *arg)
{
    (void)arg;
    for (uint64_t i = 1; i <= twice.rounds; i++) {
        if (!kt_wait_for(&twice.round, i))
            return;
        vfree(twice.p);
        STORE_RELEASE(twice.done, i);
    }
}

KTEST(units_freed_twice, "of two CPUs that free one area at the same time, one is refused")
{
    uint64_t before = kt_counter("bad_free");

    if (kt_cpus() < 2)
        KT_SKIP("needs two CPUs");
    twice.rounds = kt_scaled(320);
    twice.round = twice.done = 0;
    kt_expect_bad_frees(twice.rounds);
    kt_start(1, free_second, NULL);
    for (uint64_t i = 1; i <= twice.rounds; i++) {
        twice.p = vmalloc(LARGE);
        if (!twice.p)
            KT_FAIL("no area");
        STORE_RELEASE(twice.round, i);
        vfree(twice.p);
        KT_EXPECT(kt_wait_for(&twice.done, i));
    }
    kt_join(1);
    KT_EXPECT_EQ(kt_counter("bad_free") - before, twice.rounds);
}

/* ---- handlers ---- */

static uint64_t ticks;

static void handler(void)
{
    uint64_t *p = vmalloc(LARGE);

    KT_EXPECT(p);
    if (p)
        *p = ++ticks;
    vfree(p);
}

static void pairs_under_timer(void *arg)
{
    uint64_t wanted = *(uint64_t *)arg, begin = clock_us();

    if (!timer_start(HZ, handler)) {
        kt_skip("this CPU has no timer");
        return;
    }
    while (READ_ONCE(ticks) < wanted) {
        unsigned long flags = 0;
        uint64_t *p, *q;

        p = vmalloc(LARGE);
        flags = irq_save();
        q = vmalloc(2 * LARGE);
        irq_restore(flags);
        KT_EXPECT(p && q && p != q);
        if (p && q) {
            *p = 1;
            *q = 2;
            KT_EXPECT(*p == 1);
        }
        flags = irq_save();
        vfree(p);
        irq_restore(flags);
        vfree(q);
        kt_alive();
        if (clock_us() - begin > SECONDS_MAX * 1000000ULL) {
            KT_FAIL("%lu ticks in %u s", (unsigned long)ticks, SECONDS_MAX);
            break;
        }
    }
    timer_stop();
}

KTEST(units_irq, "large areas in a handler, over a task that is at the same")
{
    uint64_t wanted = kt_scaled(400);
    unsigned cpu = kt_other_cpu();

    ticks = 0;
    if (cpu == 0)
        kt_timer_borrow();
    kt_on_cpu(cpu, pairs_under_timer, &wanted);
    if (cpu == 0)
        kt_timer_return();
}
