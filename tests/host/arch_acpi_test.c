/*
 * arch_acpi_test.c: ACPI tables as firmware gives them, from byte arrays: cases G6, G7, G11, G14,
 * pitfalls 15 to 17 and 29. Every table that is read lies in memory of exactly its size.
 */
#include "tests/host/testlib.h"
#include <stdlib.h>
#include <string.h>

#include "lib/string.h"
#include "tests/host/acpi_bytes_lib.h"

static uint8_t buffer[65536];
static char complaint[64];

static struct table new_madt(void)
{
    struct table t = {buffer, 0, sizeof(buffer)};

    madt_begin(&t);
    return t;
}

/* From a copy of exactly `size` bytes. */
static err_t parse(const struct table *t, size_t size, bool x2apic, struct madt_cpu *out,
                   size_t cap, struct madt_result *r)
{
    uint8_t *copy = malloc(size ? size : 1);
    err_t err;

    memcpy(copy, t->bytes, size);
    err = madt_parse(copy, size, x2apic, out, cap, r);
    free(copy);
    return err;
}

static unsigned parse_ok(struct table *t, bool x2apic, struct madt_cpu *out, size_t cap,
                         struct madt_result *r)
{
    table_end(t);
    assert_int_equal(parse(t, t->len, x2apic, out, cap, r), OK);
    assert_false(r->cut);
    return r->usable;
}

/* G6: fillers, disabled ones, the same ID twice, IDs that need x2APIC; order is the table's. */
static void madt_entries(void **state)
{
    struct table t = new_madt();
    struct madt_cpu cpus[16];
    struct madt_result r;

    (void)state;
    madt_lapic(&t, 7, 2, 1);
    madt_lapic(&t, 1, 0xff, 1); /* filler */
    madt_lapic(&t, 2, 4, 0);    /* disabled */
    madt_lapic(&t, 3, 4, 2);    /* not there yet */
    madt_lapic(&t, 4, 0, 1);
    madt_lapic(&t, 5, 2, 1);            /* again */
    madt_lapic(&t, 9, 4, 1);            /* enabled after a disabled one of the same ID */
    madt_x2apic(&t, 10, 0xffffffff, 1); /* filler */
    madt_x2apic(&t, 11, 0x17161514, 1);
    madt_x2apic(&t, 12, 255, 1);
    assert_int_equal(parse_ok(&t, false, cpus, 16, &r), 3);
    assert_int_equal(cpus[0].apic_id, 2);
    assert_int_equal(cpus[0].uid, 7);
    assert_int_equal(cpus[1].apic_id, 0);
    assert_int_equal(cpus[2].apic_id, 4);
    assert_int_equal(cpus[2].uid, 9);
    assert_int_equal(r.bogus, 2);
    assert_int_equal(r.disabled, 2);
    assert_int_equal(r.duplicates, 1);
    assert_int_equal(r.need_x2apic, 2);
    assert_int_equal(r.lapic_addr, 0xfee00000);
    assert_true(r.pcat);
    assert_int_equal(parse_ok(&t, true, cpus, 16, &r), 5);
    assert_int_equal(cpus[3].apic_id, 0x17161514);
    assert_int_equal(cpus[4].apic_id, 255);
    assert_int_equal(r.need_x2apic, 0);
}

/* G6: eight entries of type 9 with one bogus ID; one CPU in both types, in either order. */
static void madt_both_types(void **state)
{
    struct table t = new_madt();
    struct madt_cpu cpus[16];
    struct madt_result r;

    (void)state;
    madt_x2apic(&t, 0, 1, 1);
    madt_lapic(&t, 0, 0, 1);
    madt_lapic(&t, 1, 1, 1);
    madt_x2apic(&t, 1, 0, 1);
    for (int i = 0; i < 8; i++)
        madt_x2apic(&t, 20, 0x17161514, 1);
    assert_int_equal(parse_ok(&t, false, cpus, 16, &r), 2);
    assert_int_equal(cpus[0].apic_id, 0);
    assert_int_equal(cpus[1].apic_id, 1);
    assert_int_equal(r.duplicates, 2);
    assert_int_equal(r.need_x2apic, 8);
    assert_int_equal(parse_ok(&t, true, cpus, 16, &r), 3);
    assert_int_equal(r.duplicates, 2 + 7);

    /* Type 9 alone may use small IDs. */
    t = new_madt();
    madt_x2apic(&t, 0, 0, 1);
    madt_x2apic(&t, 1, 3, 1);
    assert_int_equal(parse_ok(&t, false, cpus, 16, &r), 2);
    /* Nor does a filler of type 0 take that away. */
    madt_lapic(&t, 0, 0xff, 1);
    madt_lapic(&t, 0, 9, 0);
    assert_int_equal(parse_ok(&t, false, cpus, 16, &r), 2);
}

