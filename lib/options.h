/*
 * options.h: the option registry and parser: `key=value`, separated by white space, '#' to the end
 * of the line is a comment.
 *
 * An option is declared beside the code that uses it, with one macro; the linker gathers them in
 * section "options". Later values win. All text is checked before anything is applied: an
 * error leaves every option as it was (only custom parsers run while applying).
 * Not thread-safe; runs once, before the other CPUs start.
 */
#ifndef LIB_OPTIONS_H
#define LIB_OPTIONS_H

#include "lib/base.h"

enum option_type {
    OPT_BOOL,   /* on|off, 1|0, yes|no, true|false -> bool */
    OPT_UINT,   /* decimal or 0x; suffix k, K, m, M, g, G, t, T (1024s) -> uint64_t in [min, max] */
    OPT_ENUM,   /* one of choices -> unsigned, its index */
    OPT_STRING, /* anything without white space -> char[max] */
};

struct option {
    const char *key;
    enum option_type type;
    void *value;                /* bool *, uint64_t *, unsigned *, char * by type */
    uint64_t min, max;          /* OPT_UINT: inclusive limits; OPT_STRING: max is the buffer size */
    const char *const *choices; /* OPT_ENUM: NULL-terminated */
    const char *help;           /* one line, for docs and `help` */
    bool *given;                /* set to true when the option appeared; may be NULL */
    /* If not NULL, parses the value itself; false = bad, and `help` says what is expected. */
    bool (*custom)(const char *value, void *target);
};

#define OPTION_ENTRY_(ident, ...)                                                                  \
    static const struct option option_##ident __used __section("options")                          \
        __aligned(8) = {__VA_ARGS__}

#define OPTION_BOOL(ident, k, target, h)                                                           \
    OPTION_ENTRY_(ident, .key = k, .type = OPT_BOOL, .value = &(target), .help = h)
#define OPTION_UINT(ident, k, target, lo, hi, h)                                                   \
    OPTION_ENTRY_(ident, .key = k, .type = OPT_UINT, .value = &(target), .min = lo, .max = hi,     \
                  .help = h)
#define OPTION_ENUM(ident, k, target, list, h)                                                     \
    OPTION_ENTRY_(ident, .key = k, .type = OPT_ENUM, .value = &(target), .choices = list, .help = h)
#define OPTION_STRING(ident, k, target, h)                                                         \
    OPTION_ENTRY_(ident, .key = k, .type = OPT_STRING, .value = target, .max = sizeof(target),     \
                  .help = h)

/*
 * Parses `text` (n bytes, need not be terminated) against the registered options. On an error
 * returns ERR_INVAL (unknown key, no '=', bad value) or ERR_RANGE, and writes one line for people
 * to `msg`: what is wrong, the key, what is allowed, and for an unknown key the nearest known one.
 */
err_t options_parse(const char *text, size_t n, char *msg, size_t msg_size);
/* The same against a given table, for tests. */
err_t options_parse_table(const struct option *table, size_t count, const char *text, size_t n,
                          char *msg, size_t msg_size);
/* Calls fn for each registered option. */
void options_for_each(void (*fn)(const struct option *o, void *arg), void *arg);

#endif
