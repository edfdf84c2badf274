/*
 * early_alloc.c: hands out memory straight from the memory map, from the top down, until the page
 * allocator takes over.
 *
 * The map is the only state: what is taken changes its kind to MEM_LOADER, so whoever reads the map
 * later (the page allocator, the log) sees it without a second list. Boot CPU only, no locks. It
 * gives nothing back: what is freed early is not worth the code.
 */
#include "mm/early_alloc.h"

#include <arch/page.h>

#include "lib/assert.h"

static struct mem_range *early_ranges;
static size_t early_count;
static size_t early_cap;
static bool early_closed;

/* Makes room for `n` more entries at index `at`. The caller has checked the capacity. */
static void range_open_gap(size_t at, size_t n)
{
    for (size_t i = early_count; i > at; i--)
        early_ranges[i - 1 + n] = early_ranges[i - 1];
    early_count += n;
}

static void range_close_gap(size_t at)
{
    for (size_t i = at; i + 1 < early_count; i++)
        early_ranges[i] = early_ranges[i + 1];
    early_count--;
}

/* Joins entry i with the one after it if they are one taken range. */
static void range_join_taken(size_t i)
{
    struct mem_range *r = &early_ranges[i];

    if (i + 1 >= early_count || r[0].kind != MEM_LOADER || r[1].kind != MEM_LOADER ||
        r[0].node != r[1].node || r[0].base + r[0].size != r[1].base)
        return;
    r[0].size += r[1].size;
    range_close_gap(i + 1);
}

/* Where `size` bytes would go in r, or 0. */
static phys_addr_t range_fit(const struct mem_range *r, size_t size, size_t align, phys_addr_t max)
{
    uint64_t end = r->base + r->size;
    phys_addr_t base;

    if (r->kind != MEM_USABLE)
        return 0;
    if (max != 0 && end > max)
        end = max;
    if (end < size)
        return 0;
    base = ALIGN_DOWN(end - size, (uint64_t)align);
    return base >= r->base ? base : 0;
}

/* The top of entry i goes to the taken range right above it: the usual case, and needs no entry. */
static bool range_take_top(size_t i, size_t size)
{
    struct mem_range *r = &early_ranges[i];

    if (i + 1 >= early_count || r[1].kind != MEM_LOADER || r[1].node != r[0].node ||
        r[1].base != r[0].base + r[0].size)
        return false;
    r[1].base -= size;
    r[1].size += size;
    r[0].size -= size;
    if (r[0].size == 0) {
        range_close_gap(i);
        if (i > 0)
            range_join_taken(i - 1);
    }
    return true;
}

/*
 * Marks [base, base + size) of usable entry i as taken. A full array costs memory, not correctness:
 * the usable rest above the taken part is then given up with it. False if not even that fits.
 */
static bool range_take(size_t i, phys_addr_t base, size_t size)
{
    struct mem_range whole = early_ranges[i];
    uint64_t below = base - whole.base;
    uint64_t above = whole.size - below - size;
    size_t extra = (below != 0) + (above != 0);

    if (above != 0 && early_count + extra > early_cap) {
        size += above;
        above = 0;
        extra--;
    }
    if (above == 0 && range_take_top(i, size))
        return true;
    if (early_count + extra > early_cap)
        return false;
    range_open_gap(i, extra);
    if (below != 0) {
        early_ranges[i] = whole;
        early_ranges[i++].size = below;
    }
    early_ranges[i] =
        (struct mem_range){.base = base, .size = size, .kind = MEM_LOADER, .node = whole.node};
    if (above != 0)
        early_ranges[i + 1] = (struct mem_range){
            .base = base + size, .size = above, .kind = MEM_USABLE, .node = whole.node};
    if (i > 0)
        range_join_taken(i - 1);
    return true;
}

void early_init(struct mem_range *map, size_t count, size_t cap)
{
    ASSERT(count <= cap);
    early_ranges = map;
    early_count = count;
    early_cap = cap;
    early_closed = false;
}

phys_addr_t early_alloc(size_t size, size_t align, phys_addr_t max)
{
    ASSERT(!early_closed);
    ASSERT(IS_POWER_OF_2(align) && align >= PAGE_SIZE);
    if (size == 0 || size > SIZE_MAX - (PAGE_SIZE - 1))
        return 0;
    size = ALIGN_UP(size, PAGE_SIZE);
    for (size_t i = early_count; i-- > 0;) {
        phys_addr_t base = range_fit(&early_ranges[i], size, align, max);

        if (base != 0 && range_take(i, base, size))
            return base;
    }
    return 0;
}

const struct mem_range *early_map(size_t *count)
{
    *count = early_count;
    return early_ranges;
}

void early_close(void)
{
    early_closed = true;
}
