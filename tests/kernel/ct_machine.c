/*
 * The machine under the allocator: every CPU is one of its own, all are set up alike, and no page
 * of the kernel is writable and executable.
 *
 * G1: CPUs that share an APIC ID, a stack or per-CPU data run fine until they do not. K15: firmware
 * leaves other control registers on other CPUs. Each CPU reads its own; the boot CPU compares.
 */
#include "tests/kernel/helpers.h"
#include <arch/apic.h>
#include <arch/cpu.h>
#include <arch/paging.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/trap.h>

#include "mm/cache.h"
#include "mm/vmalloc.h"

struct self {
    uint32_t apic_id, cpu_id;
    uintptr_t stack, data;
    bool same_state, alive;
};

static void describe_self(void *arg)
{
    struct self *s = (struct self *)arg + this_cpu_id();

    s->apic_id = apic_present() ? apic_id_this() : 0;
    s->cpu_id = this_cpu_id();
    s->stack = (uintptr_t)__builtin_frame_address(0);
    s->data = this_cpu_offset();
    s->same_state = cpu_check_state();
    s->alive = true;
}

/* The area that a stack lies in: two CPUs on one stack would be in the same. */
static void *stack_area(uintptr_t sp)
{
    struct vm_area_info info = {0};

    KT_EXPECT(find_vm_area((void *)sp, &info));
    return info.start;
}

KTEST(cpus_distinct,
      "G1, K15: each CPU has an APIC ID, a stack and data of its own, all the same registers")
{
    unsigned n = kt_cpus();
    struct self *self = kvmalloc(n * sizeof(*self));

    KT_ASSERT(self);
    for (unsigned i = 0; i < n; i++)
        self[i].alive = false;
    kt_on_all(describe_self, self);
    for (unsigned i = 0; i < n; i++) {
        KT_EXPECT(self[i].alive);
        KT_EXPECT_EQ(self[i].cpu_id, i);
        KT_EXPECT_EQ(self[i].apic_id, smp_apic_id(i));
        KT_EXPECT(self[i].same_state);
        for (unsigned j = 0; j < i; j++) {
            KT_EXPECT(self[i].apic_id != self[j].apic_id);
            KT_EXPECT(self[i].data != self[j].data);
            KT_EXPECT(stack_area(self[i].stack) != stack_area(self[j].stack));
        }
    }
    kvfree(self);
}

KTEST(kernel_protection, "no page of the kernel is writable and executable")
{
    pte_t text, data;
    unsigned level;

    KT_EXPECT_EQ(paging_check_wx(), 0);
    KT_ASSERT(paging_walk((uintptr_t)describe_self, &text, &level));
    KT_EXPECT(!(text & PTE_W) && !(text & PTE_NX));
    KT_ASSERT(paging_walk((uintptr_t)&trap_describe_address, &data, &level));
    KT_EXPECT((data & PTE_W) && (data & PTE_NX));
}

KTEST(no_unexpected_interrupts, "K11: nothing that the firmware left on interrupts us")
{
    uint32_t bits = 0;

    if (trap_unexpected())
        KT_FAIL("%lu unexpected interrupts since the start", (unsigned long)trap_unexpected());
    if (apic_errors(&bits))
        KT_FAIL("APIC errors, ESR bits 0x%x", bits);
}
