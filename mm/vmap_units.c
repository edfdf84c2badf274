/*
 * vmap_units.c: large areas of the designs with the table: whole 2 MiB units, from and to a cache
 * of each CPU.
 *
 * A run is the units of one area, with its object, its page-table pages and its entries in the
 * table's leaves made. Freed runs wait in the cache of the CPU that freed them for their flush
 * generation, oldest first; then they are ready, sorted by length, and above a bound they go back
 * to the free tree. A cache has a lock that its CPU alone takes, except when somebody is short of
 * addresses, asks for a flush, or takes the allocator down. Any context but NMI.
 */
#include "lib/assert.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/page_alloc.h"
#include "mm/vmap_frames.h"
#include "mm/vmap_internal.h"
#include <arch/clock.h>
#include <arch/smp.h>
#include <arch/tlb_gen.h>

/* Freed units of a CPU, which wait or need not any more, before some go back: at most so many, and
 * over all CPUs so many that their page-table pages are this part of memory. A CPU frees hundreds
 * while others are off their host's cores, and no generation passes. */
#define FREED_MAX    512u
#define MEMORY_SHARE 16
/* All caches together hold at most this part of the range. */
#define RANGE_SHARE 8
/* Freed units of a CPU that begin a generation. */
#define ADVANCE_UNITS 8u
/* Units taken from the tree at once. */
#define REFILL_UNITS 16u
/* Runs that one operation moves. */
#define STEP 16
/* After so long late CPUs are interrupted, if half of what may wait on a CPU does. */
#define DEADLINE_US 1000000

/* Runs with leaves have no page-table pages, and would have to get rid of them. */
enum run_kind { RUN_TABLES, RUN_LEAVES, RUN_KINDS };
#define RUN_CLASSES (RUN_KINDS * UNITS_MAX)

struct units_cache {
    struct spinlock lock;
    uint32_t ready_units, waiting_units;
    uint32_t nonempty; /* bit c: ready[c] has runs */
    uint32_t stamped_units;
    uint64_t last_stamp, advanced_at;
    uint64_t kept_frames; /* of runs that wait, frames=safe */
    struct list_head waiting;
    struct list_head ready[RUN_CLASSES];
} __cacheline;
_Static_assert(RUN_CLASSES <= 32, "a bit for each class");

static struct lock_class cache_class = {.name = "vmap_units.cache"};
static DEFINE_PER_CPU(struct units_cache, units_cache);

bool vmap_units_on __read_mostly;
static unsigned keep_units __read_mostly;    /* ready units of a CPU */
static unsigned freed_units __read_mostly;   /* freed ones, before some go back */
static unsigned wait_units __read_mostly;    /* freed ones, before who frees waits for late CPUs */
static unsigned advance_units __read_mostly; /* freed ones that begin a generation */
static uint64_t kept_share __read_mostly;    /* frames=safe: that may wait on a CPU */

static inline unsigned run_units(const struct vm_area *a)
{
    return (unsigned)((a->end - a->start) / BLOCK_SIZE);
}

static inline unsigned run_class(unsigned units, bool leaves)
{
    return (leaves ? RUN_LEAVES : RUN_TABLES) * UNITS_MAX + units - 1;
}

/* With the number of CPUs. */
static void set_bounds(void)
{
    uint64_t fair = vmap_config.range_size / BLOCK_SIZE / RANGE_SHARE / smp_cpus();
    uint64_t freed;

    keep_units = (unsigned)MIN((uint64_t)vmap_keep_each(), DIV_ROUND_UP(fair, 2));
    freed = MIN((uint64_t)FREED_MAX, page_total() / MEMORY_SHARE / smp_cpus());
    freed_units = (unsigned)MIN(freed, fair - keep_units);
    /* Not less in a small range: who is short of addresses waits in any case. */
    wait_units = (unsigned)MAX(freed * 2, (uint64_t)UNITS_MAX * 4);
    advance_units = MIN(ADVANCE_UNITS, MAX(keep_units / 2, 1u));
    kept_share = purge_lazy_limit() / smp_cpus();
}

void units_init(void)
{
    vmap_units_on = vmap_config.index_table && !vmap_config.search_walk &&
                    !vmap_config.insert_twice && !vmap_config.purge_eager;
}

