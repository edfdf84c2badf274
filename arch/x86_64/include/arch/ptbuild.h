/*
 * ptbuild.h: building, walking and auditing a tree of page tables that need not be the one in use.
 *
 * No hardware: the host tests build trees in ordinary memory. One user at a time; nothing is
 * flushed, so entries of a tree in use may be added, not changed.
 */
#ifndef ARCH_PTBUILD_H
#define ARCH_PTBUILD_H

#include "arch/early.h"
#include "arch/pte.h"

struct pt_build {
    phys_addr_t root;
    unsigned levels;                  /* 4 or 5 */
    bool gbpages;                     /* 1 GiB leaves may be used */
    early_alloc_fn alloc;             /* for tables, one page at a time */
    phys_addr_t table_max;            /* they end at or below this; 0: anywhere */
    void *(*to_virt)(phys_addr_t pa); /* where a table can be written */
    uint64_t tables;                  /* pages taken so far, the root included */
    uint64_t leaves[4];               /* leaves made, by level 1 to 3 */
};

/* Takes an empty root that ends at or below root_max. ERR_NOMEM if there is none. */
err_t pt_init(struct pt_build *b, phys_addr_t root_max);
/*
 * Maps [va, va + size) to pa, all multiples of 4 KiB, with the largest leaves that alignment and
 * size allow. `prot` is that of a 4 KiB leaf without PAT bit. ERR_INVAL: misaligned, wraps, or
 * beyond 52 bits; ERR_BUSY: something is mapped there; ERR_NOMEM. On an error a part may be mapped.
 */
err_t pt_map(struct pt_build *b, uintptr_t va, phys_addr_t pa, size_t size, pgprot_t prot);
/* The leaf that maps va and its level (1 to 3); false if there is none. */
bool pt_walk(const struct pt_build *b, uintptr_t va, pte_t *leaf, unsigned *level);
/* Number of leaves that are writable and executable, taking the entries above them into account;
 * the first few are handed to report (may be NULL). */
uint64_t pt_count_wx(const struct pt_build *b, void (*report)(uintptr_t va, pte_t leaf));

#endif
