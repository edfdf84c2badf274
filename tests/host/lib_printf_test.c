/*
 * lib_printf_test.c: random conversions against libc's; what libc does not have (%pS, unknown
 * conversions shown as they stand, clamping); kprintf's one call per line; the rate limit.
 */
#include "tests/host/testlib.h"
#include "tests/host/printf_compare.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "lib/printf.h"

static void like_libc(void **state)
{
    struct rng r = test_rng(1);

    (void)state;
    for (int round = 0; round < 200000; round++) {
        uint8_t data[PRINTF_COMPARE_BYTES];
        for (size_t i = 0; i < sizeof(data); i++)
            data[i] = (uint8_t)rng_next(&r);
        if (!printf_compare(data, sizeof(data)))
            fail_msg("round %d", round);
    }
}

/* Several conversions in one format: each takes its own argument, in registers and on the stack. */
static void many_arguments(void **state)
{
    char a[256], b[256];
#define ARGS                                                                                       \
    "%d %s %#lx %c%c %zu %5.2d|%-6s|%hhu %ld %o %td %ju %%", -5, "text", 0xffffc90000000000UL,     \
        'x', 'y', sizeof(a), 7, "ab", (unsigned char)200, INT64_MIN / 2, 8, (ptrdiff_t)-3,         \
        (uintmax_t)UINT64_MAX

    (void)state;
    assert_int_equal(ksnprintf(a, sizeof(a), ARGS), snprintf(b, sizeof(b), ARGS));
    assert_string_equal(a, b);
#undef ARGS
}

/* Formats that the compiler would refuse. */
static const char *format_of(const char *fmt, ...)
{
    static char buf[256];
    va_list ap;

    va_start(ap, fmt);
    kvsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    return buf;
}

static void our_own(void **state)
{
    (void)state;
    assert_string_equal(format_of("%pS", (void *)0x101c), "test_symbol+0x1c");
    assert_string_equal(format_of("[%20pS]", (void *)0x101c), "[    test_symbol+0x1c]");
    assert_string_equal(format_of("[%-20pS]", (void *)0x101c), "[test_symbol+0x1c    ]");
    assert_string_equal(format_of("%pS.", (void *)0x2000), "0x2000.");
    assert_string_equal(format_of("%p %pX", NULL, (void *)0x10), "0x0 0x10X");
    assert_string_equal(format_of("%s|%.3s|%8s", NULL, NULL, NULL), "(null)|(nu|  (null)");
}

static void unknown_conversions_show(void **state)
{
    (void)state;
    assert_string_equal(format_of("a%yb"), "a%yb");
    assert_string_equal(format_of("%f %d", 7), "%f 7"); /* no argument is taken */
    assert_string_equal(format_of("%n"), "%n");
    assert_string_equal(format_of("%-05.3lly!"), "%-05.3lly!");
    assert_string_equal(format_of("100%"), "100%");
    assert_string_equal(format_of("%5"), "%5");
    assert_string_equal(format_of("%l"), "%l");
    assert_string_equal(format_of("%"), "%");
    assert_string_equal(format_of(""), "");
}

/* ksnprintf into 16 bytes, out of sight of the compiler's own format checks. */
static int unchecked(char *buf, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = kvsnprintf(buf, 16, fmt, ap);
    va_end(ap);
    return n;
}

/* Widths and lengths beyond int: no wrap, no endless loop, the result clamped. */
static void extreme_sizes(void **state)
{
    char buf[16];

    (void)state;
    assert_int_equal(unchecked(buf, "%2147483647d", 1), INT_MAX);
    assert_string_equal(buf, "               ");
    assert_int_equal(unchecked(buf, "%*d", INT_MIN, 5), INT_MAX);
    assert_string_equal(buf, "5              ");
    assert_int_equal(unchecked(buf, "%.*d", INT_MIN, 5), 1);
    assert_string_equal(buf, "5");
    assert_int_equal(unchecked(buf, "%.2147483647x%2147483647s", 1, ""), INT_MAX);
    assert_string_equal(buf, "000000000000000");
    buf[0] = 'q';
    assert_string_equal(format_of("%.99999999999999999999s|", "abc"), "abc|");
    assert_int_equal(ksnprintf(NULL, 0, "%s %d", "abc", 12), 6);
    assert_int_equal(ksnprintf(buf, 0, "xyz"), 3);
    assert_int_equal(buf[0], 'q');
    assert_int_equal(ksnprintf(buf, 1, "xyz"), 3);
    assert_string_equal(buf, "");
}

static void console(void **state)
{
    char text[1500];

    (void)state;
    capture_start();
    assert_int_equal(kprintf("cpu %u\n", 3), 6);
    assert_string_equal(capture_text(), "cpu 3\n");

    capture_start();
    assert_int_equal(kprintf("%s", ""), 0);
    assert_string_equal(capture_text(), "");

    /* 1024 characters pass whole; more are cut, and the line still ends. */
    memset(text, 'x', sizeof(text));
    text[1023] = '\n';
    text[1024] = '\0';
    capture_start();
    assert_int_equal(kprintf("%s", text), 1024);
    assert_string_equal(capture_text(), text);

    text[1023] = 'x';
    text[1024] = 'y';
    text[1025] = '\n';
    text[1026] = '\0';
    capture_start();
    assert_int_equal(kprintf("%s", text), 1026);
    const char *got = capture_text();
    assert_int_equal(strlen(got), 1024);
    assert_memory_equal(got, text, 1020);
    assert_string_equal(got + 1020, "...\n");
}

static unsigned count_of(const char *text, const char *what)
{
    unsigned n = 0;

    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

static void complain(unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        kprintf_ratelimited("# bad free %u\n", i);
}

static void rate_limit(void **state)
{
    (void)state;
    test_seconds = 0; /* the window of a fresh struct */
    capture_start();
    complain(1000);
    const char *text = capture_text();
    assert_int_equal(count_of(text, "bad free"), 10);
    assert_null(strstr(text, "left out"));
    assert_non_null(strstr(text, "# bad free 9\n"));

    test_seconds = 1;
    capture_start();
    complain(3);
    text = capture_text();
    assert_int_equal(count_of(text, "bad free"), 3);
    assert_int_equal(count_of(text, "left out"), 1);
    assert_non_null(strstr(text, "# 990 more lines like the next one were left out\n# bad free 0"));

    test_seconds = 50; /* nothing was dropped: no line about it */
    capture_start();
    complain(10);
    text = capture_text();
    assert_int_equal(count_of(text, "bad free"), 10);
    assert_int_equal(count_of(text, "left out"), 0);
}

static struct ratelimit shared_limit;
static unsigned allowed;

static void *hammer(void *arg)
{
    (void)arg;
    for (int i = 0; i < 100000; i++) {
        if (ratelimit_ok(&shared_limit))
            __atomic_fetch_add(&allowed, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* In one window the count is exact, however many CPUs complain, and nothing is lost. */
static void rate_limit_of_many(void **state)
{
    pthread_t thread[4];

    (void)state;
    test_seconds = 7;
    assert_true(ratelimit_ok(&shared_limit)); /* opens the window */
    allowed = 1;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(allowed, 10);
    assert_int_equal(shared_limit.dropped, 4 * 100000 - 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_libc),     cmocka_unit_test(many_arguments),
        cmocka_unit_test(our_own),       cmocka_unit_test(unknown_conversions_show),
        cmocka_unit_test(extreme_sizes), cmocka_unit_test(console),
        cmocka_unit_test(rate_limit),    cmocka_unit_test(rate_limit_of_many),
    };
    return cmocka_run_group_tests_name("printf", tests, NULL, NULL);
}
