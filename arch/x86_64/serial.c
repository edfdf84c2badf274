/*
 * serial.c: the 16550 family, polled. See serial.h for the rules.
 *
 * Register names and bits: National Semiconductor PC16550D data sheet, 8.0. What firmware set up
 * stays: the divisor unless a baud rate was given, and nothing that is still in the FIFO is thrown
 * away.
 */
#include "lib/base.h"
#include "lib/printf.h"
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/serial.h>
#include <arch/tlb.h>

#define REG_DATA 0 /* THR; with DLAB: divisor, low byte */
#define REG_IER  1 /* with DLAB: divisor, high byte */
#define REG_IIR  2 /* read */
#define REG_FCR  2 /* write */
#define REG_LCR  3
#define REG_MCR  4
#define REG_LSR  5
#define REG_MSR  6
#define REG_SCR  7

#define IIR_FIFO_ON  0xc0
#define FCR_ENABLE   0x01
#define LCR_8N1      0x03
#define LCR_DLAB     0x80
#define MCR_DTR_RTS  0x03
#define MCR_LOOP     0x10
#define LSR_THRE     0x20
#define LSR_TEMT     0x40
#define FIFO_SIZE    16
#define DIVISOR_MAX  0xffffu
#define BAUD_DEFAULT 115200u

/* How long a UART may take for room. A full FIFO at 300 baud is 0.5 s; who reads a virtual one or a
 * BMC's may pause longer, but that is known only of a port that has worked. Cycles and rounds must
 * both have passed: the TSC's frequency is not known yet, and an access may take 1 us or 20 ns. */
#define WAIT_CYCLES_NEW 2000000000ULL
#define WAIT_CYCLES     30000000000ULL
#define PROVEN_CHARS    64
#define WAIT_ROUNDS     200000u
#define DRAIN_CYCLES    500000000ULL
#define DRAIN_ROUNDS    20000u
#define TIMEOUTS_MAX    10   /* each halves the patience; */
#define CALM_CHARS      1024 /* so many characters without one restore it */

struct serial_port serial_ports[SERIAL_PORTS_MAX];

static uint8_t reg_read(const struct serial_port *p, unsigned reg)
{
    volatile uint8_t *at = p->regs + reg * p->stride;

    if (!p->mmio)
        return inb((uint16_t)(p->base + reg * p->stride));
    switch (p->access) {
    case 4:
        return (uint8_t) * (volatile uint32_t *)at;
    case 2:
        return (uint8_t) * (volatile uint16_t *)at;
    default:
        return *at;
    }
}

static void reg_write(const struct serial_port *p, unsigned reg, uint8_t v)
{
    volatile uint8_t *at = p->regs + reg * p->stride;

    if (!p->mmio) {
        outb((uint16_t)(p->base + reg * p->stride), v);
        return;
    }
    switch (p->access) {
    case 4:
        *(volatile uint32_t *)at = v;
        break;
    case 2:
        *(volatile uint16_t *)at = v;
        break;
    default:
        *at = v;
        break;
    }
}

/* Waits for one of the LSR bits; answers TLB requests, since this may be slow and interrupts are
 * off. */
static bool wait_lsr(const struct serial_port *p, uint8_t bit, uint64_t cycles, unsigned rounds)
{
    uint64_t start = rdtsc();
    unsigned n;

    for (n = 0; !(reg_read(p, REG_LSR) & bit); n++) {
        if (n >= rounds && rdtsc() - start >= cycles)
            return false;
        if (!in_nmi())
            tlb_poll();
        cpu_relax();
    }
    return true;
}

/* ---- probe ---- */

static bool scratch_works(const struct serial_port *p)
{
    uint8_t old = reg_read(p, REG_SCR);
    bool ok;

    reg_write(p, REG_SCR, 0x5a);
    ok = reg_read(p, REG_SCR) == 0x5a;
    reg_write(p, REG_SCR, 0xa5);
    ok = ok && reg_read(p, REG_SCR) == 0xa5;
    reg_write(p, REG_SCR, old);
    return ok;
}

/* For UARTs without a scratch register: in loopback the modem outputs appear as modem inputs. */
static bool loopback_works(const struct serial_port *p)
{
    uint8_t old = reg_read(p, REG_MCR);
    uint8_t msr;

    reg_write(p, REG_MCR, MCR_LOOP | 0x0a); /* OUT2 and RTS show as DCD and CTS */
    msr = reg_read(p, REG_MSR) & 0xf0;
    reg_write(p, REG_MCR, old);
    return msr == 0x90;
}

static bool present(const struct serial_port *p)
{
    if (reg_read(p, REG_LSR) == 0xff && reg_read(p, REG_IIR) == 0xff)
        return false;
    if (scratch_works(p))
        return true;
    wait_lsr(p, LSR_TEMT, DRAIN_CYCLES,
             DRAIN_ROUNDS); /* loopback would swallow what is under way */
    return loopback_works(p);
}

/* Divisor for the baud rate that was asked for, else the firmware's, else the usual one. */
static void set_line(struct serial_port *p)
{
    uint32_t clock = p->clock ? p->clock : SERIAL_CLOCK_HZ;
    uint32_t divisor;

    reg_write(p, REG_LCR, LCR_8N1 | LCR_DLAB);
    divisor = reg_read(p, REG_DATA) | (uint32_t)reg_read(p, REG_IER) << 8;
    if (p->baud || divisor == 0) {
        uint32_t baud = p->baud ? p->baud : BAUD_DEFAULT;

        divisor = (clock / 16 + baud / 2) / baud;
        divisor = MAX(1u, MIN(divisor, DIVISOR_MAX));
        reg_write(p, REG_DATA, (uint8_t)divisor);
        reg_write(p, REG_IER, (uint8_t)(divisor >> 8));
    }
    reg_write(p, REG_LCR, LCR_8N1);
    p->divisor = (uint16_t)divisor;
}

