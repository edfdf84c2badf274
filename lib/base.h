/*
 * base.h: types, limits and macros that every layer uses.
 *
 * Pure C with no hardware and no state; may be included anywhere, host builds too.
 */
#ifndef LIB_BASE_H
#define LIB_BASE_H

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Physical address in bytes; never a pointer. */
typedef uint64_t phys_addr_t;

/* Results of functions that can fail in more than one way. 0 is success, errors are negative. */
typedef enum {
    OK = 0,
    ERR_NOMEM = -1,   /* no frame, object or page-table page */
    ERR_NOSPACE = -2, /* no address range that fits */
    ERR_INVAL = -3,   /* the arguments cannot be right */
    ERR_NOENT = -4,   /* nothing there */
    ERR_BUSY = -5,    /* somebody else is at it */
    ERR_TIMEOUT = -6, /* a bounded wait ended */
    ERR_RANGE = -7,   /* a value outside its limits */
} err_t;

#define SZ_4K   0x1000ULL
#define SZ_64K  0x10000ULL
#define SZ_1M   0x100000ULL
#define SZ_2M   0x200000ULL
#define SZ_1G   0x40000000ULL
#define SZ_4G   0x100000000ULL
#define SZ_512G 0x8000000000ULL

/* What different CPUs write is kept this far apart: two lines, for the adjacent-line prefetcher. */
#define CACHE_LINE 64

#define __aligned(n)   __attribute__((aligned(n)))
#define __packed       __attribute__((packed))
#define __section(s)   __attribute__((section(s)))
#define __used         __attribute__((used))
#define __maybe_unused __attribute__((unused))
#define __noreturn     __attribute__((noreturn))
#define __noinline     __attribute__((noinline))
#undef __always_inline /* glibc has its own */
#define __always_inline    inline __attribute__((always_inline))
#define __cold             __attribute__((cold))
#define __weak             __attribute__((weak))
#define __printf(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define __cacheline        __aligned(CACHE_LINE)
/* Read on every path and all but never written: kept off the lines of what is written. */
#define __read_mostly __section(".data..read_mostly")

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define ARRAY_SIZE(a)         (sizeof(a) / sizeof((a)[0]))
#define ALIGN_UP(x, a)        (((x) + ((typeof(x))(a)-1)) & ~((typeof(x))(a)-1))
#define ALIGN_DOWN(x, a)      ((x) & ~((typeof(x))(a)-1))
#define IS_ALIGNED(x, a)      (((x) & ((typeof(x))(a)-1)) == 0)
#define IS_POWER_OF_2(x)      ((x) != 0 && (((x) & ((x)-1)) == 0))
#define DIV_ROUND_UP(x, d)    (((x) + (d)-1) / (d))
#define BIT(n)                (1ULL << (n))
#define CONTAINER_OF(p, t, m) ((t *)((char *)(p)-offsetof(t, m)))

/* Each use has variables of its own, so that uses can be nested under -Wshadow. */
#define CONCAT_(a, b) a##b
#define CONCAT(a, b)  CONCAT_(a, b)
#define PICK_(a, op, b, va, vb)                                                                    \
    ({                                                                                             \
        typeof(a) va = (a);                                                                        \
        typeof(b) vb = (b);                                                                        \
        va op vb ? va : vb;                                                                        \
    })
#define MIN(a, b) PICK_(a, <, b, CONCAT(a_, __COUNTER__), CONCAT(b_, __COUNTER__))
#define MAX(a, b) PICK_(a, >, b, CONCAT(a_, __COUNTER__), CONCAT(b_, __COUNTER__))

/* Position of the highest set bit, counted from 1; 0 for 0 (Linux's fls64). */
static inline unsigned fls64(uint64_t x)
{
    return x ? 64u - (unsigned)__builtin_clzll(x) : 0;
}

#endif
