/*
 * arch_ptbuild_test.c: page tables as the kernel builds them for itself, in ordinary memory: leaf
 * sizes (case D10), 4 and 5 levels (K4), refusals, the walker, and the search for writable and
 * executable leaves.
 */
#include "tests/host/testlib.h"
#include <stdlib.h>
#include <string.h>

#include <arch/ptbuild.h>

#define TABLES_MAX 512
#define TABLES_PA  0x40000000ULL

/* The simulation's accessors are not wanted here. */
pte_t pte_read(const pte_t *p)
{
    return *p;
}

void pte_write(pte_t *p, pte_t v)
{
    *p = v;
}

static uint8_t *arena;
static unsigned tables_used, tables_limit;
static uintptr_t wx_seen[16];
static unsigned wx_count;

static phys_addr_t alloc(size_t size, size_t align, phys_addr_t max)
{
    assert_int_equal(size, PAGE_SIZE);
    assert_int_equal(align, PAGE_SIZE);
    assert_int_equal(max, SZ_4G);
    if (tables_used == tables_limit)
        return 0;
    return TABLES_PA + tables_used++ * PAGE_SIZE;
}

static void *to_virt(phys_addr_t pa)
{
    assert_in_range(pa, TABLES_PA, TABLES_PA + TABLES_MAX * PAGE_SIZE - 1);
    return arena + (pa - TABLES_PA);
}

static void report(uintptr_t va, pte_t leaf)
{
    (void)leaf;
    if (wx_count < ARRAY_SIZE(wx_seen))
        wx_seen[wx_count] = va;
    wx_count++;
}

static struct pt_build begin(unsigned levels, bool gbpages)
{
    struct pt_build b = {.levels = levels,
                         .gbpages = gbpages,
                         .alloc = alloc,
                         .table_max = SZ_4G,
                         .to_virt = to_virt};

    memset(arena, 0xa5, TABLES_MAX * PAGE_SIZE);
    tables_used = 0;
    tables_limit = TABLES_MAX;
    assert_int_equal(pt_init(&b, SZ_4G), OK);
    return b;
}

static int setup(void **state)
{
    (void)state;
    arena = malloc(TABLES_MAX * PAGE_SIZE);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(arena);
    return 0;
}

/* va maps to pa with a leaf of that level, and its protection is prot. */
static void expect(const struct pt_build *b, uintptr_t va, phys_addr_t pa, unsigned level,
                   pgprot_t prot)
{
    size_t size = 1UL << (12 + 9 * (level - 1));
    unsigned got;
    pte_t leaf;

    assert_true(pt_walk(b, va, &leaf, &got));
    assert_int_equal(got, level);
    assert_int_equal((leaf & PTE_ADDR) + (va & (size - 1)), pa);
    assert_int_equal(leaf & ~PTE_ADDR, prot | (level > 1 ? PTE_PS : 0));
}

static void expect_none(const struct pt_build *b, uintptr_t va)
{
    unsigned level;
    pte_t leaf;

    assert_false(pt_walk(b, va, &leaf, &level));
}

/* Every leaf size where it fits, and not where either side is misaligned. */
static void leaf_sizes(void **state)
{
    const uintptr_t va = DIRECT_MAP_BASE;
    unsigned levels;

    (void)state;
    for (levels = 4; levels <= 5; levels++) {
        struct pt_build b = begin(levels, true);

        /* 4 KiB up to 2 MiB, 2 MiB up to 1 GiB, 1 GiB, and down again. */
        assert_int_equal(pt_map(&b, va + 0x1ff000, 0x1ff000, 2 * SZ_1G + 0x3000, PAGE_KERNEL), OK);
        assert_int_equal(b.leaves[1], 1 + 2);
        assert_int_equal(b.leaves[2], 511 + 1);
        assert_int_equal(b.leaves[3], 1);
        expect(&b, va + 0x1ff123, 0x1ff123, 1, PAGE_KERNEL);
        expect(&b, va + 0x200000, 0x200000, 2, PAGE_KERNEL);
        expect(&b, va + SZ_1G + 0x12345678, SZ_1G + 0x12345678, 3, PAGE_KERNEL);
        expect(&b, va + 2 * SZ_1G + 0x201fff, 2 * SZ_1G + 0x201fff, 1, PAGE_KERNEL);
        expect_none(&b, va + 2 * SZ_1G + 0x202000);
        expect_none(&b, va + 0x1fe000);
        expect_none(&b, va + 0x10000000000);
        expect_none(&b, 0);
    }
}

