/*
 * muldiv.h: a * b / c with a 128-bit product. The compiler would call its support library for this
 * division, which is built with a red zone, and interrupts here use the same stack.
 */
#ifndef LIB_MULDIV_H
#define LIB_MULDIV_H

#include "lib/base.h"

/* The quotient rounded down, UINT64_MAX if it does not fit or c is 0. Any context. */
static inline uint64_t mul_div_u64(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    uint64_t rest = (uint64_t)(product >> 64), low = (uint64_t)product, quotient = 0;

    if (rest >= c)
        return UINT64_MAX;
    for (int i = 0; i < 64; i++) {
        bool carry = rest >> 63;

        rest = rest << 1 | low >> 63;
        low <<= 1;
        quotient <<= 1;
        if (carry || rest >= c) {
            rest -= c;
            quotient |= 1;
        }
    }
    return quotient;
}

#endif
