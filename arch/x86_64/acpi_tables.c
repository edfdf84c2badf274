/*
 * acpi_tables.c: from the RSDP to single tables, and the fixed ones: FADT, HPET, SPCR, DMAR, and
 * the \_S5 package. See acpi_tables.h. The walk over MADT entries is in madt.c, that over the SRAT
 * in srat.c.
 */
#include <arch/acpi_tables.h>

#include "arch/x86_64/acpi_bytes.h"

#define HEADER_SIZE  36
#define RSDP_V1_SIZE 20
#define RSDP_V2_SIZE 36
#define RSDP_MAX     4096

static void complain(const struct acpi_reader *r, const char *what, const char *sig, phys_addr_t pa)
{
    if (r->complain)
        r->complain(what, sig, pa);
}

static bool sum_is_zero(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint8_t sum = 0;

    while (n--)
        sum = (uint8_t)(sum + *b++);
    return sum == 0;
}

bool acpi_table_sound(const void *table, size_t size, size_t min)
{
    uint32_t len;

    if (size < HEADER_SIZE)
        return false;
    len = bytes_u32(table, 4);
    return len >= HEADER_SIZE && len >= min && len <= size && sum_is_zero(table, len);
}

/* Any signature; says what is wrong. */
static const uint8_t *map_table(const struct acpi_reader *r, phys_addr_t pa, uint32_t *len)
{
    const uint8_t *t = pa ? r->map(pa, HEADER_SIZE) : NULL, *whole;

    if (!t) {
        complain(r, "out of reach", "????", pa);
        return NULL;
    }
    *len = bytes_u32(t, 4);
    if (*len < HEADER_SIZE || *len > ACPI_TABLE_MAX) {
        complain(r, "impossible length", (const char *)t, pa);
        return NULL;
    }
    whole = r->map(pa, *len);
    if (!whole)
        complain(r, "out of reach", (const char *)t, pa);
    else if (!sum_is_zero(whole, *len))
        complain(r, "bad checksum", (const char *)t, pa);
    else
        return whole;
    return NULL;
}

const uint8_t *acpi_table_at(const struct acpi_reader *r, phys_addr_t pa, const char *sig,
                             uint32_t *len)
{
    const uint8_t *t = map_table(r, pa, len);

    return t && memcmp(t, sig, 4) == 0 ? t : NULL;
}

static bool open_root(struct acpi_reader *r, phys_addr_t pa, const char *sig, uint8_t entry_size)
{
    uint32_t len;

    if (!pa)
        return false;
    if (!acpi_table_at(r, pa, sig, &len)) {
        complain(r, "not usable", sig, pa);
        return false;
    }
    r->root = pa;
    r->entry_size = entry_size;
    r->entries = (len - HEADER_SIZE) / entry_size;
    return true;
}

/* Revision 2 and up: the RSDP is longer and has a second checksum over all of it. */
static bool open_xsdt(struct acpi_reader *r, phys_addr_t rsdp)
{
    const uint8_t *p = r->map(rsdp, RSDP_V2_SIZE);
    uint32_t len = p ? bytes_u32(p, 20) : 0;

    if (len < RSDP_V2_SIZE || len > RSDP_MAX || !(p = r->map(rsdp, len)) || !sum_is_zero(p, len)) {
        complain(r, "bad extended checksum", "RSDP", rsdp);
        return false;
    }
    return open_root(r, bytes_u64(p, 24), "XSDT", 8);
}

err_t acpi_open(struct acpi_reader *r, phys_addr_t rsdp)
{
    const uint8_t *p = rsdp ? r->map(rsdp, RSDP_V1_SIZE) : NULL;

    r->root = 0;
    r->entries = 0;
    if (!p || memcmp(p, "RSD PTR ", 8) != 0 || !sum_is_zero(p, RSDP_V1_SIZE)) {
        complain(r, "not usable", "RSDP", rsdp);
        return ERR_NOENT;
    }
    if (p[15] >= 2 && open_xsdt(r, rsdp))
        return OK;
    return open_root(r, bytes_u32(p, 16), "RSDT", 4) ? OK : ERR_NOENT;
}

const uint8_t *acpi_find(const struct acpi_reader *r, const char *sig, unsigned instance,
                         uint32_t *len)
{
    size_t size = HEADER_SIZE + (size_t)r->entries * r->entry_size;
    const uint8_t *root = r->root ? r->map(r->root, size) : NULL;
    size_t at;

    for (at = HEADER_SIZE; root && at < size; at += r->entry_size) {
        phys_addr_t pa = r->entry_size == 8 ? bytes_u64(root, at) : bytes_u32(root, at);
        const uint8_t *t = pa ? r->map(pa, HEADER_SIZE) : NULL;

        if (!pa || (t && memcmp(t, sig, 4) != 0))
            continue;
        /* A table out of reach could be the one that is looked for: this says so. */
        t = map_table(r, pa, len);
        if (t && instance-- == 0)
            return t;
    }
    return NULL;
}

