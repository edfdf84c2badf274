/*
 * ptbuild.c: see ptbuild.h. Entry formats: SDM 3A 4.5.
 */
#include <arch/ptbuild.h>

#include "lib/string.h"

#define WX_REPORT_MAX 8

struct wx_walk {
    const struct pt_build *b;
    void (*report)(uintptr_t va, pte_t leaf);
    uint64_t found;
};

static uintptr_t level_size(unsigned level)
{
    return 1UL << (PAGE_SHIFT + 9 * (level - 1));
}

static pte_t *table_of(const struct pt_build *b, pte_t entry)
{
    return b->to_virt(entry & PTE_ADDR);
}

static phys_addr_t new_table(struct pt_build *b, phys_addr_t max)
{
    phys_addr_t pa = b->alloc(PAGE_SIZE, PAGE_SIZE, max);

    if (!pa)
        return 0;
    memset(b->to_virt(pa), 0, PAGE_SIZE);
    b->tables++;
    return pa;
}

/* The largest level at which one leaf can map the start of the rest. */
static unsigned leaf_level(const struct pt_build *b, uintptr_t va, phys_addr_t pa, size_t size)
{
    unsigned level;

    for (level = b->gbpages ? 3 : 2; level > 1; level--) {
        if (IS_ALIGNED(va | pa, level_size(level)) && size >= level_size(level))
            break;
    }
    return level;
}

/* The entry for va at `level`, with the tables above it made as needed. */
static err_t entry_make(struct pt_build *b, uintptr_t va, unsigned level, pte_t **out)
{
    pte_t *table = b->to_virt(b->root);
    unsigned l;

    for (l = b->levels; l > level; l--) {
        pte_t *e = &table[pte_index(va, l)];
        pte_t v = pte_read(e);

        if (!pte_present(v)) {
            phys_addr_t pa = new_table(b, b->table_max);

            if (!pa)
                return ERR_NOMEM;
            v = pa | PTE_TABLE;
            pte_write(e, v);
        } else if (l <= 3 && pte_leaf(v)) {
            return ERR_BUSY;
        }
        table = table_of(b, v);
    }
    *out = &table[pte_index(va, level)];
    return OK;
}

err_t pt_init(struct pt_build *b, phys_addr_t root_max)
{
    b->tables = 0;
    memset(b->leaves, 0, sizeof(b->leaves));
    b->root = new_table(b, root_max);
    return b->root ? OK : ERR_NOMEM;
}

err_t pt_map(struct pt_build *b, uintptr_t va, phys_addr_t pa, size_t size, pgprot_t prot)
{
    if (!IS_ALIGNED(va | pa | size, PAGE_SIZE) || va + size < va || pa + size < pa ||
        pa + size > PTE_ADDR + PAGE_SIZE)
        return ERR_INVAL;

    while (size) {
        unsigned level = leaf_level(b, va, pa, size);
        pte_t *e;
        err_t err;

        /* A table that is there already is used, so that ranges which share one need no order. */
        for (;; level--) {
            err = entry_make(b, va, level, &e);
            if (err != OK)
                return err;
            if (!pte_present(pte_read(e)))
                break;
            if (level == 1 || pte_leaf(pte_read(e)))
                return ERR_BUSY;
        }
        pte_write(e, pa | prot | (level > 1 ? PTE_PS : 0));
        b->leaves[level]++;
        va += level_size(level);
        pa += level_size(level);
        size -= level_size(level);
    }
    return OK;
}

bool pt_walk(const struct pt_build *b, uintptr_t va, pte_t *leaf, unsigned *level)
{
    const pte_t *table = b->to_virt(b->root);
    unsigned l;

    for (l = b->levels; l >= 1; l--) {
        pte_t v = pte_read(&table[pte_index(va, l)]);

        if (!pte_present(v))
            return false;
        if (l == 1 || (l <= 3 && pte_leaf(v))) {
            *leaf = v;
            *level = l;
            return true;
        }
        table = table_of(b, v);
    }
    return false;
}

/* `rights` has PTE_W while every entry above allows writing, PTE_NX as soon as one forbids
 * fetching. */
static void wx_table(struct wx_walk *w, const pte_t *table, unsigned level, uintptr_t base,
                     pte_t rights)
{
    unsigned i;

    for (i = 0; i < PTE_COUNT; i++) {
        pte_t v = pte_read(&table[i]);
        uintptr_t va = base + i * level_size(level);
        pte_t r = (rights & v & PTE_W) | ((rights | v) & PTE_NX);

        /* The upper half of the top table is sign-extended. */
        if (level == w->b->levels && i >= PTE_COUNT / 2)
            va |= ~0UL << (PAGE_SHIFT + 9 * level - 1);
        if (!pte_present(v))
            continue;
        if (level > 1 && !(level <= 3 && pte_leaf(v))) {
            wx_table(w, table_of(w->b, v), level - 1, va, r);
            continue;
        }
        if (!(r & PTE_W) || (r & PTE_NX))
            continue;
        if (w->found++ < WX_REPORT_MAX && w->report)
            w->report(va, v);
    }
}

uint64_t pt_count_wx(const struct pt_build *b, void (*report)(uintptr_t va, pte_t leaf))
{
    struct wx_walk w = {.b = b, .report = report};

    wx_table(&w, b->to_virt(b->root), b->levels, 0, PTE_W);
    return w.found;
}
