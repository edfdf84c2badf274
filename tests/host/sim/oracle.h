/*
 * oracle.h: stale translations, and what the oracle knows of frames and tables. Shared by the
 * oracle's files only.
 *
 * A present entry may be in any CPU's caches at any time, so nothing is kept for it. When it goes,
 * a stale record is made: which CPUs may still hold it. A CPU's bit goes when that CPU flushes; the
 * record when no bit is left.
 */
#ifndef TESTS_HOST_SIM_ORACLE_H
#define TESTS_HOST_SIM_ORACLE_H

#include "lib/list.h"
#include "tests/host/sim/internal.h"

#define NO_FRAME UINT64_MAX

struct stale {
    uintptr_t va;
    pte_t pte;
    uint64_t stamp; /* oracle time at which the entry went */
    uint64_t holders[SIM_CPU_WORDS];
    uint32_t maker; /* CPU that cleared the entry */
    uint8_t level;  /* of the entry: 1 .. 4 */
    bool table;     /* it led to a table: paging-structure caches */
    uint32_t next;  /* hash chain, or free chain: index + 1 */
    struct list_head all;
    struct list_head frame;
};

struct frame {
    struct list_head stale; /* records that lead to it; of a 2 MiB leaf, to its first frame */
    uintptr_t va;           /* table: first address it maps */
    int32_t maps;           /* present leaf entries */
    uint8_t level;          /* linked table: 1 .. 4, else 0 */
    uint8_t links;          /* present entries that lead to it as a table */
    bool owned;             /* not with the page allocator */
    bool table;             /* holds or held entries since it was taken */
    bool callers_own;
};

/* oracle.c */
extern uint64_t oracle_time;
bool oracle_on(void);
void oracle_lock(void);
void oracle_unlock(void);
struct frame *oracle_frame(uint64_t pfn); /* NULL: not RAM */
void stale_make(uintptr_t va, unsigned level, pte_t pte, bool table);
/* The first live record of that entry's address and level; NULL if none. */
struct stale *stale_find(uintptr_t va, unsigned level, bool table);
/* The first live record that leads to the frame, of tables or of leaves. */
struct stale *stale_of_frame(struct frame *f, bool table);
/* Drops bits of flushed CPUs; false if no bit was left and the record is gone. */
bool stale_alive(struct stale *s);
/* s if a CPU holds it that is not halted. */
struct stale *stale_in_use(struct stale *s);
const char *stale_holders(const struct stale *s);
extern struct list_head stale_records;

/* oracle_tables.c */
void oracle_tables_reset(void);

static inline size_t level_size(unsigned level)
{
    return 1UL << (PAGE_SHIFT + 9 * (level - 1));
}

#endif
