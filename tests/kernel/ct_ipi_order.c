/*
 * An interrupt must not overtake what was stored before it (E7).
 *
 * In x2APIC mode the command register is an MSR whose write waits for no earlier store (SDM 3A
 * 11.12.3); the sender's fences make it. The number lies on a line that the handler writes, so that
 * the store has to fetch it, and may still be in the store buffer when the command goes out. One
 * interrupt at a time: a handler that sees another number than the last one was too early. An
 * emulator cannot show it; a machine can.
 */
#include "lib/string.h"
#include "tests/kernel/helpers.h"
#include <arch/apic.h>
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/trap.h>

#define VECTOR_ORDER 0xd0
#define SECONDS_MAX  5

static struct {
    uint64_t number; /* the sender's */
    uint64_t seen;   /* the handler's: `number` as it found it, then `handled` */
    uint64_t handled;
} order __cacheline;

static void order_interrupt(struct trap_frame *f)
{
    (void)f;
    WRITE_ONCE(order.seen, READ_ONCE(order.number));
    STORE_RELEASE(order.handled, order.handled + 1);
}

static bool send_one(unsigned cpu, uint64_t n)
{
    struct clock_limit limit;

    WRITE_ONCE(order.number, n);
    if (!apic_send_ipi(smp_apic_id(cpu), VECTOR_ORDER)) {
        KT_FAIL("cpu %u: the APIC does not send", cpu);
        return false;
    }
    clock_limit_start(&limit, SECONDS_MAX * 1000000);
    while (LOAD_ACQUIRE(order.handled) != n) {
        tlb_poll();
        cpu_relax();
        if (clock_limit_over(&limit)) {
            KT_FAIL("cpu %u: interrupt %lu is lost", cpu, (unsigned long)n);
            return false;
        }
    }
    if (READ_ONCE(order.seen) != n)
        KT_FAIL("cpu %u: interrupt %lu came before its number: %lu", cpu, (unsigned long)n,
                (unsigned long)order.seen);
    return READ_ONCE(order.seen) == n;
}

KTEST(ipi_order, "E7: a handler sees what its sender stored before it sent the interrupt")
{
    uint64_t n, count = kt_scaled(20000), end = clock_us() + SECONDS_MAX * 1000000UL;

    if (kt_cpus() < 2)
        KT_SKIP("one CPU");
    memset(&order, 0, sizeof(order));
    irq_register(VECTOR_ORDER, order_interrupt);
    for (n = 1; n <= count && clock_us() < end; n++) {
        if (!send_one(1 + (unsigned)(n % (kt_cpus() - 1)), n))
            break;
        kt_progress((unsigned)(n * 100 / count));
        kt_alive();
    }
    irq_register(VECTOR_ORDER, NULL);
    kt_note("%lu interrupts, %s", (unsigned long)(n - 1), apic_mode_name());
}
