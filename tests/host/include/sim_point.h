/*
 * sim_point.h: what the replaced <arch/...> headers need of the simulated machine: the running CPU
 * and the marked points.
 *
 * A marked point is where another CPU may come in between or an interrupt be taken: every atomic
 * access, page-table access, lock operation, pause and change of the interrupt flag. It costs a
 * decrement and a load as long as nothing is due.
 */
#ifndef SIM_POINT_H
#define SIM_POINT_H

#include "lib/base.h"

/* Bits of sim_cpu.pending. */
#define SIM_PENDING_TLB  1u
#define SIM_PENDING_CALL 2u
#define SIM_PENDING_WAKE 4u

struct sim_cpu {
    int64_t budget;   /* marked points until the scheduler is asked */
    uint32_t pending; /* atomic: requests of other CPUs */
    uint32_t id;
    uintptr_t percpu_offset;
    uint32_t irq_depth;
    uint32_t nmi_depth;
    uint32_t locks_held;
    uint32_t hook_depth; /* nested calls into the page allocator */
    uint32_t call_depth; /* nested calls into the API */
    bool irq_off;
    bool nmi_masked;     /* as from an NMI's beginning to its IRET */
    uint64_t interrupts; /* handlers run */
    uint64_t calls;      /* into the API, by others than mm/ */
};

extern __thread struct sim_cpu *sim_this;

void sim_point_slow(struct sim_cpu *c);
/* A pause: lets another CPU run at once. */
void sim_relax(void);
/* Interrupts on: what is pending is taken here. */
void sim_irq_on(void);

static inline void sim_point(void)
{
    struct sim_cpu *c = sim_this;

    if (unlikely(--c->budget < 0 || __atomic_load_n(&c->pending, __ATOMIC_RELAXED)))
        sim_point_slow(c);
}

#endif
