/*
 * spinlock.h (host): a test-and-set lock that answers TLB requests while it waits, as the machine's
 * does, and tells the oracle who holds what.
 */
#ifndef ARCH_SPINLOCK_H
#define ARCH_SPINLOCK_H

#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/lockstat.h>

enum spin_wait { SPIN_AUTO, SPIN_TAS, SPIN_TICKET, SPIN_MCS };

struct lock_class {
    const char *name;
    uint32_t wait; /* all wait in the same way here */
};

struct spinlock {
    uint32_t val;
    uint32_t owner; /* CPU + 1 while held */
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

void spin_lock(struct spinlock *l);
/* False: the lock is out of use (held by nobody), or spin_lock() is to be called. */
bool spin_lock_fast(struct spinlock *l);
bool spin_trylock(struct spinlock *l);
void spin_unlock(struct spinlock *l);
/* Locks this CPU holds. */
unsigned spin_held(void);
const struct spinlock *spin_wanted(unsigned cpu);

static inline bool spin_is_locked(const struct spinlock *l)
{
    return READ_ONCE(l->val) != 0;
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

void spin_select(bool hypervisor);
const char *spin_kind(void);
uint64_t spin_contended_total(void);
void spin_count_contended(void);

#endif
