/*
 * sim_oracle.c: which CPU may still hold which translation that is no longer in the tables.
 *
 * A full flush (CR3 reload) drops everything, as nothing is global. INVLPG drops what translates
 * that address, at any size, and all of the CPU's paging-structure caches (SDM 3A 4.10.4.1). Who
 * held an entry when it went depends on the caching mode: everybody, or who used it and others by
 * chance.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/host/sim/oracle.h"
#include <arch/percpu.h>

#define HASH_SIZE  (1u << 15)
#define USED_SLOTS 64

uint64_t oracle_time;
struct list_head stale_records;

static struct stale **chunks; /* of CHUNK records, so that records do not move */
#define CHUNK 4096u
static uint32_t chunk_count, free_chain; /* index + 1 */
static uint32_t hash[HASH_SIZE];         /* index + 1 */
static uint32_t hash_used[HASH_SIZE];    /* slots to clear at reset */
static uint32_t hash_used_count;

static struct frame *frames;
static uint64_t frame_count, frames_room;

static uint64_t flushed_all[SIM_MAX_CPUS];        /* oracle time of the last full flush */
static uint64_t flushed_structures[SIM_MAX_CPUS]; /* of the last flush of any kind */
static uintptr_t used[SIM_MAX_CPUS][USED_SLOTS];  /* pages the CPU accessed: address, 0 = none */
static bool away[SIM_MAX_CPUS];                   /* halted */
static uint64_t
    owes[SIM_MAX_CPUS]; /* oracle time after which it must flush all before it goes on */
static struct rng cache_rng;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

bool oracle_on(void)
{
    return !sim_opt.no_oracle;
}

/* By schedule nobody comes in between. */
void oracle_lock(void)
{
    if (sim_opt.free_running)
        pthread_mutex_lock(&mutex);
}

void oracle_unlock(void)
{
    if (sim_opt.free_running)
        pthread_mutex_unlock(&mutex);
}

struct frame *oracle_frame(uint64_t pfn)
{
    return pfn < frame_count ? &frames[pfn] : NULL;
}

/* ---- records ---- */

static inline struct stale *record(uint32_t index)
{
    return &chunks[index / CHUNK][index % CHUNK];
}

static uint32_t record_take(void)
{
    uint32_t i;

    if (!free_chain) {
        chunks = realloc(chunks, (chunk_count + 1) * sizeof(*chunks));
        chunks[chunk_count] = calloc(CHUNK, sizeof(struct stale));
        if (!chunks[chunk_count])
            abort();
        for (i = CHUNK; i-- > 0;) {
            chunks[chunk_count][i].next = free_chain;
            free_chain = chunk_count * CHUNK + i + 1;
        }
        chunk_count++;
    }
    i = free_chain;
    free_chain = record(i - 1)->next;
    return i;
}

static uint32_t hash_of(uintptr_t va, unsigned level, bool table)
{
    uint64_t key = (va >> PAGE_SHIFT) * 8 + level + (table ? 4 : 0);

    return (uint32_t)((key * 0x9e3779b97f4a7c15ULL) >> 49);
}

static void record_drop(struct stale *s)
{
    uint32_t *link = &hash[hash_of(s->va, s->level, s->table)], mine;

    while (record(*link - 1) != s)
        link = &record(*link - 1)->next;
    mine = *link;
    *link = s->next;
    list_del(&s->all);
    list_del(&s->frame);
    s->next = free_chain;
    free_chain = mine;
}

bool stale_alive(struct stale *s)
{
    const uint64_t *flushed = s->table ? flushed_structures : flushed_all;
    bool alive = false;

    for (unsigned w = 0; w < SIM_CPU_WORDS; w++) {
        uint64_t left = s->holders[w];

        for (uint64_t bits = left; bits; bits &= bits - 1) {
            unsigned cpu = w * 64 + (unsigned)__builtin_ctzll(bits);

            if (flushed[cpu] > s->stamp)
                left &= ~(bits & -bits);
        }
        s->holders[w] = left;
        alive |= left != 0;
    }
    if (!alive)
        record_drop(s);
    return alive;
}

struct stale *stale_find(uintptr_t va, unsigned level, bool table)
{
    uint32_t i = hash[hash_of(va, level, table)];

    while (i) {
        struct stale *s = record(i - 1);

        i = s->next;
        if (s->va == va && s->level == level && s->table == table && stale_alive(s))
            return s;
    }
    return NULL;
}

struct stale *stale_of_frame(struct frame *f, bool table)
{
    struct stale *s, *tmp;

    if (!f->stale.next)
        return NULL;
    list_for_each_entry_safe (s, tmp, &f->stale, frame)
        if (s->table == table && stale_alive(s))
            return s;
    return NULL;
}

