/*
 * text.h: options text as it comes from firmware and editors, made ASCII. Pure C, with
 * tests on the host.
 *
 * Characters are UCS-2, counted in characters. Results are lengths in bytes; TEXT_BAD means that
 * there are characters that are not ASCII text.
 */
#ifndef BOOT_EFI_TEXT_H
#define BOOT_EFI_TEXT_H

#include "lib/base.h"

#define TEXT_BAD SIZE_MAX

/* A config file's n bytes in place: without a UTF-8 mark, and from UTF-16 (little-endian). */
size_t text_normalise(char *text, size_t n);

/*
 * Load options s[0..n), not necessarily terminated, into dst (room for n bytes), without the
 * program's own name that a shell puts first. own[0..own_n) is the path that it was loaded by.
 */
size_t text_load_options(const uint16_t *s, size_t n, const uint16_t *own, size_t own_n, char *dst);

#endif
