// SPDX-License-Identifier: BSD-3-Clause
// Lanes' sums of particles' results: added up over the warp, and written to the caller's arrays.

#include "interpolate/halving.h"

// Add up over the lanes that differ in bits from LANES_Y_BIT on. Bit by bit and not in a loop: where warp verbs are
// barriers, one in a branch makes compilers duplicate all code after it.
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

// The sums that a lane has then: the first, and how many.
DEVICE int own_sums(PRIVATE int* count)
{
    Halved sums = {0, SUMS, SUMS};
    for (int bit = LANES_Y_BIT; bit < WARP_SIZE; bit *= 2) halve(&sums, bit);
    *count = sums.count;
    return sums.from;
}