static void probe(struct serial_port *p)
{
    if (!present(p)) {
        p->state = SERIAL_ABSENT;
        return;
    }
    /* A new divisor or FIFO mode while the firmware's last characters go out would spoil them. */
    wait_lsr(p, LSR_TEMT, DRAIN_CYCLES, DRAIN_ROUNDS);
    reg_write(p, REG_LCR, LCR_8N1);
    reg_write(p, REG_IER, 0);
    set_line(p);
    reg_write(p, REG_FCR, FCR_ENABLE);
    p->fifo = (reg_read(p, REG_IIR) & IIR_FIFO_ON) == IIR_FIFO_ON;
    reg_write(p, REG_MCR, MCR_DTR_RTS);
    p->credit = 0;
    p->fresh = true;
    p->state = SERIAL_ON;
}

struct serial_port *serial_add(const struct serial_port *want)
{
    struct serial_port *p;

    for (p = serial_ports; p < serial_ports + SERIAL_PORTS_MAX; p++) {
        if (p->state == SERIAL_UNUSED)
            break;
        if (p->base == want->base && p->mmio == want->mmio)
            return p;
    }
    if (p == serial_ports + SERIAL_PORTS_MAX)
        return NULL;
    *p = *want;
    p->stride = want->stride ? want->stride : 1;
    p->access = want->access ? want->access : 1;
    if (p->mmio)
        p->state = SERIAL_UNMAPPED;
    else
        probe(p);
    return p;
}

void serial_map(struct serial_port *p, volatile void *regs)
{
    p->regs = regs;
    if (regs)
        probe(p);
    else
        p->state = SERIAL_ABSENT;
}

/* ---- output ---- */

static bool wait_for_room(struct serial_port *p)
{
    uint64_t cycles = p->sent < PROVEN_CHARS ? WAIT_CYCLES_NEW : WAIT_CYCLES;

    /* THRE only: TEMT never comes on some (pitfall 5). */
    if (wait_lsr(p, LSR_THRE, cycles >> p->timeouts, WAIT_ROUNDS >> p->timeouts))
        return true;
    p->timeouts = (uint8_t)MIN(p->timeouts + 1, TIMEOUTS_MAX);
    p->calm = 0;
    p->state = SERIAL_STALLED;
    return false;
}

/* One character, or a note that it is lost. */
static void put(struct serial_port *p, char c)
{
    if (p->state != SERIAL_ON || (p->credit == 0 && !wait_for_room(p))) {
        p->lost++;
        return;
    }
    if (p->credit == 0)
        p->credit = p->fifo ? FIFO_SIZE : 1;
    reg_write(p, REG_DATA, (uint8_t)c);
    p->credit--;
    p->sent++;
    if (p->timeouts && ++p->calm == CALM_CHARS)
        p->timeouts = 0;
}

static void put_text(struct serial_port *p, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\n')
            put(p, '\r');
        put(p, s[i]);
    }
}

/* A stalled port that has room again: says what is missing and goes on. */
static void revive(struct serial_port *p)
{
    char line[64];
    int n;

    if (!(reg_read(p, REG_LSR) & LSR_THRE) || reg_read(p, REG_LSR) == 0xff)
        return;
    p->state = SERIAL_ON;
    p->credit = 0;
    n = ksnprintf(line, sizeof(line), "\n# serial: %lu characters lost\n", p->lost);
    p->lost = 0;
    put_text(p, line, (size_t)n);
}

void serial_write(struct serial_port *p, const char *s, size_t n)
{
    if (p->state == SERIAL_STALLED)
        revive(p);
    if (p->state == SERIAL_ON)
        put_text(p, s, n);
    else if (p->state == SERIAL_STALLED)
        p->lost += n;
}

void serial_drain(void)
{
    struct serial_port *p;

    for (p = serial_ports; p < serial_ports + SERIAL_PORTS_MAX; p++) {
        if (p->state == SERIAL_ON)
            wait_lsr(p, LSR_TEMT, DRAIN_CYCLES, DRAIN_ROUNDS);
    }
}

void serial_describe(const struct serial_port *p, char *buf, size_t size)
{
    static const char *const states[] = {
        [SERIAL_UNUSED] = "unused", [SERIAL_UNMAPPED] = "not mapped yet",
        [SERIAL_ABSENT] = "absent", [SERIAL_STALLED] = "stalled",
        [SERIAL_ON] = "on",
    };
    uint32_t clock = p->clock ? p->clock : SERIAL_CLOCK_HZ;

    if (p->state == SERIAL_ON)
        ksnprintf(buf, size, "%s=0x%lx baud=%u fifo=%u lost=%lu", p->mmio ? "mmio" : "io", p->base,
                  clock / 16 / MAX(p->divisor, 1), p->fifo ? FIFO_SIZE : 1u, p->lost);
    else
        ksnprintf(buf, size, "%s=0x%lx state=%s", p->mmio ? "mmio" : "io", p->base,
                  states[p->state]);
}
