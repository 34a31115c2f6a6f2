// SPDX-License-Identifier: BSD-3-Clause
// Particles by blocks of cells (blocks.h), as records. CELLS_X, CELLS_Y and CELLS_Z are those of a block: known when
// this is compiled, they divide by a multiplication.

#include "binning/blocks.h"
#include "binning/runs.h"

// The block of a particle, its cell within it and its place along x; false for a particle that takes no part.
DEVICE int block_of(GLOBAL const int* node, i64 rows, i64 i, PRIVATE const Blocks* blocks, PRIVATE u32* block,
                    PRIVATE int* offset, PRIVATE int* bx)
{
    const int x = node[i], y = node[rows + i], z = node[2 * rows + i];
    if (z == SKIP) return 0;
    const u32 at[3] = {(u32)(x - blocks->base[0]), (u32)(y - blocks->base[1]), (u32)(z - blocks->base[2])};
    const u32 along[3] = {at[0] / CELLS_X, at[1] / CELLS_Y, at[2] / CELLS_Z};
    offset[0] = (int)(at[0] - along[0] * CELLS_X);
    offset[1] = (int)(at[1] - along[1] * CELLS_Y);
    offset[2] = (int)(at[2] - along[2] * CELLS_Z);
    *bx = (int)along[0];
    *block = (along[1] * (u32)blocks->counts[2] + along[2]) * (u32)blocks->counts[0] + along[0];
    return 1;
}

DEVICE void write_record(GLOBAL u32* records, i64 place, GLOBAL const real* fraction, i64 rows, i64 i,
                         PRIVATE const int* offset, int bx)
{
    const real centred[3] = {fraction[i], fraction[rows + i], fraction[2 * rows + i]};
    pack_record(records + RECORD_WORDS * place, centred, offset, bx, (u32)i);
}

// How many particles are in each block, and which of them each is.
KERNEL count_blocks(GLOBAL const int* RESTRICT node, GLOBAL u32* RESTRICT counts, GLOBAL u32* RESTRICT rank,
                    const i64 count, const i64 rows, const Blocks blocks)
{
    WARP(warp);
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        u32 block = 0;
        int offset[3], bx, takes_part = 0;
        if (i < count) takes_part = block_of(node, rows, i, &blocks, &block, offset, &bx);
        const index_t within = rank_in_bin(warp, counts, takes_part ? (i64)block : (i64)-1);
        if (i < count) rank[i] = (u32)within;
    }
}

KERNEL place_in_blocks(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                       GLOBAL const u32* RESTRICT start, GLOBAL const u32* RESTRICT rank,
                       GLOBAL u32* RESTRICT records, const i64 count, const i64 rows, const Blocks blocks)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        u32 block;
        int offset[3], bx;
        if (!block_of(node, rows, i, &blocks, &block, offset, &bx)) continue;
        write_record(records, (i64)start[block] + rank[i], fraction, rows, i, offset, bx);
    }
}

// The same for the stable order, whose keys are sorted (radix.c): who takes no part goes behind all blocks.
KERNEL block_keys(GLOBAL const int* RESTRICT node, GLOBAL u32* RESTRICT counts, GLOBAL u32* RESTRICT keys,
                  const i64 count, const i64 rows, const i64 total, const Blocks blocks)
{
    WARP(warp);
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = base + LOCAL_ID;
        u32 block = 0;
        int offset[3], bx, takes_part = 0;
        if (i < count) takes_part = block_of(node, rows, i, &blocks, &block, offset, &bx);
        rank_in_bin(warp, counts, takes_part ? (i64)block : (i64)-1);
        if (i < count) keys[i] = takes_part ? block : (u32)total;
    }
}

KERNEL records_in_order(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                        GLOBAL const u32* RESTRICT start, GLOBAL const u32* RESTRICT order,
                        GLOBAL u32* RESTRICT records, const i64 rows, const i64 total, const Blocks blocks)
{
    const i64 taken = start[total];
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < taken; k += GROUP_COUNT * GROUP_SIZE) {
        u32 block;
        int offset[3], bx;
        if (block_of(node, rows, order[k], &blocks, &block, offset, &bx))
            write_record(records, k, fraction, rows, order[k], offset, bx);
    }
}
