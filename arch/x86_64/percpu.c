/*
 * percpu.c: where each CPU's copy of the per-CPU variables lies.
 *
 * The boot CPU uses the link-time copy itself, so its offset is 0 and per-CPU variables work from
 * the first instruction on. The table of the other CPUs' offsets is sized when their number is
 * known. Changes happen on the boot CPU, before the CPU concerned runs anything else.
 */
#include "lib/assert.h"
#include "lib/base.h"
#include "lib/string.h"
#include <arch/atomic.h>
#include <arch/cpu.h>
#include <arch/percpu.h>

extern char __percpu_start[], __percpu_end[];

DEFINE_PER_CPU(uintptr_t, percpu_offset);
DEFINE_PER_CPU(unsigned, percpu_cpu_id);
DEFINE_PER_CPU(unsigned, percpu_irq_depth);
DEFINE_PER_CPU(unsigned, percpu_nmi_depth);

static uintptr_t boot_offset; /* the table until there is one */
static uintptr_t *offset_table = &boot_offset;
static unsigned offset_slots = 1;

void percpu_init_boot(void)
{
    wrmsr(MSR_GS_BASE, 0);
}

size_t percpu_size(void)
{
    return (size_t)(__percpu_end - __percpu_start);
}

void percpu_set_table(uintptr_t *table, unsigned slots)
{
    ASSERT(slots >= 1 && offset_slots == 1);
    table[0] = 0;
    STORE_RELEASE(offset_table, table);
    WRITE_ONCE(offset_slots, slots);
}

void percpu_add(unsigned cpu, void *mem)
{
    uintptr_t offset = (uintptr_t)mem - (uintptr_t)__percpu_start;

    ASSERT(cpu > 0 && cpu < offset_slots && IS_ALIGNED((uintptr_t)mem, (uintptr_t)CACHE_LINE));
    memset(mem, 0, percpu_size());
    offset_table[cpu] = offset;
    *per_cpu_ptr(&percpu_offset, cpu) = offset;
    *per_cpu_ptr(&percpu_cpu_id, cpu) = cpu;
}

void percpu_set_cpu_id(unsigned from, unsigned to)
{
    ASSERT(to > 0 && to <= from && from < offset_slots);
    *per_cpu_ptr(&percpu_cpu_id, from) = to;
    WRITE_ONCE(offset_table[to], offset_table[from]);
}

void percpu_load(unsigned cpu)
{
    wrmsr(MSR_GS_BASE, percpu_offset_of(cpu));
}

uintptr_t percpu_offset_of(unsigned cpu)
{
    return READ_ONCE(offset_table[cpu]);
}
