/*
 * printf.h: formatted output.
 *
 * Supports d i u x X o c s p % with flags "-0+ #", width, precision (also '*'), and the length
 * modifiers hh h l ll z t j. No floating point: the kernel is built without SSE. "%pS" prints a
 * code address as symbol+0xoffset. Always terminates; returns the length the whole text would have
 * had, as C99 does. Any context, reentrant.
 */
#ifndef LIB_PRINTF_H
#define LIB_PRINTF_H

#include "lib/base.h"

int kvsnprintf(char *buf, size_t size, const char *fmt, va_list ap) __printf(3, 0);
int ksnprintf(char *buf, size_t size, const char *fmt, ...) __printf(3, 4);

/* Formats up to 1024 characters and hands them to console_write() in one call, so that lines of
 * several CPUs do not mix. Any context but NMI. */
int kprintf(const char *fmt, ...) __printf(1, 2);
int kvprintf(const char *fmt, va_list ap) __printf(1, 0);

/* Like kprintf for repeated complaints: at most 10 lines per call site and second, then one line
 * that says how many were left out. */
#define kprintf_ratelimited(...)                                                                   \
    ({                                                                                             \
        static struct ratelimit rl_;                                                               \
        if (ratelimit_ok(&rl_))                                                                    \
            kprintf(__VA_ARGS__);                                                                  \
    })

struct ratelimit {
    uint64_t window;  /* the second that is being counted */
    uint32_t printed; /* lines in it */
    uint32_t dropped; /* left out since the last line */
};
bool ratelimit_ok(struct ratelimit *rl);

/* Supplied by the machine or the host: takes whole text; must be safe from any CPU. */
void console_write(const char *s, size_t n);
/* Supplied by the machine or the host: seconds since start, for ratelimit_ok(). */
uint64_t log_seconds(void);
/* Supplied by the machine or the host: "name+0x1c" into buf; false if the address has no name. */
bool symbol_format(uintptr_t addr, char *buf, size_t size);

#endif
