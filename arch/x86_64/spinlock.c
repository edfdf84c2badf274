/*
 * spinlock.c: what happens when a lock is taken: the two ways of waiting.
 *
 * Both wait with PAUSE and answer TLB requests in each round. Test-and-set has no order; any CPU
 * that runs may be next. The queue has one: a waiter spins on a flag in its own node until it is at
 * the head, and only the head looks at the lock. A CPU has one node per nesting level (task,
 * exception, interrupt); the tail in the lock word names CPU and level. Both agree on the word, so
 * it does not matter who waits how.
 */
#include "lib/assert.h"
#include "lib/base.h"
#include "lib/options.h"
#include "lib/printf.h"
#include <arch/clock.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/spinlock.h>
#include <arch/tlb.h>
#include <arch/trap.h>

#define LOCKED     0xffu /* byte 0 of the lock word */
#define TAIL_SHIFT 16
#define LEVELS     4 /* nodes of a CPU; a deeper level waits without one */
#define LEVEL_BITS 2
#define REPORT_S   10 /* a longer wait is reported */
#define TSC_GUESS  3000000000ULL
#define CHECK_MASK 0xfffu /* rounds between looks at the clock, less one */

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

typedef uint16_t __attribute__((may_alias)) half_t;

enum { CHOICE_AUTO, CHOICE_TAS, CHOICE_MCS };
static const char *const choices[] = {"auto", "tas", "mcs", NULL};
static unsigned choice = CHOICE_AUTO;
OPTION_ENUM(lock, "lock", choice, choices,
            "how a taken lock is waited for: test-and-set, queue, or by the machine");

static bool metal; /* set once by spin_select() */

static DEFINE_PER_CPU(struct mcs_node, mcs_nodes[LEVELS]);
static DEFINE_PER_CPU(unsigned, mcs_level);
static DEFINE_PER_CPU(uint64_t, contended);
static DEFINE_PER_CPU(const struct spinlock *, wanted);

void spin_select(bool hypervisor)
{
    metal = !hypervisor;
}

/* Asked anew each time, so that it does not matter whether options are parsed before spin_select().
 */
static bool queued(void)
{
    return choice == CHOICE_MCS || (choice == CHOICE_AUTO && metal);
}

const char *spin_kind(void)
{
    return queued() ? "mcs" : "tas";
}

uint64_t spin_contended_total(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(*per_cpu_ptr(&contended, cpu));
    return sum;
}

const struct spinlock *spin_wanted(unsigned cpu)
{
    return READ_ONCE(*per_cpu_ptr(&wanted, cpu));
}

/* Once per waiting: a lock that does not come is a deadlock, or a holder that is not running. */
static __noinline void wait_check(struct wait *w)
{
    uint64_t hz = clock_tsc_hz();

    if (w->reported || rdtsc() - w->start < REPORT_S * (hz ? hz : TSC_GUESS))
        return;
    w->reported = true;
    kprintf("# warning: cpu %u task %s waits for lock %s for %u s, word=0x%x\n", this_cpu_id(),
            trap_task_name(this_cpu_id()), w->lock->class ? w->lock->class->name : "?", REPORT_S,
            READ_ONCE(w->lock->val));
}

static inline void wait_round(struct wait *w)
{
    cpu_relax();
    tlb_poll();
    if (unlikely((++w->rounds & CHECK_MASK) == 0))
        wait_check(w);
}

static void lock_tas(struct spinlock *l, struct wait *w)
{
    uint32_t free;

    do {
        while (READ_ONCE(l->val) != 0)
            wait_round(w);
        free = 0;
    } while (!__atomic_compare_exchange_n(&l->val, &free, 1u, false, __ATOMIC_ACQUIRE,
                                          __ATOMIC_RELAXED));
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
            if (ATOMIC_CAS(l->val, &v, 1u))
                return;
        } else if (ATOMIC_CAS(l->val, &v, v | 1u)) {
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

void spin_lock_slow(struct spinlock *l)
{
    const struct spinlock **want = this_cpu_ptr(&wanted);
    const struct spinlock *outer = *want;
    struct wait w = {.lock = l, .start = rdtsc()};

    this_cpu_inc(contended);
    WRITE_ONCE(*want, l);
    if (queued())
        lock_mcs(l, &w);
    else
        lock_tas(l, &w);
    WRITE_ONCE(*want, outer);
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
    WRITE_ONCE(l->owner, this_cpu_id() + 1);
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
