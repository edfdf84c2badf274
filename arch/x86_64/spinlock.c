/*
 * spinlock.c: what happens when a lock is taken: the three ways of waiting.
 *
 * All wait with PAUSE and answer TLB requests in each round. Test-and-set has no order; any CPU
 * that runs may be next. Tickets have one: a waiter draws a number and watches the one being
 * served, all on the lock word (as Linux before 4.2). So has the queue: a waiter spins on a flag in
 * its own node until it is at the head, and only the head looks at the lock. A CPU has one node per
 * nesting level (task, exception, interrupt); the tail in the lock word names CPU and level. A word
 * without waiters is the same for all, so that the fast paths need not know who waits how.
 */
#include "lib/assert.h"
#include "lib/base.h"
#include "lib/printf.h"
#include <arch/clock.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/spinlock.h>
#include <arch/tlb.h>
#include <arch/trap.h>

#define LOCKED       0xffu /* byte 0 of the lock word: 1, or 2 in a counted lock */
#define TAIL_SHIFT   16
#define TICKET_BITS  11 /* of the number being served, and of the next one to be drawn */
#define SERVED_SHIFT 10
#define DRAWN_SHIFT  (SERVED_SHIFT + TICKET_BITS)
#define TICKET_MASK  ((1u << TICKET_BITS) - 1)
#define TICKETS      (TICKET_MASK << SERVED_SHIFT | TICKET_MASK << DRAWN_SHIFT)
#define LEVELS       4 /* nodes of a CPU; a deeper level waits without one */
#define LEVEL_BITS   2
#define REPORT_MS    10000 /* a longer wait is reported */
#define TSC_GUESS    3000000000ULL
#define CHECK_MASK   0xfffu /* rounds between looks at the clock, less one */

struct mcs_node {
    struct mcs_node *next; /* written by the next waiter */
    uint32_t ready;        /* written by the one before: this is the head now */
} __cacheline;

/* One waiting in progress. */
struct wait {
    const struct spinlock *lock;
    uint64_t start; /* TSC */
    uint32_t rounds;
    bool reported;
};

_Static_assert(SMP_MAX_CPUS < TICKET_MASK, "every CPU can draw a number");

typedef uint16_t __attribute__((may_alias)) half_t;

static bool metal; /* set once by spin_select() */

static struct ratelimit report_limit; /* all CPUs may wait for one lock */
static uint64_t reports;              /* atomic */

static DEFINE_PER_CPU(struct mcs_node, mcs_nodes[LEVELS]);
static DEFINE_PER_CPU(unsigned, mcs_level);
static DEFINE_PER_CPU(uint64_t, contended);
static DEFINE_PER_CPU(const struct spinlock *, wanted);

void spin_select(bool hypervisor)
{
    metal = !hypervisor;
}

const char *spin_kind(void)
{
    return metal ? "mcs" : "tas";
}

uint64_t spin_contended_total(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(*per_cpu_ptr(&contended, cpu));
    return sum;
}

void spin_count_contended(void)
{
    this_cpu_inc(contended);
}

const struct spinlock *spin_wanted(unsigned cpu)
{
    return READ_ONCE(*per_cpu_ptr(&wanted, cpu));
}

uint64_t spin_reports(void)
{
    return READ_ONCE(reports);
}

/* Once per waiting: a lock that does not come is a deadlock, or a holder that is not running. */
static __noinline void wait_check(struct wait *w)
{
    const struct lock_class *class = w->lock->class;
    unsigned ms = class && class->report_ms ? class->report_ms : REPORT_MS;
    uint64_t hz = clock_tsc_hz();

    if (w->reported || rdtsc() - w->start < (hz ? hz : TSC_GUESS) / 1000 * ms)
        return;
    w->reported = true;
    if (!ratelimit_ok(&report_limit))
        return;
    ATOMIC_ADD(reports, 1UL);
    kprintf("# warning: cpu %u task %s waits for lock %s for %u ms, word=0x%x\n", this_cpu_id(),
            trap_task_name(this_cpu_id()), class ? class->name : "?", ms, READ_ONCE(w->lock->val));
}

static inline void wait_round(struct wait *w)
{
    cpu_relax();
    tlb_poll();
    if (unlikely((++w->rounds & CHECK_MASK) == 0))
        wait_check(w);
}

/* A free lock's word when nobody waits, and what byte 0 becomes. */
static inline uint32_t word_free(const struct spinlock *l)
{
    return READ_ONCE(l->val) & SPIN_COUNTED;
}
static inline uint32_t word_held(uint32_t v)
{
    return v & SPIN_COUNTED ? 2u : 1u;
}

