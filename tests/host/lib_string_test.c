/*
 * lib_string_test.c: lib/string.c, compiled under other names with the kernel's flags, against
 * libc: every length around the word and block sizes, every misalignment, every overlap; and
 * lib/str.c.
 *
 * Buffers are heap blocks that end where the data ends, so that ASan sees each byte too far.
 */
#include "tests/host/testlib.h"
#include <stdlib.h>
#include <string.h>
#include "lib/string.h"

void *k_memcpy(void *dst, const void *src, size_t n);
void *k_memmove(void *dst, const void *src, size_t n);
void *k_memset(void *dst, int c, size_t n);
int k_memcmp(const void *a, const void *b, size_t n);
size_t k_strlen(const char *s);
size_t k_strnlen(const char *s, size_t max);
int k_strcmp(const char *a, const char *b);
int k_strncmp(const char *a, const char *b, size_t n);
char *k_strchr(const char *s, int c);
char *k_strstr(const char *s, const char *what);

static void randomise(struct rng *r, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)rng_next(r);
}

/* Lengths up to 300 all, then those around the block and string-instruction sizes. */
static size_t next_length(size_t n)
{
    static const size_t more[] = {511,  512,  513,  1000, 1023, 1024, 1025,
                                  1031, 1032, 1033, 2048, 4095, 4096, 4097};

    if (n < 300)
        return n + 1;
    for (unsigned i = 0; i < ARRAY_SIZE(more); i++) {
        if (more[i] > n)
            return more[i];
    }
    return 0;
}

static void copying(void **state)
{
    struct rng r = test_rng(1);
    size_t n = 0;

    (void)state;
    do {
        for (unsigned a = 0; a < 8; a++) {
            unsigned b = (unsigned)rng_below(&r, 8);
            uint8_t *src = malloc(n + a), *dst = malloc(n + b), *ref = malloc(n + b);
            randomise(&r, src, n + a);
            randomise(&r, dst, n + b);
            memcpy(ref, dst, n + b);
            memcpy(ref + b, src + a, n);
            assert_ptr_equal(k_memcpy(dst + b, src + a, n), dst + b);
            CHECK_MSG(memcmp(dst, ref, n + b) == 0, "n %zu from +%u to +%u", n, a, b);
            free(src);
            free(dst);
            free(ref);
        }
    } while ((n = next_length(n)));
}

static void moving_with_overlap(void **state)
{
    struct rng r = test_rng(2);

    (void)state;
    for (size_t n = 0; n <= 200; n++) {
        for (int shift = -80; shift <= 80; shift++) {
            size_t total = n + 80;
            size_t from = shift < 0 ? (size_t)-shift : 0, to = shift < 0 ? 0 : (size_t)shift;
            uint8_t *buf = malloc(total), *ref = malloc(total);
            randomise(&r, buf, total);
            memcpy(ref, buf, total);
            memmove(ref + to, ref + from, n);
            assert_ptr_equal(k_memmove(buf + to, buf + from, n), buf + to);
            CHECK_MSG(memcmp(buf, ref, total) == 0, "n %zu shift %d", n, shift);
            free(buf);
            free(ref);
        }
    }
    for (int round = 0; round < 500; round++) {
        size_t total = 1 + rng_below(&r, 9000), n = rng_below(&r, total + 1);
        size_t from = rng_below(&r, total - n + 1), to = rng_below(&r, total - n + 1);
        uint8_t *buf = malloc(total), *ref = malloc(total);
        randomise(&r, buf, total);
        memcpy(ref, buf, total);
        memmove(ref + to, ref + from, n);
        k_memmove(buf + to, buf + from, n);
        CHECK_MSG(memcmp(buf, ref, total) == 0, "n %zu from %zu to %zu", n, from, to);
        free(buf);
        free(ref);
    }
}

static void setting(void **state)
{
    struct rng r = test_rng(3);
    size_t n = 0;

    (void)state;
    do {
        for (unsigned a = 0; a < 8; a++) {
            int c = (int)rng_next(&r); /* only its low byte counts */
            uint8_t *buf = malloc(n + a), *ref = malloc(n + a);
            randomise(&r, buf, n + a);
            memcpy(ref, buf, n + a);
            memset(ref + a, c, n);
            assert_ptr_equal(k_memset(buf + a, c, n), buf + a);
            CHECK_MSG(memcmp(buf, ref, n + a) == 0, "n %zu at +%u", n, a);
            free(buf);
            free(ref);
        }
    } while ((n = next_length(n)));
}

static int sign(int v)
{
    return v < 0 ? -1 : v > 0;
}

