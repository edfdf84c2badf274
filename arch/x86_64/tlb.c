/*
 * tlb.c: dropping translations on this and on other CPUs, see tlb.h. The protocol is stop-and-wait
 * by IPI.
 *
 * Each CPU has two request descriptors, one for task and one for interrupt context, so that an
 * interrupt may begin a request while the task below it waits for one. A request goes out by
 * setting the descriptor's bit in each target's `from` map and raising the target's `attention`;
 * only the one who raises it sends an IPI. A target that takes a bit flushes and then counts the
 * descriptor down.
 *
 * Nobody is waited for who has not put itself into `online`. Initiators answer requests while they
 * wait, so any number of them may do so with interrupts masked.
 */
#include <arch/apic.h>
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/tlb.h>
#include <arch/tlb_gen.h>
#include <arch/trap.h>

#include "lib/assert.h"
#include "lib/bitmap.h"
#include "lib/printf.h"

#define ONLINE_WORDS BITMAP_WORDS(SMP_MAX_CPUS)
#define REQUEST_WORDS                                                                              \
    BITMAP_WORDS(2 * SMP_MAX_CPUS) /* bit 2 * cpu: task, + 1: interrupt context                    \
                                    */

/* A CPU that does not answer for this long will not: the host may be slow, but not that slow. */
#define ANSWER_LIMIT_US 10000000

/* Under a hypervisor the one who waits may be what keeps the others from running: it halts after
 * this. */
#define SPIN_US 20

/* Written by the owner before any bit for it is set, `pending` by targets. */
struct tlb_request {
    uintptr_t start, end;
    bool full;
    uint32_t waiter;              /* CPU + 1 if the owner halts: wake it when pending is 0 */
    uint32_t pending __cacheline; /* targets that have not flushed yet */
};

/* Written by initiators. */
struct tlb_mailbox {
    uint32_t attention;
    uint64_t from[REQUEST_WORDS];
} __cacheline;

static DEFINE_PER_CPU(struct tlb_mailbox, mailbox);
static DEFINE_PER_CPU(struct tlb_request, requests)[2];
static DEFINE_PER_CPU(uint64_t, full_count);
static DEFINE_PER_CPU(uint64_t, range_count);
static DEFINE_PER_CPU(uint64_t, ipi_count);
static DEFINE_PER_CPU(uint32_t, idle); /* halted, or about to be; for the report */

/* CPUs that answer; each sets its own bit. */
static uint64_t online[ONLINE_WORDS];

void (*tlb_trace)(uintptr_t start, uintptr_t end, bool full);

/* ---- this CPU ---- */

void tlb_flush_local_all(void)
{
    WRITE_CR(3, READ_CR(3));
}

void tlb_flush_local_range(uintptr_t start, uintptr_t end)
{
    uintptr_t va = ALIGN_DOWN(start, PAGE_SIZE);

    end = ALIGN_UP(end, PAGE_SIZE);
    if ((end - va) / PAGE_SIZE > TLB_RANGE_MAX_PAGES) {
        tlb_flush_local_all();
        return;
    }
    for (; va < end; va += PAGE_SIZE)
        __asm__ volatile("invlpg (%0)" ::"r"(va) : "memory");
}

/* Global entries too, which a CR3 load keeps (SDM 3A 4.10.4.1). */
static void flush_local_global(void)
{
    unsigned long flags = irq_save();
    uint64_t cr4 = READ_CR(4);

    if (cr4 & CR4_PGE) {
        WRITE_CR(4, cr4 & ~CR4_PGE);
        WRITE_CR(4, cr4);
    } else {
        tlb_flush_local_all();
    }
    irq_restore(flags);
}

static void flush_local(uintptr_t start, uintptr_t end, bool full)
{
    if (full)
        tlb_flush_local_all();
    else
        tlb_flush_local_range(start, end);
}

/* ---- target ---- */

static struct tlb_request *request_of(unsigned bit)
{
    return &(*per_cpu_ptr(&requests, bit / 2))[bit % 2];
}

