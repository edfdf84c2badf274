/*
 * console_list.c: reads the value of option console=. Pure C, no state; any context.
 */
#include "arch/x86_64/console_list.h"
#include "lib/base.h"
#include "lib/string.h"

#define PORT_NAMES  4
#define BAUD_MIN    50
#define BAUD_MAX    4000000
#define IO_BASE_MAX 0xfff8 /* eight registers */

static bool parse_number(const char *s, size_t n, uint64_t *value)
{
    uint64_t v = 0;
    unsigned base = 10;

    if (n > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
        base = 16;
        s += 2;
        n -= 2;
    }
    if (n == 0 || n > 16)
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = s[i] >= '0' && s[i] <= '9'   ? (unsigned)(s[i] - '0')
                         : s[i] >= 'a' && s[i] <= 'f' ? (unsigned)(s[i] - 'a' + 10)
                         : s[i] >= 'A' && s[i] <= 'F' ? (unsigned)(s[i] - 'A' + 10)
                                                      : 16;
        if (digit >= base)
            return false;
        v = v * base + digit;
    }
    *value = v;
    return true;
}

static bool has_prefix(const char *s, size_t n, const char *prefix)
{
    size_t len = strlen(prefix);

    return n >= len && strncmp(s, prefix, len) == 0;
}

/* ":stride4" and ":clk1843200" behind an MMIO address. */
static bool parse_mmio_suffix(const char *s, size_t n, struct serial_port *p)
{
    uint64_t v;

    if (has_prefix(s, n, "stride") && parse_number(s + 6, n - 6, &v) &&
        (v == 1 || v == 2 || v == 4)) {
        p->stride = p->access = (uint8_t)v;
        return true;
    }
    if (has_prefix(s, n, "clk") && parse_number(s + 3, n - 3, &v) && v >= 16 && v <= UINT32_MAX) {
        p->clock = (uint32_t)v;
        return true;
    }
    return false;
}

static bool parse_mmio(const char *s, size_t n, struct serial_port *p)
{
    size_t end = 0, start;

    while (end < n && s[end] != ':')
        end++;
    if (!parse_number(s, end, &p->base) || p->base == 0)
        return false;
    p->mmio = true;
    while (end < n) {
        start = ++end;
        while (end < n && s[end] != ':')
            end++;
        if (!parse_mmio_suffix(s + start, end - start, p))
            return false;
    }
    return true;
}

static bool parse_port(const char *s, size_t n, struct serial_port *p)
{
    static const uint16_t com[PORT_NAMES] = {0x3f8, 0x2f8, 0x3e8, 0x2e8};

    memset(p, 0, sizeof(*p));
    if (n == 4 && has_prefix(s, n, "com") && s[3] >= '1' && s[3] <= '4') {
        p->base = com[s[3] - '1'];
        return true;
    }
    if (has_prefix(s, n, "io:"))
        return parse_number(s + 3, n - 3, &p->base) && p->base && p->base <= IO_BASE_MAX;
    return has_prefix(s, n, "mmio:") && parse_mmio(s + 5, n - 5, p);
}

static bool parse_item(const char *s, size_t n, struct console_list *list)
{
    uint64_t baud;

    if (n == 2 && has_prefix(s, n, "fb")) {
        list->fb = true;
        return true;
    }
    if (n == 4 && has_prefix(s, n, "none"))
        return true;
    if (parse_number(s, n, &baud)) {
        if (list->ports == 0 || baud < BAUD_MIN || baud > BAUD_MAX)
            return false;
        list->port[list->ports - 1].baud = (uint32_t)baud;
        return true;
    }
    if (list->ports == SERIAL_PORTS_MAX || !parse_port(s, n, &list->port[list->ports]))
        return false;
    list->ports++;
    return true;
}

bool console_list_parse(const char *s, struct console_list *list)
{
    size_t n;

    memset(list, 0, sizeof(*list));
    for (;;) {
        for (n = 0; s[n] && s[n] != ','; n++)
            ;
        if (!parse_item(s, n, list))
            return false;
        if (!s[n])
            return true;
        s += n + 1;
    }
}
