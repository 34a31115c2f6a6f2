// SPDX-License-Identifier: BSD-3-Clause
// The block of a particle, and the number of particles per block. CELLS_X, CELLS_Y and CELLS_Z are the cells of a
// block, NARROW_Y and NARROW_Z those of a narrow one: division by compile-time constants is a multiplication.

#include "orders/blocks.h"
#include "sorting/runs.h"

// `work`, as in orders/block_order.py: in a sample of warps, how many additions counted how many particles; whether the
// particles are nearly sorted; per bucket its current end, and its beginning; a count per block.
#define WORK_ADDED 0
#define WORK_TAKEN 1
#define WORK_NEARLY_SORTED 2
#define WORK_ENDS 4
#define WORK_BEGINS (WORK_ENDS + MOST_BUCKETS)
#define WORK_COUNTS (WORK_BEGINS + MOST_BUCKETS + 4)
#define MOST_BUCKETS 2048
#define SAMPLED 64 // one of so many turns of a group

// Blocks before `wide` have `cells` cells, those from there on `narrow`: the block, and the cell within.
DEVICE u32 cut(const u32 at, const u32 cells, const u32 narrow, const int wide, PRIVATE int* offset)
{
    const u32 all = (u32)wide * cells, behind = at < all ? 0 : (at - all) / narrow, block = at / cells;
    *offset = (int)(at < all ? at - block * cells : at - all - behind * narrow);
    return at < all ? block : (u32)wide + behind;
}

DEVICE u32 block_of(PRIVATE const Located* located, PRIVATE const Blocks* blocks, PRIVATE int* offset, PRIVATE int* bx)
{
    u32 block[3];
    block[0] = (u32)located->at[0] / CELLS_X;
    block[1] = cut((u32)located->at[1], CELLS_Y, NARROW_Y, blocks->wide[1], offset + 1);
    block[2] = cut((u32)located->at[2], CELLS_Z, NARROW_Z, blocks->wide[2], offset + 2);
    offset[0] = located->at[0] - (int)block[0] * CELLS_X;
    *bx = (int)block[LINES_ALONG];
    const u32 line = block[LINES_SLOW] * (u32)blocks->counts[LINES_FAST] + block[LINES_FAST];
    return line * (u32)blocks->counts[LINES_ALONG] + block[LINES_ALONG];
}

// Called by the whole warp, `turn` by turn of the group.
DEVICE void count_located(WARP_PARAMETER warp, GLOBAL u32* work, PRIVATE const Located* located,
                          PRIVATE const Blocks* blocks, i64 turn)
{
    int offset[3], bx;
    const i64 block = located->taken ? (i64)block_of(located, blocks, offset, &bx) : (i64)-1;
    const int adds = count_in_bin(warp, work + WORK_COUNTS, block);
    if (turn % SAMPLED == 0) {
        const u32 added = WARP_BALLOT(warp, adds), taken = WARP_BALLOT(warp, located->taken);
        if (LANE == 0) {
            ATOMIC_ADD_U32(work + WORK_ADDED, POPCOUNT_U32(added));
            ATOMIC_ADD_U32(work + WORK_TAKEN, POPCOUNT_U32(taken));
        }
    }
}
