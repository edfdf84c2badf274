/*
 * panic.c: the one way to stop. Any context, NMI and #MC included.
 *
 * The first CPU to come owns the panic; it stops the others by NMI, so that nothing that it
 * prints is mixed with their lines and nothing changes any more. A panic inside a panic prints one
 * line and ends the machine; a third one ends it silently.
 */
#include "arch/x86_64/panic.h"
#include "lib/assert.h"
#include "lib/base.h"
#include "lib/printf.h"
#include "lib/string.h"
#include <arch/atomic.h>
#include <arch/clock.h>
#include <arch/console.h>
#include <arch/cpu.h>
#include <arch/exit.h>
#include <arch/gdt.h>
#include <arch/percpu.h>
#include <arch/smp.h>
#include <arch/trap.h>

#define STOP_WAIT_CYCLES 1000000000ULL /* 0.2 to 1 s */
#define STOP_WAIT_LOOPS  100000000u

static uint32_t panic_owner; /* CPU + 1 of the first to come; 0 = no panic */
static uint32_t panic_depth; /* written by the owner */
static uint32_t cpus_stopped;
static void (*stop_others)(void);
static void (*exit_hook)(unsigned verdict);
static char panic_text[512];

void panic_set_exit(void (*fn)(unsigned verdict))
{
    exit_hook = fn;
}

void panic_set_stop_others(void (*fn)(void))
{
    stop_others = fn;
}

bool panic_active(void)
{
    return READ_ONCE(panic_owner) != 0;
}

static void __noreturn halt_for_good(void)
{
    for (;;)
        __asm__ volatile("cli; hlt");
}

void panic_nmi(void)
{
    uint32_t owner = READ_ONCE(panic_owner);

    if (owner == 0 || owner == this_cpu_id() + 1)
        return;
    ATOMIC_ADD(cpus_stopped, 1);
    halt_for_good();
}

static void panic_exit(void)
{
    if (exit_hook)
        exit_hook(EXIT_PANIC);
    kernel_exit(EXIT_PANIC);
}

/* True for the first panic of the machine. */
static bool panic_claim(void)
{
    uint32_t me = this_cpu_id() + 1;
    uint32_t owner = 0;

    if (!ATOMIC_CAS(panic_owner, &owner, me) && owner != me)
        halt_for_good();
    return ++panic_depth == 1;
}

static void stop_and_wait(void)
{
    unsigned others = smp_cpus() - 1;
    uint64_t start = rdtsc();
    unsigned loops = 0;

    if (others == 0 || !stop_others)
        return;
    stop_others();
    while (READ_ONCE(cpus_stopped) < others && loops++ < STOP_WAIT_LOOPS &&
           rdtsc() - start < STOP_WAIT_CYCLES)
        cpu_relax();
}

bool panic_take_over(void)
{
    irq_disable();
    if (!panic_claim())
        return false;
    stop_and_wait();
    console_break_lock();
    return true;
}

static void panic_vbegin(const char *fmt, va_list ap)
{
    char text[sizeof(panic_text)];

    kvsnprintf(text, sizeof(text), fmt, ap);
    if (panic_take_over()) {
        str_copy(panic_text, text, sizeof(panic_text));
        kprintf("# panic: %s\n", text);
        return;
    }
    if (panic_depth == 2)
        kprintf("\n# panic: again, while this was being reported: %s\n# panic: %s\nRESULT: PANIC\n",
                panic_text, text);
    kernel_exit(EXIT_PANIC);
}

void panic_begin(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    panic_vbegin(fmt, ap);
    va_end(ap);
}

void panic_end(void)
{
    unsigned others = smp_cpus() - 1;

    if (!gdt_stacks_intact())
        kprintf("# panic: an exception stack of this CPU has overflowed\n");
    if (READ_ONCE(cpus_stopped) < others)
        kprintf("# panic: %u of %u other CPUs stopped\n", READ_ONCE(cpus_stopped), others);
    kprintf("RESULT: PANIC\n");
    panic_exit();
    halt_for_good();
}

void panic(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    panic_vbegin(fmt, ap);
    va_end(ap);
    trap_print_cpu();
    backtrace_print_chain((uintptr_t)__builtin_frame_address(0));
    panic_end();
}
