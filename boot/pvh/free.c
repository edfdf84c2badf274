/*
 * free.c: see free.h.
 */
#include "boot/pvh/free.h"

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
    return a_size && b_size && a < b + b_size && b < a + a_size;
}

/* True if [base, base + size) meets something taken or not RAM; then *obstacle is where that
 * begins. */
static bool conflict(const struct free_memory *m, uint64_t base, uint64_t size, uint64_t *obstacle)
{
    size_t i;

    for (i = 0; i < m->taken_count; i++)
        if (overlap(base, size, m->taken[i].base, m->taken[i].size)) {
            *obstacle = m->taken[i].base;
            return true;
        }
    for (i = 0; i < m->map_count; i++)
        if (m->map[i].type != HVM_MEM_RAM && overlap(base, size, m->map[i].addr, m->map[i].size)) {
            *obstacle = m->map[i].addr;
            return true;
        }
    return false;
}

uint64_t free_find(const struct free_memory *m, uint64_t size, const struct span *within)
{
    uint64_t lo, hi, at, best = 0;
    size_t i;

    for (i = 0; i < m->map_count; i++) {
        const struct hvm_memmap_entry *e = &m->map[i];

        if (e->type != HVM_MEM_RAM || e->addr + e->size < e->addr)
            continue;
        lo = MAX(e->addr, within->base);
        hi = MIN(e->addr + e->size, within->base + within->size);
        /* From the top down, below each obstacle in turn. */
        while (hi > lo && hi - lo >= size) {
            at = ALIGN_DOWN(hi - size, SZ_4K);
            if (at < lo)
                break;
            if (!conflict(m, at, size, &hi)) {
                best = MAX(best, at);
                break;
            }
        }
    }
    return best;
}