/* G14: 300 and 1100 CPUs; the array may be too small. The counting pass needs no array. */
static void madt_many(void **state)
{
    static struct madt_cpu cpus[1100];
    struct table t = new_madt();
    struct madt_result r;

    (void)state;
    for (uint32_t i = 0; i < 1100; i++)
        madt_x2apic(&t, i, 2 * i, 1);
    assert_int_equal(parse_ok(&t, true, NULL, 0, &r), 0);
    assert_int_equal(r.candidates, 1100);
    assert_int_equal(parse_ok(&t, true, cpus, 1100, &r), 1100);
    assert_int_equal(cpus[1099].apic_id, 2198);
    assert_int_equal(r.dropped, 0);
    assert_int_equal(parse_ok(&t, true, cpus, 300, &r), 300);
    assert_int_equal(r.dropped, 800);
    assert_int_equal(parse_ok(&t, false, cpus, 1100, &r), 128); /* 0, 2, … 254 */
}

/* G7: entries of length 0 and 1, one that is too long, short ones of known types, unknown types. */
static void madt_lengths(void **state)
{
    static const uint8_t bad[][2] = {{0, 0}, {0, 1}, {0, 9}, {9, 255}, {0x7f, 0}};
    struct madt_cpu cpus[8];
    struct madt_result r;
    struct table t;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        t = new_madt();
        madt_lapic(&t, 0, 3, 1);
        put_bytes(&t, bad[i], 2);
        put_pad(&t, t.len + 6);
        table_end(&t);
        assert_int_equal(parse(&t, t.len, false, cpus, 8, &r), OK);
        assert_true(r.cut);
        assert_int_equal(r.usable, 1);
    }
    /* Length 1 is not a step of one byte, to what looks like entries. */
    t = new_madt();
    put_u8(&t, 0x7f);
    put_u8(&t, 1);
    put_u8(&t, 2);
    madt_lapic(&t, 0, 3, 1);
    table_end(&t);
    assert_int_equal(parse(&t, t.len, false, cpus, 8, &r), OK);
    assert_true(r.cut);
    assert_int_equal(r.usable, 0);
    /* One byte left over. */
    t = new_madt();
    madt_lapic(&t, 0, 3, 1);
    put_u8(&t, 0);
    table_end(&t);
    assert_int_equal(parse(&t, t.len, false, cpus, 8, &r), OK);
    assert_true(r.cut);

    t = new_madt();
    for (unsigned type = 0; type < 256; type++) {
        put_u8(&t, type);
        put_u8(&t, 4);
        put_u16(&t, 0xffff);
    }
    madt_lapic(&t, 0, 3, 1);
    assert_int_equal(parse_ok(&t, false, cpus, 8, &r), 1);
    assert_int_equal(r.other, 256);
}

static void madt_header(void **state)
{
    struct table t = new_madt();
    struct madt_cpu cpus[8];
    struct madt_result r;
    uint32_t len;

    (void)state;
    madt_lapic(&t, 0, 3, 1);
    table_end(&t);
    for (size_t size = 0; size < t.len; size++)
        assert_int_equal(parse(&t, size, false, cpus, 8, &r), ERR_INVAL);
    assert_int_equal(parse(&t, t.len, false, cpus, 8, &r), OK);
    t.bytes[20] ^= 1;
    assert_int_equal(parse(&t, t.len, false, cpus, 8, &r), ERR_INVAL);
    t.bytes[20] ^= 1;
    len = 40;
    memcpy(t.bytes + 4, &len, 4);
    fix_sum(t.bytes, len, 9);
    assert_int_equal(parse(&t, t.len, false, cpus, 8, &r), ERR_INVAL);
    table_end(&t);
    t.bytes[0] = 'B';
    fix_sum(t.bytes, t.len, 9);
    assert_int_equal(parse(&t, t.len, false, cpus, 8, &r), ERR_INVAL);
}

