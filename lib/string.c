/*
 * string.c: C's memory and string functions for the kernel, where no libc is.
 *
 * Not linked into host programs: they have libc's (the host test compiles this file under other
 * names beside it). Any context, no state. No SIMD registers: the kernel does not save them.
 * Loops hold an empty asm on their pointer, so that neither compiler recognises memcpy or strlen
 * inside memcpy or strlen and calls the function from itself.
 */
#include "lib/string.h"

/* Unaligned words that may alias anything. */
typedef uint64_t __attribute__((may_alias, aligned(1))) word_t;
typedef uint32_t __attribute__((may_alias, aligned(1))) half_t;
typedef uint16_t __attribute__((may_alias, aligned(1))) short_t;

/* From this many bytes on the string instructions win on hardware with fast strings (start-up costs
 * about 35 cycles: Intel Optimization Reference Manual, 3.7.6); under an emulator they are slow per
 * byte, so short copies avoid them. */
#define REP_MIN 1024

#define LOOP_BARRIER(p) asm volatile("" : "+r"(p))

static __always_inline uint64_t load(const uint8_t *p)
{
    return *(const word_t *)p;
}

static __always_inline void store(uint8_t *p, uint64_t v)
{
    *(word_t *)p = v;
}

/* n <= 32. Every load comes before the first store, so overlap does not matter. */
static __always_inline void copy_short(uint8_t *d, const uint8_t *s, size_t n)
{
    if (n > 16) {
        uint64_t a = load(s), b = load(s + 8), y = load(s + n - 16), z = load(s + n - 8);
        store(d, a);
        store(d + 8, b);
        store(d + n - 16, y);
        store(d + n - 8, z);
    } else if (n >= 8) {
        uint64_t a = load(s), z = load(s + n - 8);
        store(d, a);
        store(d + n - 8, z);
    } else if (n >= 4) {
        uint32_t a = *(const half_t *)s, z = *(const half_t *)(s + n - 4);
        *(half_t *)d = a;
        *(half_t *)(d + n - 4) = z;
    } else if (n >= 2) {
        uint16_t a = *(const short_t *)s, z = *(const short_t *)(s + n - 2);
        *(short_t *)d = a;
        *(short_t *)(d + n - 2) = z;
    } else if (n) {
        *d = *s;
    }
}

/* n > 32, upwards; right for overlap if d < s: the tail, whose source the loop may overwrite, is
 * loaded first. */
static __always_inline void copy_up(uint8_t *d, const uint8_t *s, size_t n)
{
    const uint8_t *tail = s + n - 32;
    uint8_t *d_tail = d + n - 32;
    uint64_t w = load(tail), x = load(tail + 8), y = load(tail + 16), z = load(tail + 24);

    do {
        uint64_t a = load(s), b = load(s + 8), c = load(s + 16), e = load(s + 24);
        store(d, a);
        store(d + 8, b);
        store(d + 16, c);
        store(d + 24, e);
        s += 32;
        d += 32;
        LOOP_BARRIER(s);
    } while (s < tail);
    store(d_tail, w);
    store(d_tail + 8, x);
    store(d_tail + 16, y);
    store(d_tail + 24, z);
}

/* n > 32, downwards; right for overlap if d > s: the mirror image of copy_up. */
static __always_inline void copy_down(uint8_t *d, const uint8_t *s, size_t n)
{
    uint64_t w = load(s), x = load(s + 8), y = load(s + 16), z = load(s + 24);
    uint8_t *d_head = d;
    size_t left = n;

    do {
        const uint8_t *from = s + left - 32;
        uint8_t *to = d + left - 32;
        uint64_t a = load(from), b = load(from + 8), c = load(from + 16), e = load(from + 24);
        store(to, a);
        store(to + 8, b);
        store(to + 16, c);
        store(to + 24, e);
        left -= 32;
        LOOP_BARRIER(left);
    } while (left > 32);
    store(d_head, w);
    store(d_head + 8, x);
    store(d_head + 16, y);
    store(d_head + 24, z);
}

void *memcpy(void *dst, const void *src, size_t n)
{
    uint8_t *d = dst;
    const uint8_t *s = src;

    if (n <= 32) {
        copy_short(d, s, n);
    } else if (n < REP_MIN) {
        copy_up(d, s, n);
    } else {
        size_t words = n / 8;
        uint64_t z = load(s + n - 8);
        uint8_t *last = d + n - 8;

        asm volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(words) : : "memory");
        store(last, z);
    }
    return dst;
}

void *memmove(void *dst, const void *src, size_t n)
{
    uint8_t *d = dst;
    const uint8_t *s = src;

    if (n <= 32)
        copy_short(d, s, n);
    else if ((uintptr_t)d - (uintptr_t)s >= n) /* wraps to a large number when d < s */
        copy_up(d, s, n);
    else
        copy_down(d, s, n);
    return dst;
}

void *memset(void *dst, int c, size_t n)
{
    uint8_t *d = dst;
    uint64_t v = (uint8_t)c * 0x0101010101010101ULL;

    if (n < 8) {
        for (uint8_t *end = d + n; d < end; d++) {
            LOOP_BARRIER(d);
            *d = (uint8_t)c;
        }
    } else if (n < REP_MIN) {
        uint8_t *last = d + n - 8;

        while (last - d > 32) {
            store(d, v);
            store(d + 8, v);
            store(d + 16, v);
            store(d + 24, v);
            d += 32;
            LOOP_BARRIER(d);
        }
        for (; d < last; d += 8) {
            LOOP_BARRIER(d);
            store(d, v);
        }
        store(last, v);
    } else {
        uint8_t *last = d + n - 8;
        size_t words = n / 8;

        asm volatile("rep stosq" : "+D"(d), "+c"(words) : "a"(v) : "memory");
        store(last, v);
    }
    return dst;
}

int memcmp(const void *a, const void *b, size_t n)
{
    const uint8_t *p = a, *q = b;

    for (; n >= 8; n -= 8, p += 8, q += 8) {
        LOOP_BARRIER(p);
        if (load(p) != load(q))
            break;
    }
    /* At most 8 bytes decide. */
    for (; n; n--, p++, q++) {
        LOOP_BARRIER(p);
        if (*p != *q)
            return *p - *q;
    }
    return 0;
}

size_t strlen(const char *s)
{
    const char *p = s;

    while (*p) {
        p++;
        LOOP_BARRIER(p);
    }
    return (size_t)(p - s);
}

size_t strnlen(const char *s, size_t max)
{
    size_t n = 0;

    while (n < max && s[n]) {
        n++;
        LOOP_BARRIER(n);
    }
    return n;
}

int strcmp(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
        LOOP_BARRIER(a);
    }
    return (uint8_t)*a - (uint8_t)*b;
}

int strncmp(const char *a, const char *b, size_t n)
{
    for (; n; n--, a++, b++) {
        LOOP_BARRIER(a);
        if (*a != *b || !*a)
            return (uint8_t)*a - (uint8_t)*b;
    }
    return 0;
}

char *strchr(const char *s, int c)
{
    for (;; s++) {
        LOOP_BARRIER(s);
        if (*s == (char)c)
            return (char *)(uintptr_t)s;
        if (!*s)
            return NULL;
    }
}

char *strstr(const char *s, const char *what)
{
    size_t n = strlen(what);

    for (;; s++) {
        if (strncmp(s, what, n) == 0)
            return (char *)(uintptr_t)s;
        if (!*s)
            return NULL;
    }
}
