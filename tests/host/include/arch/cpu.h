/*
 * cpu.h (host): the machine's header with interrupt masking and pause replaced by simulated ones.
 * What else it declares (MSRs, CPUID, features) must not be called by what runs on the host.
 */
#ifndef SIM_ARCH_CPU_H
#define SIM_ARCH_CPU_H

#include "sim_point.h"

#define cpu_relax    machine_cpu_relax
#define irq_save     machine_irq_save
#define irq_restore  machine_irq_restore
#define irqs_enabled machine_irqs_enabled
#define irq_enable   machine_irq_enable
#define irq_disable  machine_irq_disable
#include_next <arch/cpu.h>
#undef cpu_relax
#undef irq_save
#undef irq_restore
#undef irqs_enabled
#undef irq_enable
#undef irq_disable

static inline void cpu_relax(void)
{
    sim_relax();
}
static inline bool irqs_enabled(void)
{
    return !sim_this->irq_off;
}
static inline void irq_disable(void)
{
    sim_point();
    sim_this->irq_off = true;
}
static inline void irq_enable(void)
{
    sim_irq_on();
}
static inline unsigned long irq_save(void)
{
    unsigned long flags = irqs_enabled() ? RFLAGS_IF : 0;

    irq_disable();
    return flags;
}
static inline void irq_restore(unsigned long flags)
{
    if (flags & RFLAGS_IF)
        sim_irq_on();
}

#endif