static struct acpi_gas gas_at(const uint8_t *t, uint32_t len, uint32_t at)
{
    struct acpi_gas g = {0};

    if (at + 12 <= len) {
        g.space = t[at];
        g.bit_width = t[at + 1];
        g.access = t[at + 3];
        g.addr = bytes_u64(t, at + 4);
    }
    return g;
}

static uint32_t u32_or_0(const uint8_t *t, uint32_t len, uint32_t at)
{
    return at + 4 <= len ? bytes_u32(t, at) : 0;
}

/* The extended field where it is filled in, else the old I/O port. */
static struct acpi_gas gas_or_port(const uint8_t *t, uint32_t len, uint32_t ext, uint32_t old)
{
    struct acpi_gas g = gas_at(t, len, ext);

    if (!g.addr)
        g = (struct acpi_gas){.space = 1, .bit_width = 32, .addr = u32_or_0(t, len, old)};
    return g;
}

void acpi_parse_fadt(const uint8_t *t, uint32_t len, struct acpi_fadt *f)
{
    uint32_t flags = u32_or_0(t, len, 112);

    memset(f, 0, sizeof(*f));
    f->pm_timer = gas_or_port(t, len, 208, 76);
    f->pm1a_cnt = gas_or_port(t, len, 172, 64);
    f->pm1b_cnt = gas_or_port(t, len, 184, 68);
    f->reset = gas_at(t, len, 116);
    f->reset_value = len > 128 ? t[128] : 0;
    f->sleep_control = gas_at(t, len, 244);
    f->pm_timer_32 = flags & BIT(8);
    f->reset_supported = flags & BIT(10);
    f->hw_reduced = flags & BIT(20);
    f->smi_cmd = u32_or_0(t, len, 48);
    f->acpi_enable = len > 52 ? t[52] : 0;
    if (len >= 148)
        f->dsdt = bytes_u64(t, 140);
    if (!f->dsdt)
        f->dsdt = u32_or_0(t, len, 40);
    /* A hardware-reduced machine has none of these registers, whatever the fields hold (5.2.9). */
    if (f->hw_reduced) {
        f->pm_timer.addr = 0;
        f->pm1a_cnt.addr = 0;
        f->pm1b_cnt.addr = 0;
        f->smi_cmd = 0;
    }
}

/* An integer of a package: ZeroOp, OneOp or BytePrefix (20.2.3). */
static bool aml_small_int(const uint8_t *aml, uint32_t len, uint32_t *at, uint8_t *v)
{
    if (*at >= len)
        return false;
    if (aml[*at] <= 1) {
        *v = aml[(*at)++];
        return true;
    }
    if (aml[*at] != 0x0a || *at + 1 >= len)
        return false;
    *v = aml[*at + 1];
    *at += 2;
    return true;
}

bool acpi_find_s5(const uint8_t *aml, uint32_t len, uint8_t *typa, uint8_t *typb)
{
    uint32_t i, at;

    for (i = HEADER_SIZE + 1; i + 7 < len; i++) {
        if (memcmp(aml + i, "_S5_", 4) != 0)
            continue;
        /* NameOp, perhaps with a root prefix, and PackageOp behind it: a definition, not a use. */
        if (aml[i - 1] != 0x08 && !(aml[i - 1] == '\\' && aml[i - 2] == 0x08))
            continue;
        if (aml[i + 4] != 0x12)
            continue;
        /* The package length is 1 to 4 bytes long; behind it is the number of elements. */
        at = i + 5 + 1 + (aml[i + 5] >> 6) + 1;
        if (!aml_small_int(aml, len, &at, typa))
            continue;
        if (!aml_small_int(aml, len, &at, typb))
            *typb = 0;
        return *typa <= 7 && *typb <= 7;
    }
    return false;
}

bool acpi_parse_hpet(const uint8_t *t, uint32_t len, phys_addr_t *base)
{
    struct acpi_gas g = gas_at(t, len, 40);

    *base = g.addr;
    return g.space == 0 && g.addr != 0;
}

bool acpi_parse_spcr(const uint8_t *t, uint32_t len, struct acpi_spcr *s)
{
    /* Interface types 0, 1 and 0x12 are 16550s (Microsoft's DBG2 table, 3.1). */
    static const uint32_t bauds[] = {0, 0, 0, 9600, 19200, 0, 57600, 115200};

    memset(s, 0, sizeof(*s));
    s->base = gas_at(t, len, 40);
    if (len < 64 || !s->base.addr || s->base.space > 1)
        return false;
    s->baud = t[58] < ARRAY_SIZE(bauds) ? bauds[t[58]] : 0;
    /* The fields for clock and exact rate came with revisions 3 and 4. */
    if (t[8] >= 3)
        s->clock = u32_or_0(t, len, 76);
    if (t[8] >= 4 && u32_or_0(t, len, 80))
        s->baud = u32_or_0(t, len, 80);
    return t[36] <= 1 || t[36] == 0x12;
}

bool acpi_dmar_x2apic_opt_out(const uint8_t *t, uint32_t len)
{
    return len > 37 && (t[37] & 3) == 3;
}
