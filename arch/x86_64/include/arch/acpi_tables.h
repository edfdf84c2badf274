/*
 * acpi_tables.h: reading ACPI tables as what they are: bytes from a firmware that may be wrong.
 *
 * No hardware and no state: the host tests and fuzzers feed it arrays. Nothing is read outside of
 * the bytes given, every walk ends, all fields are taken by memcpy. Offsets: ACPI 6.5, section 5.2.
 */
#ifndef ARCH_ACPI_TABLES_H
#define ARCH_ACPI_TABLES_H

#include "lib/base.h"
#include "lib/memrange.h"

/* Longer tables are refused. */
#define ACPI_TABLE_MAX (16u << 20)

/* How to get at physical memory, and whom to tell what was refused. */
struct acpi_reader {
    /* `len` bytes at pa, or NULL if they are out of reach. Stays valid while the tables are read.
     */
    const void *(*map)(phys_addr_t pa, size_t len);
    /* One refusal; sig is four characters. May be NULL. */
    void (*complain)(const char *what, const char *sig, phys_addr_t pa);
    /* Filled by acpi_open(). */
    phys_addr_t root;
    uint32_t entries;
    uint8_t entry_size; /* 8: XSDT, 4: RSDT */
};

/* Checks the RSDP and the XSDT, or the RSDT where there is no sound XSDT. ERR_NOENT if neither is.
 */
err_t acpi_open(struct acpi_reader *r, phys_addr_t rsdp);
/* The sound table number `instance` (from 0) with this signature, and its length; NULL: no more. */
const uint8_t *acpi_find(const struct acpi_reader *r, const char *sig, unsigned instance,
                         uint32_t *len);
/* The table at pa if it has this signature and is sound. */
const uint8_t *acpi_table_at(const struct acpi_reader *r, phys_addr_t pa, const char *sig,
                             uint32_t *len);
/* True if the header's length fits `size` bytes, is at least `min`, and the sum over it is 0. */
bool acpi_table_sound(const void *table, size_t size, size_t min);

/* Generic address structure: 5.2.3.2. */
struct acpi_gas {
    uint8_t space; /* 0 memory, 1 I/O */
    uint8_t bit_width;
    uint8_t access; /* 0 undefined, 1 byte, 2 word, 3 dword, 4 qword */
    uint64_t addr;  /* 0: not there */
};

struct acpi_fadt {
    struct acpi_gas pm_timer, pm1a_cnt, pm1b_cnt, reset, sleep_control;
    bool pm_timer_32; /* else 24 bits wide */
    bool reset_supported;
    bool hw_reduced;
    uint8_t reset_value;
    uint8_t acpi_enable; /* written to smi_cmd to leave legacy mode */
    uint32_t smi_cmd;
    phys_addr_t dsdt;
};
/* Fields beyond the table's length are zero. */
void acpi_parse_fadt(const uint8_t *t, uint32_t len, struct acpi_fadt *f);
/* The \_S5 package's SLP_TYPa and SLP_TYPb, by searching the AML for its name. */
bool acpi_find_s5(const uint8_t *aml, uint32_t len, uint8_t *typa, uint8_t *typb);
/* The HPET's registers; false if it is not in memory space. */
bool acpi_parse_hpet(const uint8_t *t, uint32_t len, phys_addr_t *base);

struct acpi_spcr {
    struct acpi_gas base;
    uint32_t baud;  /* 0: as it is */
    uint32_t clock; /* Hz, 0: not said */
};
/* False if it is not a 16550 or its kin. */
bool acpi_parse_spcr(const uint8_t *t, uint32_t len, struct acpi_spcr *s);
/* DMAR: the firmware asks not to switch x2APIC on. */
bool acpi_dmar_x2apic_opt_out(const uint8_t *t, uint32_t len);

struct madt_cpu {
    uint32_t apic_id;
    uint32_t uid; /* ACPI processor UID */
};
struct madt_result {
    unsigned candidates; /* enabled entries: an upper bound for usable */
    unsigned usable;     /* distinct APIC IDs that can be used and fitted into the array */
    unsigned disabled, bogus, duplicates;
    unsigned need_x2apic; /* left out for want of x2APIC */
    unsigned dropped;     /* usable, but no room in the array */
    unsigned other;       /* entries of other types */
    bool cut;             /* an entry's length was wrong: what is behind it was not read */
    bool pcat;            /* there is a pair of 8259s */
    uint64_t lapic_addr;
};
/*
 * Lists the CPUs to use in the table's order. out may be NULL with cap 0, to count candidates.
 * x2apic: IDs of 255 and above can be used. ERR_INVAL: not a sound MADT. Where there are entries of
 * type 0, those of type 9 below 255 are duplicates by definition (5.2.12.12) and are counted as
 * such.
 */
err_t madt_parse(const uint8_t *t, size_t size, bool x2apic, struct madt_cpu *out, size_t cap,
                 struct madt_result *r);
/* Takes the CPU of APIC ID self out of cpus[0 .. n-1], where it need not be the first; the others
 * keep their order. Returns how many are left: n, if it was not there. Any context. */
unsigned madt_others(struct madt_cpu *cpus, unsigned n, uint32_t self);
/* Address of I/O APIC number n in the table; false: no more. */
bool madt_ioapic(const uint8_t *t, size_t size, unsigned n, phys_addr_t *addr);

/* NUMA. Proximity domains become nodes 0, 1, … in order of appearance. */
#define SRAT_NODES_MAX 64
struct srat {
    const uint8_t *table;
    uint32_t len;
    unsigned nodes;
    uint32_t domains[SRAT_NODES_MAX]; /* domain of each node */
};
/* ERR_INVAL: not a sound SRAT, or nothing enabled in it. The table must stay while *s is used. */
err_t srat_open(struct srat *s, const uint8_t *t, size_t size);
/* Node of a CPU, 0 if it is not listed. */
unsigned srat_cpu_node(const struct srat *s, uint32_t apic_id);
/* Writes the node of each range of the sorted map, splitting ranges at node borders as far as there
 * is room (cap entries). Returns the new count. */
size_t srat_apply(const struct srat *s, struct mem_range *map, size_t n, size_t cap);

#endif
