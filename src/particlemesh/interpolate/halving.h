// SPDX-License-Identifier: BSD-3-Clause
// Sums of several results over lanes, each of which continues with half of the results.

#ifndef HALVING_H
#define HALVING_H

#define FEWER(sums) (((sums) + 1) / 2)

// Add up two lanes whose numbers differ in one bit: each continues with half of the sums, with the second half if its
// bit is set. Both keep a single sum, and the last of an odd number.
DEVICE void add_two(WARP_PARAMETER warp, PRIVATE real* sums, const int count, const int bit)
{
    const int second = LANE & bit;
    UNROLL for (int k = 0; k < FEWER(count); k++) {
        const real far = sums[k + FEWER(count) < count ? k + FEWER(count) : k];
        const real other = WARP_SHUFFLE(warp, second ? sums[k] : far, LANE ^ bit);
        sums[k] = (second ? far : sums[k]) + other;
    }
}

// Of so many sums, those that a lane has after the bits from `bits` / 2 down to 1: the first, and how many.
DEVICE int halved(const int sums, const int bits, PRIVATE int* count)
{
    int from = 0, left = sums, own = sums;
    UNROLL for (int bit = bits / 2; bit > 0; bit /= 2) {
        const int most = FEWER(left);
        if (LANE & bit)
            from += most, own = left > 1 && own > most ? own - most : 0;
        else
            own = own < most ? own : most;
        left = most;
    }
    *count = own;
    return from;
}

#endif
