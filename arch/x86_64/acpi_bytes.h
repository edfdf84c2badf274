/*
 * acpi_bytes.h: fields of ACPI tables, which are little-endian and not aligned. The caller has
 * checked the bounds. Private to the table parsers.
 */
#ifndef ACPI_BYTES_H
#define ACPI_BYTES_H

#include "lib/base.h"
#include "lib/string.h"

static inline uint16_t bytes_u16(const uint8_t *t, size_t at)
{
    uint16_t v;

    memcpy(&v, t + at, sizeof(v));
    return v;
}
static inline uint32_t bytes_u32(const uint8_t *t, size_t at)
{
    uint32_t v;

    memcpy(&v, t + at, sizeof(v));
    return v;
}
static inline uint64_t bytes_u64(const uint8_t *t, size_t at)
{
    uint64_t v;

    memcpy(&v, t + at, sizeof(v));
    return v;
}

/* The entries of a MADT or SRAT from offset `first`: type and length in the first two bytes. */
struct acpi_walk {
    const uint8_t *table;
    uint32_t len, at;
    bool cut; /* an entry's length was wrong */
};

/* The next entry of at least two bytes, wholly inside the table; NULL at the end or when cut. */
static inline const uint8_t *acpi_walk_next(struct acpi_walk *w)
{
    const uint8_t *e = w->table + w->at;

    if (w->at >= w->len)
        return NULL;
    if (w->len - w->at < 2 || e[1] < 2 || e[1] > w->len - w->at) {
        w->cut = true;
        return NULL;
    }
    w->at += e[1];
    return e;
}

#endif
