/*
 * madt.c: the list of CPUs in the MADT (ACPI 6.5, 5.2.12). See acpi_tables.h.
 *
 * Real tables hold fillers of ones, the same CPU twice, and entries of both types for one CPU
 * (cases G6, G7, G14); what is left out is counted, for the log.
 */
#include <arch/acpi_tables.h>

#include "arch/x86_64/acpi_bytes.h"

#define MADT_FIRST 44 /* header, address of the local APICs, flags */

#define TYPE_LAPIC       0
#define TYPE_IOAPIC      1
#define TYPE_LAPIC_ADDR  5
#define TYPE_X2APIC      9
#define XAPIC_BROADCAST  0xffu
#define X2APIC_BROADCAST 0xffffffffu
#define FLAG_ENABLED     BIT(0) /* bit 1, online capable, is a CPU that is not there yet */

static struct acpi_walk walk_of(const uint8_t *t)
{
    return (struct acpi_walk){.table = t, .len = bytes_u32(t, 4), .at = MADT_FIRST};
}

static bool is_lapic(const uint8_t *e)
{
    return e[0] == TYPE_LAPIC && e[1] >= 8;
}

static bool is_x2apic(const uint8_t *e)
{
    return e[0] == TYPE_X2APIC && e[1] >= 16;
}

static bool has_lapics(const uint8_t *t)
{
    struct acpi_walk w = walk_of(t);
    const uint8_t *e;

    while ((e = acpi_walk_next(&w))) {
        if (is_lapic(e) && e[3] != XAPIC_BROADCAST && (bytes_u32(e, 4) & FLAG_ENABLED))
            return true;
    }
    return false;
}

static bool listed(const struct madt_cpu *out, unsigned n, uint32_t apic_id)
{
    unsigned i;

    for (i = 0; i < n; i++) {
        if (out[i].apic_id == apic_id)
            return true;
    }
    return false;
}

static void add(const struct madt_cpu *cpu, bool x2apic, struct madt_cpu *out, size_t cap,
                struct madt_result *r)
{
    r->candidates++;
    if (cpu->apic_id >= XAPIC_BROADCAST && !x2apic)
        r->need_x2apic++;
    else if (listed(out, r->usable, cpu->apic_id))
        r->duplicates++;
    else if (r->usable >= cap)
        r->dropped++;
    else
        out[r->usable++] = *cpu;
}

static void take_entry(const uint8_t *e, bool lapics, bool x2apic, struct madt_cpu *out, size_t cap,
                       struct madt_result *r)
{
    bool x2 = is_x2apic(e);
    struct madt_cpu cpu = {
        .apic_id = x2 ? bytes_u32(e, 4) : e[3],
        .uid = x2 ? bytes_u32(e, 12) : e[2],
    };
    uint32_t flags = bytes_u32(e, x2 ? 8 : 4);

    if (cpu.apic_id == (x2 ? X2APIC_BROADCAST : XAPIC_BROADCAST))
        r->bogus++;
    else if (!(flags & FLAG_ENABLED))
        r->disabled++;
    else if (x2 && lapics && cpu.apic_id < XAPIC_BROADCAST)
        r->duplicates++;
    else
        add(&cpu, x2apic, out, cap, r);
}

err_t madt_parse(const uint8_t *t, size_t size, bool x2apic, struct madt_cpu *out, size_t cap,
                 struct madt_result *r)
{
    struct acpi_walk w;
    const uint8_t *e;
    bool lapics;

    memset(r, 0, sizeof(*r));
    if (!acpi_table_sound(t, size, MADT_FIRST) || memcmp(t, "APIC", 4) != 0)
        return ERR_INVAL;
    r->lapic_addr = bytes_u32(t, 36);
    r->pcat = bytes_u32(t, 40) & 1;
    lapics = has_lapics(t);
    w = walk_of(t);
    while ((e = acpi_walk_next(&w))) {
        if (is_lapic(e) || is_x2apic(e)) {
            take_entry(e, lapics, x2apic, out, cap, r);
            continue;
        }
        if (e[0] == TYPE_LAPIC_ADDR && e[1] >= 12)
            r->lapic_addr = bytes_u64(e, 4);
        r->other++;
    }
    r->cut = w.cut;
    return OK;
}

unsigned madt_others(struct madt_cpu *cpus, unsigned n, uint32_t self)
{
    unsigned left = 0;

    for (unsigned i = 0; i < n; i++) {
        if (cpus[i].apic_id != self)
            cpus[left++] = cpus[i];
    }
    return left;
}

bool madt_ioapic(const uint8_t *t, size_t size, unsigned n, phys_addr_t *addr)
{
    struct acpi_walk w;
    const uint8_t *e;

    if (!acpi_table_sound(t, size, MADT_FIRST))
        return false;
    w = walk_of(t);
    while ((e = acpi_walk_next(&w))) {
        if (e[0] != TYPE_IOAPIC || e[1] < 12 || n-- != 0)
            continue;
        *addr = bytes_u32(e, 4);
        return true;
    }
    return false;
}
