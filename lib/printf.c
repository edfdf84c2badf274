/*
 * printf.c: the formatter, kprintf() and its rate limit.
 *
 * Reentrant: all state is on the caller's stack, console_write() does its own locking. Text that
 * cannot be formatted (an unknown conversion) is printed as it stands in the format, so that the
 * mistake shows. No floating point, no %n.
 */
#include "lib/printf.h"
#include "lib/string.h"

#define LINE_MAX_CHARS   1024
#define RATELIMIT_BURST  10
#define SYMBOL_MAX_CHARS 128

/* Where the text goes: what is beyond `size` is only counted. */
struct sink {
    char *buf;
    size_t size;
    size_t len;
};

struct spec {
    bool left, plus, space, alt, zero;
    int width;     /* 0: none */
    int precision; /* -1: none */
    char length;   /* 'H' for hh, 'h', 'l', 'q' for ll, 'z', 't', 'j', 0 */
    char conv;
};

static void put_chars(struct sink *out, const char *s, size_t n)
{
    if (out->len < out->size)
        memcpy(out->buf + out->len, s, MIN(n, out->size - out->len));
    out->len += n;
}

static void put_fill(struct sink *out, char c, size_t n)
{
    if (out->len < out->size)
        memset(out->buf + out->len, c, MIN(n, out->size - out->len));
    out->len += n;
}

/* n characters of s, padded with blanks to the width. */
static void put_padded(struct sink *out, const struct spec *sp, const char *s, size_t n)
{
    size_t pad = (size_t)sp->width > n ? (size_t)sp->width - n : 0;

    if (!sp->left)
        put_fill(out, ' ', pad);
    put_chars(out, s, n);
    if (sp->left)
        put_fill(out, ' ', pad);
}

/* Sign or base prefix, zeros and digits of one number. */
static void put_number(struct sink *out, const struct spec *sp, uint64_t v, const char *prefix)
{
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    const char *set = sp->conv == 'X' ? upper : lower;
    unsigned base = sp->conv == 'o' ? 8 : sp->conv == 'x' || sp->conv == 'X' ? 16 : 10;
    char digits[24]; /* 2^64 has 22 octal digits */
    char *end = digits + sizeof(digits), *p = end;

    for (uint64_t rest = v; rest; rest /= base)
        *--p = set[rest % base];
    size_t n = (size_t)(end - p), prefix_len = strlen(prefix);
    size_t least = sp->precision < 0 ? 1 : (size_t)sp->precision;

    if (sp->alt && sp->conv == 'o' && least <= n)
        least = n + 1; /* C11 7.21.6.1: '#' raises the precision until the first digit is 0 */
    size_t zeros = least > n ? least - n : 0;
    size_t total = prefix_len + zeros + n;
    size_t pad = (size_t)sp->width > total ? (size_t)sp->width - total : 0;

    if (sp->zero && !sp->left && sp->precision < 0) {
        zeros += pad;
        pad = 0;
    }
    if (!sp->left)
        put_fill(out, ' ', pad);
    put_chars(out, prefix, prefix_len);
    put_fill(out, '0', zeros);
    put_chars(out, p, n);
    if (sp->left)
        put_fill(out, ' ', pad);
}

static void put_signed(struct sink *out, const struct spec *sp, int64_t v)
{
    const char *prefix = v < 0 ? "-" : sp->plus ? "+" : sp->space ? " " : "";

    put_number(out, sp, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, prefix);
}

static void put_unsigned(struct sink *out, const struct spec *sp, uint64_t v)
{
    const char *prefix = "";

    if (sp->alt && v && sp->conv == 'x')
        prefix = "0x";
    else if (sp->alt && v && sp->conv == 'X')
        prefix = "0X";
    put_number(out, sp, v, prefix);
}

static void put_pointer(struct sink *out, struct spec *sp, uintptr_t v)
{
    sp->conv = 'x';
    put_number(out, sp, v, "0x");
}

static void put_symbol(struct sink *out, struct spec *sp, uintptr_t v)
{
    char name[SYMBOL_MAX_CHARS];

    if (symbol_format(v, name, sizeof(name)))
        put_padded(out, sp, name, strnlen(name, sizeof(name)));
    else
        put_pointer(out, sp, v);
}

static void put_string(struct sink *out, const struct spec *sp, const char *s)
{
    if (!s)
        s = "(null)";
    put_padded(out, sp, s, sp->precision < 0 ? strlen(s) : strnlen(s, (size_t)sp->precision));
}

/* Decimal digits at *p, held at INT_MAX. */
static int parse_int(const char **p)
{
    int v = 0;

    for (; **p >= '0' && **p <= '9'; (*p)++) {
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, **p - '0', &v))
            v = INT_MAX;
    }
    return v;
}

static const char *parse_flags(struct spec *sp, const char *p)
{
    for (;; p++) {
        switch (*p) {
        case '-':
            sp->left = true;
            break;
        case '+':
            sp->plus = true;
            break;
        case ' ':
            sp->space = true;
            break;
        case '#':
            sp->alt = true;
            break;
        case '0':
            sp->zero = true;
            break;
        default:
            return p;
        }
    }
}

static const char *parse_length(struct spec *sp, const char *p)
{
    switch (*p) {
    case 'h':
    case 'l':
        sp->length = *p++;
        if (*p == sp->length) {
            sp->length = *p++ == 'h' ? 'H' : 'q';
        }
        return p;
    case 'z':
    case 't':
    case 'j':
        sp->length = *p++;
        return p;
    default:
        return p;
    }
}

/* va_list inside a struct, so that helpers can take arguments from it: a plain va_list parameter
 * is an array type on this ABI and its value is undefined in the caller afterwards. */