/* The owner announces that it halts before it looks at `pending` for the last time. If it has gone
 * on already, the wake-up is for nothing, which every HLT can bear. */
static void answered(struct tlb_request *r)
{
    uint32_t waiter;

    if (ATOMIC_SUB(r->pending, 1) != 1)
        return;
    waiter = READ_ONCE(r->waiter);
    if (waiter)
        smp_wake(waiter - 1);
}

/* The flush must be complete before the initiator sees the count go down: INVLPG and CR3 loads are
 * serialising, and the decrement is a full fence. */
static void answer_word(uint64_t bits, unsigned first)
{
    while (bits) {
        struct tlb_request *r = request_of(first + (unsigned)__builtin_ctzll(bits));

        flush_local(r->start, r->end, r->full);
        answered(r);
        bits &= bits - 1;
    }
}

/* `attention` goes down before the bits are taken: whoever sets a bit later raises it again. An
 * interrupt in between may take bits too; each bit is taken by one exchange. */
static void answer(struct tlb_mailbox *m)
{
    unsigned i, words = BITMAP_WORDS(2 * smp_cpu_slots());

    ATOMIC_XCHG(m->attention, 0);
    for (i = 0; i < words; i++) {
        if (READ_ONCE(m->from[i]))
            answer_word(ATOMIC_XCHG(m->from[i], 0), i * 64);
    }
}

void tlb_poll(void)
{
    struct tlb_mailbox *m = this_cpu_ptr(&mailbox);

    if (unlikely(READ_ONCE(m->attention)))
        answer(m);
    tlb_gen_check();
}

static void tlb_interrupt(struct trap_frame *f)
{
    (void)f;
    tlb_poll();
}

/* ---- initiator ---- */

/* Sets the request's bit at each other online CPU and returns how many IPIs that took. `pending`
 * counts up before the bit is visible, and was set to 1 for the initiator itself, so it cannot
 * reach 0 early. */
static unsigned post(struct tlb_request *r, unsigned bit, unsigned self)
{
    unsigned cpu, ipis = 0, slots = smp_cpu_slots();

    bitmap_for_each_set (cpu, online, slots) {
        struct tlb_mailbox *m;
        unsigned long flags;

        if (cpu == self)
            continue;
        m = per_cpu_ptr(&mailbox, cpu);
        ATOMIC_ADD(r->pending, 1);
        ATOMIC_OR(m->from[bit / 64], BIT(bit % 64));
        /* Others rely on the IPI from here on, this CPU's interrupt handlers among them. */
        flags = irq_save();
        if (ATOMIC_XCHG(m->attention, 1) == 0) {
            apic_send_ipi(smp_apic_id(cpu), VECTOR_TLB);
            ipis++;
        }
        irq_restore(flags);
    }
    return ipis;
}

static void __cold no_answer(struct tlb_request *r, unsigned bit)
{
    unsigned cpu, slots = smp_cpu_slots();

    kprintf("# tlb: cpu %u waits for %u CPUs to flush %#lx..%#lx%s\n", this_cpu_id(),
            READ_ONCE(r->pending), r->start, r->end, r->full ? " (all)" : "");
    bitmap_for_each_set (cpu, online, slots) {
        struct tlb_mailbox *m = per_cpu_ptr(&mailbox, cpu);

        if (READ_ONCE(m->from[bit / 64]) & BIT(bit % 64))
            kprintf("# tlb: cpu %u has not answered: attention=%u idle=%u\n", cpu,
                    READ_ONCE(m->attention), READ_ONCE(*per_cpu_ptr(&idle, cpu)));
    }
    panic("a TLB shootdown was not answered within %u s", ANSWER_LIMIT_US / 1000000);
}

/*
 * Halts until an interrupt, if that can be done here. With interrupts masked, or in a handler, only
 * those of the highest class may come in, which TLB requests and wake-ups are in; not on the boot
 * CPU, whose timer must get through for the watchdog's sake: it spins.
 */
