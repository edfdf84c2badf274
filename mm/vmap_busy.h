/*
 * vmap_busy.h: a node's areas in use: a tree by address and its lock, which the option lock=
 * chooses.
 *
 * Nobody outside mm/ includes it. Lookups are readers; whoever changes the tree or an area in it is
 * a writer. What kind of lock it is makes a difference to who may be inside at once, and to how one
 * waits, not to what is done inside.
 */
#ifndef MM_VMAP_BUSY_H
#define MM_VMAP_BUSY_H

#include "lib/assert.h"
#include "mm/vmap_internal.h"
#include <arch/rwlock.h>

struct busy_tree {
    struct spinlock lock; /* unless `rw` */
    bool rw;              /* constant after busy_init() */
    struct rb_root root;
    uint64_t count;        /* without those that were freed and stay until the purge */
    struct vm_area *first; /* search=walk: lowest of all, linked by next_sorted */
    struct rwlock rwlock;
};

/* The only one there is, for search=walk, which has one node. */
struct busy_tree *node_busy_tree(void);

/* In the reader-writer lock's queue one may be interrupted, by a handler that waits for the purge
 * mutex, and holds up all behind. So who has that mutex waits outside the queue, as rwlock.c does
 * with interrupts masked. */
static inline void rw_queue_allow(unsigned long flags)
{
    if (likely(!purge_is_mine()))
        irq_restore(flags);
}

/* A tree with the other lock never has this one free. */
static inline void busy_init(struct busy_tree *t, struct lock_class *class, bool rw)
{
    spin_init(&t->lock, class);
    t->rw = rw;
    if (rw)
        t->lock.val = 1;
}

/* Interrupts are masked. False: it is the reader-writer lock that is to be taken. */
static inline bool busy_spin(struct busy_tree *t, unsigned long flags)
{
    if (spin_lock_fast(&t->lock))
        return true;
    if (t->rw) {
        rw_queue_allow(flags);
        return false;
    }
    spin_lock(&t->lock);
    return true;
}

static inline unsigned long busy_lock(struct busy_tree *t)
{
    unsigned long flags = irq_save();

    if (!busy_spin(t, flags))
        rw_write_lock(&t->rwlock);
    return flags;
}
static inline void busy_unlock(struct busy_tree *t, unsigned long flags)
{
    if (unlikely(t->rw))
        rw_write_unlock(&t->rwlock, flags);
    else
        spin_unlock_irqrestore(&t->lock, flags);
}

static inline unsigned long busy_read_lock(struct busy_tree *t)
{
    unsigned long flags = irq_save();

    if (!busy_spin(t, flags))
        rw_read_lock(&t->rwlock);
    return flags;
}
/* Does not wait; false: interrupts are as they were. */
static inline bool busy_read_trylock(struct busy_tree *t, unsigned long *flags)
{
    *flags = irq_save();
    if (spin_trylock(&t->lock) || (t->rw && rw_read_trylock(&t->rwlock)))
        return true;
    irq_restore(*flags);
    return false;
}
static inline void busy_read_unlock(struct busy_tree *t, unsigned long flags)
{
    if (unlikely(t->rw))
        rw_read_unlock(&t->rwlock, flags);
    else
        spin_unlock_irqrestore(&t->lock, flags);
}

static inline struct vm_area *busy_area(struct rb_node *n)
{
    return n ? rb_entry(n, struct vm_area, rb) : NULL;
}

/* With the lock: puts a, which overlaps nobody, in its place. */
static inline void busy_link(struct busy_tree *t, struct vm_area *a)
{
    struct rb_node **link = &t->root.node, *parent = NULL;

    while (*link) {
        struct vm_area *p = rb_entry(*link, struct vm_area, rb);

        parent = *link;
        ASSERT_DBG(p->end <= a->start || a->end <= p->start);
        link = a->start < p->start ? &parent->left : &parent->right;
    }
    rb_link(&a->rb, parent, link);
    rb_insert_fixup(&t->root, &a->rb, NULL);
    ADD_ONCE(t->count, 1); /* partner: node_busy_count() */
}

/* With the lock: the area with the highest start at or below addr. */
static inline struct vm_area *busy_floor(struct busy_tree *t, uintptr_t addr)
{
    struct rb_node *p = t->root.node;
    struct vm_area *best = NULL;
    uint64_t visits = 0;

    while (p) {
        struct vm_area *a = rb_entry(p, struct vm_area, rb);

        visits++;
        if (a->start <= addr) {
            best = a;
            p = p->right;
        } else {
            p = p->left;
        }
    }
    this_cpu_add(vmap_stat.tree_visits, visits);
    return best;
}

#endif
