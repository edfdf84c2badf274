/*
 * atomic.h: single-copy-atomic accesses, read-modify-write and fences, on the compiler's builtins.
 *
 * Every access without a lock goes through these and names its partner in a comment. The host build
 * replaces this header to mark the points where its scheduler may switch. Memory order is C11's.
 */
#ifndef ARCH_ATOMIC_H
#define ARCH_ATOMIC_H

#include "lib/base.h"

#define READ_ONCE(x)     __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
/* What only one CPU writes, or one at a time, and others read: in one store. */
#define ADD_ONCE(x, n)      WRITE_ONCE(x, (x) + (n))
#define SUB_ONCE(x, n)      WRITE_ONCE(x, (x) - (n))
#define LOAD_ACQUIRE(x)     __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE_RELEASE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)
#define ATOMIC_ADD(x, v)    __atomic_fetch_add(&(x), (v), __ATOMIC_SEQ_CST) /* old value */
#define ATOMIC_SUB(x, v)    __atomic_fetch_sub(&(x), (v), __ATOMIC_SEQ_CST)
#define ATOMIC_OR(x, v)     __atomic_fetch_or(&(x), (v), __ATOMIC_SEQ_CST)
#define ATOMIC_AND(x, v)    __atomic_fetch_and(&(x), (v), __ATOMIC_SEQ_CST)
#define ATOMIC_XCHG(x, v)   __atomic_exchange_n(&(x), (v), __ATOMIC_SEQ_CST)
/* True if x was *expected and is v now; else *expected holds what was found. */
#define ATOMIC_CAS(x, expected, v)                                                                 \
    __atomic_compare_exchange_n(&(x), (expected), (v), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
/* Full fence: orders earlier stores before later loads, which x86 alone does not
 * (SDM 3A 9.2.3.4). */
#define smp_mb()  __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define barrier() __asm__ volatile("" ::: "memory")

#endif
