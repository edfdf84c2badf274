/*
 * memrange.c: makes a sorted list without overlaps out of whatever map a firmware gives.
 *
 * In place, no allocation: it runs before there is memory to allocate from. Quadratic in the number
 * of ranges, which is some hundreds at most (the longest firmware map on record had 312).
 *
 * Why 2 n - 1 entries are always enough: cutting goes from low to high addresses. Every finished
 * piece ends at a distinct end point of a given range, and a range that is not finished has an end
 * point that is still to come; there are 2 n end points.
 */
#include "lib/memrange.h"
#include "lib/string.h"

struct map {
    struct mem_range *r;
    size_t n, cap;
};

static uint64_t end_of(const struct mem_range *r)
{
    return r->base + r->size;
}

/* Who keeps what both claim: the higher kind; within a kind the lower node, so that the result does
 * not depend on the order of the input. */
static bool stronger(const struct mem_range *a, const struct mem_range *b)
{
    return a->kind != b->kind ? a->kind > b->kind : a->node < b->node;
}

/* By address; at one address the stronger first, so that the weaker is simply trimmed. */
static bool before(const struct mem_range *a, const struct mem_range *b)
{
    return a->base != b->base ? a->base < b->base : stronger(a, b);
}

static bool same_sort(const struct mem_range *a, const struct mem_range *b)
{
    return a->kind == b->kind && a->node == b->node;
}

static void remove_at(struct map *m, size_t i)
{
    m->n--;
    memmove(&m->r[i], &m->r[i + 1], (m->n - i) * sizeof(m->r[0]));
}

static void keep_valid(struct map *m)
{
    size_t kept = 0;

    for (size_t i = 0; i < m->n; i++) {
        if (m->r[i].size != 0 && end_of(&m->r[i]) > m->r[i].base)
            m->r[kept++] = m->r[i];
    }
    m->n = kept;
}

/* Insertion sort: firmware maps come sorted or nearly so. */
static void sort(struct map *m)
{
    for (size_t i = 1; i < m->n; i++) {
        struct mem_range x = m->r[i];
        size_t j = i;

        for (; j > 0 && before(&x, &m->r[j - 1]); j--)
            m->r[j] = m->r[j - 1];
        m->r[j] = x;
    }
}

/* The entry that is missed least: the weakest kind, of these the smallest. Nothing is weaker, so
 * dropping it uncovers nothing that it would have cut. */
static size_t least_valuable(const struct map *m)
{
    size_t least = 0;

    for (size_t i = 1; i < m->n; i++) {
        const struct mem_range *a = &m->r[i], *b = &m->r[least];
        if (a->kind < b->kind || (a->kind == b->kind && a->size < b->size))
            least = i;
    }
    return least;
}

/*
 * Puts x into its place at or after index `from`. When the array is full the least valuable entry
 * goes, which may be x itself. Returns how many entries before `from` were removed (0 or 1).
 */
static size_t insert_from(struct map *m, size_t from, struct mem_range x)
{
    size_t shifted = 0;

    if (m->n == m->cap) {
        size_t victim = least_valuable(m);
        const struct mem_range *v = &m->r[victim];

        if (x.kind < v->kind || (x.kind == v->kind && x.size <= v->size))
            return 0;
        remove_at(m, victim);
        if (victim < from) {
            shifted = 1;
            from--;
        }
    }
    size_t i = m->n;
    for (; i > from && before(&x, &m->r[i - 1]); i--)
        m->r[i] = m->r[i - 1];
    m->r[i] = x;
    m->n++;
    return shifted;
}

/* r[i] and r[i + 1] overlap. Resolves it by one step; returns the index to look at next. */
static size_t cut_pair(struct map *m, size_t i)
{
    struct mem_range *a = &m->r[i], *b = &m->r[i + 1];
    uint64_t a_end = end_of(a), b_end = end_of(b);

    if (same_sort(a, b)) {
        a->size = MAX(a_end, b_end) - a->base;
        remove_at(m, i + 1);
        return i;
    }
    struct mem_range rest;
    if (stronger(b, a)) {
        /* a ends where b begins (b does not begin at a's base: b would be sorted before it), and
         * goes on behind b. */
        rest = (struct mem_range){b_end, a_end - b_end, a->kind, a->node};
        a->size = b->base - a->base;
        if (a_end > b_end)
            return i + 1 - insert_from(m, i + 2, rest);
        return i + 1;
    }
    /* a stays whole; what b has beyond it is sorted in again, into the room that b leaves. */
    rest = (struct mem_range){a_end, b_end - a_end, b->kind, b->node};
    remove_at(m, i + 1);
    if (b_end > a_end)
        insert_from(m, i + 1, rest);
    return i;
}

static void cut_overlaps(struct map *m)
{
    size_t i = 0;

    while (i + 1 < m->n) {
        if (end_of(&m->r[i]) > m->r[i + 1].base)
            i = cut_pair(m, i);
        else
            i++;
    }
}

static void merge_neighbours(struct map *m)
{
    size_t kept = 0;

    for (size_t i = 0; i < m->n; i++) {
        struct mem_range *last = kept ? &m->r[kept - 1] : NULL;

        if (last && same_sort(last, &m->r[i]) && end_of(last) == m->r[i].base)
            last->size += m->r[i].size;
        else
            m->r[kept++] = m->r[i];
    }
    m->n = kept;
}

/* What the page allocator may get: whole pages, and never page 0, whose address is NULL. */
static void shrink_to_pages(struct map *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct mem_range *r = &m->r[i];

        if (r->kind != MEM_USABLE && r->kind != MEM_BOOT_RECLAIM)
            continue;
        uint64_t end = ALIGN_DOWN(end_of(r), SZ_4K);
        /* Not rounded up by adding: in the last page of the address space that wraps. */
        uint64_t base = r->base ? ALIGN_DOWN(r->base - 1, SZ_4K) + SZ_4K : SZ_4K;
        r->size = base != 0 && base < end ? end - base : 0;
        r->base = base;
    }
}

size_t memrange_sanitise(struct mem_range *r, size_t n, size_t cap)
{
    struct map m = {.r = r, .n = MIN(n, cap), .cap = cap};

    keep_valid(&m);
    sort(&m);
    cut_overlaps(&m);
    merge_neighbours(&m);
    shrink_to_pages(&m);
    keep_valid(&m);
    return m.n;
}

uint64_t memrange_total(const struct mem_range *r, size_t n, enum mem_kind kind)
{
    uint64_t total = 0;

    for (size_t i = 0; i < n; i++) {
        if (r[i].kind == (uint32_t)kind)
            total += r[i].size;
    }
    return total;
}

const char *memrange_kind_name(uint32_t kind)
{
    static const char *const names[MEM_KIND_COUNT] = {
        [MEM_USABLE] = "usable",     [MEM_BOOT_RECLAIM] = "boot-reclaim",
        [MEM_LOADER] = "loader",     [MEM_ACPI_RECLAIM] = "acpi-reclaim",
        [MEM_ACPI_NVS] = "acpi-nvs", [MEM_RUNTIME] = "runtime",
        [MEM_RESERVED] = "reserved", [MEM_UNUSABLE] = "unusable",
    };

    return kind < MEM_KIND_COUNT && names[kind] ? names[kind] : "?";
}
