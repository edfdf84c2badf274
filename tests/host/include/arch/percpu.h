/*
 * percpu.h (host): per-CPU variables lie in section "percpu_vars"; each simulated CPU has a zeroed
 * copy of it, and the distance of the copy takes GS's place.
 */
#ifndef ARCH_PERCPU_H
#define ARCH_PERCPU_H

#include "lib/base.h"
#include "sim_point.h"

#define DEFINE_PER_CPU(type, name)  __section("percpu_vars") typeof(type) name
#define DECLARE_PER_CPU(type, name) extern typeof(type) name

/* The sum is hidden from the compiler, which would take it for an access outside the variable. */
#define SIM_PERCPU_AT_(p, offset)                                                                  \
    ({                                                                                             \
        uintptr_t sim_at_ = (uintptr_t)(p) + (offset);                                             \
        __asm__("" : "+r"(sim_at_));                                                               \
        (typeof(p))sim_at_;                                                                        \
    })

#define this_cpu_id()   (sim_this->id)
#define this_cpu_ptr(p) SIM_PERCPU_AT_(p, sim_this->percpu_offset)
/* One instruction on the machine, so it may be read while another CPU writes it. */
#define PERCPU_READ_(var)                                                                          \
    ({                                                                                             \
        sim_point();                                                                               \
        __atomic_load_n(this_cpu_ptr(&(var)), __ATOMIC_RELAXED);                                   \
    })
#define PERCPU_EQUALS_(var, value) (PERCPU_READ_(var) == (typeof(var))(value))
/* Other CPUs may sum the counters while this one counts: atomic for TSan, and no marked point
 * inside. */
#define this_cpu_add(var, n)                                                                       \
    do {                                                                                           \
        uint64_t *sim_counter_ = (uint64_t *)this_cpu_ptr(&(var));                                 \
        __atomic_store_n(sim_counter_,                                                             \
                         __atomic_load_n(sim_counter_, __ATOMIC_RELAXED) + (uint64_t)(n),          \
                         __ATOMIC_RELAXED);                                                        \
    } while (0)
#define this_cpu_inc(var) this_cpu_add(var, 1)

uintptr_t percpu_offset_of(unsigned cpu);
#define per_cpu_ptr(p, cpu) SIM_PERCPU_AT_(p, percpu_offset_of(cpu))

static inline bool in_irq(void)
{
    return sim_this->irq_depth != 0; /* NMIs are included */
}
static inline bool in_nmi(void)
{
    return sim_this->nmi_depth != 0;
}

#endif
