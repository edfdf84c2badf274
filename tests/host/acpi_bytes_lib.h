/*
 * acpi_bytes_lib.h: making ACPI tables byte by byte, and a piece of memory to put them in.
 */
#ifndef TESTS_HOST_ACPI_BYTES_LIB_H
#define TESTS_HOST_ACPI_BYTES_LIB_H

#include <arch/acpi_tables.h>

/* A table under construction. put_* append little-endian values; bytes beyond the room are lost. */
struct table {
    uint8_t *bytes;
    size_t len, room;
};

void put_bytes(struct table *t, const void *p, size_t n);
void put_u8(struct table *t, unsigned v);
void put_u16(struct table *t, unsigned v);
void put_u32(struct table *t, uint32_t v);
void put_u64(struct table *t, uint64_t v);
/* Appends zeroes up to offset `len`. */
void put_pad(struct table *t, size_t len);
/* 36 bytes. */
void table_begin(struct table *t, const char *sig);
/* Writes length and checksum. */
void table_end(struct table *t);
/* Makes the sum over p[0..n) zero by changing p[at]. */
void fix_sum(uint8_t *p, size_t n, size_t at);

/* MADT entries. */
void madt_begin(struct table *t);
void madt_lapic(struct table *t, unsigned uid, unsigned apic_id, uint32_t flags);
void madt_x2apic(struct table *t, uint32_t uid, uint32_t apic_id, uint32_t flags);

/* Memory that an acpi_reader sees: address mem_base + i is mem[i]. Each mapping that is handed out
 * is a copy of its own of exactly that size, so that the sanitizer sees a read beyond it. */
#define MEM_BASE_LOW  0x7ff00123ULL
#define MEM_BASE_HIGH 0x7ff000123ULL /* where no RSDT reaches */
#define MEM_SIZE      0x10000
extern uint8_t mem[MEM_SIZE];
extern uint64_t mem_base; /* MEM_BASE_HIGH at first */
const void *mem_map(phys_addr_t pa, size_t len);
/* Frees the copies. */
void mem_unmap_all(void);

#endif
