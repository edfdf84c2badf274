/*
 * lib_options_test.c: every kind of value and every error, with the whole message, since people
 * read it; that an error changes nothing; and the registration through the linker section.
 */
#include "tests/host/testlib.h"
#include <stdlib.h>
#include <string.h>
#include "lib/options.h"

static const char *const designs[] = {"2010", "2023", "2024", "metalmap", NULL};

static struct values {
    bool pools;
    uint64_t lazy, seed;
    unsigned design;
    char tests[16];
    uint64_t nodes; /* "auto" is 0 */
    bool design_given, lazy_given;
} v;

static bool parse_nodes(const char *value, void *target)
{
    uint64_t *nodes = target;

    if (strcmp(value, "auto") == 0) {
        *nodes = 0;
        return true;
    }
    if (value[0] < '1' || value[0] > '9' || value[1])
        return false;
    *nodes = (uint64_t)(value[0] - '0');
    return true;
}

static const struct option table[] = {
    {.key = "pools", .type = OPT_BOOL, .value = &v.pools},
    {.key = "lazy", .type = OPT_UINT, .value = &v.lazy, .max = 1 << 20, .given = &v.lazy_given},
    {.key = "seed", .type = OPT_UINT, .value = &v.seed, .max = UINT64_MAX},
    {.key = "design",
     .type = OPT_ENUM,
     .value = &v.design,
     .choices = designs,
     .given = &v.design_given},
    {.key = "tests", .type = OPT_STRING, .value = v.tests, .max = sizeof(v.tests)},
    {.key = "nodes",
     .type = OPT_STRING,
     .value = &v.nodes,
     .help = "1..9 or auto",
     .custom = parse_nodes},
};

static char msg[256];

/* From a block that ends with the text, so that ASan sees a read behind it. */
static err_t parse_n(const char *text, size_t n)
{
    char *copy = malloc(n);

    memcpy(copy, text, n);
    memset(msg, 'q', sizeof(msg));
    err_t err = options_parse_table(table, ARRAY_SIZE(table), copy, n, msg, sizeof(msg));
    assert_non_null(memchr(msg, '\0', sizeof(msg)));
    free(copy);
    return err;
}

static err_t parse(const char *text)
{
    return parse_n(text, strlen(text));
}

static int reset(void **state)
{
    (void)state;
    memset(&v, 0, sizeof(v));
    v.lazy = 77;
    return 0;
}

static void good_text(void **state)
{
    (void)state;
    assert_int_equal(parse("design=2024 lazy=0x10\tpools=on\n\r\n  seed=18446744073709551615\v"
                           "tests=a,b nodes=4"),
                     OK);
    assert_string_equal(msg, "");
    assert_int_equal(v.design, 2);
    assert_int_equal(v.lazy, 16);
    assert_true(v.pools);
    assert_true(v.seed == UINT64_MAX);
    assert_string_equal(v.tests, "a,b");
    assert_int_equal(v.nodes, 4);
    assert_true(v.design_given && v.lazy_given);

    assert_int_equal(parse(""), OK);
    assert_int_equal(parse(" \n\t "), OK);
    assert_int_equal(v.lazy, 16);
}

static void later_values_win(void **state)
{
    (void)state;
    assert_int_equal(parse("lazy=1 lazy=2\nlazy=3"), OK);
    assert_int_equal(v.lazy, 3);
    assert_false(v.design_given);
}

static void comments_and_file_forms(void **state)
{
    (void)state;
    assert_int_equal(parse("# lazy=1 nonsense\r\nlazy=2 # lazy=3\r\n#\n##\r\n\r\npools=on#x"), OK);
    assert_int_equal(v.lazy, 2);
    assert_true(v.pools);
    assert_int_equal(parse("lazy=5 #to the end"), OK);
    assert_int_equal(parse("# only a comment"), OK);
    assert_int_equal(v.lazy, 5);
    /* an old Mac's line ends */
    assert_int_equal(parse("#c\rlazy=6\rpools=off"), OK);
    assert_int_equal(v.lazy, 6);
    /* a byte order mark, with and without anything behind it */
    assert_int_equal(parse("\xef\xbb\xbflazy=7\r\n"), OK);
    assert_int_equal(v.lazy, 7);
    assert_int_equal(parse("\xef\xbb\xbf"), OK);
    assert_int_equal(parse("\xef\xbb\xbf# comment\r\nlazy=8"), OK);
    assert_int_equal(v.lazy, 8);
    /* a boot loader's terminator */
    assert_int_equal(parse_n("lazy=9\0", 7), OK);
    assert_int_equal(parse_n("lazy=10\0\0pools=on\0", 18), OK);
    assert_int_equal(v.lazy, 10);
    assert_true(v.pools);
}

