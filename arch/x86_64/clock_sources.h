/*
 * clock_sources.h: timers of known frequency to measure the TSC by. Boot CPU, during clock_init()
 * only. Private to the clock code.
 */
#ifndef CLOCK_SOURCES_H
#define CLOCK_SOURCES_H

#include "lib/base.h"

struct clock_meter {
    const char *name;
    /* False: not there, or it does not count. */
    bool (*open)(void);
    /* One measurement of about `us` microseconds: TSC ticks per second; 0: the timer stood still.
     * Bounded. */
    uint64_t (*sample)(unsigned us);
    void (*close)(void); /* undoes open; may be NULL */
};

/* Best first. */
extern const struct clock_meter clock_meters[];
extern const size_t clock_meter_count;

#endif
