/*
 * mm_oracle_lib.h: page tables written by hand on the simulated machine, and expectations about
 * what the oracle says to it. Shared by the tests of the oracle and of the machine.
 */
#ifndef TESTS_HOST_MM_ORACLE_LIB_H
#define TESTS_HOST_MM_ORACLE_LIB_H

#include <string.h>

#include "tests/host/sim/sim.h"
#include "tests/host/testlib.h"
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/spinlock.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>

/* The functions behind the hooks, called here as the page allocator's callers would cause them. */
#include "tests/host/sim/internal.h"

#define VA      (VMAP_BASE + 64 * PMD_SIZE)
#define FRAME_A 1000UL
#define FRAME_B 1001UL
#define FRAME_L 1024UL /* first of 512, aligned */
#define TABLES  2000UL /* frames used as tables */

static unsigned tables_used;

static inline void machine(unsigned cpus, enum sim_caching caching)
{
    sim_machine(&(struct sim_options){
        .seed = test_seed(), .ram = 16 * SZ_1M, .cpus = cpus, .caching = caching});
    tables_used = 0;
}

static inline pte_t *entry_of(uintptr_t va, unsigned level)
{
    pte_t *table = kernel_pml4();

    for (unsigned l = 4; l > level; l--) {
        pte_t *e = &table[pte_index(va, l)];

        if (!pte_present(pte_read(e))) {
            phys_addr_t pa = (TABLES + tables_used++) << PAGE_SHIFT;

            memset(phys_to_virt(pa), 0, PAGE_SIZE);
            pte_write(e, pa | PTE_TABLE);
        }
        table = pte_table(pte_read(e));
    }
    return &table[pte_index(va, level)];
}

static inline void map_page(uintptr_t va, uint64_t frame, pgprot_t prot)
{
    pte_write(entry_of(va, 1), frame << PAGE_SHIFT | prot);
}

static inline void unmap_page(uintptr_t va)
{
    pte_write(entry_of(va, 1), 0);
}

/* Frame of the last-level table of va. */
static inline uint64_t table_of(uintptr_t va)
{
    return pte_phys(pte_read(entry_of(va, 2))) >> PAGE_SHIFT;
}

struct job {
    void (*fn)(void *);
    void *arg;
    uint32_t arrived, done;
};

/* CPU 0 works, the others wait for it and answer: halted ones would be another case. */
static inline void work_or_wait(void *arg)
{
    struct job *j = arg;

    __atomic_fetch_add(&j->arrived, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&j->arrived, __ATOMIC_ACQUIRE) < sim_options()->cpus)
        cpu_relax();
    if (this_cpu_id() == 0) {
        j->fn(j->arg);
        __atomic_store_n(&j->done, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&j->done, __ATOMIC_ACQUIRE))
        cpu_relax();
}

static inline bool run_quietly(void (*fn)(void *), void *arg)
{
    struct job j = {.fn = fn, .arg = arg};
    bool ok;

    sim_quiet = true;
    ok = sim_run(sim_options()->cpus, work_or_wait, &j);
    sim_quiet = false;
    return ok;
}

static inline void expect(enum sim_rule rule, void (*fn)(void *))
{
    bool ok = run_quietly(fn, NULL);

    if (sim_failure() != rule)
        fail_msg("found \"%s\" (%s), expected \"%s\"", sim_rule_names[sim_failure()],
                 sim_failure_text(), sim_rule_names[rule]);
    assert_int_equal(ok, rule == SIM_OK);
}

/* On a fresh machine of 4 CPUs. */
static inline void expect_fresh(enum sim_rule rule, void (*fn)(void *))
{
    machine(4, SIM_CACHE_WORST);
    expect(rule, fn);
}

#endif