/* CPUs that are halted do not count, but owe a flush before they go on. */
struct stale *stale_in_use(struct stale *s)
{
    bool in_use = false;

    if (!s)
        return NULL;
    for (unsigned cpu = 0; cpu < sim_opt.cpus; cpu++) {
        if (!(s->holders[cpu / 64] >> (cpu % 64) & 1))
            continue;
        if (away[cpu])
            owes[cpu] = oracle_time;
        else
            in_use = true;
    }
    return in_use ? s : NULL;
}

void oracle_idle_begin(unsigned cpu)
{
    if (!oracle_on())
        return;
    oracle_lock();
    away[cpu] = true;
    owes[cpu] = 0;
    oracle_unlock();
}

bool oracle_idle_end(unsigned cpu)
{
    bool was;

    if (!oracle_on())
        return false;
    oracle_lock();
    was = away[cpu];
    if (away[cpu] && owes[cpu] && flushed_all[cpu] <= owes[cpu])
        sim_fail(SIM_REUSE,
                 "CPU %u comes out of HLT with old translations of addresses that were reused",
                 cpu);
    away[cpu] = false;
    oracle_unlock();
    return was;
}

const char *stale_holders(const struct stale *s)
{
    static char text[200];
    size_t n = 0;

    for (unsigned cpu = 0; cpu < sim_opt.cpus && n < sizeof(text) - 8; cpu++)
        if (s->holders[cpu / 64] >> (cpu % 64) & 1)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%u", n ? "," : "", cpu);
    return text;
}

static bool cpu_used(unsigned cpu, uintptr_t va, size_t size)
{
    if (size == PAGE_SIZE)
        return used[cpu][(va >> PAGE_SHIFT) % USED_SLOTS] == va;
    for (unsigned i = 0; i < USED_SLOTS; i++)
        if (used[cpu][i] && used[cpu][i] - va < size)
            return true;
    return false;
}

void stale_make(uintptr_t va, unsigned level, pte_t pte, bool table)
{
    uint32_t index = record_take(), *head;
    struct stale *s = record(index - 1);
    bool any = false;

    *s = (struct stale){.va = va,
                        .pte = pte,
                        .stamp = ++oracle_time,
                        .maker = this_cpu_id(),
                        .level = (uint8_t)level,
                        .table = table};
    for (unsigned cpu = 0; cpu < sim_opt.cpus; cpu++)
        if (sim_opt.caching == SIM_CACHE_WORST || cpu_used(cpu, va, level_size(level)) ||
            (sim_opt.caching == SIM_CACHE_RANDOM && rng_below(&cache_rng, 2))) {
            s->holders[cpu / 64] |= 1ULL << (cpu % 64);
            any = true;
        }
    if (!any) {
        s->next = free_chain;
        free_chain = index;
        return;
    }
    sim_stats.stale_made++;
    head = &hash[hash_of(va, level, table)];
    if (!*head)
        hash_used[hash_used_count++ % HASH_SIZE] = (uint32_t)(head - hash);
    s->next = *head;
    *head = index;
    list_add_tail(&s->all, &stale_records);
    struct frame *f =
        oracle_frame((level > 1 && !table ? pde_leaf_phys(pte) : pte_phys(pte)) >> PAGE_SHIFT);

    list_init(&s->frame);
    if (f) {
        if (!f->stale.next)
            list_init(&f->stale);
        list_add(&s->frame, &f->stale);
    }
}

/* ---- flushing ---- */

static void drop_holder(uintptr_t va, unsigned level, unsigned cpu)
{
    uint32_t i = hash[hash_of(va, level, false)];

    while (i) {
        struct stale *s = record(i - 1);

        i = s->next;
        if (s->va == va && s->level == level && !s->table) {
            s->holders[cpu / 64] &= ~(1ULL << (cpu % 64));
            stale_alive(s);
        }
    }
}

static void flush_pages(unsigned cpu, uintptr_t start, uintptr_t end)
{
    for (uintptr_t va = ALIGN_DOWN(start, PAGE_SIZE); va < end; va += PAGE_SIZE) {
        uintptr_t *slot = &used[cpu][(va >> PAGE_SHIFT) % USED_SLOTS];

        if (*slot == va)
            *slot = 0;
        drop_holder(va, 1, cpu);
        if (va == ALIGN_DOWN(start, PAGE_SIZE) || IS_ALIGNED(va, level_size(2)))
            drop_holder(ALIGN_DOWN(va, level_size(2)), 2, cpu);
        if (va == ALIGN_DOWN(start, PAGE_SIZE) || IS_ALIGNED(va, level_size(3)))
            drop_holder(ALIGN_DOWN(va, level_size(3)), 3, cpu);
    }
}

