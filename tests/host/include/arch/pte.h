/*
 * pte.h (host): the machine's header; every access to an entry goes through the simulation, which
 * keeps the CPUs' translation caches and judges what is written.
 */
#ifndef SIM_ARCH_PTE_H
#define SIM_ARCH_PTE_H

#define pte_read    machine_pte_read
#define pte_write   machine_pte_write
#define pte_cas     machine_pte_cas
#define page_to_pte machine_page_to_pte
#include_next <arch/pte.h>
#undef pte_read
#undef pte_write
#undef pte_cas
#undef page_to_pte

pte_t pte_read(const pte_t *p);
void pte_write(pte_t *p, pte_t v);
bool pte_cas(pte_t *p, pte_t *expected, pte_t v);
static inline pte_t page_to_pte(const struct page *p, pgprot_t prot)
{
    return page_to_phys(p) | prot;
}

#endif