static void madt_other_entries(void **state)
{
    struct table t = new_madt();
    struct madt_cpu cpus[8];
    struct madt_result r;
    phys_addr_t addr;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        put_u8(&t, 1); /* I/O APIC */
        put_u8(&t, 12);
        put_u16(&t, i);
        put_u32(&t, 0xfec00000 + i * 0x1000);
        put_u32(&t, 24 * i);
    }
    put_u8(&t, 1); /* one without an address */
    put_u8(&t, 6);
    put_u32(&t, 0);
    put_u8(&t, 5); /* address override */
    put_u8(&t, 12);
    put_u16(&t, 0);
    put_u64(&t, 0x123456789000ULL);
    put_u8(&t, 5); /* and one that is too short for it */
    put_u8(&t, 8);
    put_u16(&t, 0);
    put_u32(&t, 1);
    parse_ok(&t, false, cpus, 8, &r);
    assert_int_equal(r.lapic_addr, 0x123456789000ULL);
    assert_true(madt_ioapic(t.bytes, t.len, 0, &addr));
    assert_int_equal(addr, 0xfec00000);
    assert_true(madt_ioapic(t.bytes, t.len, 1, &addr));
    assert_int_equal(addr, 0xfec01000);
    assert_false(madt_ioapic(t.bytes, t.len, 2, &addr));
    assert_false(madt_ioapic(t.bytes, 20, 0, &addr));
}

/* ---- finding tables ---- */

static void complain(const char *what, const char *sig, phys_addr_t pa)
{
    (void)sig;
    (void)pa;
    str_copy(complaint, what, sizeof(complaint));
}

/* An RSDP at offset 0, with an XSDT at 0x203 and, where memory is below 4 GiB, an RSDT at 0x405;
 * both hold the tables at the given offsets. */
static void make_root(uint8_t revision, const uint32_t *offsets, size_t n)
{
    struct table x = {mem + 0x203, 0, 0x200}, s = {mem + 0x405, 0, 0x200};
    uint64_t xsdt = mem_base + 0x203;
    uint32_t rsdt = mem_base + 0x405 < SZ_4G ? (uint32_t)mem_base + 0x405 : 0, len = 36;

    memset(mem, 0, 0x800);
    memcpy(mem, "RSD PTR ", 8);
    mem[15] = revision;
    memcpy(mem + 16, &rsdt, 4);
    if (revision >= 2) {
        memcpy(mem + 20, &len, 4);
        memcpy(mem + 24, &xsdt, 8);
        fix_sum(mem, 20, 8);
        fix_sum(mem, 36, 32);
    } else {
        fix_sum(mem, 20, 8);
    }
    table_begin(&x, "XSDT");
    table_begin(&s, "RSDT");
    for (size_t i = 0; i < n; i++) {
        put_u64(&x, offsets[i] ? mem_base + offsets[i] : 0);
        put_u32(&s, offsets[i] ? (uint32_t)mem_base + offsets[i] : 0);
    }
    table_end(&x);
    table_end(&s);
}

static void make_table(uint32_t offset, const char *sig, unsigned mark)
{
    struct table t = {mem + offset, 0, 0x100};

    table_begin(&t, sig);
    put_u32(&t, mark);
    table_end(&t);
}