static void values_of_each_type(void **state)
{
    static const struct {
        const char *text;
        uint64_t seed;
    } numbers[] = {
        {"seed=0", 0},
        {"seed=010", 10}, /* not octal */
        {"seed=4k", 4096},
        {"seed=4K", 4096},
        {"seed=3m", 3 << 20},
        {"seed=3M", 3 << 20},
        {"seed=2g", 2ULL << 30},
        {"seed=2G", 2ULL << 30},
        {"seed=1t", 1ULL << 40},
        {"seed=16777215T", 16777215ULL << 40},
        {"seed=0x1f", 31},
        {"seed=0XaBcD", 0xabcd},
        {"seed=0x10k", 16384},
        {"seed=0xffffffffffffffff", UINT64_MAX},
        {"seed=000000000000000000000000000001", 1},
    };
    static const char *const on[] = {"on", "1", "yes", "true"}, *const off[] = {"off", "0", "no",
                                                                                "false"};
    char text[64];

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++) {
        assert_int_equal(parse(numbers[i].text), OK);
        CHECK_MSG(v.seed == numbers[i].seed, "%s: %llu", numbers[i].text,
                  (unsigned long long)v.seed);
    }
    for (unsigned i = 0; i < 4; i++) {
        strcpy(text, "pools=");
        assert_int_equal(parse(strcat(text, on[i])), OK);
        assert_true(v.pools);
        strcpy(text, "pools=");
        assert_int_equal(parse(strcat(text, off[i])), OK);
        assert_false(v.pools);
    }
    for (unsigned i = 0; designs[i]; i++) {
        strcpy(text, "design=");
        assert_int_equal(parse(strcat(text, designs[i])), OK);
        assert_int_equal(v.design, i);
    }
    assert_int_equal(parse("lazy=0 lazy=1M"), OK); /* both limits are inside */
    assert_int_equal(v.lazy, 1 << 20);
    assert_int_equal(parse("tests=123456789012345"), OK); /* fills the buffer */
    assert_string_equal(v.tests, "123456789012345");
    assert_int_equal(parse("tests=a=b"), OK); /* the first '=' divides */
    assert_string_equal(v.tests, "a=b");
    assert_int_equal(parse("tests="), OK);
    assert_string_equal(v.tests, "");
    assert_int_equal(parse("nodes=auto"), OK);
    assert_int_equal(v.nodes, 0);
}

#define NUMBER(s) "option 'lazy': bad value '" s "': expected a number 0..1048576"
#define DESIGN(s) "option 'design': bad value '" s "': expected one of: 2010, 2023, 2024, metalmap"

