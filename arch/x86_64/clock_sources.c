/*
 * clock_sources.c: PM timer, HPET, PIT. See clock_sources.h.
 *
 * All three are counters that wrap; a sample reads one together with the TSC at its begin and end.
 * Any of them may be missing, gated, or all ones (pitfall 24), so every loop ends after a number of
 * reads.
 */
#include <arch/acpi.h>
#include <arch/clock.h>
#include <arch/cpu.h>
#include <arch/page.h>
#include <arch/paging.h>

#include "arch/x86_64/clock_sources.h"

#define PM_HZ      3579545u /* ACPI 6.5, 4.8.3.3 */
#define FS_PER_S   1000000000000000ULL
#define PIT_HZ     1193182u
#define PIT_PERIOD 0x10000u

#define HPET_PERIOD     0x004 /* upper half of the capabilities: femtoseconds a tick */
#define HPET_CONFIG     0x010
#define HPET_COUNTER    0x0f0
#define HPET_PERIOD_MAX 100000000u /* IA-PC HPET 1.0a, 2.3.4 */
#define HPET_ENABLE     BIT(0)

#define PIT_COUNTER2 0x42
#define PIT_COMMAND  0x43
#define PIT_GATE     0x61 /* bit 0: gate of counter 2, bit 1: speaker, bit 5: counter 2's output */

/* A read of such a register takes 0.1 us at the least: this many are 10 ms and more. With none of
 * them moving the counter, it stands still. */
#define STILL_READS  100000u
#define SAMPLE_READS 100000000u
#define PAIR_TRIES   5

struct counter {
    uint32_t (*read)(void);
    uint32_t mask;
    uint64_t hz;
};

static struct counter counter; /* the one that is open */
static struct acpi_gas pm_gas;
static volatile uint32_t *pm_mmio, *hpet;
static uint32_t hpet_config;
static uint8_t pit_gate;

/* ---- any counter ---- */

/* A reading and the TSC that goes with it: the try on which the least came between. */
static uint32_t read_pair(uint64_t *tsc)
{
    uint64_t best = UINT64_MAX;
    uint32_t value = 0;
    unsigned i;

    for (i = 0; i < PAIR_TRIES; i++) {
        uint64_t t0 = cycles_begin();
        uint32_t v = counter.read();
        uint64_t t1 = cycles_begin();

        if (t1 - t0 < best) {
            best = t1 - t0;
            value = v;
            *tsc = t0 + (t1 - t0) / 2;
        }
    }
    return value;
}

static bool counts(void)
{
    uint32_t first = counter.read();
    unsigned i;

    for (i = 0; i < STILL_READS; i++) {
        if (((counter.read() - first) & counter.mask) != 0)
            return true;
        cpu_relax();
    }
    return false;
}

static uint64_t sample(unsigned us)
{
    uint64_t want = counter.hz * us / 1000000, t0, t1 = 0;
    uint32_t c0 = read_pair(&t0), passed = 0;
    unsigned i;

    for (i = 0; i < SAMPLE_READS && passed < want; i++) {
        passed = (counter.read() - c0) & counter.mask;
        if (i == STILL_READS && passed == 0)
            return 0;
        cpu_relax();
    }
    passed = (read_pair(&t1) - c0) & counter.mask;
    return passed >= want ? (t1 - t0) * counter.hz / passed : 0;
}

/* ---- PM timer ---- */

static uint32_t pm_read(void)
{
    return pm_mmio ? *pm_mmio : inl((uint16_t)pm_gas.addr);
}

static bool pm_open(void)
{
    bool wide;

    pm_gas = *acpi_pm_timer(&wide);
    if (!pm_gas.addr || pm_gas.space > 1 || (pm_gas.space == 1 && pm_gas.addr > 0xffff))
        return false;
    if (pm_gas.space == 0) {
        pm_mmio = arch_ioremap ? arch_ioremap(pm_gas.addr, sizeof(uint32_t), CACHE_UC) : NULL;
        if (!pm_mmio)
            return false;
    }
    counter = (struct counter){pm_read, wide ? UINT32_MAX : 0xffffff, PM_HZ};
    return counts();
}

/* ---- HPET ---- */

static uint32_t hpet_read(void)
{
    return hpet[HPET_COUNTER / 4];
}

static void hpet_close(void)
{
    hpet[HPET_CONFIG / 4] = hpet_config;
}

/* Firmware may leave it stopped: it runs for the measurement. */
static bool hpet_open(void)
{
    phys_addr_t base = acpi_hpet();
    uint32_t period;

    if (!base || !arch_ioremap)
        return false;
    hpet = arch_ioremap(base, 0x400, CACHE_UC);
    if (!hpet)
        return false;
    period = hpet[HPET_PERIOD / 4];
    if (period == 0 || period > HPET_PERIOD_MAX)
        return false;
    hpet_config = hpet[HPET_CONFIG / 4];
    hpet[HPET_CONFIG / 4] = hpet_config | HPET_ENABLE;
    counter = (struct counter){hpet_read, UINT32_MAX, FS_PER_S / period};
    if (counts())
        return true;
    hpet_close();
    return false;
}

/* ---- PIT, counter 2: it has a gate and its output goes nowhere but to the speaker ---- */

/* It counts down; turned round, so that it looks like the others. */
static uint32_t pit_read(void)
{
    uint32_t v;

    outb(PIT_COMMAND, 0x80); /* latch counter 2 */
    v = inb(PIT_COUNTER2);
    v |= (uint32_t)inb(PIT_COUNTER2) << 8;
    return PIT_PERIOD - v;
}

static void pit_close(void)
{
    outb(PIT_GATE, pit_gate);
}

static bool pit_open(void)
{
    pit_gate = inb(PIT_GATE);
    outb(PIT_GATE, (uint8_t)((pit_gate & ~2u) | 1u));
    outb(PIT_COMMAND, 0xb4); /* counter 2, both bytes, mode 2: reloads itself */
    outb(PIT_COUNTER2, 0);
    outb(PIT_COUNTER2, 0);
    counter = (struct counter){pit_read, PIT_PERIOD - 1, PIT_HZ};
    if (counts())
        return true;
    pit_close();
    return false;
}

const struct clock_meter clock_meters[] = {
    {"pmtimer", pm_open, sample, NULL},
    {"hpet", hpet_open, sample, hpet_close},
    {"pit", pit_open, sample, pit_close},
};
const size_t clock_meter_count = ARRAY_SIZE(clock_meters);