void oracle_flush(unsigned cpu, uintptr_t start, uintptr_t end, bool full)
{
    if (!oracle_on())
        return;
    oracle_lock();
    sim_stats.flushes++;
    oracle_time++;
    if (full) {
        flushed_all[cpu] = oracle_time;
        memset(used[cpu], 0, sizeof(used[cpu]));
    }
    if (full || start < end)
        flushed_structures[cpu] = oracle_time;
    if (!full)
        flush_pages(cpu, start, end);
    oracle_unlock();
}

/* ---- what calls promise ---- */

uint64_t sim_stale_count(void)
{
    struct stale *s, *tmp;
    uint64_t n = 0;

    oracle_lock();
    list_for_each_entry_safe (s, tmp, &stale_records, all)
        n += !s->table && stale_alive(s) && stale_in_use(s);
    oracle_unlock();
    return n;
}

/* Oracle time at which the CPU's outermost call began, that of what a handler interrupted included.
 */
static uint64_t call_since[SIM_MAX_CPUS];

bool oracle_call_begin(void)
{
    unsigned cpu = this_cpu_id();
    bool outermost;

    if (!oracle_on())
        return false;
    oracle_lock();
    outermost = call_since[cpu] == UINT64_MAX;
    if (outermost)
        call_since[cpu] = oracle_time;
    oracle_unlock();
    return outermost;
}

void oracle_call_end(bool outermost)
{
    if (!outermost)
        return;
    oracle_lock();
    call_since[this_cpu_id()] = UINT64_MAX;
    oracle_unlock();
}

void oracle_aliases_begin(struct oracle_promise *p)
{
    if (!oracle_on())
        return;
    oracle_lock();
    p->time = oracle_time;
    memcpy(p->call_since, call_since, sizeof(call_since));
    oracle_unlock();
}

/* Everything that calls which had returned before the promise began had unmapped must be gone from
 * all CPUs. */
void oracle_aliases_end(const struct oracle_promise *p)
{
    struct stale *s, *tmp;

    if (!oracle_on())
        return;
    oracle_lock();
    list_for_each_entry_safe (s, tmp, &stale_records, all) {
        if (s->stamp > p->time)
            break;
        if (s->table || s->stamp > p->call_since[s->maker] || !stale_alive(s) || !stale_in_use(s))
            continue;
        sim_fail(
            SIM_COVER,
            "vm_unmap_aliases returned, and CPU %s may hold the translation of %#lx (level %u)",
            stale_holders(s), (unsigned long)s->va, s->level);
        break;
    }
    oracle_unlock();
}

/* ---- accesses ---- */

void oracle_used(uintptr_t va)
{
    used[this_cpu_id()][(va >> PAGE_SHIFT) % USED_SLOTS] = va & PAGE_MASK;
}

static bool held_here(struct stale *s)
{
    unsigned cpu = this_cpu_id();

    return s && s->holders[cpu / 64] >> (cpu % 64) & 1;
}

bool oracle_stale_here(uintptr_t va)
{
    for (unsigned level = 1; level <= 3; level++)
        if (held_here(stale_find(ALIGN_DOWN(va, level_size(level)), level, false)))
            return true;
    return false;
}

bool sim_stale_here(uintptr_t va, size_t size)
{
    bool stale = false;

    if (!oracle_on())
        return false;
    oracle_lock();
    for (uintptr_t at = va & PAGE_MASK; at < va + size && !stale; at += PAGE_SIZE)
        stale = oracle_stale_here(at);
    oracle_unlock();
    return stale;
}

void oracle_reset(void)
{
    frame_count = sim_frames();
    if (frame_count > frames_room) {
        free(frames);
        frames = malloc(frame_count * sizeof(*frames));
        if (!frames)
            abort();
        frames_room = frame_count;
    }
    memset(frames, 0, frame_count * sizeof(*frames));
    if (hash_used_count > HASH_SIZE)
        memset(hash, 0, sizeof(hash));
    else
        for (uint32_t i = 0; i < hash_used_count; i++)
            hash[hash_used[i]] = 0;
    hash_used_count = 0;
    free_chain = 0;
    for (uint32_t c = chunk_count; c-- > 0;)
        for (uint32_t i = CHUNK; i-- > 0;) {
            chunks[c][i].next = free_chain;
            free_chain = c * CHUNK + i + 1;
        }
    list_init(&stale_records);
    oracle_time = 0;
    memset(flushed_all, 0, sizeof(flushed_all));
    memset(flushed_structures, 0, sizeof(flushed_structures));
    memset(used, 0, sizeof(used));
    memset(away, true, sizeof(away));
    memset(owes, 0, sizeof(owes));
    memset(call_since, 0xff, sizeof(call_since));
    rng_seed(&cache_rng, sim_opt.seed ^ 0x7261636865ULL);
    oracle_tables_reset();
}
