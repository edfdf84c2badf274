/*
 * log_buffer.h: the writing side of the log in memory; the reading side is in arch/console.h.
 * Private to arch/x86_64.
 */
#ifndef ARCH_X86_64_LOG_BUFFER_H
#define ARCH_X86_64_LOG_BUFFER_H

#include "lib/base.h"

/* Under the console's lock. */
void log_append(const char *s, size_t n);

#endif
