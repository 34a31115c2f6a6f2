// SPDX-License-Identifier: BSD-3-Clause
// The sums that lanes have of particles' results: added up over the warp, and written to where the caller wants them.

// Add up over the lanes that differ in bits from LANES_Y_BIT on. As long as there are several sums, a lane goes on with
// half of them: with the second half where its bit is set.
DEVICE void add_up(WARP_PARAMETER warp, PRIVATE real* sums)
{
    int left = SUMS;
    UNROLL for (int bit = LANES_Y_BIT; bit < WARP_SIZE; bit *= 2) {
        const int most = left > 1 ? (left + 1) / 2 : 0, second = LANE & bit;
        if (left == 1) sums[0] += WARP_SHUFFLE(warp, sums[0], LANE ^ bit);
        UNROLL for (int k = 0; k < most; k++) {
            const real far = k + most < left ? sums[k + most < left ? k + most : k] : (real)0;
            const real other = WARP_SHUFFLE(warp, second ? sums[k] : far, LANE ^ bit);
            sums[k] = (second ? far : sums[k]) + other;
        }
        left = left > 1 ? most : 1;
    }
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
