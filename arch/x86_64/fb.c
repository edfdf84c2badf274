/*
 * fb.c: a text console on a linear framebuffer of 32-bit pixels.
 *
 * What should be on the screen (cells) and what is (drawn) are kept in ordinary memory; drawing
 * writes the cells that differ, and the framebuffer is never read. When the last line is full the
 * text moves up by half a screen, so that the cost of scrolling is spread over many lines. Long
 * lines wrap.
 *
 * Synchronised by the console's lock, but for fb_pause(), which only sets a flag and draws later.
 */
#include "arch/x86_64/font.h"
#include "lib/base.h"
#include "lib/printf.h"
#include "lib/string.h"
#include <arch/atomic.h>
#include <arch/console.h>
#include <arch/fb.h>

#define COLS_MAX    320
#define ROWS_MAX    160
#define COLS_MIN    40
#define ROWS_MIN    10
#define CELL_WIDTH  8
#define CELL_HEIGHT 16 /* the glyph and the space between lines */
#define GLYPH_TOP   2
#define SCALE_MAX   8
#define WIDE        2400 /* pixels from which on a scale of 1 is too small to read */
#define LEVEL_ON    0xd0 /* grey of the text */

static struct {
    /* constant after fb_init() */
    volatile uint8_t *pixels; /* NULL: no framebuffer */
    struct fb_mode mode;
    unsigned cols, rows, scale;
    uint32_t on, off; /* pixel values */
    /* written by the console's lock holder */
    unsigned col, row; /* of the next character */
    bool dirty;        /* cells and drawn differ */
    uint32_t paused;   /* written by fb_pause() */
    char cells[ROWS_MAX][COLS_MAX];
    char drawn[ROWS_MAX][COLS_MAX];
} fb;

/* In ascending order, so that the processor can combine the stores into bursts. */
static void draw_row(volatile uint8_t *at, uint8_t bits)
{
    volatile uint32_t *p = (volatile uint32_t *)at;

    for (unsigned x = 0; x < CELL_WIDTH; x++, bits = (uint8_t)(bits << 1)) {
        uint32_t v = bits & 0x80 ? fb.on : fb.off;

        for (unsigned s = 0; s < fb.scale; s++)
            *p++ = v;
    }
}

static void draw_cell(unsigned row, unsigned col, char c)
{
    const uint8_t *glyph = font_glyphs[c - FONT_FIRST];
    volatile uint8_t *line = fb.pixels + (size_t)row * CELL_HEIGHT * fb.scale * fb.mode.pitch +
                             (size_t)col * CELL_WIDTH * fb.scale * 4;

    for (unsigned y = 0; y < CELL_HEIGHT; y++) {
        unsigned g = y - GLYPH_TOP;
        uint8_t bits = g < FONT_ROWS ? glyph[g] : 0;

        for (unsigned s = 0; s < fb.scale; s++, line += fb.mode.pitch)
            draw_row(line, bits);
    }
}

static void draw_changes(void)
{
    for (unsigned r = 0; r < fb.rows; r++) {
        if (memcmp(fb.cells[r], fb.drawn[r], fb.cols) == 0)
            continue;
        for (unsigned c = 0; c < fb.cols; c++) {
            if (fb.cells[r][c] == fb.drawn[r][c])
                continue;
            draw_cell(r, c, fb.cells[r][c]);
            fb.drawn[r][c] = fb.cells[r][c];
        }
    }
    fb.dirty = false;
}

static void next_line(void)
{
    unsigned up = fb.rows / 2;

    fb.col = 0;
    if (++fb.row < fb.rows)
        return;
    memmove(fb.cells[0], fb.cells[up], (fb.rows - up) * COLS_MAX);
    memset(fb.cells[fb.rows - up], ' ', up * COLS_MAX);
    fb.row = fb.rows - up;
}

static void put(char c)
{
    if (c == '\n') {
        next_line();
        return;
    }
    if (c == '\t')
        c = ' ';
    if (c < FONT_FIRST || c >= FONT_FIRST + FONT_COUNT)
        c = '?';
    if (fb.col == fb.cols)
        next_line();
    fb.cells[fb.row][fb.col++] = c;
}

void fb_write(const char *s, size_t n)
{
    if (!fb.pixels)
        return;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\r')
            put(s[i]);
    }
    fb.dirty = true;
    if (!READ_ONCE(fb.paused))
        draw_changes();
}

void fb_pause(bool on)
{
    WRITE_ONCE(fb.paused, on);
    if (!on && fb.pixels && READ_ONCE(fb.dirty))
        console_write("", 0);
}

static bool mode_usable(const struct fb_mode *m)
{
    return m->width >= COLS_MIN * CELL_WIDTH && m->height >= ROWS_MIN * CELL_HEIGHT &&
           m->pitch / 4 >= m->width && m->pitch % 4 == 0 && m->red_shift <= 24 &&
           m->green_shift <= 24 && m->blue_shift <= 24;
}

static void clear_screen(void)
{
    for (unsigned y = 0; y < fb.mode.height; y++) {
        volatile uint32_t *p = (volatile uint32_t *)(fb.pixels + (size_t)y * fb.mode.pitch);

        for (unsigned x = 0; x < fb.mode.width; x++)
            p[x] = fb.off;
    }
}

bool fb_init(void *pixels, const struct fb_mode *mode)
{
    unsigned scale = mode->width >= WIDE ? 2 : 1;

    if (!pixels || (uintptr_t)pixels % 4 || !mode_usable(mode))
        return false;
    while (scale < SCALE_MAX && (mode->width / (CELL_WIDTH * scale) > COLS_MAX ||
                                 mode->height / (CELL_HEIGHT * scale) > ROWS_MAX))
        scale++;
    fb.mode = *mode;
    fb.scale = scale;
    fb.cols = MIN(mode->width / (CELL_WIDTH * scale), (unsigned)COLS_MAX);
    fb.rows = MIN(mode->height / (CELL_HEIGHT * scale), (unsigned)ROWS_MAX);
    fb.on = (uint32_t)LEVEL_ON << mode->red_shift | (uint32_t)LEVEL_ON << mode->green_shift |
            (uint32_t)LEVEL_ON << mode->blue_shift;
    fb.off = 0;
    memset(fb.cells, ' ', sizeof(fb.cells));
    memset(fb.drawn, ' ', sizeof(fb.drawn));
    fb.pixels = pixels;
    clear_screen();
    /* All of the log, but draw only what is left of it in the end. */
    fb.paused = true;
    console_replay(fb_write);
    fb_pause(false);
    kprintf("# console fb=%ux%u pitch=%u text=%ux%u scale=%u\n", mode->width, mode->height,
            mode->pitch, fb.cols, fb.rows, scale);
    return true;
}
