/*
 * lib_ktap_test.c: exact lines for each status, and the table of verdicts.
 */
#include "tests/host/testlib.h"
#include <string.h>
#include "lib/ktap.h"

static void all_statuses(void **state)
{
    struct ktap k;

    (void)state;
    capture_start();
    ktap_begin(&k);
    ktap_plan(&k, 6);
    ktap_result(&k, "one", KTAP_PASS, NULL);
    ktap_result(&k, "two", KTAP_PASS, "ignored");
    ktap_result(&k, "three", KTAP_SKIP, "no x2APIC");
    ktap_result(&k, "four", KTAP_FAIL, "a = 1, b = 2\nat file.c:7");
    ktap_result(&k, "five", KTAP_ERROR, "no memory");
    ktap_result(&k, "six", KTAP_SKIP, NULL);
    ktap_note("machine cpus_found=%d", 64);
    assert_int_equal(ktap_finish(&k), KTAP_ERROR);
    assert_string_equal(capture_text(), "KTAP version 1\n"
                                        "1..6\n"
                                        "ok 1 one\n"
                                        "ok 2 two\n"
                                        "ok 3 three # SKIP no x2APIC\n"
                                        "not ok 4 four\n"
                                        "# a = 1, b = 2\n"
                                        "# at file.c:7\n"
                                        "not ok 5 five # error no memory\n"
                                        "ok 6 six # SKIP\n"
                                        "# machine cpus_found=64\n"
                                        "RESULT: ERROR tests=6 fail=1 skip=2 error=1\n");
}

static void verdicts(void **state)
{
    static const struct {
        unsigned pass, skip, fail, error;
        int planned; /* more than run: missing tests */
        enum ktap_status verdict;
        const char *line;
    } rows[] = {
        {3, 0, 0, 0, 3, KTAP_PASS, "RESULT: PASS tests=3 fail=0 skip=0 error=0\n"},
        {2, 1, 0, 0, 3, KTAP_PASS, "RESULT: PASS tests=3 fail=0 skip=1 error=0\n"},
        {0, 2, 0, 0, 2, KTAP_SKIP, "RESULT: SKIP tests=2 fail=0 skip=2 error=0\n"},
        {1, 0, 1, 0, 2, KTAP_FAIL, "RESULT: FAIL tests=2 fail=1 skip=0 error=0\n"},
        {0, 1, 1, 0, 2, KTAP_FAIL, "RESULT: FAIL tests=2 fail=1 skip=1 error=0\n"},
        {1, 0, 1, 1, 3, KTAP_ERROR, "RESULT: ERROR tests=3 fail=1 skip=0 error=1\n"},
        {0, 0, 0, 0, 0, KTAP_ERROR, "RESULT: ERROR tests=0 fail=0 skip=0 error=1\n"},
        {0, 0, 0, 0, 4, KTAP_ERROR, "RESULT: ERROR tests=0 fail=0 skip=0 error=1\n"},
        {3, 0, 0, 0, 4, KTAP_ERROR, "RESULT: ERROR tests=3 fail=0 skip=0 error=1\n"},
        {3, 0, 0, 0, 2, KTAP_ERROR, "RESULT: ERROR tests=3 fail=0 skip=0 error=1\n"},
    };

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
        struct ktap k;
        ktap_begin(&k);
        ktap_plan(&k, (unsigned)rows[i].planned);
        for (unsigned n = 0; n < rows[i].pass; n++)
            ktap_result(&k, "p", KTAP_PASS, NULL);
        for (unsigned n = 0; n < rows[i].skip; n++)
            ktap_result(&k, "s", KTAP_SKIP, "why");
        for (unsigned n = 0; n < rows[i].fail; n++)
            ktap_result(&k, "f", KTAP_FAIL, "why");
        for (unsigned n = 0; n < rows[i].error; n++)
            ktap_result(&k, "e", KTAP_ERROR, "why");
        capture_start();
        assert_int_equal(ktap_finish(&k), rows[i].verdict);
        const char *text = capture_text();
        CHECK_MSG(strstr(text, rows[i].line), "row %u: %s", i, text);
    }
}

static void missing_tests_are_named(void **state)
{
    struct ktap k;

    (void)state;
    ktap_begin(&k);
    ktap_plan(&k, 14);
    ktap_result(&k, "p", KTAP_PASS, NULL);
    capture_start();
    ktap_finish(&k);
    assert_string_equal(capture_text(), "# error: 1 tests ran, 14 were planned\n"
                                        "RESULT: ERROR tests=1 fail=0 skip=0 error=1\n");
}

static void stopping_before_the_plan(void **state)
{
    struct ktap k;

    (void)state;
    ktap_begin(&k);
    capture_start();
    assert_int_equal(ktap_bail(&k, "unknown option 'desgin': did you mean 'design'?"), KTAP_ERROR);
    assert_string_equal(capture_text(), "# error: unknown option 'desgin': did you mean 'design'?\n"
                                        "RESULT: ERROR tests=0 fail=0 skip=0 error=1\n");
}

/* A line without '#' in the middle of the log would be read as something else. */
static void long_and_many_lined_notes(void **state)
{
    char text[3000];
    unsigned lines = 0;

    (void)state;
    memset(text, 'x', sizeof(text));
    for (size_t i = 700; i < sizeof(text); i += 700)
        text[i] = '\n';
    text[sizeof(text) - 1] = '\0';
    capture_start();
    ktap_note("%s", text);
    ktap_note("one\ntwo\n");
    ktap_note("%s", "");
    const char *p = capture_text();
    for (; *p; lines++) {
        const char *end = strchr(p, '\n');
        assert_non_null(end);
        assert_memory_equal(p, "# ", 2);
        p = end + 1;
    }
    assert_int_equal(lines, 5);

    capture_start();
    struct ktap k = {0};
    ktap_result(&k, "name", KTAP_SKIP, "first\nsecond");
    assert_string_equal(capture_text(), "ok 1 name # SKIP first\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_statuses),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(missing_tests_are_named),
        cmocka_unit_test(stopping_before_the_plan),
        cmocka_unit_test(long_and_many_lined_notes),
    };
    return cmocka_run_group_tests_name("ktap", tests, NULL, NULL);
}
