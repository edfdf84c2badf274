/*
 * fb.h: text on the framebuffer. Only ever writes to it: reading write-combining or uncached memory
 * is slower by orders of magnitude; what is on the screen is kept in ordinary memory.
 *
 * Synchronised by the console's lock.
 */
#ifndef ARCH_FB_H
#define ARCH_FB_H

#include "lib/base.h"

struct fb_mode {
    uint32_t width, height;                     /* pixels */
    uint32_t pitch;                             /* bytes from line to line */
    uint8_t red_shift, green_shift, blue_shift; /* 32 bits a pixel, 8 bits each */
};

/* Starts the text console on `pixels`, a write-combining mapping of pitch * height bytes that
 * stays, and replays the log, and prints a "# console fb" line. False if the mode cannot be used
 * (too small, bad pitch or address).
 */
bool fb_init(void *pixels, const struct fb_mode *mode);
/* While paused text is only remembered; drawn when the pause ends. Around timed regions. Nests not.
 */
void fb_pause(bool on);
/* For console_write(). */
void fb_write(const char *s, size_t n);

#endif
