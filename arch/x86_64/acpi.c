/*
 * acpi.c: see acpi.h. Finding and judging tables is in acpi_tables.c, madt.c and srat.c, which the
 * host tests run too; this file keeps the results and says what was left out.
 *
 * Boot CPU only until acpi_init() has returned, constant afterwards.
 */
#include <arch/acpi.h>
#include <arch/apic.h>
#include <arch/console.h>
#include <arch/cpu.h>
#include <arch/exit.h>
#include <arch/page.h>

#include "lib/printf.h"
#include "lib/string.h"

#define IOAPICS_MAX   16
#define COMPLAINT_MAX 16

static struct {
    struct acpi_reader reader;
    phys_addr_t limit;
    struct srat srat; /* its table is readable until paging_init() */
    bool has_srat;
    phys_addr_t others; /* struct acpi_cpu[n_others] */
    unsigned n_others;
    unsigned boot_node;
    struct acpi_gas pm_timer;
    bool pm_timer_32;
    phys_addr_t hpet;
    phys_addr_t ioapics[IOAPICS_MAX];
    bool x2apic_opt_out;
    /* What has been complained about; tables are looked at once per search. */
    phys_addr_t complaints[COMPLAINT_MAX];
    unsigned n_complaints;
} acpi;

static const void *map_identity(phys_addr_t pa, size_t len)
{
    if (pa == 0 || pa >= acpi.limit || len > acpi.limit - pa)
        return NULL;
    return (const void *)pa;
}

/* Signatures are copied: they may hold anything. */
static void print_complaint(const char *what, const char *sig, phys_addr_t pa)
{
    char name[5];
    unsigned i;

    for (i = 0; i < acpi.n_complaints; i++) {
        if (acpi.complaints[i] == pa)
            return;
    }
    if (acpi.n_complaints < COMPLAINT_MAX)
        acpi.complaints[acpi.n_complaints++] = pa;
    for (i = 0; i < 4; i++)
        name[i] = sig[i] >= ' ' && sig[i] <= '~' ? sig[i] : '?';
    name[4] = '\0';
    kprintf("# acpi: table %s at %#lx ignored: %s\n", name, pa, what);
}

static void read_fadt(void)
{
    struct acpi_fadt f;
    uint32_t len;
    const uint8_t *t = acpi_find(&acpi.reader, "FACP", 0, &len);
    uint8_t typa, typb;

    if (!t)
        return;
    acpi_parse_fadt(t, len, &f);
    acpi.pm_timer = f.pm_timer;
    acpi.pm_timer_32 = f.pm_timer_32;
    if (f.reset_supported && f.reset.space == 1 && f.reset.addr && f.reset.addr <= 0xffff)
        machine_set_reset((uint16_t)f.reset.addr, f.reset_value);
    t = f.dsdt ? acpi_table_at(&acpi.reader, f.dsdt, "DSDT", &len) : NULL;
    if (!t || !acpi_find_s5(t, len, &typa, &typb))
        return;
    if (f.pm1a_cnt.space == 1 && f.pm1a_cnt.addr && f.pm1a_cnt.addr <= 0xffff)
        machine_set_s5((uint16_t)f.pm1a_cnt.addr,
                       f.pm1b_cnt.space == 1 ? (uint16_t)f.pm1b_cnt.addr : 0, typa, typb);
}

static void read_spcr(void)
{
    struct acpi_spcr s;
    uint32_t len;
    const uint8_t *t = acpi_find(&acpi.reader, "SPCR", 0, &len);
    unsigned access, stride;

    if (!t || !acpi_parse_spcr(t, len, &s))
        return;
    access = s.base.access ? 1u << (s.base.access - 1) : 1;
    stride = MAX(access, s.base.space == 0 ? s.base.bit_width / 8u : 1u);
    console_add_spcr(s.base.space, s.base.addr, access, stride, s.baud, s.clock);
}

static void read_small_tables(void)
{
    uint32_t len;
    const uint8_t *t = acpi_find(&acpi.reader, "HPET", 0, &len);

    if (t && !acpi_parse_hpet(t, len, &acpi.hpet))
        acpi.hpet = 0;
    t = acpi_find(&acpi.reader, "DMAR", 0, &len);
    if (t)
        acpi.x2apic_opt_out = acpi_dmar_x2apic_opt_out(t, len);
    t = acpi_find(&acpi.reader, "SRAT", 0, &len);
    acpi.has_srat = t && srat_open(&acpi.srat, t, len) == OK;
}