static const struct {
    const char *text;
    err_t err;
    const char *msg;
} error_rows[] = {
    {"desgin=2024", ERR_INVAL, "unknown option 'desgin': did you mean 'design'?"},
    {"desig=2024", ERR_INVAL, "unknown option 'desig': did you mean 'design'?"},
    {"Design=2024", ERR_INVAL, "unknown option 'Design': did you mean 'design'?"},
    {"dezign", ERR_INVAL, "unknown option 'dezign': did you mean 'design'?"},
    {"test=a", ERR_INVAL, "unknown option 'test': did you mean 'tests'?"},
    {"pool=on", ERR_INVAL, "unknown option 'pool': did you mean 'pools'?"},
    {"xyzzy=1", ERR_INVAL, "unknown option 'xyzzy': the nearest known one is 'lazy'"},
    {"q=1", ERR_INVAL, "unknown option 'q': the nearest known one is 'lazy'"},
    {"lazy", ERR_INVAL, "option 'lazy' has no value: write lazy=VALUE"},
    {"lazy = 5", ERR_INVAL, "option 'lazy' has no value: write lazy=VALUE"},
    {"=5", ERR_INVAL, "no option name before '=5'"},
    {"=", ERR_INVAL, "no option name before '='"},
    {"lazy=x", ERR_INVAL, NUMBER("x")},
    {"lazy=", ERR_INVAL, NUMBER("")},
    {"lazy=#5", ERR_INVAL, NUMBER("")},
    {"lazy=-1", ERR_INVAL, NUMBER("-1")},
    {"lazy=+1", ERR_INVAL, NUMBER("+1")},
    {"lazy=1.5", ERR_INVAL, NUMBER("1.5")},
    {"lazy=5kb", ERR_INVAL, NUMBER("5kb")},
    {"lazy=k", ERR_INVAL, NUMBER("k")},
    {"lazy=0x", ERR_INVAL, NUMBER("0x")},
    {"lazy=0xk", ERR_INVAL, NUMBER("0xk")},
    {"lazy=ff", ERR_INVAL, NUMBER("ff")},
    {"lazy=1048577", ERR_RANGE, NUMBER("1048577")},
    {"lazy=2M", ERR_RANGE, NUMBER("2M")},
    {"lazy=18446744073709551616", ERR_RANGE, NUMBER("18446744073709551616")},
    {"lazy=18446744073709551617", ERR_RANGE, NUMBER("18446744073709551617")},
    {"lazy=16777216T", ERR_RANGE, NUMBER("16777216T")},
    {"seed=0x10000000000000000", ERR_RANGE,
     "option 'seed': bad value '0x10000000000000000': expected a number "
     "0..18446744073709551615"},
    {"pools=maybe", ERR_INVAL, "option 'pools': bad value 'maybe': expected on or off"},
    {"pools=ON", ERR_INVAL, "option 'pools': bad value 'ON': expected on or off"},
    {"pools=o", ERR_INVAL, "option 'pools': bad value 'o': expected on or off"},
    {"design=2025", ERR_INVAL, DESIGN("2025")},
    {"design=202", ERR_INVAL, DESIGN("202")},
    {"design=20244", ERR_INVAL, DESIGN("20244")},
    {"tests=1234567890123456", ERR_RANGE,
     "option 'tests': bad value '1234567890123456': expected at most 15 characters"},
    {"nodes=zero", ERR_INVAL, "option 'nodes': bad value 'zero': expected 1..9 or auto"},
    /* the text is shown clipped, and as ASCII without control characters */
    {"lazy=\x1b[31m\xc3\xa4", ERR_INVAL, NUMBER("?[31m??")},
    {"lazy=aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeee", ERR_INVAL,
     NUMBER("aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd...")},
    {"\x01\x02=3", ERR_INVAL, "unknown option '?\?': the nearest known one is 'lazy'"},
    /* the first of several errors is the one that is told */
    {"pools=on lazy=x design=y", ERR_INVAL, NUMBER("x")},
    {"\xff\xfel\0a\0", ERR_INVAL, "the options are in UTF-16: save the file as ASCII or UTF-8"},
    {"\xfe\xff", ERR_INVAL, "the options are in UTF-16: save the file as ASCII or UTF-8"},
};

static void errors(void **state)
{
    for (unsigned i = 0; i < ARRAY_SIZE(error_rows); i++) {
        struct values before;
        reset(state);
        before = v;
        err_t err = parse(error_rows[i].text);
        CHECK_MSG(err == error_rows[i].err && strcmp(msg, error_rows[i].msg) == 0,
                  "\"%s\": %d \"%s\"", error_rows[i].text, err, msg);
        assert_memory_equal(&v, &before, sizeof(v));
    }
}

/* An error at the end leaves also what came before it unchanged. */
static void errors_change_nothing(void **state)
{
    struct values before = v;

    (void)state;
    assert_int_equal(parse("lazy=1 pools=on design=2024 tests=abc seed=5 lazzy=1"), ERR_INVAL);
    assert_memory_equal(&v, &before, sizeof(v));
    /* a custom parser is not called before the rest is known to be good */
    assert_int_equal(parse("nodes=3 pools=perhaps"), ERR_INVAL);
    assert_memory_equal(&v, &before, sizeof(v));
}

static void long_values(void **state)
{
    char text[2000];

    (void)state;
    memset(text, '1', sizeof(text));
    memcpy(text, "nodes=", 6);
    assert_int_equal(parse_n(text, sizeof(text)), ERR_RANGE); /* does not fit what custom gets */
    memcpy(text, "lazy=1", 6);
    assert_int_equal(parse_n(text, sizeof(text)), ERR_RANGE);
    assert_int_equal(parse_n(text + 1, sizeof(text) - 1), ERR_INVAL); /* a very long key */
    memset(text, 'k', sizeof(text));
    assert_int_equal(parse_n(text, sizeof(text)), ERR_INVAL);
}

static void small_message_buffers(void **state)
{
    (void)state;
    for (size_t size = 0; size < 60; size++) {
        char *buf = malloc(size);
        assert_int_equal(
            options_parse_table(table, ARRAY_SIZE(table), "design=2025", 11, buf, size), ERR_INVAL);
        if (size)
            assert_int_equal(strlen(buf), size - 1);
        free(buf);
    }
    /* no known option at all */
    assert_int_equal(options_parse_table(table, 0, "a=b", 3, msg, sizeof(msg)), ERR_INVAL);
    assert_string_equal(msg, "unknown option 'a'");
}

static size_t taken;

