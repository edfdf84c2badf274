/*
 * port.h: port I/O for the front doors, which run before and after the kernel and share no code
 * with it.
 */
#ifndef BOOT_PORT_H
#define BOOT_PORT_H

#include "lib/base.h"

static inline void port_out8(uint16_t port, uint8_t v)
{
    __asm__ volatile("outb %0, %1" ::"a"(v), "Nd"(port));
}
static inline void port_out16(uint16_t port, uint16_t v)
{
    __asm__ volatile("outw %0, %1" ::"a"(v), "Nd"(port));
}
static inline void port_out32(uint16_t port, uint32_t v)
{
    __asm__ volatile("outl %0, %1" ::"a"(v), "Nd"(port));
}
static inline uint8_t port_in8(uint16_t port)
{
    uint8_t v;

    __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port));
    return v;
}

#endif