static void find_tables(void **state)
{
    static const uint32_t offsets[] = {0x1001, 0, 0xffffff, 0x1203, 0x1405, 0x1607};
    struct acpi_reader r = {.map = mem_map, .complain = complain};
    const uint8_t *t;
    uint32_t len;

    (void)state;
    make_root(2, offsets, ARRAY_SIZE(offsets));
    make_table(0x1001, "AAAA", 1);
    make_table(0x1203, "BBBB", 2);
    make_table(0x1405, "BBBB", 3);
    make_table(0x1607, "BBBB", 4);
    assert_int_equal(acpi_open(&r, mem_base), OK);
    assert_int_equal(r.entries, 6);
    t = acpi_find(&r, "BBBB", 1, &len);
    assert_non_null(t);
    assert_int_equal(len, 40);
    assert_int_equal(t[36], 3);
    assert_string_equal(complaint, "out of reach");
    assert_non_null(acpi_find(&r, "BBBB", 2, &len));
    assert_null(acpi_find(&r, "BBBB", 3, &len));
    assert_null(acpi_find(&r, "CCCC", 0, &len));

    mem[0x1405 + 37]++; /* one that is not sound does not count */
    t = acpi_find(&r, "BBBB", 1, &len);
    assert_non_null(t);
    assert_int_equal(t[36], 4);
    assert_string_equal(complaint, "bad checksum");
    memset(mem + 0x1203 + 4, 0xff, 4);
    t = acpi_find(&r, "BBBB", 0, &len);
    assert_non_null(t);
    assert_int_equal(t[36], 4);
    assert_null(acpi_table_at(&r, mem_base + 0x1203, "BBBB", &len));
    assert_string_equal(complaint, "impossible length");
    mem_unmap_all();
}

static void bad_roots(void **state)
{
    struct acpi_reader r = {.map = mem_map, .complain = complain};
    static const uint32_t none[1];
    uint32_t len;

    (void)state;
    assert_int_equal(acpi_open(&r, 0), ERR_NOENT);
    assert_int_equal(acpi_open(&r, mem_base + MEM_SIZE - 10), ERR_NOENT);
    assert_null(acpi_find(&r, "APIC", 0, &len));
    for (unsigned at = 0; at < 36; at++) {
        /* Bytes 20 to 35 are covered by the second checksum only. */
        make_root(2, none, 1);
        mem[at] ^= 0x55;
        assert_int_equal(acpi_open(&r, mem_base), ERR_NOENT);
    }
    make_root(2, none, 1);
    mem[0x203 + 20]++;
    assert_int_equal(acpi_open(&r, mem_base), ERR_NOENT);
    make_root(2, none, 1);
    assert_int_equal(acpi_open(&r, mem_base), OK);
    /* Half an entry at the end is none. */
    for (len = 36; len < 36 + 16; len += 4) {
        memcpy(mem + 0x203 + 4, &len, 4);
        fix_sum(mem + 0x203, len, 9);
        assert_int_equal(acpi_open(&r, mem_base), OK);
        assert_int_equal(r.entries, (len - 36) / 8);
    }
    /* Revision 0 has no XSDT field. */
    make_root(0, none, 1);
    assert_int_equal(acpi_open(&r, mem_base), ERR_NOENT);
    mem_unmap_all();
}

/* ACPI 1.0, or an XSDT that cannot be used: the RSDT it is. */
static void rsdt(void **state)
{
    static const uint32_t offsets[] = {0x1001, 0x1203};
    struct acpi_reader r = {.map = mem_map, .complain = complain};
    const uint8_t *t;
    uint32_t len;
    unsigned at;

    (void)state;
    mem_base = MEM_BASE_LOW;
    make_root(0, offsets, 2);
    make_table(0x1001, "AAAA", 1);
    make_table(0x1203, "BBBB", 2);
    assert_int_equal(acpi_open(&r, mem_base), OK);
    assert_int_equal(r.entry_size, 4);
    assert_int_equal(r.entries, 2);
    t = acpi_find(&r, "BBBB", 0, &len);
    assert_non_null(t);
    assert_int_equal(t[36], 2);
    for (at = 0; at < 20; at++) {
        make_root(0, offsets, 2);
        mem[at] ^= 0x55;
        assert_int_equal(acpi_open(&r, mem_base), ERR_NOENT);
    }

    make_root(2, offsets, 2);
    assert_int_equal(acpi_open(&r, mem_base), OK);
    assert_int_equal(r.entry_size, 8);
    mem[0x203 + 20]++;
    assert_int_equal(acpi_open(&r, mem_base), OK);
    assert_int_equal(r.entry_size, 4);
    make_root(2, offsets, 2);
    mem[33]++;
    assert_int_equal(acpi_open(&r, mem_base), OK);
    assert_int_equal(r.entry_size, 4);
    mem_unmap_all();
    mem_base = MEM_BASE_HIGH;
}

