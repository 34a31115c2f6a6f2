// SPDX-License-Identifier: BSD-3-Clause
// The sums that lanes have of particles' results: added up over the warp, and written to where the caller wants them.

#define FEWER(sums) (((sums) + 1) / 2)

// Add up two lanes, whose numbers differ in one bit: each goes on with half of the sums, with the second half where its
// bit is set. A single sum both have, and of an odd number the last.
DEVICE void add_two(WARP_PARAMETER warp, PRIVATE real* sums, const int count, const int bit)
{
    const int second = LANE & bit;
    UNROLL for (int k = 0; k < FEWER(count); k++) {
        const real far = sums[k + FEWER(count) < count ? k + FEWER(count) : k];
        const real other = WARP_SHUFFLE(warp, second ? sums[k] : far, LANE ^ bit);
        sums[k] = (second ? far : sums[k]) + other;
    }
}

// Add up over the lanes that differ in bits from LANES_Y_BIT on. Bit by bit and not in a loop: where verbs of the warp are
// barriers, one in a branch makes compilers copy all that follows.
DEVICE void add_up(WARP_PARAMETER warp, PRIVATE real* sums)
{
    add_two(warp, sums, SUMS, LANES_Y_BIT);
    add_two(warp, sums, FEWER(SUMS), 2 * LANES_Y_BIT);
    add_two(warp, sums, FEWER(FEWER(SUMS)), 4 * LANES_Y_BIT);
#if !MATRIX
    add_two(warp, sums, FEWER(FEWER(FEWER(SUMS))), 8);
    add_two(warp, sums, FEWER(FEWER(FEWER(FEWER(SUMS)))), 16);
#endif
}

// Which sums a lane has then: from which on, and how many.
DEVICE int own_sums(PRIVATE int* count)
{
    int from = 0, left = SUMS, own = SUMS;
    for (int bit = LANES_Y_BIT; bit < WARP_SIZE; bit *= 2) {
        const int most = (left + 1) / 2;
        if (LANE & bit)
            from += most, own = left > 1 && own > most ? own - most : 0;
        else
            own = own < most ? own : most;
        left = most;
    }
    *count = own;
    return from;
}
