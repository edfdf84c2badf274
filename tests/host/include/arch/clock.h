/*
 * clock.h (host): the machine's header with a simulated time-stamp counter: it counts steps of the
 * scheduler, so that the same seed sees the same times; the host's own in free-running mode.
 */
#ifndef SIM_ARCH_CLOCK_H
#define SIM_ARCH_CLOCK_H

#define rdtsc             machine_rdtsc
#define cycles_begin      machine_cycles_begin
#define cycles_end        machine_cycles_end
#define clock_limit_start machine_clock_limit_start
#define clock_limit_over  machine_clock_limit_over
#include_next <arch/clock.h>
#undef rdtsc
#undef cycles_begin
#undef cycles_end
#undef clock_limit_start
#undef clock_limit_over

uint64_t sim_tsc(void);

static inline uint64_t rdtsc(void)
{
    return sim_tsc();
}
static inline void clock_limit_start(struct clock_limit *l, uint64_t us)
{
    *l = (struct clock_limit){.start = sim_tsc(), .ticks = clock_us_to_cycles(us)};
}
static inline bool clock_limit_over(const struct clock_limit *l)
{
    return sim_tsc() - l->start > l->ticks;
}
static inline uint64_t cycles_begin(void)
{
    return sim_tsc();
}
static inline uint64_t cycles_end(void)
{
    return sim_tsc();
}

#endif