static void comparing_memory(void **state)
{
    struct rng r = test_rng(4);

    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t n = rng_below(&r, 80);
        uint8_t *a = malloc(n), *b = malloc(n);
        randomise(&r, a, n);
        memcpy(b, a, n);
        for (uint64_t flips = rng_below(&r, 3); n && flips; flips--)
            b[rng_below(&r, n)] ^= (uint8_t)(1u << rng_below(&r, 8));
        CHECK_MSG(sign(k_memcmp(a, b, n)) == sign(memcmp(a, b, n)), "n %zu", n);
        free(a);
        free(b);
    }
}

/* A short string of few letters, so that prefixes and repeats are common; some above 0x7f. */
static char *any_string(struct rng *r)
{
    static const char letters[] = {'a', 'b', (char)0x80, (char)0xff};
    size_t n = rng_below(r, 12);
    char *s = malloc(n + 1);

    for (size_t i = 0; i < n; i++)
        s[i] = letters[rng_below(r, ARRAY_SIZE(letters))];
    s[n] = '\0';
    return s;
}

static void strings(void **state)
{
    struct rng r = test_rng(5);

    (void)state;
    for (int round = 0; round < 50000; round++) {
        char *a = any_string(&r), *b = any_string(&r);
        size_t n = rng_below(&r, 14);
        /* only the low byte of c counts, whatever is above it */
        int c = "ab\x80\xff\0c"[rng_below(&r, 6)] + 256 * ((int)rng_below(&r, 3) - 1);
        assert_int_equal(k_strlen(a), strlen(a));
        assert_int_equal(k_strnlen(a, n), strnlen(a, n));
        assert_int_equal(sign(k_strcmp(a, b)), sign(strcmp(a, b)));
        assert_int_equal(k_strcmp(a, a), 0);
        assert_int_equal(sign(k_strncmp(a, b, n)), sign(strncmp(a, b, n)));
        assert_ptr_equal(k_strchr(a, c), strchr(a, c));
        b[MIN(strlen(b), (size_t)3)] = '\0'; /* short enough to be found now and then */
        assert_ptr_equal(k_strstr(a, b), strstr(a, b));
        free(a);
        free(b);
    }
    /* strnlen may not look beyond its limit even where no terminator is */
    char *raw = malloc(5);
    memset(raw, 'x', 5);
    assert_int_equal(k_strnlen(raw, 5), 5);
    assert_int_equal(k_strncmp(raw, raw, 5), 0);
    free(raw);
}

static void bounded_copy(void **state)
{
    char buf[8];

    (void)state;
    memset(buf, 'z', sizeof(buf));
    assert_int_equal(str_copy(buf, "abc", sizeof(buf)), 3);
    assert_string_equal(buf, "abc");
    assert_int_equal(buf[4], 'z');
    assert_int_equal(str_copy(buf, "abcdefg", sizeof(buf)), 7);
    assert_string_equal(buf, "abcdefg");
    assert_int_equal(str_copy(buf, "abcdefghi", sizeof(buf)), 9);
    assert_string_equal(buf, "abcdefg");
    assert_int_equal(str_copy(buf, "xyz", 1), 3);
    assert_string_equal(buf, "");
    buf[0] = 'q';
    assert_int_equal(str_copy(buf, "xyz", 0), 3);
    assert_int_equal(buf[0], 'q');
}

static void name_lists(void **state)
{
    static const struct {
        const char *list, *name;
        bool match;
    } rows[] = {
        {"", "a", false},
        {"", "", false},
        {",", "", false},
        {"a", "a", true},
        {"a", "ab", false},
        {"ab", "a", false},
        {"a,b,c", "b", true},
        {"a,b,c", "c", true},
        {"a,b,c", "d", false},
        {"a,b,c", "a,b", false},
        {"a,,b", "b", true},
        {"a,b,", "b", true},
        {"*", "anything", true},
        {"*", "", true},
        {"x,*", "anything", true},
        {"fix_*", "fix_size_alloc_test", true},
        {"fix_*", "long_busy_list_alloc_test", false},
        {"*_test", "fix_size_alloc_test", true},
        {"*_tes", "fix_size_alloc_test", false},
        {"*size*", "fix_size_alloc_test", true},
        {"f*x*_t*t", "fix_size_alloc_test", true},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"a??", "ab", false},
        {"?", "", false},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "aXbYbZcd", false},
        {"**a**", "bab", true},
        {"A", "a", false},
        {"a*aaaaaaab", "aaaaaaaaaaaaaaaaaaaaaaaaaab", true},
        {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
        CHECK_MSG(str_in_list(rows[i].list, rows[i].name) == rows[i].match, "\"%s\" in \"%s\"",
                  rows[i].name, rows[i].list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copying),    cmocka_unit_test(moving_with_overlap),
        cmocka_unit_test(setting),    cmocka_unit_test(comparing_memory),
        cmocka_unit_test(strings),    cmocka_unit_test(bounded_copy),
        cmocka_unit_test(name_lists),
    };
    return cmocka_run_group_tests_name("string", tests, NULL, NULL);
}