/* D10: exactly 2 MiB and 1 GiB; the same with one side misaligned, and without 1 GiB leaves. */
static void exact_sizes(void **state)
{
    struct pt_build b = begin(4, true);

    (void)state;
    assert_int_equal(pt_map(&b, VMAP_BASE, SZ_1G, SZ_1G, PAGE_KERNEL), OK);
    assert_int_equal(pt_map(&b, VMAP_BASE + SZ_1G, SZ_2M, SZ_2M, PAGE_KERNEL), OK);
    assert_int_equal(b.leaves[3], 1);
    assert_int_equal(b.leaves[2], 1);
    assert_int_equal(b.leaves[1], 0);
    expect_none(&b, VMAP_BASE + SZ_1G + SZ_2M);
    assert_int_equal(pt_map(&b, VMAP_BASE + 2 * SZ_1G, SZ_2M + 0x1000, SZ_2M, PAGE_KERNEL), OK);
    assert_int_equal(b.leaves[1], 512);
    assert_int_equal(pt_map(&b, VMAP_BASE + 3 * SZ_1G + 0x1000, SZ_2M, SZ_2M, PAGE_KERNEL), OK);
    assert_int_equal(b.leaves[1], 1024);
    assert_int_equal(b.leaves[2], 1);
    /* Physical alignment of 2 MiB only. */
    assert_int_equal(pt_map(&b, VMAP_BASE + 4 * SZ_1G, SZ_2M, SZ_1G, PAGE_KERNEL), OK);
    assert_int_equal(b.leaves[3], 1);
    assert_int_equal(b.leaves[2], 513);

    b = begin(4, false);
    assert_int_equal(pt_map(&b, VMAP_BASE, SZ_1G, SZ_1G, PAGE_KERNEL), OK);
    assert_int_equal(b.leaves[3], 0);
    assert_int_equal(b.leaves[2], 512);
}

/* The last page of all; a range across a 512 GiB border. */
static void borders(void **state)
{
    struct pt_build b = begin(5, true);
    uintptr_t edge = DIRECT_MAP_BASE + SZ_512G;

    (void)state;
    assert_int_equal(pt_map(&b, ~0xfffUL, 0x5000, 0x1000, PAGE_KERNEL_RX), ERR_INVAL);
    assert_int_equal(pt_map(&b, ~0x1fffUL, 0x5000, 0x1000, PAGE_KERNEL_RX), OK);
    expect(&b, ~0x1fffUL + 0xfff, 0x5fff, 1, PAGE_KERNEL_RX);
    assert_int_equal(pt_map(&b, edge - 0x1000, 0x7000, 0x2000, PAGE_KERNEL), OK);
    expect(&b, edge - 1, 0x7fff, 1, PAGE_KERNEL);
    expect(&b, edge, 0x8000, 1, PAGE_KERNEL);
}

static void refusals(void **state)
{
    struct pt_build b = begin(4, true);
    const uintptr_t va = VMAP_BASE;

    (void)state;
    assert_int_equal(pt_map(&b, va + 1, 0, 0x1000, PAGE_KERNEL), ERR_INVAL);
    assert_int_equal(pt_map(&b, va, 8, 0x1000, PAGE_KERNEL), ERR_INVAL);
    assert_int_equal(pt_map(&b, va, 0, 0x1001, PAGE_KERNEL), ERR_INVAL);
    assert_int_equal(pt_map(&b, va, ~0xfffUL, 0x2000, PAGE_KERNEL), ERR_INVAL);
    assert_int_equal(pt_map(&b, va, 1UL << 52, 0x1000, PAGE_KERNEL), ERR_INVAL);
    assert_int_equal(pt_map(&b, va, 0, 0, PAGE_KERNEL), OK);
    assert_int_equal(b.tables, 1);

    assert_int_equal(pt_map(&b, va, SZ_2M, SZ_2M, PAGE_KERNEL), OK);
    assert_int_equal(pt_map(&b, va, SZ_2M, SZ_2M, PAGE_KERNEL), ERR_BUSY);
    assert_int_equal(pt_map(&b, va + 0x1000, 0, 0x1000, PAGE_KERNEL), ERR_BUSY);
    assert_int_equal(pt_map(&b, va + SZ_2M, 0x3000, 0x1000, PAGE_KERNEL), OK);
    assert_int_equal(pt_map(&b, va + SZ_2M, 0x3000, 0x1000, PAGE_KERNEL), ERR_BUSY);
    /* A table is there already: small leaves go into it, up to what is in the way. */
    assert_int_equal(pt_map(&b, va + SZ_2M, SZ_2M, SZ_2M, PAGE_KERNEL), ERR_BUSY);
    assert_int_equal(pt_map(&b, va + SZ_2M + 0x1000, SZ_2M, SZ_2M - 0x1000, PAGE_KERNEL), OK);
    expect(&b, va + SZ_2M, 0x3000, 1, PAGE_KERNEL);
    expect(&b, va + SZ_2M + 0x1000, SZ_2M, 1, PAGE_KERNEL);
}

