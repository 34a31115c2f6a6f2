// SPDX-License-Identifier: BSD-3-Clause
// Between and after the two passes of grid/queries/same_bits.py: RESULTS numbers and VALUES values of a particle.

#include "particles/magnitude.h"

// x < 2^exponent, as frexp has it; no less than that of the smallest normal number.
DEVICE int exponent_of(const real x)
{
    return (int)(MAGNITUDE(x) >> EXPONENT_BITS) - EXPONENT_BIAS;
}

#define TOO_LARGE (EXPONENT_ALL - EXPONENT_BIAS - 4) // an exponent: of infinite numbers, and of sums that might be

// Numbers of neighbours are below 2^bits.
DEVICE int bits_of(const real neighbours)
{
    const int bits = 32 - LEADING_ZEROS_U32((u32)neighbours);
    return bits > 1 ? bits : 1;
}

// The values of the second pass, (count, VALUES + RESULTS + 2).
KERNEL values_of_units(GLOBAL const real* RESTRICT largest, GLOBAL const real* RESTRICT given,
                       GLOBAL real* RESTRICT values, const i64 count, const i64 first, const i64 step, const i64 column)
{
    const i64 width = VALUES + RESULTS + 2;
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < count * width; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = n / width, c = n - i * width;
        GLOBAL const real* own = largest + i * (RESULTS + 1);
        const int bits = bits_of(own[RESULTS]);
        if (c < VALUES) values[n] = given[first + i * step + c * column];
        else if (c < VALUES + RESULTS) values[n] = ldexp((real)1, -exponent_of(own[c - VALUES]));
        else values[n] = c == width - 2 ? ldexp((real)1.5, bits) : ldexp((real)1, DIGITS - bits);
    }
}

// The sums of words, (count, WORDS_OF_SUM, RESULTS).
KERNEL sums_of_words(GLOBAL const real* RESTRICT largest, GLOBAL const real* RESTRICT words,
                     GLOBAL real* RESTRICT sums, const i64 count, const i64 first, const i64 step, const i64 column)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < count * RESULTS; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = n / RESULTS, r = n - i * RESULTS;
        GLOBAL const real* own = largest + i * (RESULTS + 1);
        const int exponent = exponent_of(own[r]), bits = bits_of(own[RESULTS]), down = bits - DIGITS;
        real sum = 0;
        for (int w = WORDS_OF_SUM - 1; w >= 0; w--) sum = words[(i * WORDS_OF_SUM + w) * RESULTS + r] + ldexp(sum, down);
        sums[first + i * step + r * column] =
            exponent < TOO_LARGE && bits <= MOST_BITS ? ldexp(sum, exponent) : (real)REAL_FROM_BITS_U32(0x7fc00000u); // NaN
    }
}
