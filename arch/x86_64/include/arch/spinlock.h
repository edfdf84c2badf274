/*
 * spinlock.h: the spinlock. Uncontended: one compare-and-swap; contended, by the lock's class or
 * the machine: test-and-set with PAUSE (under a hypervisor: a fair order collapses when the next in
 * line is not running), tickets, or a queue of per-CPU nodes (bare metal; MCS, Mellor-Crummey and
 * Scott 1991).
 *
 * Waiting answers TLB requests (tlb_poll), so a shootdown never waits for a CPU that waits for a
 * lock with interrupts masked. Not recursive. Not for NMI, except spin_trylock. Statistics:
 * lockstat.h; they cost one conditional jump per release when they are off.
 */
#ifndef ARCH_SPINLOCK_H
#define ARCH_SPINLOCK_H

#include "arch/atomic.h"
#include "arch/cpu.h"
#include "arch/lockstat.h"

enum spin_wait { SPIN_AUTO, SPIN_TAS, SPIN_TICKET, SPIN_MCS };

/* One per kind of lock, shared by all its instances. */
struct lock_class {
    const char *name;   /* "vmap_node.busy" */
    uint32_t wait;      /* enum spin_wait; changed only while nobody can wait for one of them */
    uint32_t stat_id;   /* lockstat.c */
    uint32_t report_ms; /* a longer wait is a line in the log; 0: 10 s */
};

/*
 * A lock that is counted (lockstat=1) is free as SPIN_COUNTED, not as 0, so that the inline
 * compare-and-swap fails and the slow path does the counting; and held as 2, so that the decrement
 * of the inline release does not reach 0, and does not release it.
 */
#define SPIN_COUNTED 0x100u

struct spinlock {
    uint32_t val; /* byte 0: held; bit 8: counted; waiters: tickets (bits 10-31) or tail (16-31) */
    uint16_t owner; /* CPU + 1 while held; debug builds */
    uint16_t last;  /* CPU + 1 that took it last; if counted */
    struct lock_class *class;
};

/* Such a lock is not counted. */
#define SPINLOCK_INIT(c)                                                                           \
    {                                                                                              \
        .val = 0, .class = (c)                                                                     \
    }

static inline void spin_init(struct spinlock *l, struct lock_class *class)
{
    l->val = lockstat_on ? SPIN_COUNTED : 0;
    l->owner = 0;
    l->last = 0;
    l->class = class;
}

void spin_lock_slow(struct spinlock *l);
bool spin_trylock_counted(struct spinlock *l);
void spin_unlock_counted(struct spinlock *l);
#ifdef CONFIG_DEBUG
/* Owner checks and the count of held locks; before release and after acquisition. */
void spin_debug_acquire(struct spinlock *l);
void spin_debug_acquired(struct spinlock *l);
void spin_debug_release(struct spinlock *l);
#else
static inline void spin_debug_acquire(struct spinlock *l)
{
    (void)l;
}
static inline void spin_debug_acquired(struct spinlock *l)
{
    (void)l;
}
static inline void spin_debug_release(struct spinlock *l)
{
    (void)l;
}
#endif
/* Locks this CPU holds; always 0 without CONFIG_DEBUG. */
unsigned spin_held(void);
/* The lock that `cpu` is waiting for in spin_lock_slow(), or NULL. Any context; only a hint. */
const struct spinlock *spin_wanted(unsigned cpu);
/* Lines about a long wait since the start. Any context. */
uint64_t spin_reports(void);

/* The inline part of spin_lock(). False: that was not enough, call spin_lock(), or go another way.
 */
static inline bool spin_lock_fast(struct spinlock *l)
{
    uint32_t free = 0;

    if (unlikely(!__atomic_compare_exchange_n(&l->val, &free, 1u, false, __ATOMIC_ACQUIRE,
                                              __ATOMIC_RELAXED)))
        return false;
    spin_debug_acquired(l);
    return true;
}
/* Interrupts must be masked by the caller, or the lock never be taken in a handler. */
static inline void spin_lock(struct spinlock *l)
{
    spin_debug_acquire(l);
    if (spin_lock_fast(l))
        return;
    spin_lock_slow(l);
    spin_debug_acquired(l);
}
static inline bool spin_trylock(struct spinlock *l)
{
    uint32_t free = 0;

    if (!__atomic_compare_exchange_n(&l->val, &free, 1u, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED) &&
        (free != SPIN_COUNTED || !spin_trylock_counted(l)))
        return false;
    spin_debug_acquired(l);
    return true;
}
/* A plain decrement: while the lock is held, nobody else changes byte 0. Any store on x86 is a
 * release. */
static __always_inline void spin_unlock(struct spinlock *l)
{
    spin_debug_release(l);
    __asm__ goto("decb %0; jnz %l[counted]"
                 :
                 : "m"(*(uint8_t *)&l->val)
                 : "cc", "memory"
                 : counted);
    return;
counted:
    spin_unlock_counted(l);
}
static inline bool spin_is_locked(const struct spinlock *l)
{
    return __atomic_load_n((const uint8_t *)&l->val, __ATOMIC_RELAXED) != 0;
}
static inline unsigned long spin_lock_irqsave(struct spinlock *l)
{
    unsigned long flags = irq_save();

    spin_lock(l);
    return flags;
}
static inline void spin_unlock_irqrestore(struct spinlock *l, unsigned long flags)
{
    spin_unlock(l);
    irq_restore(flags);
}

/* "tas" or "mcs": how locks of classes that leave it to the machine are waited for; set once at
 * boot by spin_select(). */
void spin_select(bool hypervisor);
const char *spin_kind(void);
/* Contended acquisitions of all locks since start, summed over CPUs; rwlock.c adds its own. */
uint64_t spin_contended_total(void);
void spin_count_contended(void);

#endif
