/*
 * rwlock.c: see rwlock.h.
 *
 * Nobody is lost: a waiter joins the queue and raises RW_QUEUE before it tries once more, and
 * resets its flag before that; whoever leaves the lock free looks at RW_QUEUE in the same
 * operation, and wakes the head. The head takes itself out of the queue when it has the lock; if it
 * is a reader, it wakes the reader behind it.
 */
#include <arch/rwlock.h>

#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>

#define RW_WRITER 1u
#define RW_QUEUE  2u
#define RW_READER 0x100u

#define STEAL_SPINS 500

/* On the waiter's stack; linked and woken under queue_lock. */
struct rw_waiter {
    struct rw_waiter *next;
    uint32_t woken;
    uint32_t cpu;
    bool write;
};

static struct lock_class queue_class = {.name = "rwlock.queue"};

void rw_init(struct rwlock *l, struct lock_class *read, struct lock_class *write, bool spins)
{
    *l = (struct rwlock){.read = read, .write = write, .spins = spins};
    spin_init(&l->queue_lock, &queue_class);
}

/* `first`: the queue is no obstacle. */
static bool try_take(struct rwlock *l, bool write, bool first)
{
    uint32_t v = READ_ONCE(l->val), busy = write ? ~RW_QUEUE : RW_WRITER;

    if (!first)
        busy |= RW_QUEUE;
    while (!(v & busy))
        if (ATOMIC_CAS(l->val, &v, write ? v | RW_WRITER : v + RW_READER))
            return true;
    return false;
}

/* With the queue's lock. */
static void wake_head(struct rwlock *l)
{
    if (!l->head)
        return;
    STORE_RELEASE(l->head->woken, 1u);
    smp_wake(l->head->cpu);
}

static void join(struct rwlock *l, struct rw_waiter *w)
{
    unsigned long flags = spin_lock_irqsave(&l->queue_lock);

    if (l->head)
        l->tail->next = w;
    else
        WRITE_ONCE(l->head, w);
    l->tail = w;
    ATOMIC_OR(l->val, RW_QUEUE);
    spin_unlock_irqrestore(&l->queue_lock, flags);
}

/* The head has the lock. Interrupts are masked. */
static void leave(struct rwlock *l)
{
    struct rw_waiter *w;

    spin_lock(&l->queue_lock);
    w = l->head;
    WRITE_ONCE(l->head, w->next);
    if (!w->next)
        ATOMIC_AND(l->val, ~RW_QUEUE);
    else if (!w->write && !w->next->write)
        wake_head(l);
    spin_unlock(&l->queue_lock);
}

/* Interrupts are on; masked on return, with the lock. */
static void sleep_for(struct rwlock *l, bool write)
{
    struct rw_waiter w = {.cpu = this_cpu_id(), .write = write};

    join(l, &w);
    for (;;) {
        (void)ATOMIC_XCHG(w.woken, 0u); /* before the lock is looked at */
        irq_disable();
        if (READ_ONCE(l->head) == &w && try_take(l, write, true)) {
            leave(l);
            return;
        }
        irq_enable();
        smp_wait_flag(&w.woken);
    }
}

/* Where nobody can sleep; before the queue. */
static void spin_for(struct rwlock *l, bool write)
{
    do {
        cpu_relax();
        tlb_poll();
    } while (!try_take(l, write, true));
}

/*
 * Before it sleeps: a writer spins for a while, and takes the lock whenever it is free; a reader
 * looks once whether no writer has it. Both go before the queue. Without this all queue once one
 * waits, and each of them has to be woken.
 */
static bool steal(struct rwlock *l, bool write)
{
    for (unsigned i = 0; i < (write ? STEAL_SPINS : 1); i++) {
        if (try_take(l, write, true))
            return true;
        cpu_relax();
        tlb_poll();
    }
    return false;
}

static void count(struct rwlock *l, bool write, bool waited, uint64_t begin, uintptr_t ip)
{
    uint32_t me = this_cpu_id() + 1, last = READ_ONCE(l->last);
    struct lockstat_taken t = {.lock = l,
                               .class = write ? l->write : l->read,
                               .bounced = last && last != me,
                               .contended = waited,
                               .waited = waited ? rdtsc() - begin : 0,
                               .ip = ip};

    WRITE_ONCE(l->last, me);
    lockstat_acquired(&t);
}

static unsigned long take(struct rwlock *l, bool write, uintptr_t ip)
{
    unsigned long flags = irq_save();
    uint64_t begin = lockstat_on ? rdtsc() : 0;
    bool waits = !try_take(l, write, false);

    if (waits) {
        spin_count_contended();
        if (l->spins || in_irq() || !(flags & RFLAGS_IF)) {
            spin_for(l, write);
        } else if (!steal(l, write)) {
            irq_restore(flags);
            sleep_for(l, write);
        }
    }
    if (unlikely(lockstat_on))
        count(l, write, waits, begin, ip);
    return flags;
}

/* `left`: what the word is afterwards. */
static void released(struct rwlock *l, uint32_t left, unsigned long flags)
{
    if (unlikely(left == RW_QUEUE)) {
        spin_lock(&l->queue_lock);
        wake_head(l);
        spin_unlock(&l->queue_lock);
    }
    irq_restore(flags);
}

unsigned long rw_read_lock(struct rwlock *l)
{
    return take(l, false, (uintptr_t)__builtin_return_address(0));
}

bool rw_read_trylock(struct rwlock *l)
{
    if (!try_take(l, false, true))
        return false;
    if (unlikely(lockstat_on))
        count(l, false, false, 0, 0);
    return true;
}

void rw_read_unlock(struct rwlock *l, unsigned long flags)
{
    if (unlikely(lockstat_on))
        lockstat_release(l);
    released(l, ATOMIC_SUB(l->val, RW_READER) - RW_READER, flags);
}

unsigned long rw_write_lock(struct rwlock *l)
{
    return take(l, true, (uintptr_t)__builtin_return_address(0));
}

void rw_write_unlock(struct rwlock *l, unsigned long flags)
{
    if (unlikely(lockstat_on))
        lockstat_release(l);
    released(l, ATOMIC_AND(l->val, ~RW_WRITER) & ~RW_WRITER, flags);
}
