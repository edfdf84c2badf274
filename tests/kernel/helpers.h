/*
 * helpers.h: what several correctness tests need: pages, flush logs, entries, address eaters.
 *
 * Boot CPU, unless said otherwise.
 */
#ifndef TESTS_KERNEL_HELPERS_H
#define TESTS_KERNEL_HELPERS_H

#include "mm/page_alloc.h"
#include "mm/vmalloc.h"
#include "tests/kernel/ktest.h"
#include <arch/lockstat.h>
#include <arch/pte.h>

/* vm_map_ram: pages of a block, and of the largest mapping that comes from one. */
#define KT_BLOCK_PAGES PTE_COUNT
#define KT_BLOCK_ALLOC 64

/* A CPU that is not the own one, if there is one. */
unsigned kt_other_cpu(void);

/* Leaves a test that looks at what waits for a purge. */
#define KT_NEEDS_LAZY()                                                                            \
    do {                                                                                           \
        if (vmap_config.purge_eager)                                                               \
            KT_SKIP("purge=eager: nothing waits");                                                 \
    } while (0)

/* kt_scaled for loops that flush: each flush interrupts every CPU, so fewer with many of them. */
uint64_t kt_scaled_flushes(uint64_t quick);

/* Reads 8 bytes on another CPU; false if that faulted. */
bool kt_read_on(unsigned cpu, const void *addr, uint64_t *value);

/* n pages, each filled with 8-byte words (tag << 32) + page number; all or nothing (a failure). */
struct kt_pages {
    struct page **page;
    unsigned n;
};
bool kt_pages_get(struct kt_pages *p, unsigned n, uint32_t tag);
void kt_pages_put(struct kt_pages *p);
static inline uint64_t kt_tag(uint32_t tag, unsigned page)
{
    return ((uint64_t)tag << 32) + page;
}
/* First word of a page through the direct map. */
static inline volatile uint64_t *kt_word(const struct page *page)
{
    return page_address(page);
}

/* Every byte offset of an area gets its own value, and has it. */
void kt_fill(void *p, size_t bytes, uint64_t seed);
bool kt_verify(const void *p, size_t bytes, uint64_t seed); /* false: a failure is recorded */

/* The entry that maps addr: level 1 (4 KiB), 2 or 3 (leaf); 0: not mapped. */
pte_t kt_entry(const void *addr, unsigned *level);

/* Flushes since kt_flush_log_start(), of any CPU. */
#define KT_FLUSHES_MAX 64
struct kt_flush {
    uintptr_t start, end;
    bool full;
};
void kt_flush_log_start(void);
unsigned kt_flush_log_stop(void);               /* how many there were */
const struct kt_flush *kt_flush_at(unsigned i); /* i below that and below KT_FLUSHES_MAX */
/* True if the logged flushes drop every page of [start, end). */
bool kt_flush_covers(uintptr_t start, uintptr_t end);

/* Takes all addresses but about `leave` bytes, which are in one piece; gives them back. */
bool kt_eat_addresses(uint64_t leave);
void kt_spit_addresses(void);

/* fn on at most KT_FEW CPUs at once, the own one included: for what is in a fair order, where each
 * turn takes a time slice of the host once there are more CPUs than it has. */
#define KT_FEW 4
unsigned kt_few(void);
void kt_on_few(void (*fn)(void *), void *arg);

/* Whatever lockstat= says, locks made from here on are counted, until kt_lockstat_end(): what has
 * such locks must be rebuilt before it. False: the test was failed. */
bool kt_lockstat_begin(void);
void kt_lockstat_end(void);
/* What was counted of a lock class; zeroes if it is not known. */
struct lockstat kt_lockstat(const char *name);

/* Waits, answering TLB requests, until *word is at least `value`; false after some seconds. Any
 * CPU. */
bool kt_wait_for(const uint64_t *word, uint64_t value);

#endif