static bool take_length(const char *value, void *target)
{
    *(size_t *)target = strlen(value);
    return true;
}

/* What has fixed room inside: a custom parser's value, the words in a message, keys compared with a
 * wrong one. */
static void longest_texts(void **state)
{
    static const char word[] = "a_rather_long_word_of_this_choice";
    static const char *const choices[] = {word, word, word, word, word, word,
                                          word, word, word, word, NULL};
    static unsigned choice;
    static const struct option three[] = {
        {.key = "text", .value = &taken, .custom = take_length},
        {.key = "choice", .type = OPT_ENUM, .value = &choice, .choices = choices},
        {.key = "a_key_that_is_longer_than_what_the_edit_distance_compares", .value = &taken},
    };
    char text[5 + 256] = "text=";
    static char all[1000];

    (void)state;
    memset(text + 5, 'v', 256);
    assert_int_equal(options_parse_table(three, 3, text, 5 + 255, msg, sizeof(msg)), OK);
    assert_int_equal(taken, 255);
    assert_int_equal(options_parse_table(three, 3, text, 5 + 256, msg, sizeof(msg)), ERR_RANGE);
    assert_int_equal(taken, 255);
    /* the list is cut where its room ends */
    assert_int_equal(options_parse_table(three, 2, "choice=x", 8, all, sizeof(all)), ERR_INVAL);
    assert_int_equal(strlen(all), strlen("option 'choice': bad value 'x': expected ") + 255);
    assert_int_equal(options_parse_table(three, 3, "a_key=1", 7, msg, sizeof(msg)), ERR_INVAL);
    assert_string_equal(msg, "unknown option 'a_key': the nearest known one is 'text'");
}

/* Swapping two neighbours is one mistake, not two: "olck" is nearer to "lock" than to "oak". */
static void swapped_letters(void **state)
{
    static const struct option two[] = {
        {.key = "oak", .type = OPT_BOOL, .value = &v.pools},
        {.key = "lock", .type = OPT_BOOL, .value = &v.pools},
    };

    (void)state;
    assert_int_equal(options_parse_table(two, 2, "olck=1", 6, msg, sizeof(msg)), ERR_INVAL);
    assert_string_equal(msg, "unknown option 'olck': did you mean 'lock'?");
}

/* ---- the linker's table ---- */

static bool reg_flag;
static uint64_t reg_number = 5;
static unsigned reg_choice;
static char reg_text[8];

OPTION_BOOL(flag, "flag", reg_flag, "a flag");
OPTION_UINT(number, "number", reg_number, 1, 10, "a number");
OPTION_ENUM(choice, "choice", reg_choice, designs, "a choice");
OPTION_STRING(text, "text", reg_text, "a text");

static void count_option(const struct option *o, void *arg)
{
    unsigned *seen = arg;
    static const char *const keys[] = {"flag", "number", "choice", "text"};

    for (unsigned i = 0; i < ARRAY_SIZE(keys); i++) {
        if (strcmp(o->key, keys[i]) == 0)
            *seen |= 1u << i;
    }
    assert_non_null(o->help);
}

static void registered_options(void **state)
{
    unsigned seen = 0;
    static const char text[] = "text=abcdefg flag=1 number=10 choice=metalmap";

    (void)state;
    options_for_each(count_option, &seen);
    assert_int_equal(seen, 15);
    assert_int_equal(options_parse(text, sizeof(text), msg, sizeof(msg)), OK);
    assert_true(reg_flag);
    assert_int_equal(reg_number, 10);
    assert_int_equal(reg_choice, 3);
    assert_string_equal(reg_text, "abcdefg");
    assert_int_equal(options_parse("text=abcdefgh", 13, msg, sizeof(msg)), ERR_RANGE);
    assert_int_equal(options_parse("number=0", 8, msg, sizeof(msg)), ERR_RANGE);
    assert_int_equal(options_parse("numer=1", 7, msg, sizeof(msg)), ERR_INVAL);
    assert_string_equal(msg, "unknown option 'numer': did you mean 'number'?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(good_text, reset),
        cmocka_unit_test_setup(later_values_win, reset),
        cmocka_unit_test_setup(comments_and_file_forms, reset),
        cmocka_unit_test_setup(values_of_each_type, reset),
        cmocka_unit_test_setup(errors, reset),
        cmocka_unit_test_setup(errors_change_nothing, reset),
        cmocka_unit_test_setup(long_values, reset),
        cmocka_unit_test_setup(small_message_buffers, reset),
        cmocka_unit_test(longest_texts),
        cmocka_unit_test(swapped_letters),
        cmocka_unit_test(registered_options),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