/* ---- fixed tables ---- */

static void put_gas(struct table *t, size_t at, unsigned space, unsigned width, unsigned access,
                    uint64_t addr)
{
    struct table g = {t->bytes + at, 0, 12};

    put_u8(&g, space);
    put_u8(&g, width);
    put_u8(&g, 0);
    put_u8(&g, access);
    put_u64(&g, addr);
}

static void put_u32_at(struct table *t, size_t at, uint32_t v)
{
    memcpy(t->bytes + at, &v, 4);
}

static void fadt(void **state)
{
    struct table t = {buffer, 0, sizeof(buffer)};
    struct acpi_fadt f;

    (void)state;
    memset(buffer, 0, 512);
    table_begin(&t, "FACP");
    put_pad(&t, 276);
    put_u32_at(&t, 40, 0x1000);
    put_u32_at(&t, 64, 0x604);
    put_u32_at(&t, 76, 0x608);
    put_u32_at(&t, 112, 1 << 8 | 1 << 10);
    put_gas(&t, 116, 1, 8, 1, 0xcf9);
    t.bytes[128] = 6;
    acpi_parse_fadt(t.bytes, 276, &f);
    assert_int_equal(f.dsdt, 0x1000);
    assert_int_equal(f.pm_timer.addr, 0x608);
    assert_int_equal(f.pm_timer.space, 1);
    assert_true(f.pm_timer_32);
    assert_int_equal(f.pm1a_cnt.addr, 0x604);
    assert_int_equal(f.pm1b_cnt.addr, 0);
    assert_true(f.reset_supported);
    assert_int_equal(f.reset.addr, 0xcf9);
    assert_int_equal(f.reset_value, 6);

    /* The extended fields win. */
    put_u32_at(&t, 140, 0x2000);
    put_u32_at(&t, 144, 1);
    put_gas(&t, 208, 0, 32, 3, 0xfed00000);
    acpi_parse_fadt(t.bytes, 276, &f);
    assert_int_equal(f.dsdt, 0x100002000ULL);
    assert_int_equal(f.pm_timer.space, 0);
    assert_int_equal(f.pm_timer.addr, 0xfed00000);

    /* Revision 1 ends at 116. */
    acpi_parse_fadt(t.bytes, 116, &f);
    assert_int_equal(f.dsdt, 0x1000);
    assert_int_equal(f.pm_timer.addr, 0x608);
    assert_int_equal(f.reset.addr, 0);
    acpi_parse_fadt(t.bytes, 36, &f);
    assert_int_equal(f.dsdt, 0);
    assert_int_equal(f.pm_timer.addr, 0);

    put_u32_at(&t, 48, 0xb2);
    put_u32_at(&t, 68, 0x606);
    acpi_parse_fadt(t.bytes, 276, &f);
    assert_int_equal(f.smi_cmd, 0xb2);
    assert_int_equal(f.pm1b_cnt.addr, 0x606);
    put_u32_at(&t, 112, 1 << 20);
    acpi_parse_fadt(t.bytes, 276, &f);
    assert_true(f.hw_reduced);
    assert_int_equal(f.pm_timer.addr, 0);
    assert_int_equal(f.pm1a_cnt.addr, 0);
    assert_int_equal(f.pm1b_cnt.addr, 0);
    assert_int_equal(f.smi_cmd, 0);
}

static bool s5(const void *code, size_t n, uint8_t *a, uint8_t *b)
{
    uint8_t *copy = calloc(1, 37 + n);
    bool found;

    memcpy(copy + 37, code, n);
    found = acpi_find_s5(copy, (uint32_t)(37 + n), a, b);
    free(copy);
    return found;
}

