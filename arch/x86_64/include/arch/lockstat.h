/*
 * lockstat.h: lock statistics per class, with the fields of Linux's /proc/lock_stat
 * (Documentation/locking/lockstat.rst). On with the option lockstat=on, before any lock is made.
 *
 * Each CPU counts in memory of its own; locks count only on CPUs that have some
 * (lockstat_attach()), and only while it runs (lockstat_run()). Times are TSC ticks.
 */
#ifndef ARCH_LOCKSTAT_H
#define ARCH_LOCKSTAT_H

#include "lib/base.h"

#define LOCKSTAT_CLASSES 32 /* more are not counted */
#define LOCKSTAT_POINTS  4

struct lock_class;

/* The option; constant once the first lock has been made. */
extern bool lockstat_on;

struct lockstat_times {
    uint64_t min, max, total;
};
struct lockstat {
    uint64_t acquisitions;
    uint64_t acq_bounces; /* the CPU before was another one */
    uint64_t contentions; /* acquisitions that had to wait */
    uint64_t con_bounces;
    struct lockstat_times wait, hold; /* wait: of the contended ones */
    struct {
        uintptr_t ip; /* who waited; 0: unused */
        uint64_t count;
    } point[LOCKSTAT_POINTS];
};

/* ---- for who implements a lock ---- */

/* After the lock was taken; `lock` tells it from others in the release. Any context. */
struct lockstat_taken {
    const void *lock;
    struct lock_class *class;
    bool bounced; /* the CPU before was another one */
    bool contended;
    uint64_t waited; /* ticks, if contended */
    uintptr_t ip;    /* who wanted it */
};
void lockstat_acquired(const struct lockstat_taken *t);
/* Before the lock is released. */
void lockstat_release(const void *lock);

/* ---- for who reads them: boot CPU, the others idle ---- */

/* Bytes of one CPU's memory, which stays for good: zeroed, whole cache lines. */
size_t lockstat_cpu_size(void);
void lockstat_attach(unsigned cpu, void *mem);
void lockstat_run(bool on);
void lockstat_reset(void);
/* Class number i, summed over CPUs; its name, or NULL behind the last one. */
const char *lockstat_read(unsigned i, struct lockstat *out);

#endif
