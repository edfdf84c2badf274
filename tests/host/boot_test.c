/*
 * boot_test.c: what the front doors decide without a machine: where free low memory is (case G12),
 * the start page tables for an image anywhere (K1) with 4 and 5 levels (K4), options text as
 * firmware and editors give it, and the option exit=.
 */
#include "tests/host/testlib.h"
#include <string.h>
#include "boot/efi/map.h"
#include "boot/efi/text.h"
#include "boot/machine_end.h"
#include "boot/pvh/free.h"

#define RAM HVM_MEM_RAM
#define RSV HVM_MEM_RESERVED

static const struct span low = {0x1000, 0x9e000};

static uint64_t find(const struct hvm_memmap_entry *map, size_t n, const struct span *taken,
                     size_t k)
{
    struct free_memory m = {.map = map, .map_count = n, .taken = taken, .taken_count = k};

    return free_find(&m, 0x1000, &low);
}

/* The only free page below 1 MiB is the first, one in the middle, or the last that may be used. */
static void one_page_left(void **state)
{
    static const uint64_t pages[] = {0x1000, 0x87000, 0x9e000};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pages); i++) {
        struct hvm_memmap_entry map[] = {{0, 0xa0000, RAM, 0}, {0x100000, 0x100000, RAM, 0}};
        struct span taken[] = {{0, pages[i]}, {pages[i] + 0x1000, 0xa0000 - pages[i] - 0x1000}};

        assert_int_equal(find(map, 2, taken, 2), pages[i]);
        taken[0].size++;
        assert_int_equal(find(map, 2, taken, 2), 0);
        taken[0].size--;
        taken[1].base--;
        assert_int_equal(find(map, 2, taken, 2), 0);
    }
}

static void no_page(void **state)
{
    struct hvm_memmap_entry page0 = {0, 0x1fff, RAM, 0}, ebda = {0x9f000, 0x1000, RAM, 0};
    struct hvm_memmap_entry wraps = {0x1000, UINT64_MAX, RAM, 0};

    (void)state;
    assert_int_equal(find(NULL, 0, NULL, 0), 0);
    assert_int_equal(find(&page0, 1, NULL, 0), 0);
    assert_int_equal(find(&ebda, 1, NULL, 0), 0);
    assert_int_equal(find(&wraps, 1, NULL, 0), 0);
}

static bool fits(const struct free_memory *m, uint64_t at, uint64_t size)
{
    bool ram = false;

    for (size_t i = 0; i < m->map_count; i++) {
        const struct hvm_memmap_entry *e = &m->map[i];

        if (e->type == RAM)
            ram |= e->addr <= at && at + size <= e->addr + e->size;
        else
            for (uint64_t b = at; b < at + size; b += 64)
                if (e->addr < b + 64 && b < e->addr + e->size)
                    return false;
    }
    for (size_t i = 0; i < m->taken_count; i++)
        if (m->taken[i].size && at < m->taken[i].base + m->taken[i].size &&
            m->taken[i].base < at + size)
            return false;
    return ram;
}

/* Any map against trying every page. Multiples of 64 bytes, so that pages are partly covered. */
static void any_map(void **state)
{
    struct rng r = test_rng(1);

    (void)state;
    for (int round = 0; round < 4000; round++) {
        struct hvm_memmap_entry map[8];
        struct span taken[4], within = {rng_below(&r, 8) * 0x800, 0x10000 + rng_below(&r, 0x20000)};
        struct free_memory m = {map, rng_below(&r, 9), taken, rng_below(&r, 5)};
        uint64_t size = 0x1000 * (1 + rng_below(&r, 3)), expected = 0;

        for (size_t i = 0; i < m.map_count; i++)
            map[i] = (struct hvm_memmap_entry){rng_below(&r, 0x800) * 64, rng_below(&r, 0x400) * 64,
                                               rng_below(&r, 3) ? RAM : RSV, 0};
        for (size_t i = 0; i < m.taken_count; i++)
            taken[i] = (struct span){rng_below(&r, 0x800) * 64, rng_below(&r, 0x80) * 64};
        for (uint64_t at = ALIGN_UP(within.base, SZ_4K); at + size <= within.base + within.size;
             at += SZ_4K)
            if (fits(&m, at, size))
                expected = at;
        uint64_t got = free_find(&m, size, &within);
        CHECK_MSG(got == expected, "round %d: %#lx, not %#lx", round, (long)got, (long)expected);
    }
}

/* What the CPU would make of va; 0: not present. */
static uint64_t walk(const pte_t *table, unsigned level, uintptr_t va)
{
    pte_t e = table[va >> (12 + 9 * (level - 1)) & 511];

    if (!(e & PTE_P))
        return 0;
    if (level == 2) {
        assert_true(e & PTE_PS);
        assert_true((e & PTE_W) && !(e & PTE_NX) && !(e & PTE_G));
        return (e & 0x000fffffffe00000) + (va & 0x1fffff);
    }
    assert_false(e & PTE_PS);
    return walk((const pte_t *)(uintptr_t)(e & PTE_ADDR), level - 1, va);
}

static void map_image(unsigned levels, phys_addr_t pa, uint64_t size)
{
    static pte_t pages[1 + MAP_TABLES_MAX][512] __aligned(4096);
    const uintptr_t va = 0xffffffff80200000;
    struct map_request request = {.levels = levels, .va = va, .pa = pa, .size = size};

    memset(pages, 0, sizeof(pages));
    for (unsigned i = 0; i < 512; i++)
        pages[0][i] = 0x1000 * i; /* not present: what the walk must not follow */
    for (unsigned i = 0; i < levels - 2; i++)
        request.tables[i] = pages[1 + i];
    map_kernel(pages[0], &request);
    for (uint64_t at = 0; at < size; at += 0x1000)
        assert_int_equal(walk(pages[0], levels, va + at), pa + at);
    assert_int_equal(walk(pages[0], levels, va + size - 1), pa + size - 1);
    assert_int_equal(walk(pages[0], levels, va - 1), 0);
    assert_int_equal(walk(pages[0], levels, va + ALIGN_UP(size, PMD_SIZE)), 0);
    for (unsigned i = 0; i < 511; i++)
        assert_int_equal(pages[0][i], 0x1000 * i);
}

