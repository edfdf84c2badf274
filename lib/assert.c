/*
 * assert.c: what a failed assertion says. Out of line and cold, so that ASSERT costs its callers
 * one compare and one branch. Any context.
 */
#include "lib/assert.h"

void assert_fail(const char *expr, const char *file, int line)
{
    panic("assertion failed: %s (%s:%d)", expr, file, line);
}
