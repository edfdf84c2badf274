/*
 * rwlock.h: a reader-writer lock whose waiters sleep, after Linux's rw_semaphore.
 *
 * Reproduced: many readers or one writer; a queue in order of arrival; the one at its head is woken
 * by whoever leaves, readers behind it with it; newcomers queue behind those who wait, but a writer
 * spins for a while before, and takes the lock if it becomes free meanwhile, and a reader looks
 * once more; a woken writer competes. To sleep is to halt the CPU, and to be woken is an interrupt,
 * in place of a context switch. Not reproduced: that a spinning writer knows whether the holder
 * runs, handing the lock over, and that the holder itself can sleep: it has interrupts masked, as
 * with a spinlock, because interrupt handlers take the same lock. Where nobody can sleep (in
 * handlers, with interrupts masked) a waiter spins, and goes before the queue: what it waits for
 * may be below it.
 *
 * With `spins` all waiters do that: the plain rwlock_t, whose readers may keep a writer out.
 */
#ifndef ARCH_RWLOCK_H
#define ARCH_RWLOCK_H

#include "arch/spinlock.h"

struct rw_waiter;

struct rwlock {
    uint32_t val;  /* bit 0: a writer has it; bit 1: there is a queue; from bit 8: readers */
    uint32_t last; /* CPU + 1 that took it last; if counted */
    struct spinlock queue_lock;
    struct rw_waiter *head, *tail;   /* queue_lock */
    struct lock_class *read, *write; /* for the statistics */
    bool spins;                      /* constant after rw_init() */
};

/* Boot CPU, or before anyone else knows it. */
void rw_init(struct rwlock *l, struct lock_class *read, struct lock_class *write, bool spins);
/* As spin_lock_irqsave() and its kin. Not in NMI, except rw_read_trylock(). */
unsigned long rw_read_lock(struct rwlock *l);
bool rw_read_trylock(struct rwlock *l); /* interrupts masked by the caller */
void rw_read_unlock(struct rwlock *l, unsigned long flags);
unsigned long rw_write_lock(struct rwlock *l);
void rw_write_unlock(struct rwlock *l, unsigned long flags);

#endif
