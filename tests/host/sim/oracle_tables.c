/*
 * oracle_tables.c: page tables as the code writes them, and the frames they and the areas are made
 * of.
 *
 * A table is followed from the moment an entry of a followed table leads to it; what it holds then
 * counts as written then. Every rule about entries and frames is checked here, at the write or the
 * hand-over that breaks it.
 */
#include "tests/host/sim/oracle.h"
#include <arch/percpu.h>

static bool owners_known; /* frames come and go through the hooks of sim_api.c */

#define VMAP_END (VMAP_BASE + VMAP_SIZE_MAX)

static void unlink_table(struct frame *f);
static void link_table(pte_t pte, uintptr_t va, unsigned level);

static phys_addr_t leaf_phys(pte_t pte, unsigned level)
{
    return level > 1 ? pde_leaf_phys(pte) : pte_phys(pte);
}

static bool is_leaf(pte_t pte, unsigned level)
{
    return level == 1 || (level < 4 && pte_leaf(pte));
}

/* frames=safe: frames that the allocator keeps for itself pass no hook, but they show when they are
 * mapped. */
static void check_frame_reuse(struct frame *f, uintptr_t va)
{
    struct stale *s;

    if (!sim_opt.frames_safe || f->callers_own)
        return;
    s = stale_in_use(stale_of_frame(f, false));
    if (s && s->va != va)
        sim_fail(SIM_FRAME, "frame %#lx is mapped at %#lx, and CPU %s may still reach it by %#lx",
                 (unsigned long)(f - oracle_frame(0)), (unsigned long)va, stale_holders(s),
                 (unsigned long)s->va);
}

static void count_maps(pte_t pte, uintptr_t va, unsigned level, int by)
{
    uint64_t pfn = leaf_phys(pte, level) >> PAGE_SHIFT;

    for (uint64_t i = 0; i < level_size(level) / PAGE_SIZE; i++) {
        struct frame *f = oracle_frame(pfn + i);

        if (!f)
            return;
        if (by > 0 && owners_known && !f->owned)
            sim_fail(SIM_OWNER, "frame %#lx is mapped, and is with the page allocator",
                     (unsigned long)(pfn + i));
        if (by > 0)
            check_frame_reuse(f, va + i * PAGE_SIZE);
        f->maps += by;
    }
}

/* No CPU may hold an old translation of an address that gets a new one, or none on purpose. */
static void check_reuse(uintptr_t va, unsigned level, const char *what)
{
    struct stale *s = NULL;

    for (unsigned l = level; l <= 3 && !s; l++)
        s = stale_in_use(stale_find(ALIGN_DOWN(va, level_size(l)), l, false));
    if (level == 2)
        for (unsigned i = 0; i < PTE_COUNT && !s; i++)
            s = stale_in_use(stale_find(va + i * PAGE_SIZE, 1, false));
    if (s)
        sim_fail(SIM_REUSE,
                 "%#lx is %s, and CPU %s may hold its old translation (level %u, entry %#lx)",
                 (unsigned long)va, what, stale_holders(s), s->level, (unsigned long)s->pte);
}

static void map_leaf(pte_t pte, uintptr_t va, unsigned level)
{
    struct stale *s;

    if (pte & PTE_G)
        sim_fail(SIM_GLOBAL, "the entry of %#lx is global: %#lx", (unsigned long)va,
                 (unsigned long)pte);
    if ((pte & PTE_W) && !(pte & PTE_NX))
        sim_fail(SIM_WX, "the entry of %#lx is writable and executable: %#lx", (unsigned long)va,
                 (unsigned long)pte);
    check_reuse(va, level, "mapped");
    s = level > 1 ? stale_find(va, level, true) : NULL;
    if (s)
        sim_fail(SIM_TABLE, "a leaf at %#lx, and CPU %s may still walk the old table",
                 (unsigned long)va, stale_holders(s));
    count_maps(pte, va, level, 1);
}

static void unmap_leaf(pte_t pte, uintptr_t va, unsigned level)
{
    count_maps(pte, va, level, -1);
    stale_make(va, level, pte, false);
}

