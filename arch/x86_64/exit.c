/*
 * exit.c: ending the machine: debug exit, reset, power off, halt. Any context; every wait is
 * bounded.
 */
#include "lib/base.h"
#include <arch/cpu.h>
#include <arch/exit.h>
#include <arch/serial.h>

#define DEBUG_EXIT_PORT 0xf4 /* QEMU's isa-debug-exit; its status is 2 * value + 1 */
#define DELAY_PORT      0x80 /* an access takes about a microsecond on the LPC bus */
#define RESET_PORT      0xcf9
#define RESET_SYSTEM    0x02 /* the kind of reset: the whole system */
#define RESET_CPU       0x04 /* its rising edge triggers */
#define KBC_STATUS      0x64
#define KBC_INPUT_FULL  0x02
#define KBC_PULSE_RESET 0xfe
#define PM1_SLP_TYP     0x1c00u /* ACPI 6.5, 4.8.3.2.1 */
#define PM1_SLP_EN      0x2000u

static struct {
    uint16_t pm1a, pm1b;
    uint8_t typa, typb;
} s5;
static uint16_t reset_port;
static uint8_t reset_value;
static enum kernel_end end_kind = KERNEL_END_AUTO;

void machine_set_s5(uint16_t pm1a_cnt, uint16_t pm1b_cnt, uint8_t slp_typa, uint8_t slp_typb)
{
    s5.pm1a = pm1a_cnt;
    s5.pm1b = pm1b_cnt;
    s5.typa = slp_typa;
    s5.typb = slp_typb;
}

void machine_set_reset(uint16_t port, uint8_t value)
{
    reset_port = port;
    reset_value = value;
}

void kernel_set_end(enum kernel_end how)
{
    end_kind = how;
}

static void __noreturn halt_for_good(void)
{
    for (;;)
        __asm__ volatile("cli; hlt");
}

static void delay(unsigned us)
{
    while (us--)
        outb(DELAY_PORT, 0);
}

static void pm1_write(uint16_t port, uint8_t typ)
{
    uint16_t v = inw(port);

    outw(port, (uint16_t)((v & ~(PM1_SLP_TYP | PM1_SLP_EN)) | ((typ & 7u) << 10) | PM1_SLP_EN));
}

static void power_off(void)
{
    if (!s5.pm1a)
        return;
    if (s5.pm1b)
        pm1_write(s5.pm1b, s5.typb);
    pm1_write(s5.pm1a, s5.typa);
    delay(2000000);
}

static void reboot(void)
{
    struct {
        uint16_t limit;
        uint64_t base;
    } __packed none = {0, 0};
    unsigned tries;

    if (reset_port) {
        outb(reset_port, reset_value);
        delay(100000);
    }
    outb(RESET_PORT, RESET_SYSTEM);
    delay(100);
    outb(RESET_PORT, RESET_SYSTEM | RESET_CPU);
    delay(100000);
    for (tries = 0; tries < 100000 && (inb(KBC_STATUS) & KBC_INPUT_FULL); tries++)
        delay(1);
    outb(KBC_STATUS, KBC_PULSE_RESET);
    delay(100000);
    /* No IDT: the breakpoint becomes a triple fault, which resets the processor. */
    __asm__ volatile("lidt %0; int3" ::"m"(none));
}

void kernel_end(enum kernel_end how)
{
    irq_disable();
    serial_drain();
    if (how == KERNEL_END_POWEROFF || (how == KERNEL_END_AUTO && cpu_features.hypervisor_present))
        power_off();
    else if (how == KERNEL_END_REBOOT)
        reboot();
    halt_for_good();
}

void kernel_exit(unsigned verdict)
{
    irq_disable();
    serial_drain();
    if (cpu_features.hypervisor_present)
        outb(DEBUG_EXIT_PORT, (uint8_t)verdict);
    kernel_end(end_kind);
}
