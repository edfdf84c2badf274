/*
 * lib_memrange_test.c: random maps against a model that looks at each piece of the address space;
 * maps as firmware gives them; every room from too little to plenty.
 */
#include "tests/host/testlib.h"
#include "tests/host/memrange_model.h"
#include <string.h>

static void compare(const struct mem_range *in, size_t n)
{
    assert_true(memrange_compare(in, n, 0));
    for (size_t cap = n; cap <= 2 * n + 1; cap++)
        assert_true(memrange_compare(in, n, cap));
}

static void random_maps(void **state)
{
    struct rng r = test_rng(1);
    uint8_t data[5 * MODEL_MAX];
    struct mem_range in[MODEL_MAX];

    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t n = rng_below(&r, round % 10 ? 10 : MODEL_MAX + 1);
        for (size_t i = 0; i < 5 * n; i++)
            data[i] = (uint8_t)rng_next(&r);
        n = memrange_from_bytes(data, 5 * n, in);
        CHECK_MSG(memrange_compare(in, n, 0), "round %d", round);
        CHECK_MSG(memrange_compare(in, n, n + rng_below(&r, n + 1)), "round %d", round);
    }
}

/* Shuffling the input must not change the result: nothing may depend on the firmware's order. */
static void order_does_not_matter(void **state)
{
    struct rng r = test_rng(2);
    uint8_t data[5 * 20];
    struct mem_range in[MODEL_MAX], a[MODEL_MAX], b[MODEL_MAX];

    (void)state;
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof(data); i++)
            data[i] = (uint8_t)rng_next(&r);
        size_t n = memrange_from_bytes(data, sizeof(data), in);
        memcpy(a, in, sizeof(a));
        for (size_t i = n; i > 1; i--) {
            size_t j = rng_below(&r, i);
            struct mem_range t = in[i - 1];
            in[i - 1] = in[j];
            in[j] = t;
        }
        memcpy(b, in, sizeof(b));
        size_t na = memrange_sanitise(a, n, MODEL_MAX), nb = memrange_sanitise(b, n, MODEL_MAX);
        assert_int_equal(na, nb);
        assert_memory_equal(a, b, na * sizeof(a[0]));
        /* and doing it again changes nothing */
        assert_int_equal(memrange_sanitise(a, na, MODEL_MAX), na);
        assert_memory_equal(a, b, na * sizeof(a[0]));
    }
}

static void firmware_like(void **state)
{
    /* unsorted, touching, with a hole, page 0 and an odd end */
    struct mem_range r[32] = {
        {0x100000, 0x7f00000, MEM_USABLE, 0},   {0, 0xa0000, MEM_USABLE, 0},
        {0xf0000, 0x10000, MEM_RESERVED, 0},    {0x8000000, 0x1800, MEM_USABLE, 0},
        {0x2000000, 0x200000, MEM_LOADER, 0},   {0x3000000, 0x1234, MEM_ACPI_RECLAIM, 0},
        {0x9000000, 0x4000, MEM_RUNTIME, 0},    {0x100000000, 0x40000000, MEM_USABLE, 1},
        {0x3001234, 0xdcc, MEM_BOOT_RECLAIM, 0}};
    static const struct mem_range expected[] = {
        {0x1000, 0x9f000, MEM_USABLE, 0},         {0xf0000, 0x10000, MEM_RESERVED, 0},
        {0x100000, 0x1f00000, MEM_USABLE, 0},     {0x2000000, 0x200000, MEM_LOADER, 0},
        {0x2200000, 0xe00000, MEM_USABLE, 0},     {0x3000000, 0x1234, MEM_ACPI_RECLAIM, 0},
        {0x3002000, 0x4fff000, MEM_USABLE, 0},    {0x9000000, 0x4000, MEM_RUNTIME, 0},
        {0x100000000, 0x40000000, MEM_USABLE, 1},
    };

    (void)state;
    compare(r, 9);
    assert_int_equal(memrange_sanitise(r, 9, ARRAY_SIZE(r)), ARRAY_SIZE(expected));
    assert_memory_equal(r, expected, sizeof(expected));
    assert_true(memrange_total(r, ARRAY_SIZE(expected), MEM_USABLE) ==
                0x9f000 + 0x1f00000 + 0xe00000 + 0x4fff000 + 0x40000000ULL);
    assert_true(memrange_total(r, ARRAY_SIZE(expected), MEM_ACPI_NVS) == 0);
}

