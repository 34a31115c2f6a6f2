// SPDX-License-Identifier: BSD-3-Clause
// Tiles of blocks (blocks.h): boxes of neighbouring blocks. The particles of a tile are a few runs of the order, one for
// each line of blocks along x.

#ifndef BLOCK_TILES_H
#define BLOCK_TILES_H

#include "orders/blocks.h"

typedef struct {
    int blocks[3]; // of a tile
    int counts[3]; // of tiles
} Tiles;

// The first block of a tile along each axis.
DEVICE void blocks_of_tile(PRIVATE const Tiles* tiles, const u32 tile, PRIVATE int* first)
{
    const u32 row = tile / (u32)tiles->counts[2], x = row / (u32)tiles->counts[1];
    first[0] = (int)x * tiles->blocks[0];
    first[1] = (int)(row - x * (u32)tiles->counts[1]) * tiles->blocks[1];
    first[2] = (int)(tile - row * (u32)tiles->counts[2]) * tiles->blocks[2];
}

// The run of line (y, z) of a tile's blocks: its first place, and the place behind it. No line beyond the mesh has any.
DEVICE void run_of(GLOBAL const u32* start, PRIVATE const Blocks* blocks, PRIVATE const Tiles* tiles,
                   PRIVATE const int* first, const int y, const int z, PRIVATE u32* run)
{
    const int by = first[1] + y, bz = first[2] + z;
    const int nx = blocks->counts[0], end = first[0] + tiles->blocks[0];
    run[0] = run[1] = 0;
    if (y < tiles->blocks[1] && by < blocks->counts[1] && bz < blocks->counts[2]) {
        GLOBAL const u32* of_line = start + ((i64)by * blocks->counts[2] + bz) * nx;
        run[0] = of_line[first[0]], run[1] = of_line[end < nx ? end : nx];
    }
}

// A part of a tile's particles: the tile's first blocks, and the part's number in the tile.
typedef struct {
    int first[3];
    u32 number;
} Part;

// The part at place `k` of the list, or the last.
DEVICE void find_part(PRIVATE Part* part, GLOBAL const u32* parts, const i64 k, const i64 all)
{
    u32 words[4];
    read_quads(words, parts + 4 * (k < all ? k : all > 0 ? all - 1 : 0), 1);
    UNROLL for (int a = 0; a < 3; a++) part->first[a] = (int)words[a];
    part->number = words[3];
}

#endif
