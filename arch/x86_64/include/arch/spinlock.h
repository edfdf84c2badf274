/*
 * spinlock.h: the spinlock. Uncontended: one compare-and-swap; contended: test-and-set with PAUSE
 * under a hypervisor (a fair queue collapses when the next in line is not running), a queue of
 * per-CPU nodes on bare metal (MCS; Mellor-Crummey and Scott 1991).
 *
 * Waiting answers TLB requests (tlb_poll), so a shootdown never waits for a CPU that waits for a
 * lock with interrupts masked. Not recursive. Not for NMI, except spin_trylock.
 */
#ifndef ARCH_SPINLOCK_H
#define ARCH_SPINLOCK_H

#include "arch/atomic.h"
#include "arch/cpu.h"

/* One per kind of lock, shared by all its instances. */
struct lock_class {
    const char *name; /* "vmap_node.busy" */
};

struct spinlock {
    uint32_t val;   /* byte 0: locked; bits 16-31: queue tail, CPU + 1 and nesting */
    uint32_t owner; /* CPU + 1 while held; debug builds */
    struct lock_class *class;
};

#define SPINLOCK_INIT(c)                                                                           \
    {                                                                                              \
        .val = 0, .owner = 0, .class = (c)                                                         \
    }

static inline void spin_init(struct spinlock *l, struct lock_class *class)
{
    l->val = 0;
    l->owner = 0;
    l->class = class;
}

void spin_lock_slow(struct spinlock *l);
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

/* Interrupts must be masked by the caller, or the lock never be taken in a handler. */
static inline void spin_lock(struct spinlock *l)
{
    uint32_t free = 0;

    spin_debug_acquire(l);
    if (unlikely(!__atomic_compare_exchange_n(&l->val, &free, 1u, false, __ATOMIC_ACQUIRE,
                                              __ATOMIC_RELAXED)))
        spin_lock_slow(l);
    spin_debug_acquired(l);
}
static inline bool spin_trylock(struct spinlock *l)
{
    uint32_t free = 0;

    if (!__atomic_compare_exchange_n(&l->val, &free, 1u, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return false;
    spin_debug_acquired(l);
    return true;
}
static inline void spin_unlock(struct spinlock *l)
{
    spin_debug_release(l);
    __atomic_store_n((uint8_t *)&l->val, 0, __ATOMIC_RELEASE);
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

/* "tas" or "mcs": which wait is in use; set once at boot by spin_select(). */
void spin_select(bool hypervisor);
const char *spin_kind(void);
/* Contended acquisitions of all locks since start, summed over CPUs. */
uint64_t spin_contended_total(void);

#endif