static void print_madt(const struct madt_result *r)
{
    if (r->cut)
        kprintf("# acpi: MADT: an entry of wrong length; what is behind it is ignored\n");
    if (r->need_x2apic)
        kprintf("# acpi: MADT: %u CPUs with APIC IDs above 254 ignored: no x2APIC\n",
                r->need_x2apic);
    if (r->bogus || r->duplicates || r->disabled)
        kprintf("# acpi: MADT: ignored entries: %u disabled, %u duplicate, %u filler\n",
                r->disabled, r->duplicates, r->bogus);
}

/* All CPUs of the MADT but the calling one. */
static void keep_others(struct madt_cpu *cpus, unsigned n)
{
    struct acpi_cpu *others = early_virt(acpi.others);
    uint32_t self = apic_initial_id();

    acpi.n_others = madt_others(cpus, n, self);
    for (unsigned i = 0; i < acpi.n_others; i++) {
        others[i].apic_id = cpus[i].apic_id;
        others[i].uid = cpus[i].uid;
        others[i].node = acpi.has_srat ? srat_cpu_node(&acpi.srat, cpus[i].apic_id) : 0;
    }
    if (acpi.n_others == n)
        kprintf("# acpi: the boot CPU (APIC ID %u) is not in the MADT\n", self);
    if (acpi.has_srat)
        acpi.boot_node = srat_cpu_node(&acpi.srat, self);
}

static void read_madt(early_alloc_fn alloc)
{
    bool x2apic = apic_x2apic_possible();
    struct madt_cpu *cpus;
    struct madt_result r;
    uint32_t len, len2;
    const uint8_t *t = acpi_find(&acpi.reader, "APIC", 0, &len);
    phys_addr_t pa, others;
    unsigned i, n;

    if (!t || madt_parse(t, len, x2apic, NULL, 0, &r) != OK) {
        kprintf("# acpi: no MADT: only the boot CPU is used\n");
        return;
    }
    if (acpi_find(&acpi.reader, "APIC", 1, &len2))
        kprintf("# acpi: more than one MADT: the first is used\n");
    for (i = 0; i < IOAPICS_MAX && madt_ioapic(t, len, i, &acpi.ioapics[i]); i++)
        ;
    n = MAX(r.candidates, 1u);
    pa = alloc(ALIGN_UP(n * sizeof(*cpus), PAGE_SIZE), PAGE_SIZE, acpi.limit);
    others = alloc(ALIGN_UP(n * sizeof(struct acpi_cpu), PAGE_SIZE), PAGE_SIZE, acpi.limit);
    if (!pa || !others) {
        kprintf("# acpi: no memory for the list of CPUs: only the boot CPU is used\n");
        return;
    }
    cpus = early_virt(pa);
    madt_parse(t, len, x2apic, cpus, n, &r);
    print_madt(&r);
    acpi.others = others;
    keep_others(cpus, r.usable);
}

void acpi_init(phys_addr_t rsdp, phys_addr_t identity_limit, early_alloc_fn alloc)
{
    acpi.limit = identity_limit;
    acpi.reader.map = map_identity;
    acpi.reader.complain = print_complaint;
    if (!rsdp || acpi_open(&acpi.reader, rsdp) != OK) {
        kprintf("# acpi: none: only the boot CPU is used\n");
        return;
    }
    read_fadt();
    read_spcr();
    read_small_tables();
    read_madt(alloc);
}

size_t acpi_set_nodes(struct mem_range *map, size_t n, size_t cap)
{
    return acpi.has_srat ? srat_apply(&acpi.srat, map, n, cap) : n;
}

unsigned acpi_other_cpus(void)
{
    return acpi.n_others;
}

const struct acpi_cpu *acpi_other_cpu(unsigned i)
{
    const struct acpi_cpu *others = early_virt(acpi.others);

    return i < acpi.n_others ? &others[i] : NULL;
}

unsigned acpi_boot_node(void)
{
    return acpi.boot_node;
}

unsigned acpi_nodes(void)
{
    return acpi.has_srat ? acpi.srat.nodes : 1;
}

const struct acpi_gas *acpi_pm_timer(bool *is_32_bit)
{
    *is_32_bit = acpi.pm_timer_32;
    return &acpi.pm_timer;
}

phys_addr_t acpi_hpet(void)
{
    return acpi.hpet;
}

phys_addr_t acpi_ioapic(unsigned i)
{
    return i < IOAPICS_MAX ? acpi.ioapics[i] : 0;
}

bool acpi_x2apic_opt_out(void)
{
    return acpi.x2apic_opt_out;
}