static void entry_appears(pte_t pte, uintptr_t va, unsigned level)
{
    if (va < VMAP_BASE || va >= VMAP_END)
        sim_fail(SIM_TEST, "an entry for %#lx, outside the vmap range", (unsigned long)va);
    if (is_leaf(pte, level))
        map_leaf(pte, va, level);
    else
        link_table(pte, va, level);
}

static void entry_goes(pte_t pte, uintptr_t va, unsigned level)
{
    struct frame *f;

    if (is_leaf(pte, level)) {
        unmap_leaf(pte, va, level);
        return;
    }
    f = oracle_frame(pte_phys(pte) >> PAGE_SHIFT);
    if (f)
        unlink_table(f);
    stale_make(va, level, pte, true);
}

static uintptr_t entry_va(uintptr_t table_va, unsigned index, unsigned level)
{
    uintptr_t va = table_va + index * level_size(level);

    return level == 4 && index >= PTE_COUNT / 2 ? va | 0xffff000000000000UL : va;
}

static void link_table(pte_t pte, uintptr_t va, unsigned level)
{
    uint64_t pfn = pte_phys(pte) >> PAGE_SHIFT;
    struct frame *f = oracle_frame(pfn);
    const pte_t *table = phys_to_virt(pte_phys(pte));
    struct stale *s;

    if (!f)
        sim_fail(SIM_TABLE, "the table for %#lx is not RAM: %#lx", (unsigned long)va,
                 (unsigned long)pte);
    if (f->links)
        sim_fail(SIM_TABLE, "frame %#lx is a table at two places", (unsigned long)pfn);
    if (owners_known && !f->owned)
        sim_fail(SIM_OWNER, "table %#lx is with the page allocator", (unsigned long)pfn);
    s = stale_find(va, level, true);
    if (s && pte_phys(s->pte) != pte_phys(pte))
        sim_fail(SIM_TABLE, "a new table for %#lx, and CPU %s may still walk the old one",
                 (unsigned long)va, stale_holders(s));
    s = stale_of_frame(f, true);
    if (s && s->va != va)
        sim_fail(SIM_TABLE, "table %#lx moves to %#lx, and CPU %s may still walk it for %#lx",
                 (unsigned long)pfn, (unsigned long)va, stale_holders(s), (unsigned long)s->va);
    f->links = 1;
    f->table = true;
    f->level = (uint8_t)(level - 1);
    f->va = va;
    for (unsigned i = 0; i < PTE_COUNT; i++)
        if (pte_present(table[i]))
            entry_appears(table[i], entry_va(va, i, level - 1), level - 1);
}

static void unlink_table(struct frame *f)
{
    const pte_t *table = phys_to_virt((uint64_t)(f - oracle_frame(0)) << PAGE_SHIFT);
    unsigned level = f->level;

    f->links = 0;
    f->level = 0;
    for (unsigned i = 0; i < PTE_COUNT; i++)
        if (pte_present(table[i]))
            entry_goes(table[i], entry_va(f->va, i, level), level);
}

/* A leaf that becomes a table of the same frames and rights is no change of any translation. */
static bool is_split(pte_t leaf, pte_t table_pte, unsigned level)
{
    const pte_t *table = phys_to_virt(pte_phys(table_pte));
    pte_t rights = leaf & ~(PTE_ADDR | PTE_PS);

    for (unsigned i = 0; i < PTE_COUNT; i++)
        if (table[i] != ((leaf_phys(leaf, level) + i * level_size(level - 1)) | rights))
            return false;
    return true;
}

static void split_leaf(pte_t leaf, pte_t table_pte, uintptr_t va, unsigned level)
{
    struct frame *f = oracle_frame(pte_phys(table_pte) >> PAGE_SHIFT);

    if (!f || f->links)
        sim_fail(SIM_TABLE, "a bad table for the split of %#lx", (unsigned long)va);
    f->links = 1;
    f->table = true;
    f->level = (uint8_t)(level - 1);
    f->va = va;
    (void)leaf;
}

