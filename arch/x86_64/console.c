/*
 * console.c: console_write(): one text to all sinks, and the option console=.
 *
 * The lock is not a struct spinlock: it must work in NMI and in panic. Whoever cannot get it in a
 * bounded time, or holds it already on this CPU (an NMI or a fault while printing), writes without
 * it: a mixed line is better than none. Waiting answers TLB requests.
 */
#include "lib/base.h"
#include "lib/options.h"
#include "lib/printf.h"
#include "lib/string.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/console.h>
#include <arch/cpu.h>
#include <arch/fb.h>
#include <arch/percpu.h>
#include <arch/serial.h>
#include <arch/tlb.h>

/* 64 CPUs may each wait for a line of a slow port: 10 to 30 s. */
#define LOCK_CYCLES     60000000000ULL
#define LOCK_CYCLES_NMI 300000000ULL
#define LOG_HEAD        (64u * 1024)  /* the beginning of the log, kept for good */
#define LOG_RING        (256u * 1024) /* its end */
#define PORT_NAMES      4

static char list_text[128] = "com1,fb";
static bool console_given;

static uint32_t lock_owner;   /* CPU + 1 */
static bool lock_broken;      /* set in panic */
static char last_char = '\n'; /* written by the lock holder */

static struct {
    char head[LOG_HEAD];
    char ring[LOG_RING];
    uint64_t written; /* bytes ever; the first LOG_HEAD lie in head */
} log_buffer;

static bool want_fb;
static bool port_overflow; /* more ports were named than there is room for */

/* ---- option ---- */

static bool parse_number(const char *s, size_t n, uint64_t *value)
{
    uint64_t v = 0;
    unsigned base = 10;

    if (n > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
        base = 16;
        s += 2;
        n -= 2;
    }
    if (n == 0 || n > 16)
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = s[i] >= '0' && s[i] <= '9'   ? (unsigned)(s[i] - '0')
                         : s[i] >= 'a' && s[i] <= 'f' ? (unsigned)(s[i] - 'a' + 10)
                         : s[i] >= 'A' && s[i] <= 'F' ? (unsigned)(s[i] - 'A' + 10)
                                                      : 16;
        if (digit >= base)
            return false;
        v = v * base + digit;
    }
    *value = v;
    return true;
}

static bool has_prefix(const char *s, size_t n, const char *prefix)
{
    size_t len = strlen(prefix);

    return n >= len && strncmp(s, prefix, len) == 0;
}

/* ":stride4" and ":clk1843200" behind an MMIO address. */
static bool parse_mmio_suffix(const char *s, size_t n, struct serial_port *p)
{
    uint64_t v;

    if (has_prefix(s, n, "stride") && parse_number(s + 6, n - 6, &v) &&
        (v == 1 || v == 2 || v == 4)) {
        p->stride = p->access = (uint8_t)v;
        return true;
    }
    if (has_prefix(s, n, "clk") && parse_number(s + 3, n - 3, &v) && v >= 16 && v <= UINT32_MAX) {
        p->clock = (uint32_t)v;
        return true;
    }
    return false;
}

static bool parse_mmio(const char *s, size_t n, struct serial_port *p)
{
    size_t end = 0, start;

    while (end < n && s[end] != ':')
        end++;
    if (!parse_number(s, end, &p->base) || p->base == 0)
        return false;
    p->mmio = true;
    while (end < n) {
        start = ++end;
        while (end < n && s[end] != ':')
            end++;
        if (!parse_mmio_suffix(s + start, end - start, p))
            return false;
    }
    return true;
}

static bool parse_port(const char *s, size_t n, struct serial_port *p)
{
    static const uint16_t com[PORT_NAMES] = {0x3f8, 0x2f8, 0x3e8, 0x2e8};

    memset(p, 0, sizeof(*p));
    if (n == 4 && has_prefix(s, n, "com") && s[3] >= '1' && s[3] <= '4') {
        p->base = com[s[3] - '1'];
        return true;
    }
    if (has_prefix(s, n, "io:"))
        return parse_number(s + 3, n - 3, &p->base) && p->base && p->base <= 0xfff8;
    return has_prefix(s, n, "mmio:") && parse_mmio(s + 5, n - 5, p);
}

