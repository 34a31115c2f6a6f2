// SPDX-License-Identifier: BSD-3-Clause
// Exclusive sums of counts in one pass. COUNT_IS_64 for counts of 64 bits.

#include "backends/count.h"
#include "sorting/look_back.h"

// A lane has four consecutive counts of each row, so that a warp reads and writes whole rows, 16 bytes per lane.
#define ROWS 4
#define ROW (4 * WARP_SIZE)
#define TILE (ROWS * 4 * GROUP_SIZE)
#define WARPS (GROUP_SIZE / WARP_SIZE)

// start[b] = counts before b, start[bins] = all. Counts begin `skip` words of 64 bits into `given`. control: a ticket,
// then a word per tile, from `at` on.
KERNEL scan_counts(GLOBAL const u64* RESTRICT given, GLOBAL count_t* RESTRICT start, GLOBAL u64* control,
                   const i64 bins, const i64 tiles, const i64 skip, const i64 at)
{
    WARP(warp);
    GLOBAL const count_t* RESTRICT counts = (GLOBAL const count_t*)(given + skip);
    LOCAL_ARRAY(u64, share, 2); // the ticket; the sum before the tile
    LOCAL_ARRAY(count_t, totals, WARPS);
    for (i64 turn = GROUP_ID; turn < tiles; turn += GROUP_COUNT) {
        const i64 tile = take_ticket(control + at, share);
        const i64 first = tile * TILE + LOCAL_ID / WARP_SIZE * (ROWS * ROW) + 4 * LANE;
        count_t own[4 * ROWS], sums[ROWS], upto[ROWS];
        UNROLL for (int r = 0; r < ROWS; r++) {
            const i64 b = first + r * ROW;
            PRIVATE count_t* four = own + 4 * r;
            if (b + 3 < bins) {
#if COUNT_IS_64
                UNROLL for (int k = 0; k < 4; k++) four[k] = counts[b + k];
#else
                const uint4 read = *(GLOBAL const uint4*)(counts + b);
                four[0] = read.x, four[1] = read.y, four[2] = read.z, four[3] = read.w;
#endif
            } else {
                UNROLL for (int k = 0; k < 4; k++) four[k] = b + k < bins ? counts[b + k] : 0;
            }
            sums[r] = upto[r] = four[0] + four[1] + four[2] + four[3];
        }
        for (int step = 1; step < WARP_SIZE; step *= 2)
            UNROLL for (int r = 0; r < ROWS; r++) {
                const count_t ahead = SHUFFLE_COUNT(warp, upto[r], (LANE - step) & (WARP_SIZE - 1));
                if (LANE >= step) upto[r] += ahead;
            }
        count_t warp_total = 0;
        UNROLL for (int r = 0; r < ROWS; r++) {
            const count_t row_total = SHUFFLE_COUNT(warp, upto[r], WARP_SIZE - 1);
            upto[r] += warp_total - sums[r];
            warp_total += row_total;
        }
        if (LANE == 0) totals[LOCAL_ID / WARP_SIZE] = warp_total;
        BARRIER();
        count_t total = 0, ahead = 0;
        for (int w = 0; w < WARPS; w++) {
            if (w < LOCAL_ID / WARP_SIZE) ahead += totals[w];
            total += totals[w];
        }
        if (FIRST_WARP) {
            const u64 before = look_back(warp, control + at + 1, tile, total);
            if (LOCAL_ID == 0) share[1] = before;
        }
        BARRIER();
        const count_t base = (count_t)share[1];
        UNROLL for (int r = 0; r < ROWS; r++) {
            const i64 b = first + r * ROW;
            count_t sum[4];
            sum[0] = base + ahead + upto[r];
            UNROLL for (int k = 1; k < 4; k++) sum[k] = sum[k - 1] + own[4 * r + k - 1];
#if !COUNT_IS_64
            if (b + 3 < bins) {
                uint4 four;
                four.x = sum[0], four.y = sum[1], four.z = sum[2], four.w = sum[3];
                *(GLOBAL uint4*)(start + b) = four;
                continue;
            }
#endif
            UNROLL for (int k = 0; k < 4; k++)
                if (b + k < bins) start[b + k] = sum[k];
        }
        if (tile == tiles - 1 && LOCAL_ID == 0) start[bins] = base + total;
    }
}
