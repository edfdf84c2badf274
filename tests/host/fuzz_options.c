/*
 * fuzz_options.c: any bytes as option text. An error has a message of one printable line and
 * changes nothing; success leaves values that their limits allow, and the same text again gives the
 * same.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const words[] = {"2010", "2023", "2024", "metalmap", NULL};

static struct values {
    bool flag, given;
    uint64_t number, any;
    unsigned choice;
    char text[12], guard[4];
    unsigned custom;
} v;

static bool take_custom(const char *value, void *target)
{
    *(unsigned *)target = (unsigned)strlen(value);
    return strlen(value) < 200;
}

static const struct option table[] = {
    {.key = "flag", .type = OPT_BOOL, .value = &v.flag, .given = &v.given},
    {.key = "lazy", .type = OPT_UINT, .value = &v.number, .min = 3, .max = 1 << 20},
    {.key = "any", .type = OPT_UINT, .value = &v.any, .max = UINT64_MAX},
    {.key = "design", .type = OPT_ENUM, .value = &v.choice, .choices = words},
    {.key = "tests", .type = OPT_STRING, .value = v.text, .max = sizeof(v.text)},
    {.key = "c", .type = OPT_STRING, .value = &v.custom, .help = "short", .custom = take_custom},
};

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check_message(const char *msg, size_t size)
{
    const char *end = memchr(msg, '\0', size);

    require(end != NULL);
    for (; msg < end; msg++)
        require(*msg >= ' ' && *msg <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char msg[160];
    size_t size = n ? 1 + data[0] % sizeof(msg) : 0;
    struct values before;
    char *text;

    if (n == 0)
        return 0;
    data++;
    n--;
    text = malloc(n);
    memcpy(text, data, n);
    memset(&v, 0, sizeof(v));
    memset(v.guard, 0x5a, sizeof(v.guard));
    v.number = 3;
    before = v;
    memset(msg, 0x80, sizeof(msg));
    err_t err = options_parse_table(table, ARRAY_SIZE(table), text, n, msg, size);
    check_message(msg, size);
    if (err) {
        require(size == 1 || msg[0] != '\0');
        /* A custom parser may have run, and refused, after the others were applied. */
        if (!v.custom)
            require(memcmp(&v, &before, sizeof(v)) == 0);
    } else {
        require(msg[0] == '\0');
    }
    require(v.number >= 3 && v.number <= 1 << 20);
    require(v.choice < ARRAY_SIZE(words) - 1);
    require(memchr(v.text, '\0', sizeof(v.text)) != NULL);
    require(memcmp(v.guard, "ZZZZ", sizeof(v.guard)) == 0);
    before = v;
    require(options_parse_table(table, ARRAY_SIZE(table), text, n, msg, size) == err);
    require(memcmp(&v, &before, sizeof(v)) == 0);
    free(text);
    return 0;
}
