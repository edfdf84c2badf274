/*
 * text.c: see text.h.
 */
#include "boot/efi/text.h"

#include "lib/string.h"

static bool is_space(uint16_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The i-th character; the bytes need not be aligned. */
static uint16_t char_at(const void *s, size_t i)
{
    uint16_t c;

    memcpy(&c, (const char *)s + 2 * i, sizeof(c));
    return c;
}

/* Stops at NUL. dst may be the place of s: it never overtakes. */
static size_t narrow(const void *s, size_t n, char *dst)
{
    size_t i;
    uint16_t c;

    for (i = 0; i < n && (c = char_at(s, i)) != 0; i++) {
        if (c >= 0x7f || (c < 0x20 && !is_space(c)))
            return TEXT_BAD;
        dst[i] = (char)c;
    }
    return i;
}

size_t text_normalise(char *text, size_t n)
{
    const unsigned char *u = (const unsigned char *)text;

    if (n >= 3 && u[0] == 0xef && u[1] == 0xbb && u[2] == 0xbf) {
        memmove(text, text + 3, n - 3);
        return n - 3;
    }
    if (n >= 2 && u[0] == 0xff && u[1] == 0xfe)
        return narrow(text + 2, n / 2 - 1, text);
    return n;
}

static uint16_t lower(uint16_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint16_t)(c + 32) : c;
}

/* Moves *s behind the directories of the path s[0..n); returns the length without ".efi". */
static size_t stem(const uint16_t **s, size_t n)
{
    static const uint16_t suffix[] = {'.', 'e', 'f', 'i'};
    size_t i, k = ARRAY_SIZE(suffix);

    for (i = n; i-- > 0;)
        if ((*s)[i] == '\\' || (*s)[i] == '/' || (*s)[i] == ':') {
            *s += i + 1;
            n -= i + 1;
            break;
        }
    if (n <= k)
        return n;
    for (i = 0; i < k; i++)
        if (lower((*s)[n - k + i]) != suffix[i])
            return n;
    return n - k;
}

/* True for what ends in .efi, and for the own name without it: a shell takes both. */
static bool is_program_name(const uint16_t *word, size_t n, const uint16_t *own, size_t own_n)
{
    const uint16_t *end = word + n;
    size_t i;

    for (i = 0; i < n; i++)
        if (word[i] == '=')
            return false;
    n = stem(&word, n);
    if (word + n < end)
        return true;
    own_n = stem(&own, own_n);
    if (!n || n != own_n)
        return false;
    for (i = 0; i < n; i++)
        if (lower(own[i]) != lower(word[i]))
            return false;
    return true;
}

size_t text_load_options(const uint16_t *s, size_t n, const uint16_t *own, size_t own_n, char *dst)
{
    size_t word;

    while (n && is_space(*s)) {
        s++;
        n--;
    }
    for (word = 0; word < n && s[word] && !is_space(s[word]); word++)
        ;
    if (word && is_program_name(s, word, own, own_n)) {
        s += word;
        n -= word;
    }
    return narrow(s, n, dst);
}