/* Memory runs out at each table in turn: refused, and what was there stays right. */
static void out_of_memory(void **state)
{
    unsigned limit;

    (void)state;
    for (limit = 1; limit < 4; limit++) {
        struct pt_build b = begin(4, true);

        tables_limit = limit;
        assert_int_equal(pt_map(&b, VMAP_BASE, 0x1000, 0x1000, PAGE_KERNEL), ERR_NOMEM);
        expect_none(&b, VMAP_BASE);
        tables_limit = TABLES_MAX;
        assert_int_equal(pt_map(&b, VMAP_BASE, 0x1000, 0x1000, PAGE_KERNEL), OK);
        assert_int_equal(b.tables, 4);
    }
    tables_used = 0;
    tables_limit = 0;
    {
        struct pt_build b = {.levels = 4, .alloc = alloc, .table_max = SZ_4G, .to_virt = to_virt};

        assert_int_equal(pt_init(&b, SZ_4G), ERR_NOMEM);
    }
}

/* Leaves of each size, rights taken away or not by the entries above, both halves, both depths. */
static void write_and_execute(void **state)
{
    const pgprot_t rwx = PAGE_KERNEL & ~PTE_NX;
    unsigned levels;

    (void)state;
    for (levels = 4; levels <= 5; levels++) {
        struct pt_build b = begin(levels, true);
        pte_t *root = to_virt(b.root);
        uintptr_t first = ~0UL << (12 + 9 * levels - 1); /* the lowest address of the upper half */

        assert_int_equal(pt_map(&b, KERNEL_BASE, SZ_2M, SZ_2M, PAGE_KERNEL_RX), OK);
        assert_int_equal(pt_map(&b, DIRECT_MAP_BASE, 0, 4 * SZ_1G, PAGE_KERNEL), OK);
        assert_int_equal(pt_map(&b, 0x9f000, 0x9f000, 0x1000, PAGE_KERNEL_RX), OK);
        assert_int_equal(pt_count_wx(&b, report), 0);

        wx_count = 0;
        assert_int_equal(pt_map(&b, VMAP_BASE + 0x5000, 0x5000, 0x1000, rwx), OK);
        assert_int_equal(pt_map(&b, VMAP_BASE + SZ_2M, SZ_2M, SZ_2M, rwx), OK);
        assert_int_equal(pt_map(&b, VMAP_BASE + SZ_1G, SZ_1G, SZ_1G, rwx), OK);
        assert_int_equal(pt_map(&b, 0x1000, 0x1000, 0x1000, rwx), OK);
        assert_int_equal(pt_count_wx(&b, report), 4);
        assert_int_equal(wx_seen[0], 0x1000);
        assert_int_equal(wx_seen[1], VMAP_BASE + 0x5000);
        assert_int_equal(wx_seen[2], VMAP_BASE + SZ_2M);
        assert_int_equal(wx_seen[3], VMAP_BASE + SZ_1G);
        assert_int_equal(pt_count_wx(&b, NULL), 4);

        assert_int_equal(pt_map(&b, first, 0x2000, 0x1000, rwx), OK);
        wx_count = 0;
        assert_int_equal(pt_count_wx(&b, report), 5);
        assert_int_equal(wx_seen[1], first);

        /* NX above, then no writing above. */
        root[0] |= PTE_NX;
        root[pte_index(first, levels)] |= PTE_NX;
        assert_int_equal(pt_count_wx(&b, NULL), 3);
        root[pte_index(VMAP_BASE, levels)] &= ~PTE_W;
        assert_int_equal(pt_count_wx(&b, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaf_sizes),    cmocka_unit_test(exact_sizes),
        cmocka_unit_test(borders),       cmocka_unit_test(refusals),
        cmocka_unit_test(out_of_memory), cmocka_unit_test(write_and_execute),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
