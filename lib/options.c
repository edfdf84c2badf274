/*
 * options.c: finds options in text, checks their values, and says in one line what is wrong.
 *
 * The text is gone through twice: first everything is checked, then everything is applied, so that
 * an error leaves no option changed (custom parsers excepted: they check and set in one step, in
 * the second pass). Before the other CPUs start only. Allocates nothing.
 */
#include "lib/options.h"
#include "lib/printf.h"
#include "lib/string.h"

#define VALUE_MAX_CHARS 255 /* of a value that a custom parser gets */
#define SHOWN_CHARS     40  /* of the user's text in a message */
#define KEY_MAX_CHARS   32  /* what the edit distance compares */

/* Made by the linker from section "options"; absent, and then NULL, if nothing declares one. */
extern const struct option __start_options[] __weak;
extern const struct option __stop_options[] __weak;

struct token {
    const char *key, *value; /* value is NULL without '=' */
    size_t key_len, value_len;
};

struct parser {
    const struct option *table;
    size_t count;
    char *msg;
    size_t msg_size;
};

/* A piece of the user's text made fit to print: the log is ASCII and has no control characters. */
struct shown {
    char text[SHOWN_CHARS + 4];
};

static struct shown show(const char *s, size_t n)
{
    struct shown out;
    size_t take = MIN(n, (size_t)SHOWN_CHARS);

    for (size_t i = 0; i < take; i++)
        out.text[i] = s[i] >= ' ' && s[i] <= '~' ? s[i] : '?';
    str_copy(out.text + take, n > take ? "..." : "", 4);
    return out;
}

