/*
 * fuzz_printf.c: a well-formed conversion against libc's, then the same bytes as a format that may
 * be anything: whatever it says, the formatter stays in its buffer, ends, and terminates its text.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/host/printf_compare.h"
#include "lib/printf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int format(char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int len = kvsnprintf(buf, size, fmt, ap);
    va_end(ap);
    return len;
}

/* Any conversion takes at most three arguments: 4 of them find a valid string wherever they look.
 */
static void any_format(const uint8_t *data, size_t n)
{
    static char arg[] = "argument";
    size_t size = data[0] % 64, percents = 0;
    char *fmt = malloc(n), *buf = malloc(size);

    memcpy(fmt, data + 1, n - 1);
    fmt[n - 1] = '\0';
    for (char *p = fmt; *p; p++) {
        if (*p == '%' && ++percents > 4)
            *p = '.';
    }
    int len = format(buf, size, fmt, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg);
    if (len < 0 || (size && !memchr(buf, '\0', size)))
        abort();
    if (len < INT_MAX && size && memchr(fmt, '%', n) == NULL && (size_t)len != strlen(fmt))
        abort();
    free(fmt);
    free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    if (!printf_compare(data, n))
        abort();
    any_format(data, n);
    return 0;
}
