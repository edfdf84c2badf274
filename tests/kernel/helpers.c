/*
 * helpers.c: see helpers.h.
 */
#include "tests/kernel/helpers.h"
#include "lib/string.h"
#include "mm/vmap.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/tlb.h>

#define WAIT_SECONDS 20
#define EATEN_MAX    256
#define ROOM_PIECE   (64 * 1024UL)

unsigned kt_other_cpu(void)
{
    return kt_cpus() > 1 ? 1 : 0;
}

uint64_t kt_scaled_flushes(uint64_t quick)
{
    return MAX(kt_scaled(quick) / (1 + kt_cpus() / 16), 4UL);
}

unsigned kt_few(void)
{
    return MIN(kt_cpus(), (unsigned)KT_FEW);
}

void kt_on_few(void (*fn)(void *), void *arg)
{
    for (unsigned cpu = 1; cpu < kt_few(); cpu++)
        kt_start(cpu, fn, arg);
    fn(arg);
    for (unsigned cpu = 1; cpu < kt_few(); cpu++)
        kt_join(cpu);
}

struct remote_read {
    const void *addr;
    uint64_t *value;
    bool ok;
};

static void do_read(void *arg)
{
    struct remote_read *r = arg;

    r->ok = kt_read(r->addr, r->value);
}

bool kt_read_on(unsigned cpu, const void *addr, uint64_t *value)
{
    struct remote_read r = {.addr = addr, .value = value};

    kt_on_cpu(cpu, do_read, &r);
    return r.ok;
}

bool kt_pages_get(struct kt_pages *p, unsigned n, uint32_t tag)
{
    p->n = 0;
    p->page = kvmalloc(n * sizeof(*p->page));
    if (p->page)
        p->n = page_alloc_bulk(p->page, n, PAGE_ANY_NODE);
    if (p->n != n) {
        KT_FAIL("no memory for %u pages", n);
        kt_pages_put(p);
        return false;
    }
    for (unsigned i = 0; i < n; i++) {
        uint64_t *word = page_address(p->page[i]);

        for (unsigned j = 0; j < PAGE_SIZE / sizeof(*word); j++)
            word[j] = kt_tag(tag, i);
    }
    return true;
}

void kt_pages_put(struct kt_pages *p)
{
    if (p->page)
        page_free_bulk(p->page, p->n);
    kvfree(p->page);
    p->page = NULL;
    p->n = 0;
}

/* A word that tells its place and the fill it belongs to. */
static uint64_t pattern(size_t word, uint64_t seed)
{
    return (word + seed) * 0x9e3779b97f4a7c15ULL;
}

void kt_fill(void *p, size_t bytes, uint64_t seed)
{
    uint64_t *word = p;

    for (size_t i = 0; i < bytes / sizeof(*word); i++)
        word[i] = pattern(i, seed);
}

bool kt_verify(const void *p, size_t bytes, uint64_t seed)
{
    const uint64_t *word = p;

    for (size_t i = 0; i < bytes / sizeof(*word); i++) {
        if (word[i] != pattern(i, seed)) {
            KT_FAIL("%p + 0x%lx: %lx instead of %lx", p, (unsigned long)(i * sizeof(*word)),
                    (unsigned long)word[i], (unsigned long)pattern(i, seed));
            return false;
        }
    }
    return true;
}

pte_t kt_entry(const void *addr, unsigned *level)
{
    uintptr_t va = (uintptr_t)addr;
    const pte_t *table = kernel_pml4();

    for (unsigned l = 4; l > 0; l--) {
        pte_t e = pte_read(&table[pte_index(va, l)]);

        if (!pte_present(e))
            break;
        if (l == 1 || (l < 4 && pte_leaf(e))) {
            *level = l;
            return e;
        }
        table = pte_table(e);
    }
    *level = 0;
    return 0;
}

static struct kt_flush flush_log[KT_FLUSHES_MAX];
static uint32_t flush_count;

static void log_flush(uintptr_t start, uintptr_t end, bool full)
{
    uint32_t i = ATOMIC_ADD(flush_count, 1u);

    if (i < KT_FLUSHES_MAX)
        flush_log[i] = (struct kt_flush){.start = start, .end = end, .full = full};
}

void kt_flush_log_start(void)
{
    WRITE_ONCE(flush_count, 0);
    tlb_trace = log_flush;
}

unsigned kt_flush_log_stop(void)
{
    tlb_trace = NULL;
    return READ_ONCE(flush_count);
}

const struct kt_flush *kt_flush_at(unsigned i)
{
    return &flush_log[i];
}

bool kt_flush_covers(uintptr_t start, uintptr_t end)
{
    unsigned n = MIN(READ_ONCE(flush_count), (uint32_t)KT_FLUSHES_MAX);

    for (uintptr_t at = start; at < end; at += PAGE_SIZE) {
        unsigned i = 0;

        while (i < n && !flush_log[i].full &&
               (at < flush_log[i].start || at + PAGE_SIZE > flush_log[i].end))
            i++;
        if (i == n)
            return false;
    }
    return true;
}

static struct vm_area **eaten[EATEN_MAX];
static unsigned eaten_count;

static struct vm_area **take(uint64_t size)
{
    size_t offset = 0, bytes = size;

    return pcpu_get_vm_areas(&offset, &bytes, 1, PAGE_SIZE);
}

/* Congruent areas are addresses and nothing else, so that any range can be filled with a few of
 * them. */
bool kt_eat_addresses(uint64_t leave)
{
    struct vm_area **room;
    uint64_t size = 1UL << (fls64(vmap_config.range_size) - 1);

    kt_quiesce();
    room = take(ALIGN_UP(leave, ROOM_PIECE));
    if (!room)
        return false;
    for (; size >= ROOM_PIECE; size /= 2) {
        struct vm_area **a;

        kt_alive();
        while (eaten_count < EATEN_MAX && (a = take(size)) != NULL)
            eaten[eaten_count++] = a;
    }
    pcpu_free_vm_areas(room, 1);
    kt_quiesce();
    return eaten_count < EATEN_MAX;
}

void kt_spit_addresses(void)
{
    while (eaten_count)
        pcpu_free_vm_areas(eaten[--eaten_count], 1);
}

bool kt_wait_for(const uint64_t *word, uint64_t value)
{
    uint64_t begin = clock_us();

    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) {
        tlb_poll();
        cpu_relax();
        kt_alive();
        if (clock_us() - begin > WAIT_SECONDS * 1000000ULL)
            return false;
    }
    return true;
}