static void kernel_anywhere(void **state)
{
    static const phys_addr_t places[] = {0x200000, 0x7e200000, 0x140000000, 0xfffffe00000};
    static const uint64_t sizes[] = {0x1000, 0x1e000, 0x200000, 0x201000, 0x3fe00000};

    (void)state;
    for (unsigned levels = 4; levels <= 5; levels++)
        for (size_t i = 0; i < ARRAY_SIZE(places); i++)
            for (size_t k = 0; k < ARRAY_SIZE(sizes); k++)
                map_image(levels, places[i], sizes[k]);
}

/* text as load options of a program that was loaded from own; NULL: not text. Bytes behind a NUL
 * are garbage. */
static const char *load_options(const char *text, const char *own)
{
    static uint16_t s[200], path[200];
    static char out[200];
    size_t n = strlen(text), own_n = strlen(own), len;

    for (size_t i = 0; i < n; i++)
        s[i] = (unsigned char)text[i];
    s[n] = 0;
    s[n + 1] = 0xbeef;
    for (size_t i = 0; i < own_n; i++)
        path[i] = (unsigned char)own[i];
    len = text_load_options(s, n + 2, path, own_n, out);
    if (len == TEXT_BAD)
        return NULL;
    assert_true(len < sizeof(out));
    out[len] = '\0';
    return out;
}

static void options_of_firmware(void **state)
{
    static const char own[] = "\\EFI\\BOOT\\BOOTX64.EFI";

    (void)state;
    assert_string_equal(load_options("", own), "");
    assert_string_equal(load_options("seed=1 tests=a", own), "seed=1 tests=a");
    assert_string_equal(load_options("BOOTX64.EFI seed=1", own), " seed=1");
    assert_string_equal(load_options("  fs0:\\efi\\boot\\bootx64.efi seed=1", own), " seed=1");
    assert_string_equal(load_options("other.Efi seed=1", own), " seed=1");
    assert_string_equal(load_options("bootx64 seed=1", own), " seed=1");
    assert_string_equal(load_options("BOOTX64", own), "");
    assert_string_equal(load_options("bootx6 seed=1", own), "bootx6 seed=1");
    assert_string_equal(load_options("x=bootx64.efi seed=1", own), "x=bootx64.efi seed=1");
    assert_string_equal(load_options("metalmap", ""), "metalmap");
    assert_string_equal(load_options("seed=1\r\n\ttests=b", own), "seed=1\r\n\ttests=b");
    assert_null(load_options("seed=1 \x01", own));
    assert_null(load_options("\x7f", own));
    assert_null(load_options("n=\xe4", own));
}

static void config_of_editors(void **state)
{
    char plain[] = "a=1\n", utf8[] = "\xef\xbb\xbf"
                                     "a=1\n";
    char utf16[] = "\xff\xfe"
                   "a\0=\0001\0\n",
         odd[] = "\xff\xfe"
                 "a\0=\0001\0\nx";
    char umlaut[] = "\xff\xfe"
                    "a\0=\0\xe4";

    (void)state;
    assert_int_equal(text_normalise(plain, 0), 0);
    assert_int_equal(text_normalise(plain, 4), 4);
    assert_memory_equal(plain, "a=1\n", 4);
    assert_int_equal(text_normalise(utf8, 7), 4);
    assert_memory_equal(utf8, "a=1\n", 4);
    assert_int_equal(text_normalise(utf16, 10), 4);
    assert_memory_equal(utf16, "a=1\n", 4);
    assert_int_equal(text_normalise(odd, 9), 3);
    assert_true(text_normalise(umlaut, 8) == TEXT_BAD);
}

static enum machine_exit exit_of(const char *text)
{
    return machine_exit_option(text, strlen(text));
}

static void exit_option(void **state)
{
    (void)state;
    assert_int_equal(exit_of(""), MACHINE_EXIT_AUTO);
    assert_int_equal(exit_of("exit=halt"), MACHINE_EXIT_HALT);
    assert_int_equal(exit_of("a=b exit=reboot\r\n"), MACHINE_EXIT_REBOOT);
    assert_int_equal(exit_of("exit=halt\nexit=poweroff\tseed=1"), MACHINE_EXIT_POWEROFF);
    assert_int_equal(exit_of("exit=halt exit=auto"), MACHINE_EXIT_AUTO);
    assert_int_equal(exit_of("# exit=halt"), MACHINE_EXIT_AUTO);
    assert_int_equal(exit_of("# x\nexit=halt # exit=reboot"), MACHINE_EXIT_HALT);
    assert_int_equal(exit_of("noexit=halt exit=halted exit=hal exit= exit"), MACHINE_EXIT_AUTO);
    assert_int_equal(machine_exit_option("exit=haltx", 9), MACHINE_EXIT_HALT);
    assert_int_equal(machine_exit_option("exit=halt", 8), MACHINE_EXIT_AUTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_page_left),
        cmocka_unit_test(no_page),
        cmocka_unit_test(any_map),
        cmocka_unit_test(kernel_anywhere),
        cmocka_unit_test(options_of_firmware),
        cmocka_unit_test(config_of_editors),
        cmocka_unit_test(exit_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
