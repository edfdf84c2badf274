/*
 * mm_early_test.c: early_alloc() against a model: random sanitised maps, random requests. Each
 * answer must be the one that the description gives, and afterwards the map must say of every page
 * what the model says.
 */
#include "tests/host/testlib.h"
#include <string.h>
#include "lib/memrange.h"
#include "mm/early_alloc.h"
#include <arch/page.h>

#define PAGES 512 /* of the model's memory */
#define CAP   64

static struct mem_range map[CAP];

/* Kind of each page; what is between ranges is 0. */
static void kinds_of(const struct mem_range *r, size_t n, uint8_t *kinds)
{
    uint64_t last = 0;

    memset(kinds, 0, PAGES);
    for (size_t i = 0; i < n; i++) {
        assert_true(r[i].size > 0 && r[i].base >= last);
        last = r[i].base + r[i].size;
        assert_true(last <= PAGES * PAGE_SIZE);
        for (uint64_t at = r[i].base; at < last; at += PAGE_SIZE)
            kinds[at / PAGE_SIZE] = (uint8_t)r[i].kind;
    }
}

/* The answer that early_alloc.h promises: the top of the highest usable range in which it fits. */
static phys_addr_t expected(const uint8_t *kinds, size_t pages, size_t align, phys_addr_t max)
{
    for (size_t end = PAGES; end > 0; end--) {
        size_t start = end;

        if (kinds[end - 1] != MEM_USABLE)
            continue;
        while (start > 0 && kinds[start - 1] == MEM_USABLE)
            start--;
        for (size_t at = end; at-- > start;) {
            bool below = max == 0 || (at + pages) * PAGE_SIZE <= max;

            if (at * PAGE_SIZE % align == 0 && at + pages <= end && below)
                return at * PAGE_SIZE;
        }
        end = start + 1;
    }
    return 0;
}

static size_t random_map(struct rng *r)
{
    size_t n = rng_range(r, 1, 20);

    for (size_t i = 0; i < n; i++)
        map[i] = (struct mem_range){
            .base = rng_below(r, PAGES) * PAGE_SIZE,
            .size = rng_range(r, 1, 60) * PAGE_SIZE,
            .kind = (uint32_t)rng_range(r, 1, 3 + rng_below(r, 5)),
        };
    for (size_t i = 0; i < n; i++)
        map[i].size = MIN(map[i].size, PAGES * PAGE_SIZE - map[i].base);
    return memrange_sanitise(map, n, CAP);
}

/* Ranges of one kind are one run of pages only if sanitising and taking merge them; so they must.
 */
static void random_requests(void **state)
{
    struct rng r = test_rng(1);

    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t n = random_map(&r), count;

        early_init(map, n, CAP);
        for (int i = 0; i < 12; i++) {
            uint8_t before[PAGES], after[PAGES];
            size_t size = rng_range(&r, 1, rng_below(&r, 4) ? 3 * PAGE_SIZE : 90 * PAGE_SIZE);
            size_t pages = DIV_ROUND_UP(size, PAGE_SIZE);
            size_t align = PAGE_SIZE << rng_below(&r, 6);
            phys_addr_t max = rng_below(&r, 2) ? 0 : rng_below(&r, PAGES * PAGE_SIZE) + 1;
            const struct mem_range *now = early_map(&count);
            phys_addr_t want, got;

            kinds_of(now, count, before);
            want = expected(before, pages, align, max);
            got = early_alloc(size, align, max);
            CHECK_MSG(got == want, "round %d: %#lx instead of %#lx (size %#zx align %#zx max %#lx)",
                      round, got, want, size, align, max);
            if (got != 0)
                memset(before + got / PAGE_SIZE, MEM_LOADER, pages);
            now = early_map(&count);
            assert_ptr_equal(now, map);
            kinds_of(now, count, after);
            assert_memory_equal(before, after, PAGES);
        }
    }
}

