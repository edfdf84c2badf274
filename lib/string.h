/*
 * string.h: the memory and string functions that the compiler and the kernel need, with C's names
 * and meaning. On the host they are libc's. Any context.
 */
#ifndef LIB_STRING_H
#define LIB_STRING_H

#include "lib/base.h"

void *memcpy(void *dst, const void *src, size_t n);
void *memmove(void *dst, const void *src, size_t n);
void *memset(void *dst, int c, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *s);
size_t strnlen(const char *s, size_t max);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t n);
char *strchr(const char *s, int c);
char *strstr(const char *s, const char *what);
/* Copies at most size - 1 bytes and terminates; returns strlen(src) (BSD's strlcpy). */
size_t str_copy(char *dst, const char *src, size_t size);
/* True if `name` is one of the comma-separated names in `list`; `*` and `?` match as in globs. */
bool str_in_list(const char *list, const char *name);

#endif
