/*
 * gen_stress.c: see gen_stress.h.
 *
 * Every CPU owns a few addresses, a 2 MiB slot, and frames for both. It writes entries itself, so
 * that next to nothing lies between the steps of the protocol; the oracle judges each reuse. CPUs
 * halt while another one is awake, and whoever is awake wakes the others now and then, the last one
 * at its end. Most schedules have NMIs that look something up, some handlers that wait for a
 * generation themselves.
 */
#include <string.h>

#include "tests/host/sim/gen_stress.h"
#include "tests/host/sim/internal.h"
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb_gen.h>

#define CPUS_MAX 4
#define PAGES    3
#define ROUNDS   25
/* One CPU's frames: leaves, then tables. */
#define FRAMES_PER_CPU 64
#define FRAME_FIRST    512UL
#define SHARED_TABLES  400UL /* of levels 2 and 3 */

struct page_slot {
    pte_t *entry;
    uint64_t stamp; /* of the last unmapping */
    bool mapped;
};

struct worker {
    struct rng rng;
    struct page_slot pages[PAGES];
    pte_t *pmd; /* of a slot whose table comes and goes */
    unsigned tables;
};
static struct worker workers[CPUS_MAX];
static uint32_t awake; /* atomic */

static phys_addr_t frame_of(unsigned cpu, unsigned i)
{
    return (FRAME_FIRST + cpu * FRAMES_PER_CPU + i) << PAGE_SHIFT;
}

static uintptr_t slot_va(unsigned cpu, unsigned which)
{
    return VMAP_BASE + (cpu * 2 + which) * PMD_SIZE;
}

static pte_t *link_table(pte_t *entry, phys_addr_t pa)
{
    memset(phys_to_virt(pa), 0, PAGE_SIZE);
    pte_write(entry, pa | PTE_TABLE);
    return phys_to_virt(pa);
}

/* Tables above, and the fixed last-level table of each CPU. */
static void make_tables(unsigned cpus)
{
    pte_t *pud = link_table(&kernel_pml4()[pte_index(VMAP_BASE, 4)], SHARED_TABLES << PAGE_SHIFT);
    pte_t *pmd = link_table(&pud[pte_index(VMAP_BASE, 3)], (SHARED_TABLES + 1) << PAGE_SHIFT);

    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        struct worker *w = &workers[cpu];
        pte_t *table = link_table(&pmd[pte_index(slot_va(cpu, 0), 2)], frame_of(cpu, 40));

        for (unsigned i = 0; i < PAGES; i++)
            w->pages[i].entry = &table[i * 7];
        w->pmd = &pmd[pte_index(slot_va(cpu, 1), 2)];
    }
}

static void wait_passed(struct worker *w, uint64_t stamp)
{
    while (!tlb_gen_passed(stamp)) {
        switch (rng_below(&w->rng, 4)) {
        case 0:
            tlb_gen_advance(stamp);
            break;
        case 1:
            tlb_gen_kick(stamp, rng_below(&w->rng, 2));
            break;
        case 2:
            /* Mostly longer than a run takes: then a wake-up that is lost shows as a hang. */
            tlb_gen_wait(stamp, rng_below(&w->rng, 4) ? 1000000000 : rng_below(&w->rng, 100));
            break;
        default:
            tlb_gen_check();
        }
        cpu_relax();
    }
}

static void use_page(struct worker *w)
{
    struct page_slot *p = &w->pages[rng_below(&w->rng, PAGES)];
    uint64_t frame = frame_of(this_cpu_id(), (unsigned)rng_below(&w->rng, 30));

    if (p->mapped) {
        pte_write(p->entry, 0);
        p->stamp = tlb_gen_stamp();
        p->mapped = false;
        if (rng_below(&w->rng, 2))
            tlb_gen_advance(p->stamp);
        return;
    }
    if (rng_below(&w->rng, 4) == 0)
        tlb_gen_sync(p->stamp);
    else
        wait_passed(w, p->stamp);
    /* sync may come back without, from inside a read section; nobody here is in one. */
    pte_write(p->entry, frame | PAGE_KERNEL);
    p->mapped = true;
}

/* A table that leads nowhere is put in place, taken out, and its page moves on once all have really
 * flushed. */
