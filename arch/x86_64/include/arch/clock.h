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
/* Begin and end of a measured section: nothing before the first one is still running, nothing after
 * the second one has begun (SDM 2B, RDTSC: LFENCE before orders the read, LFENCE behind it what
 * follows). RDTSCP would save one fence at the end, but not every CPU has it (QEMU's qemu64). */
static inline uint64_t cycles_begin(void)
{
    uint32_t lo, hi;

    __asm__ volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi)::"memory");
    return ((uint64_t)hi << 32) | lo;
}
static inline uint64_t cycles_end(void)
{
    uint32_t lo, hi;

    __asm__ volatile("lfence; rdtsc; lfence" : "=a"(lo), "=d"(hi)::"memory");
    return ((uint64_t)hi << 32) | lo;
}

/* TSC ticks per second; 0 if no clock could be used to find out. Then times below are computed with
 * 5 GHz, so that no wait is too short. */
uint64_t clock_tsc_hz(void);
const char *clock_source(void); /* "cpuid15", "hypervisor", "pmtimer", "hpet", "pit", "none" */
uint64_t
clock_spread_ppm(void);  /* between the samples that gave the figure; 0 if it was not measured */
uint64_t clock_us(void); /* microseconds since clock_init(); 0 before */
uint64_t clock_cycles_to_us(uint64_t cycles);
uint64_t clock_us_to_cycles(uint64_t us);
void clock_delay_us(uint64_t us); /* busy wait that polls TLB requests; bounded */
/*
 * Boot CPU, after apic_init() (the HPET needs arch_ioremap; without it that source is left out).
 * Finds the TSC's frequency, then the local APIC timer's, and prints a line.
 */
void clock_init(void);
/* Ping-pong between the boot CPU and each other one; the worst backward step seen, in ticks. Boot
 * CPU, others idle; prints a line. */
void clock_warp_test(void);
uint64_t clock_warp(void);

/* A time limit, on one CPU. */
struct clock_limit {
    uint64_t start, ticks;
};
static inline void clock_limit_start(struct clock_limit *l, uint64_t us)
{
    l->ticks = clock_us_to_cycles(us);
    l->start = rdtsc();
}
static inline bool clock_limit_over(const struct clock_limit *l)
{
    return rdtsc() - l->start > l->ticks;
}

/* Periodic interrupt of this CPU's local APIC timer, hz per second; 0 stops it. fn is called in the
 * handler. False: there is no timer whose rate is known. */
bool timer_start(unsigned hz, void (*fn)(void));
/* One interrupt in `us` microseconds; replaces what was running. */
bool timer_once(uint64_t us, void (*fn)(void));
void timer_stop(void);
/* Makes sure that a timer interrupt comes within `us`, or when a running timer is due that calls
 * something: for who is about to halt. */
void timer_ensure(uint64_t us);

#endif
