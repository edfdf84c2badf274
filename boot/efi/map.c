/*
 * map.c: see map.h.
 */
#include "boot/efi/map.h"

void map_kernel(pte_t *root, const struct map_request *r)
{
    pte_t *table = root;
    unsigned level;
    uint64_t at;

    for (level = r->levels; level > 2; level--) {
        pte_t *next = r->tables[r->levels - level];

        table[pte_index(r->va, level)] = (uintptr_t)next | PTE_TABLE;
        table = next;
    }
    for (at = 0; at < r->size; at += PMD_SIZE)
        table[pte_index(r->va + at, 2)] = (r->pa + at) | PTE_P | PTE_W | PTE_PS;
}
