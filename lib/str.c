/*
 * str.c: the string functions of lib/string.h that libc does not have, so host programs link this
 * file and not string.c. Any context, no state.
 */
#include "lib/string.h"

size_t str_copy(char *dst, const char *src, size_t size)
{
    size_t n = strlen(src);

    if (size) {
        size_t take = MIN(n, size - 1);
        memcpy(dst, src, take);
        dst[take] = '\0';
    }
    return n;
}

/* Matches all of `name` with pattern [p, end). Only the last '*' is ever retried: what an earlier
 * one matched need not change, so the time is at most the product of the lengths. */
static bool glob_match(const char *p, const char *end, const char *name)
{
    const char *star = NULL, *retry = NULL;

    while (*name) {
        if (p < end && *p == '*') {
            star = ++p;
            retry = name;
        } else if (p < end && (*p == '?' || *p == *name)) {
            p++;
            name++;
        } else if (star) {
            p = star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

bool str_in_list(const char *list, const char *name)
{
    while (*list) {
        const char *end = strchr(list, ',');

        if (!end)
            end = list + strlen(list);
        if (end != list && glob_match(list, end, name))
            return true;
        list = *end ? end + 1 : end;
    }
    return false;
}
