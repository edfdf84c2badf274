/*
 * printf_compare.h: one random conversion, formatted by ksnprintf and by libc's snprintf.
 */
#ifndef TESTS_HOST_PRINTF_COMPARE_H
#define TESTS_HOST_PRINTF_COMPARE_H

#include "lib/base.h"

/* Enough input for any conversion; shorter input is continued with zeros. */
#define PRINTF_COMPARE_BYTES 64

/* Makes a format, its arguments and a buffer size from the bytes. Returns true if both agree on
 * text and length; else prints what differs to stderr. */
bool printf_compare(const uint8_t *data, size_t n);

#endif