void units_cpu_init(unsigned cpu)
{
    struct units_cache *c = per_cpu_ptr(&units_cache, cpu);

    memset(c, 0, sizeof(*c));
    spin_init(&c->lock, &cache_class);
    list_init(&c->waiting);
    for (unsigned i = 0; i < RUN_CLASSES; i++)
        list_init(&c->ready[i]);
    set_bounds();
}

/* ---- with the cache's lock ---- */

static struct vm_area *pop_ready(struct units_cache *c, unsigned class)
{
    struct vm_area *a;

    if (!(c->nonempty >> class & 1))
        return NULL;
    a = list_first_entry(&c->ready[class], struct vm_area, list);
    list_del(&a->list);
    c->ready_units -= run_units(a);
    if (list_empty(&c->ready[class]))
        c->nonempty &= ~(1u << class);
    return a;
}

/* Makes a ready. Above the bound a run of another length leaves for it, which nobody asks for as it
 * seems, else a itself. */
static void push_ready(struct units_cache *c, struct vm_area *a, struct list_head *surplus)
{
    unsigned class = run_class(run_units(a), a->leaves), others;

    a->kind = VM_KIND_NONE;
    while (c->ready_units + run_units(a) > keep_units) {
        others = c->nonempty & ~(1u << class);
        if (!others) {
            list_add_tail(&a->list, surplus);
            return;
        }
        list_add_tail(&pop_ready(c, (unsigned)__builtin_ctz(others))->list, surplus);
    }
    list_add(&a->list, &c->ready[class]);
    c->nonempty |= 1u << class;
    c->ready_units += run_units(a);
}

/* Detaches the oldest run that waits, if its generation has passed. */
static struct vm_area *pop_passed(struct units_cache *c)
{
    struct vm_area *a;

    if (list_empty(&c->waiting))
        return NULL;
    a = list_first_entry(&c->waiting, struct vm_area, list);
    if (!tlb_gen_passed(a->stamp))
        return NULL;
    list_del(&a->list);
    SUB_ONCE(c->waiting_units, run_units(a));
    if (a->keeps_frames)
        SUB_ONCE(c->kept_frames, a->nr_pages);
    return a;
}

/* Up to `most` runs whose generation has passed become ready; those with frames of their own go
 * onto `kept`, since frames are not freed under a lock. False: that were all. */
static bool recycle(struct units_cache *c, unsigned most, struct list_head *surplus,
                    struct list_head *kept)
{
    struct vm_area *a;

    for (; most; most--) {
        a = pop_passed(c);
        if (!a)
            return false;
        if (unlikely(a->keeps_frames))
            list_add_tail(&a->list, kept);
        else
            push_ready(c, a, surplus);
    }
    return true;
}

/* ---- without ---- */

static void free_kept(struct units_cache *c, struct list_head *surplus, struct list_head *kept)
{
    struct vm_area *a, *tmp;
    unsigned long flags;

    list_for_each_entry_safe (a, tmp, kept, list) {
        ptmap_free_kept(a->start, a->end);
        a->keeps_frames = false;
        flags = spin_lock_irqsave(&c->lock);
        push_ready(c, a, surplus);
        spin_unlock_irqrestore(&c->lock, flags);
    }
}

static void give_surplus(struct list_head *surplus)
{
    if (!list_empty(surplus))
        area_space_give_list(surplus);
}

/* Up to `n` more objects onto `list`. */
static unsigned make_objects(struct list_head *list, unsigned n)
{
    unsigned made;
    struct vm_area *a;

    for (made = 0; made < n && (a = area_new()) != NULL; made++)
        list_add_tail(&a->list, list);
    return made;
}

static void delete_objects(struct list_head *list)
{
    struct vm_area *a, *tmp;

    list_for_each_entry_safe (a, tmp, list, list)
        area_delete(a);
    list_init(list);
}

/* Cuts `rest`, as many runs of `size` bytes as there are objects, off the end of `first`. */
static void cut_runs(struct vm_area *first, struct list_head *rest, uint64_t size, bool leaves)
{
    uintptr_t at = first->end = first->start + size;
    struct vm_area *a;

    list_for_each_entry (a, rest, list) {
        a->start = at;
        a->end = at += size;
        a->pool = VMAP_NO_POOL;
        a->leaves = leaves;
    }
}

/* One run for the caller, and more of that length for the cache, in one piece from the tree. NULL:
 * none to be had in this way. */
