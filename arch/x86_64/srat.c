/*
 * srat.c: which node a CPU and a piece of memory belong to (ACPI 6.5, 5.2.16). See acpi_tables.h.
 *
 * Walks entries, never addresses: the holes between nodes may be terabytes (pitfall 29).
 */
#include <arch/acpi_tables.h>

#include "arch/x86_64/acpi_bytes.h"

#define SRAT_FIRST 48 /* header, 12 reserved bytes */

#define TYPE_LAPIC   0
#define TYPE_MEMORY  1
#define TYPE_X2APIC  2
#define FLAG_ENABLED BIT(0)

/* One enabled entry of a known type. */
struct affinity {
    uint8_t type;
    uint32_t domain;
    uint32_t apic_id;    /* CPUs */
    uint64_t base, size; /* memory */
};

static struct acpi_walk walk_of(const uint8_t *t, uint32_t len)
{
    return (struct acpi_walk){.table = t, .len = len, .at = SRAT_FIRST};
}

/* Skips what is disabled, too short or of another type. */
static bool next_affinity(struct acpi_walk *w, struct affinity *a)
{
    const uint8_t *e;

    while ((e = acpi_walk_next(w))) {
        a->type = e[0];
        if (e[0] == TYPE_LAPIC && e[1] >= 16 && (bytes_u32(e, 4) & FLAG_ENABLED)) {
            a->domain = e[2] | (bytes_u32(e, 8) & 0xffffff00u);
            a->apic_id = e[3];
            return true;
        }
        if (e[0] == TYPE_X2APIC && e[1] >= 24 && (bytes_u32(e, 12) & FLAG_ENABLED)) {
            a->domain = bytes_u32(e, 4);
            a->apic_id = bytes_u32(e, 8);
            return true;
        }
        if (e[0] == TYPE_MEMORY && e[1] >= 40 && (bytes_u32(e, 28) & FLAG_ENABLED)) {
            a->domain = bytes_u32(e, 2);
            a->base = bytes_u64(e, 8);
            a->size = bytes_u64(e, 16);
            if (a->size && a->base + a->size > a->base)
                return true;
        }
    }
    return false;
}

/* SRAT_NODES_MAX: not known. */
static unsigned node_of(const struct srat *s, uint32_t domain)
{
    unsigned i;

    for (i = 0; i < s->nodes; i++) {
        if (s->domains[i] == domain)
            return i;
    }
    return SRAT_NODES_MAX;
}

err_t srat_open(struct srat *s, const uint8_t *t, size_t size)
{
    struct acpi_walk w;
    struct affinity a;

    memset(s, 0, sizeof(*s));
    if (!acpi_table_sound(t, size, SRAT_FIRST) || memcmp(t, "SRAT", 4) != 0)
        return ERR_INVAL;
    s->table = t;
    s->len = bytes_u32(t, 4);
    w = walk_of(s->table, s->len);
    while (s->nodes < SRAT_NODES_MAX && next_affinity(&w, &a)) {
        if (node_of(s, a.domain) == SRAT_NODES_MAX)
            s->domains[s->nodes++] = a.domain;
    }
    return s->nodes ? OK : ERR_INVAL;
}

unsigned srat_cpu_node(const struct srat *s, uint32_t apic_id)
{
    struct acpi_walk w = walk_of(s->table, s->len);
    struct affinity a;

    while (next_affinity(&w, &a)) {
        unsigned node = node_of(s, a.domain);

        if (a.type != TYPE_MEMORY && a.apic_id == apic_id && node < s->nodes)
            return node;
    }
    return 0;
}

/* Cuts map[i] at address `at` inside it; false if there is no room. */
static bool split(struct mem_range *map, size_t *n, size_t cap, size_t i, uint64_t at)
{
    if (*n >= cap)
        return false;
    memmove(&map[i + 1], &map[i], (*n - i) * sizeof(*map));
    map[i].size = at - map[i].base;
    map[i + 1].base = at;
    map[i + 1].size -= map[i].size;
    (*n)++;
    return true;
}

static size_t apply_one(struct mem_range *map, size_t n, size_t cap, uint64_t start, uint64_t end,
                        unsigned node)
{
    size_t i;

    for (i = 0; i < n; i++) {
        uint64_t last = map[i].base + map[i].size;

        if (map[i].base >= end || last <= start)
            continue;
        if (map[i].base < start) {
            /* The part inside is looked at in the next round. */
            if (!split(map, &n, cap, i, start))
                return n;
            continue;
        }
        if (last > end && !split(map, &n, cap, i, end))
            return n;
        map[i].node = node;
    }
    return n;
}

size_t srat_apply(const struct srat *s, struct mem_range *map, size_t n, size_t cap)
{
    struct acpi_walk w = walk_of(s->table, s->len);
    struct affinity a;

    while (next_affinity(&w, &a)) {
        unsigned node = node_of(s, a.domain);

        /* Borders inside a page would give a page two nodes. */
        if (a.type == TYPE_MEMORY && node < s->nodes)
            n = apply_one(map, n, cap, ALIGN_DOWN(a.base, SZ_4K),
                          ALIGN_DOWN(a.base + a.size, SZ_4K), node);
    }
    return n;
}