static void use_table(struct worker *w)
{
    phys_addr_t pa = frame_of(this_cpu_id(), 41 + w->tables++ % 2);
    uint64_t stamp;

    link_table(w->pmd, pa);
    sim_point();
    pte_write(w->pmd, 0);
    stamp = tlb_gen_stamp();
    tlb_gen_advance(stamp);
    while (!tlb_gen_passed_all(stamp)) {
        tlb_gen_kick(stamp, true);
        tlb_gen_check();
        cpu_relax();
    }
}

static void wake_all(void)
{
    unsigned cpu;

    for_each_cpu (cpu)
        if (cpu != this_cpu_id())
            smp_wake(cpu);
}

static void halt(void)
{
    /* Masked before others may count on being woken, so that a wake-up in between is not lost. */
    unsigned long flags = irq_save();
    uint32_t n = READ_ONCE(awake);

    while (n > 1 && !ATOMIC_CAS(awake, &n, n - 1))
        ;
    if (n > 1) {
        cpu_idle_wait();
        ATOMIC_ADD(awake, 1);
    }
    irq_restore(flags);
}

static void look_up(void)
{
    tlb_gen_read_begin();
    sim_point();
    sim_point();
    tlb_gen_read_end();
}

static void work(void *arg)
{
    struct worker *w = &workers[this_cpu_id()];

    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        switch (rng_below(&w->rng, 8)) {
        case 0:
            halt();
            break;
        case 1:
            use_table(w);
            break;
        case 2:
            look_up();
            break;
        case 3:
            wake_all();
            break;
        default:
            use_page(w);
        }
    }
    ATOMIC_SUB(awake, 1);
    wake_all();
}

/*
 * Some CPUs halt until a generation has passed, the others never halt before those have come back:
 * a wake-up that one of them owes is made up for by nothing else.
 */
static void wait_or_run(void *arg)
{
    struct worker *w = &workers[this_cpu_id()];
    unsigned waits = *(const unsigned *)arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        if (waits >> this_cpu_id() & 1) {
            uint64_t stamp = tlb_gen_stamp();

            SIM_CHECK(tlb_gen_wait(stamp, UINT32_MAX), "woken too early");
            SIM_CHECK(tlb_gen_passed(stamp), "not passed");
        } else if (rng_below(&w->rng, 2)) {
            look_up();
        } else {
            tlb_gen_check();
        }
    }
    if (waits >> this_cpu_id() & 1) {
        ATOMIC_SUB(awake, 1);
        return;
    }
    while (READ_ONCE(awake)) {
        tlb_gen_check();
        cpu_relax();
    }
}

/* Over a read section, too, where waiting for the generation would be for ever. */
static void sync_in_handler(void)
{
    tlb_gen_sync(tlb_gen_stamp());
}

static void prepare(void *arg)
{
    make_tables(*(unsigned *)arg);
}

bool gen_stress_run(uint64_t seed)
{
    unsigned cpus = 2 + (unsigned)(seed % (CPUS_MAX - 1));

    sim_machine(&(struct sim_options){
        .seed = seed, .ram = 16 * SZ_1M, .cpus = cpus, .turns = true, .hang_steps = 100000});
    memset(workers, 0, sizeof(workers));
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        rng_seed(&workers[cpu].rng, seed * CPUS_MAX + cpu);
    awake = cpus;
    if (seed % 4)
        sim_nmi_storm(look_up, 10 + (uint32_t)(seed % 64));
    if (seed % 8 == 0)
        sim_irq_storm(sync_in_handler, 50 + (uint32_t)(seed % 256));
    return sim_do(prepare, &cpus) && sim_run(cpus, work, NULL);
}

bool gen_wait_run(uint64_t seed)
{
    unsigned cpus = 2 + (unsigned)(seed % (CPUS_MAX - 1));
    unsigned waits = 1 + (unsigned)(seed / CPUS_MAX % ((1u << cpus) - 2)); /* not all of them */

    sim_machine(&(struct sim_options){
        .seed = seed, .ram = 16 * SZ_1M, .cpus = cpus, .turns = true, .hang_steps = 20000});
    memset(workers, 0, sizeof(workers));
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        rng_seed(&workers[cpu].rng, seed * CPUS_MAX + cpu);
    awake = (uint32_t)__builtin_popcount(waits);
    if (seed % 4 == 0)
        sim_nmi_storm(look_up, 10 + (uint32_t)(seed % 64));
    return sim_run(cpus, wait_or_run, &waits);
}