static bool take_free(struct spinlock *l)
{
    uint32_t free = word_free(l);

    return __atomic_compare_exchange_n(&l->val, &free, free | word_held(free), false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void lock_tas(struct spinlock *l, struct wait *w)
{
    do {
        while (READ_ONCE(l->val) & ~SPIN_COUNTED)
            wait_round(w);
    } while (!take_free(l));
}

static inline uint32_t served(uint32_t v)
{
    return v >> SERVED_SHIFT & TICKET_MASK;
}
static inline uint32_t drawn(uint32_t v)
{
    return v >> DRAWN_SHIFT & TICKET_MASK;
}

static inline uint32_t set_ticket(uint32_t v, unsigned shift, uint32_t number)
{
    return (v & ~(TICKET_MASK << shift)) | (number & TICKET_MASK) << shift;
}

/* Whoever has drawn the last number leaves both at 0, so that the fast path works again. */
static void lock_ticket(struct spinlock *l, struct wait *w)
{
    uint32_t v = READ_ONCE(l->val), mine, next;

    do
        mine = drawn(v);
    while (!ATOMIC_CAS(l->val, &v, set_ticket(v, DRAWN_SHIFT, mine + 1)));
    for (;;) {
        v = READ_ONCE(l->val);
        if (v & LOCKED || served(v) != mine) {
            wait_round(w);
            continue;
        }
        next = set_ticket(v, SERVED_SHIFT, mine + 1);
        if (served(next) == drawn(next))
            next &= ~TICKETS;
        if (ATOMIC_CAS(l->val, &v, next | word_held(v)))
            return;
    }
}

static struct mcs_node *node_of(uint32_t tail)
{
    unsigned cpu = (tail >> LEVEL_BITS) - 1;

    return &(*per_cpu_ptr(&mcs_nodes, cpu))[tail & (LEVELS - 1)];
}

/*
 * At the head: waits for byte 0 to become free, takes it, and makes the next one head. If the tail
 * is still this one, the queue is empty afterwards.
 */
static void lock_mcs_head(struct spinlock *l, struct wait *w, struct mcs_node *node, uint32_t tail)
{
    struct mcs_node *next;
    uint32_t v;

    for (;;) {
        v = READ_ONCE(l->val);
        if (v & LOCKED) {
            wait_round(w);
        } else if (v >> TAIL_SHIFT == tail) {
            if (ATOMIC_CAS(l->val, &v, (v & SPIN_COUNTED) | word_held(v)))
                return;
        } else if (ATOMIC_CAS(l->val, &v, v | word_held(v))) {
            break;
        }
    }
    /* Somebody has put itself in the tail, and is about to say where its node is. */
    while (!(next = LOAD_ACQUIRE(node->next)))
        wait_round(w);
    STORE_RELEASE(next->ready, 1u); /* partner: the load in lock_mcs() */
}

static void lock_mcs(struct spinlock *l, struct wait *w)
{
    unsigned *level = this_cpu_ptr(&mcs_level);
    unsigned mine = (*level)++;
    struct mcs_node *node;
    uint32_t tail, before;

    barrier(); /* an interrupt from here on uses the next node */
    if (mine >= LEVELS) {
        lock_tas(l, w);
        goto out;
    }
    node = &(*this_cpu_ptr(&mcs_nodes))[mine];
    tail = (this_cpu_id() + 1) << LEVEL_BITS | mine;
    WRITE_ONCE(node->next, NULL);
    WRITE_ONCE(node->ready, 0);
    before = ATOMIC_XCHG(((half_t *)&l->val)[1], (half_t)tail);
    if (before) {
        STORE_RELEASE(node_of(before)->next, node); /* partner: the load in lock_mcs_head() */
        while (!LOAD_ACQUIRE(node->ready))
            wait_round(w);
    }
    lock_mcs_head(l, w, node, tail);
out:
    barrier();
    (*level)--;
}

static void wait_for(struct spinlock *l)
{
    const struct spinlock **want = this_cpu_ptr(&wanted);
    const struct spinlock *outer = *want;
    struct wait w = {.lock = l, .start = rdtsc()};
    unsigned how = l->class ? l->class->wait : SPIN_AUTO;

    this_cpu_inc(contended);
    WRITE_ONCE(*want, l);
    if (how == SPIN_TICKET)
        lock_ticket(l, &w);
    else if (how == SPIN_MCS || (how == SPIN_AUTO && metal))
        lock_mcs(l, &w);
    else
        lock_tas(l, &w);
    WRITE_ONCE(*want, outer);
}

static void count_taken(struct spinlock *l, bool waited, uint64_t ticks, uintptr_t ip)
{
    unsigned me = this_cpu_id() + 1;
    struct lockstat_taken t = {.lock = l,
                               .class = l->class,
                               .bounced = l->last && l->last != me,
                               .contended = waited,
                               .waited = ticks,
                               .ip = ip};

    l->last = (uint16_t)me;
    lockstat_acquired(&t);
}

/* With statistics on, every acquisition comes here. */
void spin_lock_slow(struct spinlock *l)
{
    uint64_t begin;
    bool at_once;

    if (likely(!word_free(l))) {
        wait_for(l);
        return;
    }
    begin = rdtsc();
    at_once = take_free(l);
    if (!at_once)
        wait_for(l);
    count_taken(l, !at_once, at_once ? 0 : rdtsc() - begin, (uintptr_t)__builtin_return_address(0));
}

bool spin_trylock_counted(struct spinlock *l)
{
    if (!take_free(l))
        return false;
    count_taken(l, false, 0, 0);
    return true;
}

void spin_unlock_counted(struct spinlock *l)
{
    lockstat_release(l);
    __atomic_store_n((uint8_t *)&l->val, 0, __ATOMIC_RELEASE);
}

#ifdef CONFIG_DEBUG
static DEFINE_PER_CPU(unsigned, held);

void spin_debug_acquire(struct spinlock *l)
{
    if (READ_ONCE(l->owner) == this_cpu_id() + 1)
        panic("lock %s is taken twice by cpu %u", l->class ? l->class->name : "?", this_cpu_id());
}

void spin_debug_acquired(struct spinlock *l)
{
    WRITE_ONCE(l->owner, (uint16_t)(this_cpu_id() + 1));
    ++*this_cpu_ptr(&held);
}

void spin_debug_release(struct spinlock *l)
{
    if (READ_ONCE(l->owner) != this_cpu_id() + 1)
        panic("lock %s is released by cpu %u, held by %d", l->class ? l->class->name : "?",
              this_cpu_id(), (int)READ_ONCE(l->owner) - 1);
    WRITE_ONCE(l->owner, 0);
    --*this_cpu_ptr(&held);
}

unsigned spin_held(void)
{
    return PERCPU_READ_(held);
}
#else
unsigned spin_held(void)
{
    return 0;
}
#endif