/* No room in the array: memory may be given up, but what is handed out was free, and is marked. */
static void full_array(void **state)
{
    struct rng r = test_rng(2);

    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t n = random_map(&r), count;
        size_t cap = n + rng_below(&r, 3);

        early_init(map, n, cap);
        for (int i = 0; i < 12; i++) {
            uint8_t before[PAGES], after[PAGES];
            size_t pages = rng_range(&r, 1, 8);
            phys_addr_t got;

            kinds_of(early_map(&count), count, before);
            got = early_alloc(pages * PAGE_SIZE, PAGE_SIZE << rng_below(&r, 4), 0);
            kinds_of(early_map(&count), count, after);
            assert_true(count <= cap);
            for (size_t p = 0; p < PAGES; p++) {
                bool taken = got != 0 && p >= got / PAGE_SIZE && p < got / PAGE_SIZE + pages;

                if (taken)
                    assert_true(before[p] == MEM_USABLE && after[p] == MEM_LOADER);
                else if (before[p] != after[p])
                    assert_true(before[p] == MEM_USABLE && after[p] == MEM_LOADER && got != 0);
            }
        }
    }
}

static void bad_requests(void **state)
{
    size_t count;

    (void)state;
    map[0] = (struct mem_range){.base = PAGE_SIZE, .size = 8 * PAGE_SIZE, .kind = MEM_USABLE};
    early_init(map, 1, CAP);
    assert_int_equal(early_alloc(0, PAGE_SIZE, 0), 0);
    assert_int_equal(early_alloc(SIZE_MAX, PAGE_SIZE, 0), 0);
    assert_int_equal(early_alloc(SIZE_MAX - PAGE_SIZE, PAGE_SIZE, 0), 0);
    assert_int_equal(early_alloc(9 * PAGE_SIZE, PAGE_SIZE, 0), 0);
    assert_int_equal(early_alloc(PAGE_SIZE, 1UL << 63, 0), 0);
    assert_int_equal(early_alloc(PAGE_SIZE, PAGE_SIZE, PAGE_SIZE), 0);
    EXPECT_PANIC(early_alloc(PAGE_SIZE, 3 * PAGE_SIZE, 0), "IS_POWER_OF_2");
    EXPECT_PANIC(early_alloc(PAGE_SIZE, 16, 0), "align");
    early_map(&count);
    assert_int_equal(count, 1);
    assert_int_equal(early_alloc(8 * PAGE_SIZE, PAGE_SIZE, 0), PAGE_SIZE);
    assert_int_equal(early_alloc(1, PAGE_SIZE, 0), 0);
    early_close();
    EXPECT_PANIC(early_alloc(PAGE_SIZE, PAGE_SIZE, 0), "early_closed");
    EXPECT_PANIC(early_init(map, 2, 1), "count <= cap");
}

/* Nodes are kept, and ranges of different nodes are never joined. */
static void nodes_stay(void **state)
{
    const struct mem_range *now;
    size_t count;

    (void)state;
    map[0] = (struct mem_range){PAGE_SIZE, 4 * PAGE_SIZE, MEM_USABLE, 0};
    map[1] = (struct mem_range){5 * PAGE_SIZE, 2 * PAGE_SIZE, MEM_USABLE, 1};
    early_init(map, 2, CAP);
    assert_int_equal(early_alloc(2 * PAGE_SIZE, PAGE_SIZE, 0), 5 * PAGE_SIZE);
    assert_int_equal(early_alloc(PAGE_SIZE, PAGE_SIZE, 0), 4 * PAGE_SIZE);
    now = early_map(&count);
    assert_int_equal(count, 3);
    assert_int_equal(now[1].kind, MEM_LOADER);
    assert_int_equal(now[1].node, 0);
    assert_int_equal(now[2].kind, MEM_LOADER);
    assert_int_equal(now[2].node, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_requests),
        cmocka_unit_test(full_array),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(nodes_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