/* Result of reading a console list; the ports are in order. */
struct console_list {
    struct serial_port port[SERIAL_PORTS_MAX];
    unsigned ports;
    bool fb;
};

static bool parse_item(const char *s, size_t n, struct console_list *list)
{
    uint64_t baud;

    if (n == 2 && has_prefix(s, n, "fb")) {
        list->fb = true;
        return true;
    }
    if (n == 4 && has_prefix(s, n, "none"))
        return true;
    if (parse_number(s, n, &baud)) {
        if (list->ports == 0 || baud < 50 || baud > 4000000)
            return false;
        list->port[list->ports - 1].baud = (uint32_t)baud;
        return true;
    }
    if (list->ports == SERIAL_PORTS_MAX || !parse_port(s, n, &list->port[list->ports]))
        return false;
    list->ports++;
    return true;
}

static bool parse_list(const char *s, struct console_list *list)
{
    size_t n;

    memset(list, 0, sizeof(*list));
    for (;;) {
        for (n = 0; s[n] && s[n] != ','; n++)
            ;
        if (!parse_item(s, n, list))
            return false;
        if (!s[n])
            return true;
        s += n + 1;
    }
}

static bool console_option(const char *value, void *target)
{
    struct console_list list;

    return parse_list(value, &list) &&
           str_copy(target, value, sizeof(list_text)) < sizeof(list_text);
}

OPTION_ENTRY_(console, .key = "console", .type = OPT_STRING, .value = list_text,
              .max = sizeof(list_text), .given = &console_given, .custom = console_option,
              .help =
                  "where the log goes: com1..com4, io:PORT, mmio:ADDR[:strideN][:clkHZ], fb, none; "
                  "a number is the baud rate of the port before it");

/* ---- the log buffer ---- */

static void log_append(const char *s, size_t n)
{
    while (n) {
        uint64_t at = log_buffer.written;
        char *dst;
        size_t room;

        if (at < LOG_HEAD) {
            dst = log_buffer.head + at;
            room = LOG_HEAD - at;
        } else {
            dst = log_buffer.ring + (at - LOG_HEAD) % LOG_RING;
            room = LOG_RING - (at - LOG_HEAD) % LOG_RING;
        }
        room = MIN(room, n);
        memcpy(dst, s, room);
        s += room;
        n -= room;
        log_buffer.written = at + room;
    }
}

/* Bytes between the head and what the ring still holds. */
static uint64_t log_missing(void)
{
    uint64_t kept = (uint64_t)LOG_HEAD + LOG_RING;

    return log_buffer.written > kept ? log_buffer.written - kept : 0;
}

static size_t log_note(char *buf, size_t size)
{
    if (!log_missing())
        return 0;
    return (size_t)ksnprintf(buf, size, "\n# log: %lu bytes are missing here\n", log_missing());
}

size_t console_log_size(void)
{
    char note[64];

    return (size_t)(log_buffer.written - log_missing()) + log_note(note, sizeof(note));
}

/* A run of bytes at `offset` that lie together, at most n: its length, and where it is. */
static size_t log_run(size_t offset, size_t n, const char *note, size_t note_len, const char **at)
{
    uint64_t pos;
    size_t run;

    if (offset < LOG_HEAD) {
        *at = log_buffer.head + offset;
        run = (size_t)MIN(log_buffer.written, (uint64_t)LOG_HEAD);
        return offset < run ? MIN(n, run - offset) : 0;
    }
    offset -= LOG_HEAD;
    if (offset < note_len) {
        *at = note + offset;
        return MIN(n, note_len - offset);
    }
    pos = LOG_HEAD + log_missing() + (offset - note_len);
    if (pos >= log_buffer.written)
        return 0;
    *at = log_buffer.ring + (pos - LOG_HEAD) % LOG_RING;
    run = LOG_RING - (size_t)((pos - LOG_HEAD) % LOG_RING);
    run = (size_t)MIN((uint64_t)run, log_buffer.written - pos);
    return MIN(n, run);
}

