/*
 * irq_sources.c: see irq_sources.h.
 *
 * The 8259s are masked even if the MADT does not mention them: where there are none, the ports are
 * silent. I/O APIC: Intel 82093AA datasheet; each has an index and a data register.
 */
#include <arch/acpi.h>
#include <arch/cpu.h>
#include <arch/page.h>
#include <arch/paging.h>

#include "arch/x86_64/irq_sources.h"
#include "lib/bitmap.h"
#include "lib/printf.h"

#define PIC1_DATA       0x21
#define PIC2_DATA       0xa1
#define IOAPICS_MAX     16
#define PINS_MAX        256
#define IOAPIC_VERSION  1
#define IOAPIC_PIN(n)   (0x10 + 2 * (n))
#define PIN_MASKED      BIT(16)
#define PIN_MODE        0x700u
#define HPET_CAPS       0x000
#define HPET_TIMER(n)   (0x100 + 0x20 * (n))
#define HPET_TIMERS_MAX 32
#define HPET_INTERRUPT  BIT(2)
#define PIN_MODE_SMI    0x200u

static uint8_t pic_masks[2];
static struct {
    volatile uint32_t *regs; /* NULL: not there */
    unsigned pins;
    uint64_t unmasked[BITMAP_WORDS(PINS_MAX)]; /* by us: were live */
} ioapics[IOAPICS_MAX];

static volatile uint32_t *hpet; /* NULL: not there */
static uint32_t hpet_unmasked;  /* timers whose interrupt was on */

static uint32_t ioapic_read(volatile uint32_t *regs, unsigned index)
{
    regs[0] = index;
    return regs[4];
}

static void ioapic_write(volatile uint32_t *regs, unsigned index, uint32_t v)
{
    regs[0] = index;
    regs[4] = v;
}

static void ioapic_mask(unsigned i, phys_addr_t base)
{
    volatile uint32_t *regs;
    uint32_t version;
    unsigned pin;

    regs = arch_ioremap ? arch_ioremap(base, PAGE_SIZE, CACHE_UC) : NULL;
    if (!regs)
        return;
    version = ioapic_read(regs, IOAPIC_VERSION);
    if (version == UINT32_MAX) {
        kprintf("# apic: I/O APIC at %#lx does not answer\n", base);
        return;
    }
    ioapics[i].regs = regs;
    ioapics[i].pins = (version >> 16 & 0xff) + 1;
    for (pin = 0; pin < ioapics[i].pins; pin++) {
        uint32_t v = ioapic_read(regs, IOAPIC_PIN(pin));

        if ((v & PIN_MASKED) || (v & PIN_MODE) == PIN_MODE_SMI)
            continue;
        bitmap_set_bit(ioapics[i].unmasked, pin);
        ioapic_write(regs, IOAPIC_PIN(pin), v | (uint32_t)PIN_MASKED);
    }
}

static void hpet_mask(phys_addr_t base)
{
    unsigned n, timers;

    hpet = base && arch_ioremap ? arch_ioremap(base, PAGE_SIZE, CACHE_UC) : NULL;
    if (!hpet)
        return;
    timers = hpet[HPET_CAPS / 4] == UINT32_MAX ? 0 : (hpet[HPET_CAPS / 4] >> 8 & 0x1f) + 1;
    for (n = 0; n < timers; n++) {
        uint32_t v = hpet[HPET_TIMER(n) / 4];

        if (!(v & HPET_INTERRUPT))
            continue;
        hpet_unmasked |= (uint32_t)BIT(n);
        hpet[HPET_TIMER(n) / 4] = v & ~(uint32_t)HPET_INTERRUPT;
    }
}

static void hpet_restore(void)
{
    unsigned n;

    for (n = 0; n < HPET_TIMERS_MAX; n++) {
        if (hpet_unmasked & BIT(n))
            hpet[HPET_TIMER(n) / 4] |= (uint32_t)HPET_INTERRUPT;
    }
}

void irq_sources_mask(void)
{
    phys_addr_t base;
    unsigned i;

    pic_masks[0] = inb(PIC1_DATA);
    pic_masks[1] = inb(PIC2_DATA);
    outb(PIC1_DATA, 0xff);
    outb(PIC2_DATA, 0xff);
    for (i = 0; i < IOAPICS_MAX && (base = acpi_ioapic(i)) != 0; i++)
        ioapic_mask(i, base);
    hpet_mask(acpi_hpet());
}

void irq_sources_restore(void)
{
    unsigned i, pin;

    for (i = 0; i < IOAPICS_MAX; i++) {
        volatile uint32_t *regs = ioapics[i].regs;

        if (!regs)
            continue;
        bitmap_for_each_set (pin, ioapics[i].unmasked, ioapics[i].pins)
            ioapic_write(regs, IOAPIC_PIN(pin),
                         ioapic_read(regs, IOAPIC_PIN(pin)) & ~(uint32_t)PIN_MASKED);
    }
    hpet_restore();
    outb(PIC1_DATA, pic_masks[0]);
    outb(PIC2_DATA, pic_masks[1]);
}