static struct vm_area *refill(struct units_cache *c, unsigned units, bool leaves)
{
    uint64_t size = (uint64_t)units * BLOCK_SIZE;
    struct vm_area *first = area_new(), *a, *tmp;
    struct list_head rest, surplus;
    unsigned long flags;
    unsigned more;

    if (!first)
        return NULL;
    list_init(&rest);
    list_init(&surplus);
    more = make_objects(&rest, MAX(MIN(REFILL_UNITS, keep_units) / units, 1u) - 1);
    if (area_space_take(first, size * (more + 1), BLOCK_SIZE) != OK) {
        delete_objects(&rest);
        if (area_space_take(first, size, BLOCK_SIZE) != OK) {
            area_delete(first);
            return NULL;
        }
    }
    first->pool = VMAP_NO_POOL;
    if (table_reserve(first->start, first->end) != OK) {
        area_space_give(first);
        delete_objects(&rest);
        return NULL;
    }
    cut_runs(first, &rest, size, leaves);
    flags = spin_lock_irqsave(&c->lock);
    list_for_each_entry_safe (a, tmp, &rest, list)
        push_ready(c, a, &surplus);
    spin_unlock_irqrestore(&c->lock, flags);
    give_surplus(&surplus);
    return first;
}

struct vm_area *units_take(uint64_t size, bool leaves)
{
    unsigned class = run_class((unsigned)(size / BLOCK_SIZE), leaves);
    struct list_head surplus, kept;
    struct units_cache *c;
    struct vm_area *a;
    unsigned long flags;

    if (size > UNITS_MAX * BLOCK_SIZE)
        return NULL;
    tlb_gen_check();
    flags = irq_save();
    c = this_cpu_ptr(&units_cache);
    spin_lock(&c->lock);
    a = pop_ready(c, class);
    if (likely(a)) {
        spin_unlock_irqrestore(&c->lock, flags);
        return a;
    }
    list_init(&surplus);
    list_init(&kept);
    recycle(c, STEP, &surplus, &kept);
    a = pop_ready(c, class);
    spin_unlock_irqrestore(&c->lock, flags);
    if (!list_empty(&kept)) {
        free_kept(c, &surplus, &kept);
        flags = spin_lock_irqsave(&c->lock);
        if (!a)
            a = pop_ready(c, class);
        spin_unlock_irqrestore(&c->lock, flags);
    }
    give_surplus(&surplus);
    return a ? a : refill(c, (unsigned)(size / BLOCK_SIZE), leaves);
}

/* frames=safe: frames that wait in all caches. */
static uint64_t kept_total(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(per_cpu_ptr(&units_cache, cpu)->kept_frames);
    return sum;
}

/* More waits here than should: reminds who is late, and waits where there is no other bound. */
static void press_laggards(struct units_cache *c, uint64_t stamp)
{
    bool wait = READ_ONCE(c->waiting_units) >= wait_units;

    tlb_gen_advance(stamp);
    tlb_gen_check();
    if (!wait && READ_ONCE(c->kept_frames) > kept_share)
        wait = kept_total() > purge_lazy_limit();
    if (wait) {
        tlb_gen_sync(stamp);
    } else if (READ_ONCE(c->waiting_units) >= wait_units / 2 &&
               rdtsc() - READ_ONCE(c->advanced_at) > clock_us_to_cycles(DEADLINE_US)) {
        WRITE_ONCE(c->advanced_at, rdtsc());
        tlb_gen_kick(stamp, false);
    }
}

/* With the lock: a waits, stamped. True: its generation should begin. */
static bool push_waiting(struct units_cache *c, struct vm_area *a)
{
    unsigned units = run_units(a);

    a->stamp = tlb_gen_stamp();
    list_add_tail(&a->list, &c->waiting);
    ADD_ONCE(c->waiting_units, units);
    if (a->keeps_frames)
        ADD_ONCE(c->kept_frames, a->nr_pages);
    if (c->last_stamp != a->stamp) {
        c->last_stamp = a->stamp;
        c->stamped_units = 0;
    }
    c->stamped_units += units;
    return c->stamped_units >= advance_units || c->kept_frames > kept_share / 2;
}

