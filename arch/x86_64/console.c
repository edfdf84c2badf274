/*
 * console.c: console_write(): one text to all sinks, and the option console=.
 *
 * The lock is not a struct spinlock: it must work in NMI and in panic. Whoever cannot get it in a
 * bounded time, or holds it already on this CPU (an NMI or a fault while printing), writes without
 * it: a mixed line is better than none. Waiting answers TLB requests.
 */
#include "arch/x86_64/console_list.h"
#include "arch/x86_64/log_buffer.h"
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

static char list_text[128] = "com1,fb";
static bool console_given;

static uint32_t lock_owner;   /* CPU + 1 */
static bool lock_broken;      /* set in panic */
static char last_char = '\n'; /* written by the lock holder */

static bool want_fb;
static bool reported;      /* console_report() has been called */
static bool port_overflow; /* more ports were named than there is room for */

/* ---- option ---- */

static bool console_option(const char *value, void *target)
{
    struct console_list list;

    return console_list_parse(value, &list) &&
           str_copy(target, value, sizeof(list_text)) < sizeof(list_text);
}

OPTION_ENTRY_(console, .key = "console", .type = OPT_STRING, .value = list_text,
              .max = sizeof(list_text), .given = &console_given, .custom = console_option,
              .help =
                  "where the log goes: com1..com4, io:PORT, mmio:ADDR[:strideN][:clkHZ], fb, none; "
                  "a number is the baud rate of the port before it");

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

    while ((n = console_log_read(offset, part, sizeof(part))) != 0) {
        serial_write(p, part, n);
        offset += n;
    }
}

static void report_port(const struct serial_port *p)
{
    char text[96];

    serial_describe(p, text, sizeof(text));
    kprintf("# console serial %s\n", text);
}

/* A port that has come up gets the log so far; one that comes late is named. */
static void announce_port(struct serial_port *p)
{
    if (!p->fresh)
        return;
    p->fresh = false;
    replay_to_port(p);
    if (reported)
        report_port(p);
}

static void add_port(const struct serial_port *want)
{
    struct serial_port *p = serial_add(want);

    if (p)
        announce_port(p);
    else
        port_overflow = true;
}

void console_init(void)
{
    struct console_list list;

    if (!console_list_parse(list_text, &list))
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
        announce_port(p);
    }
}

bool console_wants_fb(void)
{
    return want_fb;
}

void console_report(void)
{
    for (unsigned i = 0; i < SERIAL_PORTS_MAX; i++) {
        if (serial_ports[i].state != SERIAL_UNUSED)
            report_port(&serial_ports[i]);
    }
    if (port_overflow)
        kprintf("# console: only %u serial ports are used\n", SERIAL_PORTS_MAX);
    reported = true;
}
