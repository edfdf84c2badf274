/*
 * atomic.h (host): the same operations as the machine's, each a marked point of the simulation.
 */
#ifndef ARCH_ATOMIC_H
#define ARCH_ATOMIC_H

#include "lib/base.h"
#include "sim_point.h"

/* clang-format off */
#define SIM_MARKED_(e) ({ sim_point(); e; })
/* clang-format on */

#define READ_ONCE(x)     SIM_MARKED_(__atomic_load_n(&(x), __ATOMIC_RELAXED))
#define WRITE_ONCE(x, v) SIM_MARKED_(__atomic_store_n(&(x), (v), __ATOMIC_RELAXED))
/* What only one CPU writes, or one at a time, and others read: in one store. */
#define ADD_ONCE(x, n)      WRITE_ONCE(x, (x) + (n))
#define SUB_ONCE(x, n)      WRITE_ONCE(x, (x) - (n))
#define LOAD_ACQUIRE(x)     SIM_MARKED_(__atomic_load_n(&(x), __ATOMIC_ACQUIRE))
#define STORE_RELEASE(x, v) SIM_MARKED_(__atomic_store_n(&(x), (v), __ATOMIC_RELEASE))
#define ATOMIC_ADD(x, v)    SIM_MARKED_(__atomic_fetch_add(&(x), (v), __ATOMIC_SEQ_CST))
#define ATOMIC_SUB(x, v)    SIM_MARKED_(__atomic_fetch_sub(&(x), (v), __ATOMIC_SEQ_CST))
#define ATOMIC_OR(x, v)     SIM_MARKED_(__atomic_fetch_or(&(x), (v), __ATOMIC_SEQ_CST))
#define ATOMIC_AND(x, v)    SIM_MARKED_(__atomic_fetch_and(&(x), (v), __ATOMIC_SEQ_CST))
#define ATOMIC_XCHG(x, v)   SIM_MARKED_(__atomic_exchange_n(&(x), (v), __ATOMIC_SEQ_CST))
#define ATOMIC_CAS(x, expected, v)                                                                 \
    SIM_MARKED_(__atomic_compare_exchange_n(&(x), (expected), (v), false, __ATOMIC_SEQ_CST,        \
                                            __ATOMIC_SEQ_CST))

/* TSan does not know fences; an atomic operation on a shared word orders at least as much. */
extern uint32_t sim_fence_word;
#define smp_mb()  SIM_MARKED_((void)__atomic_fetch_add(&sim_fence_word, 0, __ATOMIC_SEQ_CST))
#define barrier() __asm__ volatile("" ::: "memory")

#endif