bool units_give(struct vm_area *a)
{
    struct list_head surplus, kept;
    struct units_cache *c;
    unsigned long flags;
    uint64_t stamp;
    bool advance;

    if (a->end - a->start > UNITS_MAX * BLOCK_SIZE || !IS_ALIGNED(a->start | a->end, BLOCK_SIZE) ||
        a->kind == VM_KIND_PCPU)
        return false;
    flags = irq_save();
    c = this_cpu_ptr(&units_cache);
    spin_lock(&c->lock);
    advance = push_waiting(c, a);
    stamp = c->last_stamp;
    if (advance && c->waiting_units < wait_units / 2)
        WRITE_ONCE(c->advanced_at, rdtsc());
    spin_unlock_irqrestore(&c->lock, flags);
    if (advance)
        tlb_gen_advance(stamp);
    if (likely(READ_ONCE(c->waiting_units) <= freed_units &&
               READ_ONCE(c->kept_frames) <= kept_share))
        return true;
    /* Above the bound: what can go, goes. */
    tlb_gen_check();
    list_init(&surplus);
    list_init(&kept);
    flags = spin_lock_irqsave(&c->lock);
    recycle(c, STEP, &surplus, &kept);
    spin_unlock_irqrestore(&c->lock, flags);
    free_kept(c, &surplus, &kept);
    if (!list_empty(&surplus)) {
        give_surplus(&surplus);
        /* Units with tables are wanted again soon: not at each turn. */
        if (!in_irq() && ptmap_pages() > page_total() / MEMORY_SHARE)
            purge_reclaim_tables_if_many();
    }
    if (READ_ONCE(c->waiting_units) >= wait_units / 2 || READ_ONCE(c->kept_frames) > kept_share)
        press_laggards(c, stamp);
    return true;
}

/* ---- for everybody ---- */

void units_recycle_all(void)
{
    struct list_head surplus, kept;
    unsigned long flags;
    unsigned cpu;
    bool more;

    if (!vmap_units_on)
        return;
    list_init(&surplus);
    for_each_cpu (cpu) {
        struct units_cache *c = per_cpu_ptr(&units_cache, cpu);

        if (!READ_ONCE(c->waiting_units))
            continue;
        list_init(&kept);
        do {
            flags = spin_lock_irqsave(&c->lock);
            more = recycle(c, STEP, &surplus, &kept);
            spin_unlock_irqrestore(&c->lock, flags);
        } while (more);
        free_kept(c, &surplus, &kept);
        give_surplus(&surplus);
    }
}

void units_drain_all(void)
{
    struct list_head ready, waiting;
    struct vm_area *a, *tmp;
    unsigned long flags;
    unsigned cpu;

    if (!vmap_units_on)
        return;
    for_each_cpu (cpu) {
        struct units_cache *c = per_cpu_ptr(&units_cache, cpu);

        list_init(&ready);
        list_init(&waiting);
        flags = spin_lock_irqsave(&c->lock);
        for (unsigned i = 0; i < RUN_CLASSES; i++)
            list_splice_tail_init(&c->ready[i], &ready);
        list_splice_tail_init(&c->waiting, &waiting);
        c->nonempty = 0;
        c->ready_units = 0;
        WRITE_ONCE(c->waiting_units, 0);
        WRITE_ONCE(c->kept_frames, 0);
        spin_unlock_irqrestore(&c->lock, flags);
        give_surplus(&ready);
        list_for_each_entry_safe (a, tmp, &waiting, list) {
            list_del(&a->list);
            purge_lazy_count((a->end - a->start) >> PAGE_SHIFT);
            node_lazy_add(a);
        }
    }
}

bool units_find_freed(uintptr_t addr, struct vm_area *copy)
{
    bool hit = false;
    unsigned cpu;

    if (!vmap_units_on)
        return false;
    for_each_cpu (cpu) {
        struct units_cache *c = per_cpu_ptr(&units_cache, cpu);
        unsigned long flags = irq_save();
        struct vm_area *a;

        if (spin_trylock(&c->lock)) {
            list_for_each_entry (a, &c->waiting, list) {
                if (addr < a->start || addr >= a->end)
                    continue;
                *copy = *a;
                hit = true;
                break;
            }
            spin_unlock(&c->lock);
        }
        irq_restore(flags);
        if (hit)
            return true;
    }
    return false;
}

/* ---- frames ---- */

/* The stacks of ready frames are for task context, and for what nobody must look at. */
static bool frames_ready(void)
{
    return !tlb_gen_fast_forbidden() && !in_irq();
}

bool units_can_fill(unsigned flags, int node)
{
    return frames_ready() && node < 0 && !(flags & ~(unsigned)(VM_ZERO | VM_NO_GUARD));
}