static void entry_changes(pte_t old, pte_t new, uintptr_t va, unsigned level)
{
    pte_t harmless = PTE_A | PTE_D;

    if ((old & ~harmless) == (new & ~harmless))
        return;
    if (is_leaf(old, level) && is_leaf(new, level) &&
        leaf_phys(old, level) == leaf_phys(new, level)) {
        unmap_leaf(old, va, level);
        count_maps(new, va, level, 1);
        return;
    }
    if (level == 2 && is_leaf(old, level) && !is_leaf(new, level) && is_split(old, new, level)) {
        split_leaf(old, new, va, level);
        return;
    }
    sim_fail(SIM_OVERWRITE,
             "the entry of %#lx (level %u) changes from %#lx to %#lx while it is live",
             (unsigned long)va, level, (unsigned long)old, (unsigned long)new);
}

/* With the oracle's lock, before the store. */
static void entry_written(pte_t *p, pte_t old, pte_t new)
{
    phys_addr_t pa = virt_to_phys(p);
    struct frame *f = oracle_frame(pa >> PAGE_SHIFT);
    uintptr_t va;

    sim_stats.pte_writes++;
    if (!f)
        sim_fail(SIM_TEST, "an entry outside RAM is written");
    f->table = true;
    if (!f->level)
        return;
    va = entry_va(f->va, (pa & (PAGE_SIZE - 1)) / sizeof(pte_t), f->level);
    if (pte_present(old) && pte_present(new))
        entry_changes(old, new, va, f->level);
    else if (pte_present(old))
        entry_goes(old, va, f->level);
    else if (pte_present(new))
        entry_appears(new, va, f->level);
}

static uint32_t lost; /* entries cleared, for SIM_MUTATE_LOST_CLEAR */

static pte_t mutate(pte_t old, pte_t new)
{
    bool leaf = pte_present(new) && (new &PTE_D);

    if (sim_opt.mutation == SIM_MUTATE_GLOBAL && leaf)
        return new | PTE_G;
    if (sim_opt.mutation == SIM_MUTATE_WX && leaf)
        return (new | PTE_W) & ~PTE_NX;
    if (sim_opt.mutation == SIM_MUTATE_LOST_CLEAR && pte_present(old) && !new && ++lost % 64 == 0)
        return old;
    return new;
}

void pte_write(pte_t *p, pte_t v)
{
    sim_point();
    if (!oracle_on()) {
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
        return;
    }
    oracle_lock();
    v = mutate(*p, v);
    entry_written(p, *p, v);
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
    oracle_unlock();
}

bool pte_cas(pte_t *p, pte_t *expected, pte_t v)
{
    bool done;

    sim_point();
    if (!oracle_on())
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE);
    oracle_lock();
    if (*p == *expected)
        entry_written(p, *p, v);
    done = __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    oracle_unlock();
    return done;
}

/* A walker must not be in a table that has gone back (case D3). On x86 what it reads next depends
 * on the entry, which orders the two; acquire says the same to TSan. */