static bool same(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

/* NUL counts as white space: boot loaders pass their terminator along. */
static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

/* Takes the next token from [*p, end); false at the end of the text. */
static bool next_token(const char **p, const char *end, struct token *t)
{
    const char *s = *p;

    for (;; s++) {
        if (s < end && *s == '#') {
            while (s < end && *s != '\n' && *s != '\r')
                s++;
        }
        if (s >= end) {
            *p = end;
            return false;
        }
        if (!is_space(*s))
            break;
    }
    *t = (struct token){.key = s};
    for (; s < end && !is_space(*s) && *s != '#'; s++) {
        if (*s == '=' && !t->value) {
            t->key_len = (size_t)(s - t->key);
            t->value = s + 1;
        }
    }
    if (t->value)
        t->value_len = (size_t)(s - t->value);
    else
        t->key_len = (size_t)(s - t->key);
    *p = s;
    return true;
}

/*
 * Edits (insert, delete, replace, swap neighbours) from a to b, the cheapest way. Source: the
 * "optimal string alignment" distance. Three rows of the table are alive at once.
 */
static unsigned edit_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned rows[3][KEY_MAX_CHARS + 1];

    a_len = MIN(a_len, (size_t)KEY_MAX_CHARS);
    b_len = MIN(b_len, (size_t)KEY_MAX_CHARS);
    for (unsigned j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (unsigned i = 1; i <= a_len; i++) {
        unsigned *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];

        row[0] = i;
        for (unsigned j = 1; j <= b_len; j++) {
            unsigned best = up[j - 1] + (a[i - 1] != b[j - 1]);
            best = MIN(best, up[j] + 1);
            best = MIN(best, row[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = MIN(best, up2[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[a_len % 3][b_len];
}

static const struct option *find_option(const struct parser *ps, const struct token *t)
{
    for (size_t i = 0; i < ps->count; i++) {
        if (same(t->key, t->key_len, ps->table[i].key))
            return &ps->table[i];
    }
    return NULL;
}

static err_t report_unknown(const struct parser *ps, const struct token *t)
{
    const char *nearest = NULL;
    unsigned least = UINT_MAX;

    for (size_t i = 0; i < ps->count; i++) {
        const char *key = ps->table[i].key;
        unsigned d = edit_distance(t->key, t->key_len, key, strlen(key));
        if (d < least) {
            least = d;
            nearest = key;
        }
    }
    struct shown word = show(t->key, t->key_len);
    if (!nearest)
        ksnprintf(ps->msg, ps->msg_size, "unknown option '%s'", word.text);
    else if (least <= MAX(t->key_len / 2, (size_t)1))
        ksnprintf(ps->msg, ps->msg_size, "unknown option '%s': did you mean '%s'?", word.text,
                  nearest);
    else
        ksnprintf(ps->msg, ps->msg_size, "unknown option '%s': the nearest known one is '%s'",
                  word.text, nearest);
    return ERR_INVAL;
}

static err_t report_no_value(const struct parser *ps, const struct token *t)
{
    struct shown word = show(t->key, t->key_len);

    ksnprintf(ps->msg, ps->msg_size, "option '%s' has no value: write %s=VALUE", word.text,
              word.text);
    return ERR_INVAL;
}

static void expect_choice(char *buf, size_t size, const char *const *choices)
{
    size_t used = str_copy(buf, "one of: ", size);

    for (size_t i = 0; choices[i] && used < size; i++)
        used += (size_t)ksnprintf(buf + used, size - used, "%s%s", i ? ", " : "", choices[i]);
}

/* Says what would have been right; passes `err` on. */
static err_t report_bad_value(const struct parser *ps, const struct option *o,
                              const struct token *t, err_t err)
{
    char expected[256];

    if (o->custom) {
        str_copy(expected, o->help ? o->help : "another value", sizeof(expected));
    } else {
        switch (o->type) {
        case OPT_BOOL:
            str_copy(expected, "on or off", sizeof(expected));
            break;
        case OPT_UINT:
            ksnprintf(expected, sizeof(expected), "a number %lu..%lu", (unsigned long)o->min,
                      (unsigned long)o->max);
            break;
        case OPT_ENUM:
            expect_choice(expected, sizeof(expected), o->choices);
            break;
        case OPT_STRING:
            ksnprintf(expected, sizeof(expected), "at most %lu characters",
                      (unsigned long)(o->max - 1));
            break;
        }
    }
    ksnprintf(ps->msg, ps->msg_size, "option '%s': bad value '%s': expected %s", o->key,
              show(t->value, t->value_len).text, expected);
    return err;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return INT_MAX;
}

/* The power of two that a suffix stands for; -1 if it is none. */
static int suffix_shift(char c)
{
    switch (c) {
    case 'k':
    case 'K':
        return 10;
    case 'm':
    case 'M':
        return 20;
    case 'g':
    case 'G':
        return 30;
    case 't':
    case 'T':
        return 40;
    default:
        return -1;
    }
}

/* A whole value as a number. ERR_INVAL: not a number; ERR_RANGE: more than 64 bits. */
static err_t parse_number(const char *s, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    int base = 10, shift = 0;
    bool overflow = false;

    if (n > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
        base = 16;
        s += 2;
        n -= 2;
    }
    if (n > 1 && suffix_shift(s[n - 1]) > 0)
        shift = suffix_shift(s[--n]);
    if (n == 0)
        return ERR_INVAL;
    for (size_t i = 0; i < n; i++) {
        int d = digit_of(s[i]);
        if (d >= base)
            return ERR_INVAL;
        overflow |= __builtin_mul_overflow(v, (uint64_t)base, &v);
        overflow |= __builtin_add_overflow(v, (uint64_t)d, &v);
    }
    overflow |= v > UINT64_MAX >> shift;
    *out = v << shift;
    return overflow ? ERR_RANGE : OK;
}

static bool parse_bool(const struct token *t, bool *out)
{
    static const char *const words[] = {"off", "on", "0", "1", "no", "yes", "false", "true"};

    for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
        if (same(t->value, t->value_len, words[i])) {
            *out = i % 2;
            return true;
        }
    }
    return false;
}

static bool parse_choice(const struct option *o, const struct token *t, unsigned *out)
{
    for (unsigned i = 0; o->choices[i]; i++) {
        if (same(t->value, t->value_len, o->choices[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

static err_t apply_custom(const struct option *o, const struct token *t, bool apply)
{
    char value[VALUE_MAX_CHARS + 1];

    if (t->value_len > VALUE_MAX_CHARS)
        return ERR_RANGE;
    if (!apply)
        return OK;
    memcpy(value, t->value, t->value_len);
    value[t->value_len] = '\0';
    return o->custom(value, o->value) ? OK : ERR_INVAL;
}

/* Checks one value and, if `apply`, stores it. */
static err_t set_option(const struct option *o, const struct token *t, bool apply)
{
    bool flag;
    uint64_t number;
    unsigned choice;
    err_t err;

    if (o->custom)
        return apply_custom(o, t, apply);
    switch (o->type) {
    case OPT_BOOL:
        if (!parse_bool(t, &flag))
            return ERR_INVAL;
        if (apply)
            *(bool *)o->value = flag;
        return OK;
    case OPT_UINT:
        err = parse_number(t->value, t->value_len, &number);
        if (err)
            return err;
        if (number < o->min || number > o->max)
            return ERR_RANGE;
        if (apply)
            *(uint64_t *)o->value = number;
        return OK;
    case OPT_ENUM:
        if (!parse_choice(o, t, &choice))
            return ERR_INVAL;
        if (apply)
            *(unsigned *)o->value = choice;
        return OK;
    case OPT_STRING:
        if (t->value_len >= o->max)
            return ERR_RANGE;
        if (apply) {
            memcpy(o->value, t->value, t->value_len);
            ((char *)o->value)[t->value_len] = '\0';
        }
        return OK;
    }
    return ERR_INVAL;
}

static err_t parse_pass(const struct parser *ps, const char *p, const char *end, bool apply)
{
    struct token t;

    while (next_token(&p, end, &t)) {
        if (t.key_len == 0) {
            ksnprintf(ps->msg, ps->msg_size, "no option name before '=%s'",
                      show(t.value, t.value_len).text);
            return ERR_INVAL;
        }
        const struct option *o = find_option(ps, &t);
        if (!o)
            return report_unknown(ps, &t);
        if (!t.value)
            return report_no_value(ps, &t);
        err_t err = set_option(o, &t, apply);
        if (err)
            return report_bad_value(ps, o, &t, err);
        if (apply && o->given)
            *o->given = true;
    }
    return OK;
}

err_t options_parse_table(const struct option *table, size_t count, const char *text, size_t n,
                          char *msg, size_t msg_size)
{
    struct parser ps = {.table = table, .count = count, .msg = msg, .msg_size = msg_size};

    if (msg_size)
        msg[0] = '\0';
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* UTF-8 byte order mark */
        text += 3;
        n -= 3;
    } else if (n >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0)) {
        ksnprintf(msg, msg_size, "the options are in UTF-16: save the file as ASCII or UTF-8");
        return ERR_INVAL;
    }
    err_t err = parse_pass(&ps, text, text + n, false);
    return err ? err : parse_pass(&ps, text, text + n, true);
}

err_t options_parse(const char *text, size_t n, char *msg, size_t msg_size)
{
    return options_parse_table(__start_options, (size_t)(__stop_options - __start_options), text, n,
                               msg, msg_size);
}

void options_for_each(void (*fn)(const struct option *o, void *arg), void *arg)
{
    for (const struct option *o = __start_options; o < __stop_options; o++)
        fn(o, arg);
}