static void s5_package(void **state)
{
    static const uint8_t bytes[] = {8, '_', 'S', '5', '_', 0x12, 6, 4, 0x0a, 5, 0x0a, 7, 0, 0};
    static const uint8_t root[] = {8, '\\', '_', 'S', '5', '_', 0x12, 6, 4, 0, 1, 0, 0};
    static const uint8_t use[] = {0x70, '_', 'S', '5', '_', 0x12, 6, 4, 0x0a, 5, 0x0a, 7, 0, 0};
    static const uint8_t big[] = {8, '_', 'S', '5', '_', 0x12, 6, 4, 0x0a, 9, 0x0a, 7, 0, 0};
    static const uint8_t two[] = {8, '_', 'S', '5', '_', 0x12, 0x46, 0, 2, 0x0a, 3, 1, 0, 0};
    uint8_t a, b;

    (void)state;
    assert_true(s5(bytes, sizeof(bytes), &a, &b));
    assert_int_equal(a, 5);
    assert_int_equal(b, 7);
    assert_true(s5(root, sizeof(root), &a, &b));
    assert_int_equal(a, 0);
    assert_int_equal(b, 1);
    assert_true(s5(two, sizeof(two), &a, &b));
    assert_int_equal(a, 3);
    assert_int_equal(b, 1);
    assert_false(s5(use, sizeof(use), &a, &b));
    assert_false(s5(big, sizeof(big), &a, &b));
    for (size_t n = 0; n < sizeof(bytes); n++)
        s5(bytes, n, &a, &b); /* nothing is read beyond */
}

static void small_tables(void **state)
{
    struct table t = {buffer, 0, sizeof(buffer)};
    struct acpi_spcr s;
    phys_addr_t base;

    (void)state;
    memset(buffer, 0, 512);
    table_begin(&t, "HPET");
    put_pad(&t, 56);
    put_gas(&t, 40, 0, 64, 0, 0xfed00000);
    assert_true(acpi_parse_hpet(t.bytes, 56, &base));
    assert_int_equal(base, 0xfed00000);
    assert_false(acpi_parse_hpet(t.bytes, 51, &base));
    t.bytes[40] = 1;
    assert_false(acpi_parse_hpet(t.bytes, 56, &base));

    table_begin(&t, "SPCR");
    put_pad(&t, 88);
    put_gas(&t, 40, 0, 32, 3, 0xfe034000);
    t.bytes[8] = 2;
    t.bytes[36] = 0x12;
    t.bytes[58] = 7;
    put_u32_at(&t, 76, 48000000);
    put_u32_at(&t, 80, 1500000);
    assert_true(acpi_parse_spcr(t.bytes, 88, &s));
    assert_int_equal(s.base.addr, 0xfe034000);
    assert_int_equal(s.baud, 115200);
    assert_int_equal(s.clock, 0);
    t.bytes[8] = 4;
    assert_true(acpi_parse_spcr(t.bytes, 88, &s));
    assert_int_equal(s.baud, 1500000);
    assert_int_equal(s.clock, 48000000);
    assert_true(acpi_parse_spcr(t.bytes, 64, &s));
    assert_int_equal(s.clock, 0);
    assert_false(acpi_parse_spcr(t.bytes, 63, &s));
    t.bytes[40] = 2; /* neither memory nor ports */
    assert_false(acpi_parse_spcr(t.bytes, 88, &s));
    t.bytes[40] = 1;
    assert_true(acpi_parse_spcr(t.bytes, 88, &s));
    t.bytes[36] = 3; /* ARM's PL011 */
    assert_false(acpi_parse_spcr(t.bytes, 88, &s));

    buffer[37] = 3;
    assert_true(acpi_dmar_x2apic_opt_out(buffer, 48));
    buffer[37] = 1;
    assert_false(acpi_dmar_x2apic_opt_out(buffer, 48));
    buffer[37] = 2; /* valid only with bit 0, interrupt remapping */
    assert_false(acpi_dmar_x2apic_opt_out(buffer, 48));
    buffer[37] = 3;
    assert_false(acpi_dmar_x2apic_opt_out(buffer, 37));
}

/* ---- SRAT ---- */

static void srat_memory(struct table *t, uint32_t domain, uint64_t base, uint64_t size,
                        uint32_t flags)
{
    put_u8(t, 1);
    put_u8(t, 40);
    put_u32(t, domain);
    put_u16(t, 0);
    put_u64(t, base);
    put_u64(t, size);
    put_u32(t, 0);
    put_u32(t, flags);
    put_u64(t, 0);
}

