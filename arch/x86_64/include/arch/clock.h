/*
 * clock.h: time. The unit of measurement is the TSC tick; its frequency is calibrated at boot.
 *
 * Never subtract ticks of two CPUs unless clock_warp() is 0 (cases T6, pitfall 26).
 */
#ifndef ARCH_CLOCK_H
#define ARCH_CLOCK_H

#include "lib/base.h"

static inline uint64_t rdtsc(void)
{
    uint32_t lo, hi;

    __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
    return ((uint64_t)hi << 32) | lo;
}
/* Begin and end of a measured section: nothing before the first one is still running, nothing after the
 * second one has begun (SDM 2B, RDTSC and RDTSCP; LFENCE orders both). */
static inline uint64_t cycles_begin(void)
{
    uint32_t lo, hi;

    __asm__ volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi)::"memory");
    return ((uint64_t)hi << 32) | lo;
}
static inline uint64_t cycles_end(void)
{
    uint32_t lo, hi, aux;

    __asm__ volatile("rdtscp; lfence" : "=a"(lo), "=d"(hi), "=c"(aux)::"memory");
    return ((uint64_t)hi << 32) | lo;
}

/* TSC ticks per second; 0 if no clock could be used to find out. */
uint64_t clock_tsc_hz(void);
const char *clock_source(void);      /* "cpuid15", "pmtimer", "hpet", "pit", "none" */
uint64_t clock_spread_ppm(void);     /* between the samples that gave the figure */
uint64_t clock_us(void);             /* microseconds since clock_init(); 0 before */
uint64_t clock_cycles_to_us(uint64_t cycles);
void clock_delay_us(uint64_t us);    /* busy wait that polls TLB requests; bounded */
void clock_init(void);
/* Ping-pong between CPU 0 and each other one; the worst backward step seen, in ticks. */
uint64_t clock_warp(void);
void clock_warp_test(void);

/* Periodic interrupt of this CPU's local APIC timer, hz per second; 0 stops it. fn is called in the
 * handler. */
void timer_start(unsigned hz, void (*fn)(void));
void timer_stop(void);

#endif
