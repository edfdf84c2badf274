/*
 * fuzz_acpi.c: any bytes as RSDP and tables, with lengths and checksums put right where the fuzzer
 * wants it. Nothing may be read outside of a mapping, everything must end, and what comes out must
 * be what the header promises (case G7).
 */
#include "tests/host/acpi_bytes_lib.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CAP 64

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void try_madt(const uint8_t *t, size_t size)
{
    struct madt_cpu cpus[CAP];
    struct madt_result r, count;
    phys_addr_t addr;

    if (madt_parse(t, size, size & 1, NULL, 0, &count) != OK)
        return;
    require(madt_parse(t, size, size & 1, cpus, CAP, &r) == OK);
    require(r.usable <= CAP && r.usable <= count.candidates && r.candidates == count.candidates);
    for (unsigned i = 0; i < r.usable; i++) {
        require(cpus[i].apic_id != UINT32_MAX);
        require((size & 1) || cpus[i].apic_id < 255);
        for (unsigned j = 0; j < i; j++)
            require(cpus[i].apic_id != cpus[j].apic_id);
    }
    for (unsigned i = 0; madt_ioapic(t, size, i, &addr); i++)
        require(i < size);
}

static void try_srat(const uint8_t *t, size_t size)
{
    struct mem_range map[8] = {{0x1000, 0xff000, 1, 0}, {0x100000, 0x7ffffff00000, 1, 0}};
    struct srat s;
    uint64_t total = 0, before = map[0].size + map[1].size;
    size_t n;

    if (srat_open(&s, t, size) != OK)
        return;
    require(srat_cpu_node(&s, 3) < s.nodes);
    n = srat_apply(&s, map, 2, 8);
    require(n >= 2 && n <= 8);
    for (size_t i = 0; i < n; i++) {
        total += map[i].size;
        require(map[i].size && map[i].node < s.nodes);
        require(i == 0 || map[i - 1].base + map[i - 1].size <= map[i].base);
    }
    require(total == before);
}

static void try_fixed(const uint8_t *t, size_t size)
{
    struct acpi_fadt f;
    struct acpi_spcr s;
    phys_addr_t hpet;
    uint8_t a = 0, b = 0;

    acpi_parse_fadt(t, (uint32_t)size, &f);
    if (acpi_find_s5(t, (uint32_t)size, &a, &b))
        require(a <= 7 && b <= 7);
    acpi_parse_hpet(t, (uint32_t)size, &hpet);
    acpi_parse_spcr(t, (uint32_t)size, &s);
    acpi_dmar_x2apic_opt_out(t, (uint32_t)size);
}

/* Four bytes of the fuzzer are an entry of a MADT: most are well-formed, IDs are few, so that they
 * meet again. */
static void try_entries(const uint8_t *data, size_t n)
{
    static uint8_t room[4096];
    struct table t = {room, 0, sizeof(room)};

    madt_begin(&t);
    for (; n >= 4 && t.len + 32 <= sizeof(room); n -= 4, data += 4) {
        switch (data[0] % 8) {
        case 0:
            put_bytes(&t, data + 1, 3);
            break;
        case 1:
            put_u8(&t, data[1] % 12);
            put_u8(&t, data[2] % 20);
            put_pad(&t, t.len + data[3] % 20);
            break;
        case 2:
        case 3:
            madt_x2apic(&t, data[1], data[2] % 8 ? data[2] : UINT32_MAX - data[2] / 128, data[3]);
            break;
        default:
            madt_lapic(&t, data[1], data[2] % 2 ? data[2] : data[2] % 16, data[3]);
        }
    }
    table_end(&t);
    try_madt(room, t.len);
    try_madt(room, t.len + 1); /* odd: a machine with x2APIC */
}

static void try_tables(const uint8_t *data, size_t size)
{
    struct acpi_reader r = {.map = mem_map};
    uint64_t xsdt = mem_base + 64;
    uint32_t len;

    if (size < 200 || size > MEM_SIZE)
        return;
    memset(mem, 0, sizeof(mem));
    memcpy(mem, data, size);
    memcpy(mem, "RSD PTR ", 8);
    mem[15] = 2;
    len = 36;
    memcpy(mem + 20, &len, 4);
    memcpy(mem + 24, &xsdt, 8);
    fix_sum(mem, 20, 8);
    fix_sum(mem, 36, 32);
    memcpy(mem + 64, "XSDT", 4);
    len = 36 + (data[70] & 15) * 8;
    memcpy(mem + 68, &len, 4);
    for (unsigned at = 100; at < 64 + len; at += 8) {
        uint64_t pa = mem_base + (mem[at] | mem[at + 1] << 8);

        memcpy(mem + at, &pa, 8);
    }
    fix_sum(mem + 64, len, 9);
    if (acpi_open(&r, mem_base) == OK) {
        for (unsigned i = 0; acpi_find(&r, "APIC", i, &len); i++)
            require(i < r.entries);
        acpi_find(&r, "FACP", 0, &len);
    }
    mem_unmap_all();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sigs[] = {"APIC", "SRAT"};
    uint8_t *t;

    if (size < 1)
        return 0;
    t = malloc(size);
    memcpy(t, data, size);
    if (size >= 48 && (data[0] & 0x80)) {
        uint32_t len = (uint32_t)size;

        memcpy(t, sigs[data[0] & 1], 4);
        memcpy(t + 4, &len, 4);
        fix_sum(t, size, 9);
    }
    try_madt(t, size);
    try_srat(t, size);
    try_fixed(t, size);
    free(t);
    try_entries(data, size);
    try_tables(data, size);
    return 0;
}
