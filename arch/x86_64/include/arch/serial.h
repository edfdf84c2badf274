/*
 * serial.h: 16550 UARTs behind I/O ports or memory, polled, transmit only.
 *
 * No interrupts. Every wait is bounded; a port that does not take a character in time is put out of
 * service and used again when it has room. Synchronised by the console's lock.
 */
#ifndef ARCH_SERIAL_H
#define ARCH_SERIAL_H

#include "lib/base.h"

#define SERIAL_PORTS_MAX 4
#define SERIAL_CLOCK_HZ  1843200u

enum serial_state {
    SERIAL_UNUSED,
    SERIAL_UNMAPPED, /* MMIO, waits for serial_map() */
    SERIAL_ABSENT,   /* the probe found nothing */
    SERIAL_STALLED,  /* timed out, looked at again at the next write */
    SERIAL_ON,
};

struct serial_port {
    /* constant after serial_add() */
    uint64_t base;  /* I/O port or physical address */
    uint32_t clock; /* Hz */
    uint32_t baud;  /* 0: the firmware's divisor is kept */
    uint8_t stride; /* bytes from register to register */
    uint8_t access; /* bytes of one access: 1, 2 or 4 */
    bool mmio;
    /* written by the console's lock holder */
    volatile uint8_t *regs; /* mapping, MMIO only */
    uint8_t state;          /* enum serial_state */
    bool fifo;
    bool fresh;       /* found, and not yet sent what was logged before */
    uint8_t credit;   /* characters that fit without another look at LSR */
    uint8_t timeouts; /* of late */
    uint16_t calm;    /* characters since the last one */
    uint16_t divisor; /* in use */
    uint64_t sent;    /* characters */
    uint64_t lost;    /* characters, while stalled */
};

extern struct serial_port serial_ports[SERIAL_PORTS_MAX];

/* Takes a free slot for a port with the settings in *p, probes it unless it needs a mapping. A
 * second port of the same base changes nothing. Returns it, or NULL if there are too many. */
struct serial_port *serial_add(const struct serial_port *p);
/* Gives an MMIO port its registers and probes it. */
void serial_map(struct serial_port *p, volatile void *regs);
/* Sends n characters, LF as CR LF. Returns at once if the port is not on. */
void serial_write(struct serial_port *p, const char *s, size_t n);
/* Waits until the last character has left the UART, at most about 0.2 s. Before the machine ends.
 */
void serial_drain(void);
/* "com1 io=0x3f8 baud=115200 fifo=16": what is known of p. */
void serial_describe(const struct serial_port *p, char *buf, size_t size);

#endif
