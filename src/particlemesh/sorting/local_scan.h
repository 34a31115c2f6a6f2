// SPDX-License-Identifier: BSD-3-Clause
// Exclusive sums of counts in local memory, by one group.

#ifndef LOCAL_SCAN_H
#define LOCAL_SCAN_H

// The place of count n: one word is skipped after every 32, so that neighbouring stretches are in different banks.
#define PADDED(n) ((n) + ((n) >> 5))

// In place; returns the total. `of_warps` has a word per warp. The group enters and leaves together.
DEVICE u32 scan_local(WARP_PARAMETER warp, LOCAL u32* counts, const int size, const int padded, LOCAL u32* of_warps)
{
    const int each = (size + GROUP_SIZE - 1) / GROUP_SIZE;
    BARRIER();
    u32 mine = 0;
    for (int k = 0; k < each; k++) {
        const int n = LOCAL_ID * each + k;
        if (n < size) mine += counts[padded ? PADDED(n) : n];
    }
    u32 upto = mine;
    for (int step = 1; step < WARP_SIZE; step *= 2) {
        const u32 ahead = WARP_SHUFFLE_U32(warp, upto, (LANE - step) & (WARP_SIZE - 1));
        if (LANE >= step) upto += ahead;
    }
    if (LANE == WARP_SIZE - 1) of_warps[LOCAL_ID / WARP_SIZE] = upto;
    BARRIER();
    u32 sum = upto - mine, total = 0;
    for (int w = 0; w < GROUP_SIZE / WARP_SIZE; w++) {
        // The first test is for groups of one warp: PoCL 3.0 crashes on the second when it optimises radix.c.
        if (GROUP_SIZE > WARP_SIZE && w < LOCAL_ID / WARP_SIZE) sum += of_warps[w];
        total += of_warps[w];
    }
    for (int k = 0; k < each; k++) {
        const int n = LOCAL_ID * each + k;
        if (n < size) {
            LOCAL u32* at = counts + (padded ? PADDED(n) : n);
            const u32 count = *at;
            *at = sum;
            sum += count;
        }
    }
    BARRIER();
    return total;
}

#endif
