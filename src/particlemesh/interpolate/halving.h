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

// What a lane has of some sums: the first, how many, and the most that any lane has.
typedef struct {
    int from, count, most;
} Halved;

// The same after add_two with this bit.
DEVICE void halve(PRIVATE Halved* sums, const int bit)
{
    const int most = FEWER(sums->most);
    if (LANE & bit)
        sums->from += most, sums->count = sums->most > 1 && sums->count > most ? sums->count - most : 0;
    else
        sums->count = sums->count < most ? sums->count : most;
    sums->most = most;
}

#endif
