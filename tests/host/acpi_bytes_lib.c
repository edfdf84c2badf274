/*
 * acpi_bytes_lib.c: see acpi_bytes_lib.h.
 */
#include "tests/host/acpi_bytes_lib.h"

#include <stdlib.h>
#include <string.h>

#define COPIES_MAX 65536

uint8_t mem[MEM_SIZE];
uint64_t mem_base = MEM_BASE_HIGH;

static void *copies[COPIES_MAX];
static size_t n_copies;

void put_bytes(struct table *t, const void *p, size_t n)
{
    if (t->len + n <= t->room)
        memcpy(t->bytes + t->len, p, n);
    t->len += n;
}

void put_u8(struct table *t, unsigned v)
{
    uint8_t b = (uint8_t)v;

    put_bytes(t, &b, 1);
}

void put_u16(struct table *t, unsigned v)
{
    uint16_t w = (uint16_t)v;

    put_bytes(t, &w, 2);
}

void put_u32(struct table *t, uint32_t v)
{
    put_bytes(t, &v, 4);
}

void put_u64(struct table *t, uint64_t v)
{
    put_bytes(t, &v, 8);
}

void put_pad(struct table *t, size_t len)
{
    while (t->len < len)
        put_u8(t, 0);
}

void fix_sum(uint8_t *p, size_t n, size_t at)
{
    uint8_t sum = 0;

    p[at] = 0;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + p[i]);
    p[at] = (uint8_t)-sum;
}

void table_begin(struct table *t, const char *sig)
{
    t->len = 0;
    put_bytes(t, sig, 4);
    put_u32(t, 0);
    put_u8(t, 4); /* revision */
    put_pad(t, 36);
}

void table_end(struct table *t)
{
    uint32_t len = (uint32_t)t->len;

    memcpy(t->bytes + 4, &len, 4);
    fix_sum(t->bytes, t->len, 9);
}

void madt_begin(struct table *t)
{
    table_begin(t, "APIC");
    put_u32(t, 0xfee00000);
    put_u32(t, 1);
}

void madt_lapic(struct table *t, unsigned uid, unsigned apic_id, uint32_t flags)
{
    put_u8(t, 0);
    put_u8(t, 8);
    put_u8(t, uid);
    put_u8(t, apic_id);
    put_u32(t, flags);
}

void madt_x2apic(struct table *t, uint32_t uid, uint32_t apic_id, uint32_t flags)
{
    put_u8(t, 9);
    put_u8(t, 16);
    put_u16(t, 0);
    put_u32(t, apic_id);
    put_u32(t, flags);
    put_u32(t, uid);
}

const void *mem_map(phys_addr_t pa, size_t len)
{
    void *copy;

    if (pa < mem_base || pa - mem_base >= MEM_SIZE || len > MEM_SIZE - (pa - mem_base) ||
        n_copies == COPIES_MAX)
        return NULL;
    copy = malloc(len ? len : 1);
    if (!copy)
        abort();
    memcpy(copy, mem + (pa - mem_base), len);
    copies[n_copies++] = copy;
    return copy;
}

void mem_unmap_all(void)
{
    while (n_copies)
        free(copies[--n_copies]);
}
