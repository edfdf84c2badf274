/*
 * inject.h: fault injection for one kind of request: after so many, so many fail.
 *
 * Armed and disarmed by tests, by one CPU at a time; asked from any CPU in any context. While off
 * it costs the reader a load of a word that nobody writes.
 */
#ifndef MM_INJECT_H
#define MM_INJECT_H

#include <arch/atomic.h>

struct inject {
    uint32_t on;
    uint64_t after, count; /* written while off */
    uint64_t seen;         /* requests since armed */
};

/* `after` requests go through, then `count` fail (UINT64_MAX: all). count 0: off. */
static inline void inject_arm(struct inject *i, uint64_t after, uint64_t count)
{
    WRITE_ONCE(i->on, 0);
    WRITE_ONCE(i->after, after);
    WRITE_ONCE(i->count, count);
    WRITE_ONCE(i->seen, 0);
    STORE_RELEASE(i->on, count != 0); /* partner: LOAD_ACQUIRE in inject_hit */
}

/* True if requests must ask inject_hit(). */
static inline bool inject_armed(const struct inject *i)
{
    return unlikely(READ_ONCE(i->on) != 0);
}

/* Counts this request; true if it is to fail. */
static inline bool inject_hit(struct inject *i)
{
    uint64_t n;

    if (likely(LOAD_ACQUIRE(i->on) == 0))
        return false;
    n = ATOMIC_ADD(i->seen, 1);
    return n >= READ_ONCE(i->after) && n - READ_ONCE(i->after) < READ_ONCE(i->count);
}

#endif