static bool halt_once(const struct tlb_request *r)
{
    bool enabled = irqs_enabled();

    if (!smp_cpus_take_turns())
        return false;
    if (!enabled && (this_cpu_id() == 0 || apic_high_in_service()))
        return false;
    irq_disable();
    if (enabled)
        timer_ensure(ANSWER_LIMIT_US);
    if (LOAD_ACQUIRE(r->pending)) {
        if (enabled)
            cpu_idle_wait();
        else
            cpu_idle_wait_high();
    }
    if (enabled)
        irq_enable();
    return true;
}

static void wait_answers(struct tlb_request *r, unsigned bit)
{
    struct clock_limit limit, spin;

    clock_limit_start(&limit, ANSWER_LIMIT_US);
    clock_limit_start(&spin, SPIN_US);
    while (LOAD_ACQUIRE(r->pending)) {
        tlb_poll();
        if (clock_limit_over(&spin)) {
            (void)ATOMIC_XCHG(r->waiter, this_cpu_id() + 1);
            if (!halt_once(r))
                cpu_relax();
        } else {
            cpu_relax();
        }
        if (clock_limit_over(&limit))
            no_answer(r, bit);
    }
}

/*
 * The entries were changed before the call; the atomics of post() order those stores before the
 * descriptor's bit, and the bit before the flush of the target.
 */
static void shootdown(uintptr_t start, uintptr_t end, bool full)
{
    unsigned self = this_cpu_id();
    unsigned bit = 2 * self + (in_irq() ? 1 : 0);
    struct tlb_request *r = request_of(bit);
    unsigned ipis;

    ASSERT_DBG(!in_nmi());
    ASSERT_DBG(READ_ONCE(r->pending) == 0);
    if (unlikely(tlb_trace))
        tlb_trace(start, end, full);
    if (full)
        this_cpu_inc(full_count);
    else
        this_cpu_inc(range_count);
    r->start = start;
    r->end = end;
    r->full = full;
    r->waiter = 0;
    STORE_RELEASE(r->pending, 1);
    ipis = post(r, bit, self);
    this_cpu_add(ipi_count, ipis);
    flush_local(start, end, full);
    ATOMIC_SUB(r->pending, 1);
    wait_answers(r, bit);
}

void tlb_shootdown_range(uintptr_t start, uintptr_t end)
{
    start = ALIGN_DOWN(start, PAGE_SIZE);
    end = ALIGN_UP(end, PAGE_SIZE);
    if (start < end)
        shootdown(start, end, (end - start) / PAGE_SIZE > TLB_RANGE_MAX_PAGES);
}

void tlb_shootdown_all(void)
{
    shootdown(0, UINTPTR_MAX, true);
}

/* ---- coming, going, idling ---- */

void tlb_init(void)
{
    irq_register(VECTOR_TLB, tlb_interrupt);
    tlb_cpu_online();
}

/* The bit first: from then on others' requests reach this CPU, and what it cached before goes. */
void tlb_cpu_online(void)
{
    unsigned cpu = this_cpu_id();

    ATOMIC_OR(online[cpu / 64], BIT(cpu % 64));
    flush_local_global();
    tlb_gen_catch_up();
}

/* Requests that were posted before the bit went away are still answered, by the caller's loop. */
void tlb_cpu_offline(void)
{
    unsigned cpu = this_cpu_id();

    ATOMIC_AND(online[cpu / 64], ~BIT(cpu % 64));
}

void tlb_idle_enter(void)
{
    WRITE_ONCE(*this_cpu_ptr(&idle), 1);
    tlb_gen_idle_enter();
}

void tlb_idle_exit(void)
{
    tlb_gen_idle_exit();
    WRITE_ONCE(*this_cpu_ptr(&idle), 0);
}

void tlb_read_counters(struct tlb_counters *c)
{
    unsigned cpu;

    *c = (struct tlb_counters){0};
    for_each_cpu (cpu) {
        c->full += READ_ONCE(*per_cpu_ptr(&full_count, cpu));
        c->range += READ_ONCE(*per_cpu_ptr(&range_count, cpu));
        c->ipis += READ_ONCE(*per_cpu_ptr(&ipi_count, cpu));
    }
}