bool units_fill(struct vm_area *a, uint64_t pages, bool zero)
{
    struct vmap_frames *f = this_cpu_ptr(&vmap_frames);
    uintptr_t va = a->start;

    while (pages) {
        unsigned left = (unsigned)MIN(pages, (uint64_t)BLOCK_PAGES), n;
        pte_t *entry = ptmap_table_for(va);

        pages -= left;
        for (; entry && left; left -= n, entry += n, va += n * PAGE_SIZE) {
            n = MIN(left, (unsigned)PBLOCK_MAX_ALLOC);
            if (f->n < n && !frames_fill(n))
                break;
            f->n -= n;
            for (unsigned i = 0; zero && i < n; i++)
                memset(phys_to_virt(pte_phys(f->entry[f->n + i])), 0, PAGE_SIZE);
            frames_to_table(entry, &f->entry[f->n], n);
        }
        if (left) {
            vmap_unmap_owned(a, va);
            return false;
        }
    }
    a->plain = true;
    return true;
}

bool units_empty(struct vm_area *a)
{
    struct vmap_frames *f = this_cpu_ptr(&vmap_frames);
    uint64_t pages = a->nr_pages;
    uintptr_t va = a->start;

    if (!frames_ready() || !frames_room(1))
        return false;
    while (pages) {
        unsigned left = (unsigned)MIN(pages, (uint64_t)BLOCK_PAGES), n;
        pte_t *entry = ptmap_table_for(va);

        pages -= left;
        va += left * PAGE_SIZE;
        for (; left; left -= n, entry += n) {
            n = MIN(left, (unsigned)PBLOCK_MAX_ALLOC);
            frames_room(n);
            frames_from_table(&f->entry[f->n], entry, n);
            f->n += n;
        }
    }
    return true;
}

/* ---- counting and checking ---- */

uint64_t units_waiting_pages(void)
{
    uint64_t sum = 0;
    unsigned cpu;

    for_each_cpu (cpu)
        sum += READ_ONCE(per_cpu_ptr(&units_cache, cpu)->waiting_units);
    return sum * BLOCK_PAGES;
}

static const char *check_run(const struct vm_area *a)
{
    if (!IS_ALIGNED(a->start | a->end, BLOCK_SIZE) || a->end <= a->start)
        return "a run that is not whole units";
    for (uintptr_t at = a->start; at < a->end; at += BLOCK_SIZE)
        if (table_lookup(at)->owner_type != OWNER_NOBODY)
            return "a cached unit that somebody owns";
    return NULL;
}

static const char *check_cache(struct units_cache *c, uint64_t *bytes)
{
    uint64_t ready = 0, waiting = 0, kept = 0, last = 0;
    const char *wrong = NULL;
    uint32_t nonempty = 0;
    struct vm_area *a;

    for (unsigned i = 0; i < RUN_CLASSES; i++) {
        list_for_each_entry (a, &c->ready[i], list) {
            nonempty |= 1u << i;
            if (!wrong && (run_class(run_units(a), a->leaves) != i || a->keeps_frames))
                wrong = "a ready run in the wrong list";
            wrong = wrong ? wrong : check_run(a);
            ready += run_units(a);
        }
    }
    list_for_each_entry (a, &c->waiting, list) {
        wrong = wrong ? wrong : check_run(a);
        if (!wrong && a->stamp < last)
            wrong = "stamps that fall";
        last = a->stamp;
        waiting += run_units(a);
        kept += a->keeps_frames ? a->nr_pages : 0;
    }
    if (!wrong && (ready != c->ready_units || waiting != c->waiting_units ||
                   kept != c->kept_frames || nonempty != c->nonempty || ready > keep_units))
        wrong = "units miscounted, or more than may be";
    *bytes += (ready + waiting) * BLOCK_SIZE;
    return wrong;
}

bool units_check(uint64_t *bytes)
{
    const char *wrong = NULL, *w;
    unsigned cpu;

    *bytes = 0;
    if (!vmap_units_on)
        return true;
    for_each_cpu (cpu) {
        struct units_cache *c = per_cpu_ptr(&units_cache, cpu);

        w = check_cache(c, bytes);
        wrong = w ? w : wrong;
    }
    if (wrong)
        kprintf("# selfcheck: cached units: %s\n", wrong);
    return !wrong;
}
