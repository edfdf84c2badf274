/*
 * lockstat.c: see lockstat.h. The fields mean what they mean in Linux's kernel/locking/lockdep.c: a
 * bounce is an operation on a lock that another CPU took last; the time a lock was waited for
 * counts contended acquisitions only; the time it was held, all.
 *
 * What a CPU holds is on a stack of its own; a release looks for its lock from the top down.
 * Counting is done with interrupts masked, the lock held.
 */
#include <arch/lockstat.h>

#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/spinlock.h>

#include "lib/options.h"
#include "lib/string.h"

#define HELD_MAX 16 /* deeper ones have no time */

struct held {
    const void *lock;
    uint64_t start;
    struct lockstat *stat;
};

/* One CPU's; nobody else looks while it counts. */
struct lockstat_cpu {
    struct lockstat class[LOCKSTAT_CLASSES];
    struct held held[HELD_MAX];
    unsigned depth;
} __cacheline;

bool lockstat_on;
OPTION_BOOL(lockstat, "lockstat", lockstat_on, "count what locks cost, and print it at the end");

static DEFINE_PER_CPU(struct lockstat_cpu *, mine);
static struct lock_class *classes[LOCKSTAT_CLASSES];
static uint32_t class_count; /* atomic */
static bool running;

/* Numbers are given out from 1 on, when a class is first counted. */
static unsigned class_id(struct lock_class *c)
{
    uint32_t id = READ_ONCE(c->stat_id), unknown = 0;

    if (id)
        return id - 1;
    id = ATOMIC_ADD(class_count, 1u) + 1;
    if (!ATOMIC_CAS(c->stat_id, &unknown, id))
        return unknown - 1; /* another CPU was faster; the number stays unused */
    if (id <= LOCKSTAT_CLASSES)
        STORE_RELEASE(classes[id - 1], c);
    return id - 1;
}

static void add_time(struct lockstat_times *t, uint64_t ticks)
{
    if (!t->total || ticks < t->min)
        t->min = ticks;
    t->max = MAX(t->max, ticks);
    t->total += ticks;
}

static void add_point(struct lockstat *s, uintptr_t ip, uint64_t count)
{
    for (unsigned i = 0; i < LOCKSTAT_POINTS; i++) {
        if (s->point[i].ip != ip && s->point[i].ip != 0)
            continue;
        s->point[i].ip = ip;
        s->point[i].count += count;
        return;
    }
}

void lockstat_acquired(const struct lockstat_taken *t)
{
    struct lockstat_cpu *c = PERCPU_READ_(mine);
    unsigned id = t->class ? class_id(t->class) : LOCKSTAT_CLASSES;
    unsigned long flags;
    struct lockstat *s;

    if (!c || id >= LOCKSTAT_CLASSES || !READ_ONCE(running))
        return;
    flags = irq_save();
    s = &c->class[id];
    s->acquisitions++;
    s->acq_bounces += t->bounced;
    if (t->contended) {
        s->contentions++;
        s->con_bounces += t->bounced;
        add_time(&s->wait, t->waited);
        add_point(s, t->ip, 1);
    }
    if (c->depth < HELD_MAX)
        c->held[c->depth++] = (struct held){.lock = t->lock, .start = rdtsc(), .stat = s};
    irq_restore(flags);
}

void lockstat_release(const void *lock)
{
    struct lockstat_cpu *c = PERCPU_READ_(mine);
    unsigned long flags;
    unsigned i;

    if (!c || !c->depth)
        return;
    flags = irq_save();
    for (i = c->depth; i > 0 && c->held[i - 1].lock != lock;)
        i--;
    if (i > 0) {
        add_time(&c->held[i - 1].stat->hold, rdtsc() - c->held[i - 1].start);
        for (c->depth--; i <= c->depth; i++)
            c->held[i - 1] = c->held[i];
    }
    irq_restore(flags);
}

size_t lockstat_cpu_size(void)
{
    return sizeof(struct lockstat_cpu);
}

void lockstat_attach(unsigned cpu, void *mem)
{
    STORE_RELEASE(*per_cpu_ptr(&mine, cpu), mem);
}

void lockstat_run(bool on)
{
    WRITE_ONCE(running, on);
}

void lockstat_reset(void)
{
    unsigned cpu;

    for_each_cpu (cpu) {
        struct lockstat_cpu *c = *per_cpu_ptr(&mine, cpu);

        if (c)
            memset(c->class, 0, sizeof(c->class));
    }
}

static void add_times(struct lockstat_times *sum, const struct lockstat_times *t)
{
    if (!t->total)
        return;
    sum->min = sum->total ? MIN(sum->min, t->min) : t->min;
    sum->max = MAX(sum->max, t->max);
    sum->total += t->total;
}

/* The most frequent ones stay in front. */
static void sort_points(struct lockstat *s)
{
    for (unsigned i = 1; i < LOCKSTAT_POINTS; i++) {
        for (unsigned j = i; j > 0 && s->point[j].count > s->point[j - 1].count; j--) {
            typeof(s->point[0]) swap = s->point[j];

            s->point[j] = s->point[j - 1];
            s->point[j - 1] = swap;
        }
    }
}

const char *lockstat_read(unsigned i, struct lockstat *out)
{
    unsigned cpu, n = MIN(READ_ONCE(class_count), (uint32_t)LOCKSTAT_CLASSES);

    memset(out, 0, sizeof(*out));
    if (i >= n)
        return NULL;
    for_each_cpu (cpu) {
        const struct lockstat_cpu *c = *per_cpu_ptr(&mine, cpu);
        const struct lockstat *s = c ? &c->class[i] : NULL;

        if (!s)
            continue;
        out->acquisitions += s->acquisitions;
        out->acq_bounces += s->acq_bounces;
        out->contentions += s->contentions;
        out->con_bounces += s->con_bounces;
        add_times(&out->wait, &s->wait);
        add_times(&out->hold, &s->hold);
        for (unsigned p = 0; p < LOCKSTAT_POINTS && s->point[p].ip; p++)
            add_point(out, s->point[p].ip, s->point[p].count);
    }
    sort_points(out);
    return classes[i] ? classes[i]->name : "";
}
