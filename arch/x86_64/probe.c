/*
 * probe.c: accesses that may fault, and the table that tells such faults from the others.
 */
#include "arch/x86_64/fixup.h"
#include "lib/base.h"
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/trap.h>

#define VECTOR_PF 14

extern const struct fixup __start_fixups[], __stop_fixups[];

static DEFINE_PER_CPU(struct fault_info, last_fault);

static const struct fixup *fixup_find(uintptr_t ip)
{
    const struct fixup *f;

    for (f = __start_fixups; f < __stop_fixups; f++) {
        if (f->ip == ip)
            return f;
    }
    return NULL;
}

bool fixup_apply(struct trap_frame *f, uintptr_t cr2)
{
    const struct fixup *fix = fixup_find(f->rip);

    /* A fetch that faulted: the address itself says nothing, the call's return address does. */
    if (!fix && f->vector == VECTOR_PF && f->rip == cr2) {
        fix = fixup_find(*(const uintptr_t *)f->rsp);
        if (fix)
            f->rsp += sizeof(uintptr_t);
    }
    if (!fix)
        return false;
    if (f->vector == VECTOR_PF) {
        struct fault_info *info = this_cpu_ptr(&last_fault);

        info->addr = cr2;
        info->error = f->error;
    }
    f->rip = fix->resume;
    return true;
}

bool probe_read8(const volatile void *addr, uint64_t *value)
{
    uint32_t ok = 0;
    uint64_t v = 0;

    __asm__ volatile("1: movq (%[addr]), %[v]\n\t"
                     "movl $1, %[ok]\n"
                     "2:\n\t" FIXUP("1b", "2b")
                     : [v] "+&r"(v), [ok] "+&r"(ok)
                     : [addr] "r"(addr)
                     : "memory");
    *value = v;
    return ok;
}

bool probe_write8(volatile void *addr, uint64_t value)
{
    uint32_t ok = 0;

    __asm__ volatile("1: movq %[v], (%[addr])\n\t"
                     "movl $1, %[ok]\n"
                     "2:\n\t" FIXUP("1b", "2b")
                     : [ok] "+&r"(ok)
                     : [v] "r"(value), [addr] "r"(addr)
                     : "memory");
    return ok;
}

bool probe_exec(const void *addr)
{
    uint32_t ok = 0;

    __asm__ volatile("call *%[addr]\n"
                     "1: movl $1, %[ok]\n"
                     "2:\n\t" FIXUP("1b", "2b")
                     : [ok] "+&r"(ok)
                     : [addr] "r"(addr)
                     : "memory", "cc");
    return ok;
}

void probe_last_fault(struct fault_info *f)
{
    *f = *this_cpu_ptr(&last_fault);
}

bool rdmsr_safe(uint32_t msr, uint64_t *v)
{
    uint32_t lo = 0, hi = 0, ok = 0;

    __asm__ volatile("1: rdmsr\n\t"
                     "movl $1, %[ok]\n"
                     "2:\n\t" FIXUP("1b", "2b")
                     : "+a"(lo), "+d"(hi), [ok] "+&r"(ok)
                     : "c"(msr));
    *v = (uint64_t)hi << 32 | lo;
    return ok;
}

bool wrmsr_safe(uint32_t msr, uint64_t v)
{
    uint32_t ok = 0;

    __asm__ volatile("1: wrmsr\n\t"
                     "movl $1, %[ok]\n"
                     "2:\n\t" FIXUP("1b", "2b")
                     : [ok] "+&r"(ok)
                     : "c"(msr), "a"((uint32_t)v), "d"((uint32_t)(v >> 32))
                     : "memory");
    return ok;
}