static void edges(void **state)
{
    struct mem_range r[8];

    (void)state;
    assert_int_equal(memrange_sanitise(r, 0, 8), 0);
    assert_int_equal(memrange_sanitise(NULL, 0, 0), 0);

    static const struct mem_range dropped[] = {
        {0x1000, 0, MEM_USABLE, 0},                  /* empty */
        {0xfffffffffffff000, 0x2000, MEM_USABLE, 0}, /* end overflows */
        {0xfffffffffffff000, 0x1000, MEM_USABLE, 0}, /* end is 2^64: overflows too */
        {0, 0x1000, MEM_USABLE, 0},                  /* page 0 */
        {0x1001, 0x1ffe, MEM_USABLE, 0},             /* no whole page */
        {0x5800, 0x800, MEM_BOOT_RECLAIM, 0},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(dropped); i++) {
        r[0] = dropped[i];
        assert_int_equal(memrange_sanitise(r, 1, 1), 0);
    }
    /* What is not for the page allocator keeps its bytes. */
    r[0] = (struct mem_range){0x7, 0x10, MEM_ACPI_NVS, 0};
    assert_int_equal(memrange_sanitise(r, 1, 1), 1);
    assert_true(r[0].base == 7 && r[0].size == 0x10);
    /* Halves of a page in two usable ranges make a whole one. */
    r[0] = (struct mem_range){0x1800, 0x800, MEM_USABLE, 0};
    r[1] = (struct mem_range){0x1000, 0x800, MEM_USABLE, 0};
    assert_int_equal(memrange_sanitise(r, 2, 2), 1);
    assert_true(r[0].base == 0x1000 && r[0].size == 0x1000);
}

/* Many islands in one range need the most room; with less, memory is lost and never gained. */
static void islands(void **state)
{
    struct mem_range in[MODEL_MAX];

    (void)state;
    in[0] = (struct mem_range){0x10000, 0x1000000, MEM_USABLE, 0};
    for (size_t i = 1; i < MODEL_MAX; i++)
        in[i] = (struct mem_range){0x10000 + i * 0x3000, 0x1000, MEM_RESERVED, 0};
    compare(in, MODEL_MAX);
    /* nested like an onion: each kind inside the one below it */
    for (uint32_t i = 0; i < 8; i++)
        in[i] = (struct mem_range){i * 0x2000, 0x40000 - i * 0x4000, 1 + i, 0};
    compare(in, 8);
}

/* Two islands leave three gaps, five entries in all. With room for four the smallest gap goes, from
 * wherever it is; the islands stay. */
static void smallest_go_first(void **state)
{
    static const uint64_t gap[][3] = {{1, 2, 3}, {1, 3, 2}, {2, 1, 3},
                                      {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(gap); i++) {
        for (size_t cap = 4; cap <= 5; cap++) {
            uint64_t a = 0x10000 + gap[i][0] * 0x1000, b = a + 0x1000 + gap[i][1] * 0x1000;
            uint64_t end = b + 0x1000 + gap[i][2] * 0x1000, usable = 0;
            struct mem_range r[5] = {{0x10000, end - 0x10000, MEM_USABLE, 0},
                                     {a, 0x1000, MEM_RESERVED, 0},
                                     {b, 0x1000, MEM_RESERVED, 0}};
            assert_int_equal(memrange_sanitise(r, 3, cap), cap);
            assert_true(memrange_total(r, cap, MEM_RESERVED) == 0x2000);
            for (uint64_t size = 3; size > 5 - cap; size--)
                usable += size * 0x1000;
            CHECK_MSG(memrange_total(r, cap, MEM_USABLE) == usable, "order %u, room for %zu", i,
                      cap);
        }
    }
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(memrange_kind_name(MEM_USABLE), "usable");
    assert_string_equal(memrange_kind_name(MEM_ACPI_NVS), "acpi-nvs");
    assert_string_equal(memrange_kind_name(0), "?");
    assert_string_equal(memrange_kind_name(MEM_KIND_COUNT), "?");
    assert_string_equal(memrange_kind_name(UINT32_MAX), "?");
    for (uint32_t k = MEM_USABLE; k < MEM_KIND_COUNT; k++)
        assert_string_not_equal(memrange_kind_name(k), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_maps),       cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(firmware_like),     cmocka_unit_test(edges),
        cmocka_unit_test(islands),           cmocka_unit_test(names),
        cmocka_unit_test(smallest_go_first),
    };
    return cmocka_run_group_tests_name("memrange", tests, NULL, NULL);
}
