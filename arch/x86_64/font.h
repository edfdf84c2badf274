/*
 * font.h: the framebuffer console's font. Private to arch/x86_64.
 */
#ifndef ARCH_X86_64_FONT_H
#define ARCH_X86_64_FONT_H

#include "lib/base.h"

#define FONT_FIRST 32
#define FONT_COUNT 95
#define FONT_ROWS  13

extern const uint8_t font_glyphs[FONT_COUNT][FONT_ROWS];

#endif