pte_t pte_read(const pte_t *p)
{
    struct frame *f;

    sim_point();
    if (!oracle_on())
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    f = oracle_frame(virt_to_phys(p) >> PAGE_SHIFT);
    if (!f || !f->table)
        sim_fail(SIM_TABLE, "frame %#lx is walked as a table and is none",
                 (unsigned long)(virt_to_phys(p) >> PAGE_SHIFT));
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

/* ---- frames ---- */

void oracle_frames_taken(uint64_t pfn, uint64_t n)
{
    if (!oracle_on())
        return;
    oracle_lock();
    owners_known = true;
    sim_frames_touched(pfn, n);
    for (uint64_t i = 0; i < n; i++) {
        struct frame *f = oracle_frame(pfn + i);

        if (!f || f->owned)
            sim_fail(SIM_OWNER, "frame %#lx is given out, and %s", (unsigned long)(pfn + i),
                     f ? "has an owner" : "is not RAM");
        f->owned = true;
        f->callers_own = false;
    }
    oracle_unlock();
}

static void check_free(uint64_t pfn)
{
    struct frame *f = oracle_frame(pfn), *huge = oracle_frame(ALIGN_DOWN(pfn, (uint64_t)PTE_COUNT));
    struct stale *s;

    if (!f || !f->owned)
        sim_fail(SIM_OWNER, "frame %#lx is freed, and %s", (unsigned long)pfn,
                 f ? "is free" : "is not RAM");
    if (f->maps)
        sim_fail(SIM_MAPPED, "frame %#lx is freed, and %d entries map it", (unsigned long)pfn,
                 f->maps);
    if (f->links)
        sim_fail(SIM_TABLE, "table %#lx of %#lx is freed while it is in place", (unsigned long)pfn,
                 (unsigned long)f->va);
    s = stale_of_frame(f, true);
    if (s)
        sim_fail(SIM_TABLE, "table %#lx is freed, and CPU %s may still walk it for %#lx",
                 (unsigned long)pfn, stale_holders(s), (unsigned long)s->va);
    if (!sim_opt.frames_safe || f->callers_own)
        return;
    s = stale_in_use(stale_of_frame(f, false));
    if (!s) {
        s = stale_of_frame(huge, false);
        s = s && s->level > 1 ? stale_in_use(s) : NULL;
    }
    if (s)
        sim_fail(SIM_FRAME, "frame %#lx is freed, and CPU %s may still reach it by %#lx",
                 (unsigned long)pfn, stale_holders(s), (unsigned long)s->va);
}

void oracle_frames_freed(uint64_t pfn, uint64_t n)
{
    if (!oracle_on())
        return;
    oracle_lock();
    for (uint64_t i = 0; i < n; i++) {
        struct frame *f;

        check_free(pfn + i);
        f = oracle_frame(pfn + i);
        f->owned = false;
        f->table = false;
    }
    oracle_unlock();
}

void sim_frame_callers_own(const struct page *page)
{
    if (!oracle_on())
        return;
    oracle_lock();
    oracle_frame(page_to_pfn(page))->callers_own = true;
    oracle_unlock();
}

void sim_check_handed_out(uintptr_t va, size_t size)
{
    if (!oracle_on())
        return;
    oracle_lock();
    for (uintptr_t at = va & PAGE_MASK; at < va + size; at += PAGE_SIZE)
        check_reuse(at, 1, "handed out");
    oracle_unlock();
}

/* ---- accesses ---- */

static bool translate(uintptr_t va, bool write, phys_addr_t *pa)
{
    const pte_t *table = kernel_pml4();
    bool writable = true;

    for (unsigned level = 4;; level--) {
        pte_t e = __atomic_load_n(&table[pte_index(va, level)], __ATOMIC_ACQUIRE);

        if (!pte_present(e))
            return false;
        writable &= (e & PTE_W) != 0;
        if (is_leaf(e, level)) {
            *pa = leaf_phys(e, level) + (va & (level_size(level) - 1));
            return writable || !write;
        }
        table = pte_table(e);
    }
}

/* The address's place in RAM for this CPU; NULL: fault. MMIO reads as nothing and swallows writes.
 */
static uint64_t *access_at(uintptr_t va, bool write)
{
    static __thread uint64_t mmio;
    phys_addr_t pa;
    bool ok;

    sim_point();
    if (va < VMAP_BASE || va >= VMAP_END || va % sizeof(uint64_t))
        return NULL;
    if (!oracle_on())
        return translate(va, write, &pa) ? phys_to_virt(pa) : NULL;
    oracle_lock();
    if (oracle_stale_here(va))
        sim_fail(SIM_STALE_ACCESS, "an access to %#lx goes through a stale translation",
                 (unsigned long)va);
    ok = translate(va, write, &pa);
    if (ok)
        oracle_used(va);
    oracle_unlock();
    if (!ok)
        return NULL;
    mmio = UINT64_MAX;
    return oracle_frame(pa >> PAGE_SHIFT) ? phys_to_virt(pa) : &mmio;
}

bool sim_read8(uintptr_t va, uint64_t *value)
{
    const uint64_t *p = access_at(va, false);

    if (p)
        *value = __atomic_load_n(p, __ATOMIC_RELAXED);
    return p;
}

bool sim_write8(uintptr_t va, uint64_t value)
{
    uint64_t *p = access_at(va, true);

    if (p)
        __atomic_store_n(p, value, __ATOMIC_RELAXED);
    return p;
}

void oracle_tables_reset(void)
{
    struct frame *root = oracle_frame(virt_to_phys(kernel_pml4()) >> PAGE_SHIFT);

    owners_known = false;
    lost = 0;
    root->table = true;
    root->links = 1;
    root->level = 4;
    root->owned = true;
}
