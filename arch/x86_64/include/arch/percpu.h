/*
 * percpu.h: per-CPU variables, addressed by GS.
 *
 * DEFINE_PER_CPU puts a variable into section .bss..percpu, which holds no data of its own: each
 * CPU has a zeroed copy, and GS's base is the distance from the link address to that copy. So an
 * access is one instruction with a GS prefix. Variables start as zero on every CPU.
 *
 * A task never moves between CPUs; only interrupts of the same CPU can come in between.
 */
#ifndef ARCH_PERCPU_H
#define ARCH_PERCPU_H

#include "lib/base.h"

#define DEFINE_PER_CPU(type, name)  __section(".bss..percpu") typeof(type) name
#define DECLARE_PER_CPU(type, name) extern typeof(type) name

DECLARE_PER_CPU(uintptr_t, percpu_offset); /* of this CPU's copy */
DECLARE_PER_CPU(unsigned, percpu_cpu_id);
DECLARE_PER_CPU(unsigned, percpu_irq_depth); /* nested interrupt handlers, NMI included */
DECLARE_PER_CPU(unsigned, percpu_nmi_depth);

#define PERCPU_READ_(var)                                                                          \
    ({                                                                                             \
        typeof(var) v_;                                                                            \
        __asm__ volatile("mov %%gs:%1, %0" : "=r"(v_) : "m"(var));                                 \
        v_;                                                                                        \
    })

/* A per-CPU variable against a value: one compare, no register for it. */
#define PERCPU_EQUALS_(var, value)                                                                 \
    ({                                                                                             \
        bool eq_;                                                                                  \
        _Static_assert(sizeof(var) == 8 || sizeof(var) == 4, "one compare");                       \
        if (sizeof(var) == 8)                                                                      \
            __asm__ volatile("cmpq %2, %%gs:%1"                                                    \
                             : "=@cce"(eq_)                                                        \
                             : "m"(var), "re"((uint64_t)(value)));                                 \
        else                                                                                       \
            __asm__ volatile("cmpl %2, %%gs:%1"                                                    \
                             : "=@cce"(eq_)                                                        \
                             : "m"(var), "re"((uint32_t)(uintptr_t)(value)));                      \
        eq_;                                                                                       \
    })

/* Dense number of this CPU, 0 = boot CPU. Never an APIC ID. */
#define this_cpu_id() PERCPU_READ_(percpu_cpu_id)
/* Constant for the life of a CPU, and tasks do not move: read once a function is enough. */
static inline uintptr_t this_cpu_offset(void)
{
    uintptr_t v;

    __asm__("mov %%gs:%1, %0" : "=r"(v) : "m"(percpu_offset));
    return v;
}
#define this_cpu_ptr(p) ((typeof(p))((uintptr_t)(p) + this_cpu_offset()))
/* var is a 64-bit per-CPU counter; one instruction, so no interrupt can come between. */
#define this_cpu_inc(var)    __asm__ volatile("incq %%gs:%0" : "+m"(var))
#define this_cpu_add(var, n) __asm__ volatile("addq %1, %%gs:%0" : "+m"(var) : "er"((uint64_t)(n)))

/* Distance of CPU cpu's copy; valid for cpu < smp_cpus(). */
uintptr_t percpu_offset_of(unsigned cpu);
#define per_cpu_ptr(p, cpu) ((typeof(p))((uintptr_t)(p) + percpu_offset_of(cpu)))

/* Points GS at the link-time copy, which is the boot CPU's. Before everything else
 * in the kernel. */
void percpu_init_boot(void);
/* Bytes of one CPU's copy, a multiple of CACHE_LINE. */
size_t percpu_size(void);
/* Gives the table of copies, `slots` zeroed words for CPUs 0 .. slots - 1, which stays for good. */
void percpu_set_table(uintptr_t *table, unsigned slots);
/* Makes mem (percpu_size() bytes, aligned to CACHE_LINE) the copy of CPU `cpu`, zeroed but for its
 * offset and number. On the boot CPU. */
void percpu_add(unsigned cpu, void *mem);
/* The CPU that was added as `from` is number `to` <= from from now on, because those between did
 * not start. In ascending order, before that CPU takes a lock. */
void percpu_set_cpu_id(unsigned from, unsigned to);
/* Points GS of the calling CPU at the copy of `cpu`: the first thing another CPU does in C. */
void percpu_load(unsigned cpu);

static inline bool in_irq(void)
{
    return !PERCPU_EQUALS_(percpu_irq_depth, 0);
}
static inline bool in_nmi(void)
{
    return PERCPU_READ_(percpu_nmi_depth) != 0;
}

#endif
