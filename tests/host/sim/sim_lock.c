/*
 * sim_lock.c: the simulated spinlock, and what is to be known about the order in which locks are
 * taken.
 *
 * By schedule, each lock class that is taken while another is held adds an edge to a graph; an edge
 * that closes a cycle is a possible deadlock, whether or not this schedule met it. A class that a
 * handler waits for must never be held with interrupts on. A trylock waits for nobody, so it adds
 * no edge.
 */
#include <string.h>

#include "tests/host/sim/internal.h"
#include <arch/percpu.h>
#include <arch/spinlock.h>
#include <arch/tlb.h>

#define CLASSES_MAX 64
#define DEPTH_MAX   16

struct class_state {
    const struct lock_class *class;
    uint64_t after; /* classes taken while this one is held */
    bool in_handler, with_interrupts;
};
static struct class_state classes[CLASSES_MAX];
static unsigned class_count;
static unsigned held[SIM_MAX_CPUS][DEPTH_MAX]; /* index of the class */
static const struct spinlock *wanted[SIM_MAX_CPUS];
static uint64_t contended; /* atomic */

static const char *name_of(const struct spinlock *l)
{
    return l->class && l->class->name ? l->class->name : "?";
}

static unsigned class_index(const struct spinlock *l)
{
    unsigned i;

    for (i = 0; i < class_count; i++)
        if (classes[i].class == l->class)
            return i;
    if (class_count == CLASSES_MAX)
        sim_fail(SIM_TEST, "more than %u lock classes", CLASSES_MAX);
    classes[class_count].class = l->class;
    return class_count++;
}

/* True if `to` may have been taken, directly or not, while `from` was held. */
static bool reaches(unsigned from, unsigned to)
{
    uint64_t seen = 1ULL << from, todo = seen;

    while (todo) {
        unsigned i = (unsigned)__builtin_ctzll(todo);

        todo &= todo - 1;
        if (classes[i].after >> to & 1)
            return true;
        todo |= classes[i].after & ~seen;
        seen |= classes[i].after;
    }
    return false;
}

static const char *class_name(unsigned i)
{
    return classes[i].class && classes[i].class->name ? classes[i].class->name : "?";
}

/* Before waiting. */
static void check_order(const struct spinlock *l)
{
    struct sim_cpu *c = sim_this;
    unsigned mine = class_index(l);

    for (unsigned i = 0; i < c->locks_held && i < DEPTH_MAX; i++) {
        unsigned h = held[c->id][i];

        if (classes[h].after >> mine & 1)
            continue;
        if (h == mine || reaches(mine, h))
            sim_fail(SIM_LOCK_ORDER,
                     "lock %s is taken with %s held, and elsewhere the other way round",
                     class_name(mine), class_name(h));
        classes[h].after |= 1ULL << mine;
    }
    if (c->irq_depth)
        classes[mine].in_handler = true;
}

static void note_taken(struct spinlock *l)
{
    struct sim_cpu *c = sim_this;
    unsigned mine;

    __atomic_store_n(&l->owner, c->id + 1, __ATOMIC_RELAXED);
    if (!sim_opt.free_running) {
        mine = class_index(l);
        if (c->locks_held < DEPTH_MAX)
            held[c->id][c->locks_held] = mine;
        if (!c->irq_off)
            classes[mine].with_interrupts = true;
        if (classes[mine].in_handler && classes[mine].with_interrupts)
            sim_fail(SIM_LOCK_IRQ, "lock %s is taken by handlers, and held with interrupts on",
                     name_of(l));
    }
    c->locks_held++;
}

static bool try_take(struct spinlock *l)
{
    uint32_t open = 0;

    sim_point();
    return __atomic_compare_exchange_n(&l->val, &open, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

bool spin_trylock(struct spinlock *l)
{
    if (!try_take(l))
        return false;
    note_taken(l);
    return true;
}

void spin_lock(struct spinlock *l)
{
    if (__atomic_load_n(&l->owner, __ATOMIC_RELAXED) == this_cpu_id() + 1)
        sim_fail(SIM_LOCK_ORDER, "lock %s is taken again by its holder", name_of(l));
    if (!sim_opt.free_running)
        check_order(l);
    if (!try_take(l)) {
        __atomic_fetch_add(&contended, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&wanted[this_cpu_id()], l, __ATOMIC_RELAXED);
        do {
            tlb_poll();
            cpu_relax();
        } while (!try_take(l));
        __atomic_store_n(&wanted[this_cpu_id()], NULL, __ATOMIC_RELAXED);
    }
    note_taken(l);
}

bool spin_lock_fast(struct spinlock *l)
{
    if (__atomic_load_n(&l->val, __ATOMIC_RELAXED) && !__atomic_load_n(&l->owner, __ATOMIC_RELAXED))
        return false;
    spin_lock(l);
    return true;
}

void spin_unlock(struct spinlock *l)
{
    struct sim_cpu *c = sim_this;

    sim_point();
    if (__atomic_load_n(&l->owner, __ATOMIC_RELAXED) != c->id + 1)
        sim_fail(SIM_LOCK_ORDER, "lock %s is released by one who does not hold it", name_of(l));
    __atomic_store_n(&l->owner, 0, __ATOMIC_RELAXED);
    c->locks_held--;
    if (!sim_opt.free_running) {
        unsigned mine = class_index(l), i = MIN(c->locks_held, DEPTH_MAX - 1u);

        /* Not always the last one taken: close the gap. */
        while (i > 0 && held[c->id][i] != mine)
            i--;
        for (; i < c->locks_held && i + 1 < DEPTH_MAX; i++)
            held[c->id][i] = held[c->id][i + 1];
    }
    __atomic_store_n(&l->val, 0, __ATOMIC_RELEASE);
    sim_point();
}

unsigned spin_held(void)
{
    return sim_this->locks_held;
}

const char *sim_lock_name(void)
{
    struct sim_cpu *c = sim_this;

    if (sim_opt.free_running || c->locks_held == 0 || c->locks_held > DEPTH_MAX)
        return "?";
    return class_name(held[c->id][c->locks_held - 1]);
}

const struct spinlock *spin_wanted(unsigned cpu)
{
    return __atomic_load_n(&wanted[cpu], __ATOMIC_RELAXED);
}

void spin_select(bool hypervisor)
{
    (void)hypervisor;
}

const char *spin_kind(void)
{
    return "sim";
}

uint64_t spin_contended_total(void)
{
    return __atomic_load_n(&contended, __ATOMIC_RELAXED);
}

void spin_count_contended(void)
{
    __atomic_fetch_add(&contended, 1, __ATOMIC_RELAXED);
}

/* Statistics are the machine's. */
bool lockstat_on;

void lockstat_acquired(const struct lockstat_taken *t)
{
    (void)t;
}

void lockstat_release(const void *lock)
{
    (void)lock;
}

void sim_lock_reset(void)
{
    memset(classes, 0, sizeof(classes));
    class_count = 0;
    memset(wanted, 0, sizeof(wanted));
    contended = 0;
}
