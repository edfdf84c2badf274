/*
 * sim_oracle.c: page-table accesses and translation caches.
 */
#include "tests/host/sim/internal.h"

void oracle_reset(void)
{
}
void oracle_flush(unsigned cpu, uintptr_t start, uintptr_t end, bool full)
{
    (void)cpu;
    (void)start;
    (void)end;
    (void)full;
}
void oracle_shootdown(void)
{
    if (sim_this->locks_held)
        sim_fail(SIM_LOCK_HELD, "%u locks are held at a shootdown", sim_this->locks_held);
}
pte_t pte_read(const pte_t *p)
{
    sim_point();
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
void pte_write(pte_t *p, pte_t v)
{
    sim_point();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
bool pte_cas(pte_t *p, pte_t *expected, pte_t v)
{
    sim_point();
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