static void srat_x2apic(struct table *t, uint32_t domain, uint32_t apic_id, uint32_t flags)
{
    put_u8(t, 2);
    put_u8(t, 24);
    put_u16(t, 0);
    put_u32(t, domain);
    put_u32(t, apic_id);
    put_u32(t, flags);
    put_u64(t, 0);
}

static void srat_lapic(struct table *t, uint32_t domain, unsigned apic_id, uint32_t flags)
{
    put_u8(t, 0);
    put_u8(t, 16);
    put_u8(t, domain & 0xff);
    put_u8(t, apic_id);
    put_u32(t, flags);
    put_u8(t, 0);
    put_u8(t, domain >> 8 & 0xff);
    put_u8(t, domain >> 16 & 0xff);
    put_u8(t, domain >> 24);
    put_u32(t, 0);
}

static struct table new_srat(void)
{
    struct table t = {buffer, 0, sizeof(buffer)};

    table_begin(&t, "SRAT");
    put_pad(&t, 48);
    return t;
}

static void srat_nodes(void **state)
{
    struct table t = new_srat();
    struct mem_range map[16] = {
        {0x1000, 0x9e000, MEM_USABLE, 0},
        {0x100000, 0x7ff00000, MEM_USABLE, 0},
        {0x100000000, 0x200000000, MEM_USABLE, 0},
    };
    struct srat s;
    size_t n;

    (void)state;
    srat_lapic(&t, 0x01020304, 0, 1);
    srat_lapic(&t, 7, 9, 0); /* disabled: makes no node */
    srat_x2apic(&t, 500, 300, 1);
    srat_memory(&t, 0x01020304, 0, 0x40000000, 1);
    srat_memory(&t, 500, 0x40000000, 0x140000000, 1);
    srat_memory(&t, 0x01020304, 0x180000000, 0x10000000000, 1);
    srat_memory(&t, 99, 0x100000, 0x1000000, 0);
    srat_memory(&t, 99, UINT64_MAX - 0xfff, 0x2000, 1); /* wraps: ignored */
    table_end(&t);
    assert_int_equal(srat_open(&s, t.bytes, t.len), OK);
    assert_int_equal(s.nodes, 2);
    assert_int_equal(srat_cpu_node(&s, 0), 0);
    assert_int_equal(srat_cpu_node(&s, 300), 1);
    assert_int_equal(srat_cpu_node(&s, 9), 0);
    n = srat_apply(&s, map, 3, 16);
    assert_int_equal(n, 5);
    assert_int_equal(map[1].node, 0);
    assert_int_equal(map[1].size, 0x3ff00000);
    assert_int_equal(map[2].base, 0x40000000);
    assert_int_equal(map[2].size, 0x40000000);
    assert_int_equal(map[2].node, 1);
    assert_int_equal(map[3].base, 0x100000000);
    assert_int_equal(map[3].size, 0x80000000);
    assert_int_equal(map[3].node, 1);
    assert_int_equal(map[4].node, 0);
    assert_int_equal(map[4].base + map[4].size, 0x300000000);
}

/* No room to split: ranges stay whole, nothing is lost, nothing is written beyond. */
static void srat_no_room(void **state)
{
    struct table t = new_srat();
    struct mem_range map[2] = {{0x1000, 0x10000, MEM_USABLE, 0}, {0, 0, 0x5a5a, 0}};
    struct srat s;

    (void)state;
    srat_memory(&t, 1, 0, 0x2000, 1);
    srat_memory(&t, 2, 0x2000, 0x2000, 1);
    table_end(&t);
    assert_int_equal(srat_open(&s, t.bytes, t.len), OK);
    assert_int_equal(srat_apply(&s, map, 1, 1), 1);
    assert_int_equal(map[0].base, 0x1000);
    assert_int_equal(map[0].size, 0x10000);
    assert_int_equal(map[1].kind, 0x5a5a);

    t = new_srat();
    table_end(&t);
    assert_int_equal(srat_open(&s, t.bytes, t.len), ERR_INVAL);
    assert_int_equal(srat_open(&s, t.bytes, 20), ERR_INVAL);
}

/* Entries of known types that end before their fields do; each lies at the end of the table, in
 * memory of that size. */
