/*
 * remote_stress.c: see remote_stress.h.
 *
 * Mappings of one page, aligned to half a block, so that two of them fill a block and two frees
 * empty it. Each CPU makes some, sends them to others to be freed, gives its empty blocks back, and
 * asks for purges. Interrupt handlers that take long and answer what others wait for come between
 * any two steps: so a step may be followed by whole generations.
 */
#include <string.h>

#include "mm/vmalloc.h"
#include "mm/vmap_internal.h"
#include "tests/host/sim/boot.h"
#include "tests/host/sim/internal.h"
#include "tests/host/sim/remote_stress.h"
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>

#define CPUS_MAX 4
#define ROUNDS   40

struct worker {
    struct rng rng;
    void *letters[CPUS_MAX]; /* atomic; by sender */
};
static struct worker workers[CPUS_MAX];

/* Both halves of a block, to two others if there are two. */
static void send_two(struct worker *w)
{
    unsigned me = this_cpu_id(), others = sim_opt.cpus - 1;
    unsigned first = 1 + (unsigned)rng_below(&w->rng, others);

    for (unsigned i = 0; i < 2; i++) {
        unsigned to = (me + 1 + (first + i) % others) % sim_opt.cpus;
        void *p = __vmalloc(PAGE_SIZE, BLOCK_SIZE / 2, 0, VM_ANY_NODE);

        vfree(ATOMIC_XCHG(workers[to].letters[me], p));
    }
}

static void take_letters(struct worker *w)
{
    for (unsigned i = 0; i < sim_opt.cpus; i++)
        if (READ_ONCE(w->letters[i]))
            vfree(ATOMIC_XCHG(w->letters[i], NULL));
}

/* Halted, or spinning. */
static void want_mutex(struct worker *w)
{
    unsigned long flags = rng_below(&w->rng, 2) ? irq_save() : RFLAGS_IF;

    vm_unmap_aliases();
    irq_restore(flags);
}

static void work(void *arg)
{
    struct worker *w = &workers[this_cpu_id()];

    for (unsigned i = 0; i < ROUNDS; i++) {
        if (arg) {
            want_mutex(w);
            continue;
        }
        switch (rng_below(&w->rng, 10)) {
        case 0:
        case 1:
        case 2:
            pblock_drain_local();
            break;
        case 3:
        case 4:
            vm_unmap_aliases();
            break;
        case 5:
            send_two(w);
            break;
        default:
            take_letters(w);
        }
    }
    take_letters(w);
}

/* Everything may happen elsewhere meanwhile. */
static void long_handler(void)
{
    struct worker *w = &workers[this_cpu_id()];

    for (uint64_t turns = 1ULL << rng_below(&w->rng, 10); turns; turns--) {
        tlb_poll();
        cpu_relax();
    }
}

static void last_letters(void *arg)
{
    (void)arg;
    for (unsigned cpu = 0; cpu < sim_opt.cpus; cpu++)
        take_letters(&workers[cpu]);
}

bool remote_stress_run(uint64_t seed)
{
    struct sim_boot boot = {.design = DESIGN_METALMAP, .range_size = SZ_1G};
    struct sim_baseline before, after;

    sim_machine(&(struct sim_options){.seed = seed,
                                      .ram = 16 * SZ_1M,
                                      .cpus = 2 + (unsigned)(seed % (CPUS_MAX - 1)),
                                      .hang_steps = 200000});
    memset(workers, 0, sizeof(workers));
    for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++)
        rng_seed(&workers[cpu].rng, seed * CPUS_MAX + cpu);
    sim_boot(&boot);
    if (!sim_settle(&before))
        return false;
    sim_irq_storm(long_handler, 8 + (uint32_t)(seed % 100));
    /* In every fourth schedule they only want the mutex. */
    if (!sim_run(sim_opt.cpus, work, seed % 4 ? NULL : &boot))
        return false;
    sim_irq_storm(NULL, 0);
    return sim_do(last_letters, NULL) && sim_settle(&after) && sim_compare(&before, &after, 64) &&
           sim_shutdown();
}
