/*
 * acpi.h: what this machine's ACPI tables say, as far as the kernel uses it.
 *
 * acpi_init() reads the tables once, before paging_init(), through the front door's identity
 * mapping; all else answers from copies and is constant after it. Without ACPI everything answers
 * "none".
 */
#ifndef ARCH_ACPI_H
#define ARCH_ACPI_H

#include "arch/acpi_tables.h"
#include "arch/early.h"

/*
 * Boot CPU, after cpu_detect(). rsdp 0: no ACPI. Tables at or above identity_limit are refused with
 * a line. The CPU list comes from alloc. Passes on what it finds: SPCR to the console, \_S5 and the
 * reset register to arch/exit.h. Prints lines for what is missing or odd; never fails.
 */
void acpi_init(phys_addr_t rsdp, phys_addr_t identity_limit, early_alloc_fn alloc);
/* Writes NUMA nodes into the memory map by the SRAT; call between acpi_init() and paging_init().
 * Returns the new number of ranges, at most cap. */
size_t acpi_set_nodes(struct mem_range *map, size_t n, size_t cap);

/* The other CPUs of the MADT in its order; the calling CPU is not among them. */
struct acpi_cpu {
    uint32_t apic_id;
    uint32_t uid;
    uint32_t node;
};
unsigned acpi_other_cpus(void);
const struct acpi_cpu *acpi_other_cpu(unsigned i);
/* Node of the boot CPU. */
unsigned acpi_boot_node(void);
unsigned acpi_nodes(void); /* at least 1 */

/* ACPI's PM timer: its register, an I/O port or MMIO; addr 0: none. */
const struct acpi_gas *acpi_pm_timer(bool *is_32_bit);
/* The HPET's registers; 0: none. */
phys_addr_t acpi_hpet(void);
/* I/O APIC number i; 0: no more. */
phys_addr_t acpi_ioapic(unsigned i);
/* The firmware does not want x2APIC switched on (DMAR). */
bool acpi_x2apic_opt_out(void);

#endif
