// SPDX-License-Identifier: BSD-3-Clause
// The tiles that have particles, in parts of at most so many particles: a work-group takes a part. Parts are in any
// order.

#include "orders/block_tiles.h"

KERNEL list_parts(GLOBAL const u32* RESTRICT start,
                  GLOBAL u32* listed,         // how many parts there are; zero before
                  GLOBAL u32* RESTRICT parts, // (parts, 4), written: the tile's first blocks, and the number of the part in it
                  const i64 most, const Blocks blocks, const Tiles tiles)
{
    WARP(warp);
    const i64 total = (i64)tiles.counts[0] * tiles.counts[1] * tiles.counts[2];
    for (i64 base = GROUP_ID * GROUP_SIZE; base < total; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 tile = base + LOCAL_ID;
        u32 size = 0;
        int first[3] = {0, 0, 0};
        if (tile < total) {
            blocks_of_tile(&tiles, (u32)tile, first);
            for (int line = 0; line < tiles.blocks[1] * tiles.blocks[2]; line++) {
                u32 run[2];
                const int y = line / tiles.blocks[2];
                run_of(start, &blocks, &tiles, first, y, line - y * tiles.blocks[2], run);
                size += run[1] - run[0];
            }
        }
        const u32 own = (u32)((size + most - 1) / most);
        u32 sum = own; // of the lanes up to this one
        UNROLL for (int step = 1; step < WARP_SIZE; step *= 2) {
            const u32 before = WARP_SHUFFLE_U32(warp, sum, LANE - step);
            if (LANE >= step) sum += before;
        }
        u32 place = 0;
        if (LANE == WARP_SIZE - 1 && sum) place = ATOMIC_ADD_U32(listed, sum);
        place = WARP_SHUFFLE_U32(warp, place, WARP_SIZE - 1) + sum - own;
        for (u32 part = 0; part < own; part++) {
            GLOBAL u32* own_part = parts + 4 * (i64)(place + part);
            UNROLL for (int a = 0; a < 3; a++) own_part[a] = (u32)first[a];
            own_part[3] = part;
        }
    }
}
