/*
 * printf_compare.c: see printf_compare.h. Only what the C standard defines is compared: flags that
 * a conversion does not take, and %p of NULL, are left out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/host/printf_compare.h"
#include "lib/printf.h"

struct input {
    const uint8_t *p;
    size_t n;
};

struct call {
    char fmt[128];
    char conv;
    int stars; /* bit 0: width, bit 1: precision come as arguments */
    int width, precision;
    size_t size; /* of the buffer */
    char *ours, *libc;
    int our_len, libc_len;
};

static unsigned take(struct input *in, unsigned below)
{
    if (in->n == 0)
        return 0;
    in->n--;
    return *in->p++ % below;
}

static uint64_t take_value(struct input *in)
{
    static const uint64_t edges[] = {0,          1,          127,           128,        255,
                                     256,        32767,      32768,         65535,      65536,
                                     INT_MAX,    1u << 31,   UINT_MAX,      1ULL << 32, INT64_MAX,
                                     1ULL << 63, UINT64_MAX, UINT64_MAX - 1};
    uint64_t v = 0;

    switch (take(in, 3)) {
    case 0:
        return edges[take(in, ARRAY_SIZE(edges))];
    case 1:
        return take(in, 256);
    default:
        for (int i = 0; i < 8; i++)
            v = v << 8 | take(in, 256);
        return v >> take(in, 64);
    }
}

static void make_format(struct input *in, struct call *c, const char *length)
{
    const char *flags = strchr("di", c->conv)    ? "-0+ "
                        : strchr("xXo", c->conv) ? "-0#"
                        : c->conv == 'u'         ? "-0"
                                                 : "-";
    char spec[64], *p = spec;

    *p++ = '%';
    for (unsigned i = take(in, 5); i; i--)
        *p++ = flags[take(in, (unsigned)strlen(flags))];
    c->width = (int)take(in, 40) - 10; /* negative: as an argument, it means '-' */
    c->precision = (int)take(in, 30) - 5;
    switch (take(in, 3)) {
    case 0:
        break;
    case 1:
        p += sprintf(p, "%d", abs(c->width) + 1);
        break;
    default:
        *p++ = '*';
        c->stars |= 1;
    }
    switch (c->conv == 'p' || c->conv == 'c' ? 0 : take(in, 4)) {
    case 0:
        break;
    case 1:
        *p++ = '.';
        break;
    case 2:
        p += sprintf(p, ".%d", abs(c->precision));
        break;
    default:
        p += sprintf(p, ".*");
        c->stars |= 2;
    }
    sprintf(p, "%s%c", length, c->conv);
    snprintf(c->fmt, sizeof(c->fmt), "%s%s%s", take(in, 2) ? "a %%" : "", spec,
             take(in, 2) ? "z" : "");
}

/* Calls both with the arguments that the stars ask for, and the value. */
#define CALL(len, f, buf, v)                                                                       \
    (len = c->stars == 0   ? f(buf, c->size, c->fmt, v)                                            \
           : c->stars == 1 ? f(buf, c->size, c->fmt, c->width, v)                                  \
           : c->stars == 2 ? f(buf, c->size, c->fmt, c->precision, v)                              \
                           : f(buf, c->size, c->fmt, c->width, c->precision, v))
#define CALL_BOTH(v)                                                                               \
    do {                                                                                           \
        CALL(c->our_len, ksnprintf, c->ours, v);                                                   \
        CALL(c->libc_len, snprintf, c->libc, v);                                                   \
    } while (0)

static void call_number(struct input *in, struct call *c)
{
    static const char *const lengths[] = {"", "hh", "h", "l", "ll", "z", "t", "j"};
    unsigned length = take(in, ARRAY_SIZE(lengths));
    uint64_t v = take_value(in);

    make_format(in, c, lengths[length]);
    if (length < 3)
        CALL_BOTH((unsigned)v);
    else
        CALL_BOTH((unsigned long)v);
}

static void call_string(struct input *in, struct call *c)
{
    size_t n = take(in, 40);
    char *s = malloc(n + 1), *bare = malloc(n);

    for (size_t i = 0; i < n; i++)
        s[i] = (char)(1 + take(in, 255));
    s[n] = '\0';
    memcpy(bare, s, n);
    make_format(in, c, "");
    const char *dot = strchr(c->fmt, '.');
    int precision = !dot ? -1 : c->stars & 2 ? c->precision : atoi(dot + 1);
    CALL(c->libc_len, snprintf, c->libc, s);
    /* Within the precision there need be no terminator, and none may be looked for. */
    if (precision >= 0 && (size_t)precision <= n)
        CALL(c->our_len, ksnprintf, c->ours, bare);
    else
        CALL(c->our_len, ksnprintf, c->ours, s);
    free(bare);
    free(s);
}

bool printf_compare(const uint8_t *data, size_t n)
{
    static const char convs[] = "diuxXocsp";
    struct input in = {data, n};
    struct call call = {.width = 0}, *c = &call;

    c->conv = convs[take(&in, sizeof(convs) - 1)];
    c->size = take(&in, 4) ? 200 : take(&in, 60);
    c->ours = malloc(c->size);
    c->libc = malloc(c->size);
    if (c->conv == 's') {
        call_string(&in, c);
    } else if (c->conv == 'c') {
        int v = (int)take(&in, 256);
        make_format(&in, c, "");
        CALL_BOTH(v);
    } else if (c->conv == 'p') {
        void *v = (void *)(uintptr_t)(take_value(&in) | 1);
        make_format(&in, c, "");
        CALL_BOTH(v);
    } else {
        call_number(&in, c);
    }
    size_t text = c->size ? MIN((size_t)MAX(c->libc_len, 0), c->size - 1) + 1 : 0;
    bool same = c->our_len == c->libc_len && memcmp(c->ours, c->libc, text) == 0;
    if (!same)
        fprintf(
            stderr,
            "format \"%s\" width %d precision %d size %zu\n ours: %d \"%s\"\n libc: %d \"%s\"\n",
            c->fmt, c->width, c->precision, c->size, c->our_len, c->size ? c->ours : "",
            c->libc_len, c->size ? c->libc : "");
    free(c->ours);
    free(c->libc);
    return same;
}