static void srat_short_entries(void **state)
{
    static const uint8_t shorter[][2] = {{0, 8}, {0, 15}, {1, 24}, {1, 39}, {2, 16}, {2, 23}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(shorter); i++) {
        struct table t = new_srat();
        struct srat s;
        uint8_t *copy;

        srat_lapic(&t, 3, 1, 1);
        put_u8(&t, shorter[i][0]);
        put_u8(&t, shorter[i][1]);
        for (unsigned n = 2; n < shorter[i][1]; n++)
            put_u8(&t, 0xff);
        table_end(&t);
        copy = malloc(t.len);
        memcpy(copy, t.bytes, t.len);
        assert_int_equal(srat_open(&s, copy, t.len), OK);
        assert_int_equal(s.nodes, 1);
        free(copy);
    }
}

/* More domains than nodes: what is left over is in node 0. Borders are at pages. */
static void srat_many_nodes(void **state)
{
    struct table t = new_srat();
    struct mem_range map[4] = {{0, 0x10000, MEM_USABLE, 0}};
    struct srat s;

    (void)state;
    for (uint32_t i = 0; i < SRAT_NODES_MAX + 3; i++)
        srat_x2apic(&t, 1000 + i, i, 1);
    srat_memory(&t, 1001, 0x3800, 0x4900, 1);
    srat_memory(&t, 1000 + SRAT_NODES_MAX, 0xa000, 0x1000, 1);
    table_end(&t);
    assert_int_equal(srat_open(&s, t.bytes, t.len), OK);
    assert_int_equal(s.nodes, SRAT_NODES_MAX);
    assert_int_equal(srat_cpu_node(&s, SRAT_NODES_MAX - 1), SRAT_NODES_MAX - 1);
    assert_int_equal(srat_cpu_node(&s, SRAT_NODES_MAX), 0);
    assert_int_equal(srat_apply(&s, map, 1, 4), 3);
    assert_int_equal(map[1].base, 0x3000);
    assert_int_equal(map[1].size, 0x5000);
    assert_int_equal(map[1].node, 1);
    assert_int_equal(map[2].base + map[2].size, 0x10000);
    assert_int_equal(map[2].node, 0);
}

/* The boot CPU is who reads the table: neither the first in it, nor ID 0, and perhaps not there. */
static void madt_boot_cpu(void **state)
{
    static const struct {
        uint32_t self;
        unsigned left;
        uint32_t others[4];
    } cases[] = {{2, 3, {0, 1, 3}}, {3, 3, {2, 0, 1}}, {0, 3, {2, 1, 3}}, {7, 4, {2, 0, 1, 3}}};
    static const uint8_t ids[] = {2, 0, 1, 3};
    struct madt_result r;

    (void)state;
    for (unsigned c = 0; c < ARRAY_SIZE(cases); c++) {
        struct table t = new_madt();
        struct madt_cpu cpus[4];

        for (unsigned i = 0; i < ARRAY_SIZE(ids); i++)
            madt_lapic(&t, (uint8_t)(10 + ids[i]), ids[i], 1);
        assert_int_equal(parse_ok(&t, false, cpus, 4, &r), 4);
        assert_int_equal(madt_others(cpus, 4, cases[c].self), cases[c].left);
        for (unsigned i = 0; i < cases[c].left; i++) {
            assert_int_equal(cpus[i].apic_id, cases[c].others[i]);
            assert_int_equal(cpus[i].uid, 10 + cases[c].others[i]);
        }
    }
    assert_int_equal(madt_others(NULL, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(madt_entries),
        cmocka_unit_test(madt_both_types),
        cmocka_unit_test(madt_many),
        cmocka_unit_test(madt_lengths),
        cmocka_unit_test(madt_header),
        cmocka_unit_test(madt_boot_cpu),
        cmocka_unit_test(madt_other_entries),
        cmocka_unit_test(find_tables),
        cmocka_unit_test(bad_roots),
        cmocka_unit_test(rsdt),
        cmocka_unit_test(fadt),
        cmocka_unit_test(s5_package),
        cmocka_unit_test(small_tables),
        cmocka_unit_test(srat_nodes),
        cmocka_unit_test(srat_no_room),
        cmocka_unit_test(srat_short_entries),
        cmocka_unit_test(srat_many_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