struct args {
    va_list ap;
};

/* Reads what follows a '%' up to and including the conversion character. */
static const char *parse_spec(struct spec *sp, const char *p, struct args *args)
{
    *sp = (struct spec){.precision = -1};
    p = parse_flags(sp, p);
    if (*p == '*') {
        p++;
        sp->width = va_arg(args->ap, int);
        if (sp->width < 0) {
            sp->left = true;
            sp->width = sp->width == INT_MIN ? INT_MAX : -sp->width;
        }
    } else {
        sp->width = parse_int(&p);
    }
    if (*p == '.') {
        p++;
        if (*p == '*') {
            p++;
            sp->precision = MAX(va_arg(args->ap, int), -1);
        } else {
            sp->precision = parse_int(&p);
        }
    }
    p = parse_length(sp, p);
    sp->conv = *p;
    return *p ? p + 1 : p;
}

static int64_t signed_arg(struct args *args, char length)
{
    switch (length) {
    case 'H':
        return (signed char)va_arg(args->ap, int);
    case 'h':
        return (short)va_arg(args->ap, int);
    case 'l':
    case 'q':
    case 'j':
    case 'z':
    case 't':
        return va_arg(args->ap, int64_t);
    default:
        return va_arg(args->ap, int);
    }
}

static uint64_t unsigned_arg(struct args *args, char length)
{
    switch (length) {
    case 'H':
        return (unsigned char)va_arg(args->ap, unsigned);
    case 'h':
        return (unsigned short)va_arg(args->ap, unsigned);
    case 'l':
    case 'q':
    case 'j':
    case 'z':
    case 't':
        return va_arg(args->ap, uint64_t);
    default:
        return va_arg(args->ap, unsigned);
    }
}

/* One conversion; `text` is its spelling in the format, `next` what follows it. Returns where to go
 * on. */
static const char *convert(struct sink *out, struct spec *sp, const char *text, const char *next,
                           struct args *args)
{
    char c;

    switch (sp->conv) {
    case 'd':
    case 'i':
        put_signed(out, sp, signed_arg(args, sp->length));
        return next;
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        put_unsigned(out, sp, unsigned_arg(args, sp->length));
        return next;
    case 'c':
        c = (char)va_arg(args->ap, int);
        put_padded(out, sp, &c, 1);
        return next;
    case 's':
        put_string(out, sp, va_arg(args->ap, const char *));
        return next;
    case 'p':
        if (*next == 'S') {
            put_symbol(out, sp, (uintptr_t)va_arg(args->ap, void *));
            return next + 1;
        }
        put_pointer(out, sp, (uintptr_t)va_arg(args->ap, void *));
        return next;
    case '%':
        put_chars(out, "%", 1);
        return next;
    default:
        put_chars(out, text, (size_t)(next - text));
        return next;
    }
}

int kvsnprintf(char *buf, size_t size, const char *fmt, va_list ap)
{
    struct sink out = {.buf = buf, .size = size};
    struct args args;

    va_copy(args.ap, ap);
    while (*fmt) {
        const char *text = fmt;
        struct spec sp;

        while (*fmt && *fmt != '%')
            fmt++;
        put_chars(&out, text, (size_t)(fmt - text));
        if (!*fmt)
            break;
        text = fmt;
        fmt = parse_spec(&sp, fmt + 1, &args);
        fmt = convert(&out, &sp, text, fmt, &args);
    }
    va_end(args.ap);
    if (size)
        buf[MIN(out.len, size - 1)] = '\0';
    return out.len > INT_MAX ? INT_MAX : (int)out.len;
}

int ksnprintf(char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = kvsnprintf(buf, size, fmt, ap);
    va_end(ap);
    return n;
}

int kvprintf(const char *fmt, va_list ap)
{
    static const char cut[] = "...\n";
    char line[LINE_MAX_CHARS + 1];
    int n = kvsnprintf(line, sizeof(line), fmt, ap);

    if (n > LINE_MAX_CHARS) {
        /* The cut text must still end its line, or the next one would hang on it. */
        memcpy(line + LINE_MAX_CHARS - strlen(cut), cut, strlen(cut));
        console_write(line, LINE_MAX_CHARS);
    } else if (n > 0) {
        console_write(line, (size_t)n);
    }
    return n;
}

int kprintf(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = kvprintf(fmt, ap);
    va_end(ap);
    return n;
}

/*
 * Any CPU, any number at once, no lock: whoever moves the window on resets the count. A line
 * counted in the old window while that happens may be counted in the new one; the limit then
 * differs by the number of CPUs at most.
 */
bool ratelimit_ok(struct ratelimit *rl)
{
    uint64_t now = log_seconds();
    uint64_t window = __atomic_load_n(&rl->window, __ATOMIC_RELAXED);

    if (now != window && __atomic_compare_exchange_n(&rl->window, &window, now, false,
                                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        __atomic_store_n(&rl->printed, 0, __ATOMIC_RELAXED);
        uint32_t dropped = __atomic_exchange_n(&rl->dropped, 0, __ATOMIC_RELAXED);
        if (dropped)
            kprintf("# %u more lines like the next one were left out\n", dropped);
    }
    /* Read before counting, so that a storm of calls cannot wrap the counter. */
    if (__atomic_load_n(&rl->printed, __ATOMIC_RELAXED) < RATELIMIT_BURST &&
        __atomic_fetch_add(&rl->printed, 1, __ATOMIC_RELAXED) < RATELIMIT_BURST)
        return true;
    __atomic_fetch_add(&rl->dropped, 1, __ATOMIC_RELAXED);
    return false;
}
