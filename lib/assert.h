/*
 * assert.h: three levels of assertion, and the one way to stop.
 *
 * ASSERT is always there; ASSERT_DBG only with CONFIG_DEBUG; ASSERT_FULL (whole-structure walks)
 * only with CONFIG_DEBUG_FULL. panic() is supplied by the machine (arch) or by the host tests.
 */
#ifndef LIB_ASSERT_H
#define LIB_ASSERT_H

#include "lib/base.h"

/* Prints the message, registers and backtrace, ends the run with the panic status. Any context. */
void panic(const char *fmt, ...) __printf(1, 2) __noreturn __cold;

void assert_fail(const char *expr, const char *file, int line) __noreturn __cold;

#define ASSERT(e) (likely(e) ? (void)0 : assert_fail(#e, __FILE__, __LINE__))

#ifdef CONFIG_DEBUG
#define ASSERT_DBG(e) ASSERT(e)
#else
#define ASSERT_DBG(e) ((void)sizeof(!(e)))
#endif

#ifdef CONFIG_DEBUG_FULL
#define ASSERT_FULL(e) ASSERT(e)
#else
#define ASSERT_FULL(e) ((void)sizeof(!(e)))
#endif

#endif
