/*
 * list.h: circular doubly linked list, intrusive. Not synchronised: the owner's lock protects it.
 */
#ifndef LIB_LIST_H
#define LIB_LIST_H

#include "lib/base.h"

struct list_head {
    struct list_head *next, *prev;
};

#define LIST_HEAD_INIT(name)                                                                       \
    {                                                                                              \
        &(name), &(name)                                                                           \
    }
#define LIST_HEAD(name) struct list_head name = LIST_HEAD_INIT(name)

static inline void list_init(struct list_head *h)
{
    h->next = h->prev = h;
}
static inline bool list_empty(const struct list_head *h)
{
    return h->next == h;
}
static inline void list_insert_(struct list_head *n, struct list_head *prev, struct list_head *next)
{
    next->prev = n;
    n->next = next;
    n->prev = prev;
    prev->next = n;
}
static inline void list_add(struct list_head *n, struct list_head *h)
{
    list_insert_(n, h, h->next);
}
static inline void list_add_tail(struct list_head *n, struct list_head *h)
{
    list_insert_(n, h->prev, h);
}
static inline void list_del(struct list_head *n)
{
    n->next->prev = n->prev;
    n->prev->next = n->next;
}
static inline void list_del_init(struct list_head *n)
{
    list_del(n);
    list_init(n);
}
/* Moves all of `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_splice_tail_init(struct list_head *from, struct list_head *to)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define list_entry(p, t, m)       CONTAINER_OF(p, t, m)
#define list_first_entry(h, t, m) list_entry((h)->next, t, m)
#define list_last_entry(h, t, m)  list_entry((h)->prev, t, m)
/* The head is no entry, so no pointer to one is ever made of it: its type may
 * be aligned otherwise. */
#define LIST_FOR_(pos, h, m, it)                                                                   \
    for (struct list_head *it = (h)->next;                                                         \
         it != (h) ? ((pos) = list_entry(it, typeof(*(pos)), m), true) : false; it = it->next)
#define LIST_FOR_SAFE_(pos, tmp, h, m, it, nx)                                                     \
    for (struct list_head *it = (h)->next, *nx = it->next;                                         \
         it != (h) ? ((pos) = list_entry(it, typeof(*(pos)), m), (void)sizeof(tmp), true) : false; \
         it = nx, nx = it->next)
#define list_for_each_entry(pos, h, m) LIST_FOR_(pos, h, m, CONCAT(it_, __COUNTER__))
/* pos may be taken out or freed. tmp is kept for the usual form of the call. */
#define list_for_each_entry_safe(pos, tmp, h, m)                                                   \
    LIST_FOR_SAFE_(pos, tmp, h, m, CONCAT(it_, __COUNTER__), CONCAT(nx_, __COUNTER__))

#endif