size_t console_log_read(size_t offset, char *dst, size_t n)
{
    char note[64];
    size_t note_len = log_note(note, sizeof(note));
    size_t done = 0, run;
    const char *at;

    while (done < n && (run = log_run(offset + done, n - done, note, note_len, &at)) != 0) {
        memcpy(dst + done, at, run);
        done += run;
    }
    return done;
}

/* ---- writing ---- */

/* True: the caller has the lock and must release it. */
static bool lock(void)
{
    uint32_t me = this_cpu_id() + 1, none;
    uint64_t start = rdtsc();
    uint64_t limit = in_nmi() ? LOCK_CYCLES_NMI : LOCK_CYCLES;

    for (;;) {
        none = 0;
        if (READ_ONCE(lock_owner) == 0 && ATOMIC_CAS(lock_owner, &none, me))
            return true;
        if (READ_ONCE(lock_owner) == me || READ_ONCE(lock_broken) || rdtsc() - start > limit)
            return false;
        cpu_relax();
        if (!in_nmi())
            tlb_poll();
    }
}

static void serial_write_all(const char *s, size_t n)
{
    for (unsigned i = 0; i < SERIAL_PORTS_MAX; i++)
        serial_write(&serial_ports[i], s, n);
}

void console_write(const char *s, size_t n)
{
    unsigned long flags = irq_save();
    bool locked = lock();

    log_append(s, n);
    serial_write_all(s, n);
    fb_write(s, n);
    if (n)
        last_char = s[n - 1];
    if (locked)
        STORE_RELEASE(lock_owner, 0u);
    irq_restore(flags);
}

void console_break_lock(void)
{
    WRITE_ONCE(lock_broken, true);
    if (READ_ONCE(lock_owner) != 0 || last_char != '\n')
        console_write("\n", 1);
}

uint64_t log_seconds(void)
{
    return clock_us() / 1000000;
}

/* ---- sinks ---- */

void console_replay(void (*sink)(const char *s, size_t n))
{
    char part[256];
    size_t offset = 0, n;

    while ((n = console_log_read(offset, part, sizeof(part))) != 0) {
        sink(part, n);
        offset += n;
    }
}

static void replay_to_port(struct serial_port *p)
{
    char part[256];
    size_t offset = 0, n;

    if (!p->fresh)
        return;
    p->fresh = false;
    while ((n = console_log_read(offset, part, sizeof(part))) != 0) {
        serial_write(p, part, n);
        offset += n;
    }
}

static void add_port(const struct serial_port *want)
{
    struct serial_port *p = serial_add(want);

    if (p)
        replay_to_port(p);
    else
        port_overflow = true;
}

void console_init(void)
{
    struct console_list list;

    if (!parse_list(list_text, &list))
        return;
    want_fb = list.fb;
    for (unsigned i = 0; i < list.ports; i++)
        add_port(&list.port[i]);
}

void console_add_spcr(unsigned space, uint64_t base, unsigned access, unsigned stride,
                      uint32_t baud, uint32_t clock)
{
    struct serial_port p = {
        .base = base,
        .clock = clock,
        .baud = baud,
        .stride = (uint8_t)stride,
        .access = (uint8_t)access,
        .mmio = space == 0,
    };

    if (console_given || base == 0 || space > 1 || stride > 8 || access > 4 ||
        (space == 1 && base > 0xfff8))
        return;
    add_port(&p);
}

void console_map_mmio(void *(*map)(phys_addr_t base, size_t size))
{
    struct serial_port *p;

    for (p = serial_ports; p < serial_ports + SERIAL_PORTS_MAX; p++) {
        if (p->state != SERIAL_UNMAPPED)
            continue;
        serial_map(p, map(p->base, 8 * p->stride));
        replay_to_port(p);
    }
}

bool console_wants_fb(void)
{
    return want_fb;
}

void console_report(void)
{
    char text[96];

    for (unsigned i = 0; i < SERIAL_PORTS_MAX; i++) {
        if (serial_ports[i].state == SERIAL_UNUSED)
            continue;
        serial_describe(&serial_ports[i], text, sizeof(text));
        kprintf("# console serial %s\n", text);
    }
    if (port_overflow)
        kprintf("# console: only %u serial ports are used\n", SERIAL_PORTS_MAX);
    fb_describe(text, sizeof(text));
    kprintf("# console %s\n", text);
}
