/*
 * console.h: where log text goes: serial ports, the framebuffer, and a buffer in memory.
 *
 * console_write() itself is declared in lib/printf.h. It may be called in any context on any CPU;
 * text of one call stays together unless an NMI or a panic has to break in. What a sink misses
 * because it comes up late is replayed to it.
 *
 * Option: console=com1,fb (default); a list of com1..com4, io:0x3f8,
 * mmio:0xfe034000[:stride4][:clk1843200], fb, none; a number behind a port is its baud rate.
 */
#ifndef ARCH_CONSOLE_H
#define ARCH_CONSOLE_H

#include "lib/base.h"

/* Opens the serial ports of option console=. Call after options_parse() (also if that failed),
 * before the first line of output; text written earlier is kept and replayed. Boot CPU only. */
void console_init(void);
/*
 * Tells what ACPI's SPCR says about the serial console; used unless console= was given. space: 0 =
 * memory, 1 = I/O (ACPI 6.5, 5.2.3.2); access: bytes of one access, 0 = 1; stride: bytes between
 * registers, 0 = 1; baud: 0 = as the firmware left it; clock: Hz of the UART, 0 = 1843200.
 */
void console_add_spcr(unsigned space, uint64_t base, unsigned access, unsigned stride,
                      uint32_t baud, uint32_t clock);
/* Opens the MMIO ports that were named so far. map returns an uncached mapping or NULL. */
void console_map_mmio(void *(*map)(phys_addr_t base, size_t size));
/* One "# console serial" line for each port, found or not. */
void console_report(void);

/* True if fb is in the option's list, so that kmain maps and starts it (arch/fb.h). */
bool console_wants_fb(void);
/* Sends what is in the log buffer to a new sink. */
void console_replay(void (*sink)(const char *s, size_t n));

/* From here on a lock that cannot be had at once is ignored, and what comes next begins a line: for
 * a panic, when all other CPUs have been stopped. */
void console_break_lock(void);

/*
 * The log so far: text in order, LF line ends. When it grows beyond the buffer the middle is
 * replaced by one line that says how many bytes are missing; the beginning and the end are kept.
 */
size_t console_log_size(void);
/* Copies up to n bytes from byte `offset` of the log to dst; returns how many. Not while others
 * print. */
size_t console_log_read(size_t offset, char *dst, size_t n);

#endif
