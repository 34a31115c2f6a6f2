// SPDX-License-Identifier: BSD-3-Clause
// Cells in blocks, and particles in domain copies. A copy has one place per cell: block after block, in a block cell
// after cell, z fastest. The i-th particle of a cell is in copy i; a place without one is a dummy particle. A group
// takes GROUP_SIZE cells of a block at a time, a chunk. Chunks are filled up with cells past the block's end along x,
// which are always empty.

#include "particles/lattice.h"

typedef struct {
    int cells[3];  // of a block
    int blocks[3];
    int room[3];   // nodes of an extended block in memory: all that its cells reach, including those past its end
    int chunks;    // of a block
    int copies;    // that there is memory for; deeper particles are found through node order
} Blocks;

DEVICE i64 blocks_in_all(PRIVATE const Blocks* b)
{
    return (i64)b->blocks[0] * b->blocks[1] * b->blocks[2];
}

// Places of one copy.
DEVICE i64 places_of(PRIVATE const Blocks* b)
{
    return blocks_in_all(b) * b->chunks * GROUP_SIZE;
}

typedef struct {
    i64 first; // place of its first particle in node order
    int count;
} Cell;

// The particles of this work-item's cell of a chunk.
DEVICE Cell cell_of(i64 chunk, GLOBAL const u32* start, PRIVATE const Lattice* lattice, PRIVATE const Blocks* b)
{
    int block[3], at[3];
    const i64 n = chunk / b->chunks;
    coordinates_of(n, b->blocks, block);
    coordinates_of((chunk - n * b->chunks) * GROUP_SIZE + LOCAL_ID, b->cells, at);
    int inside = at[0] < b->cells[0];
    for (int a = 0; a < 3; a++) {
        at[a] += block[a] * b->cells[a];
        inside = inside && at[a] < lattice->extent[a];
    }
    Cell cell;
    cell.first = 0, cell.count = 0;
    if (inside) {
        const i64 k = cell_at(lattice, at[0], at[1], at[2]);
        cell.first = start[k];
        cell.count = (int)(start[k + 1] - start[k]);
    }
    return cell;
}

// The place of a particle's cell in each copy.
DEVICE i64 place_of(PRIVATE const int* at, PRIVATE const Blocks* b)
{
    int block[3], within[3];
    for (int a = 0; a < 3; a++) {
        block[a] = at[a] / b->cells[a];
        within[a] = at[a] - block[a] * b->cells[a];
    }
    const i64 n = ((i64)block[0] * b->blocks[1] + block[1]) * b->blocks[2] + block[2];
    return n * b->chunks * GROUP_SIZE + ((i64)within[0] * b->cells[1] + within[1]) * b->cells[2] + within[2];
}

DEVICE int at_most(u32 count, int most)
{
    return count < (u32)most ? (int)count : most;
}

#ifdef SUPPORT
#define COMPONENTS (CHANNELS * PARTS)
#define FIRST_AXIS (3 - SUPPORT_AXES)

// The field on an extended block, in local memory if it fits (WITHIN), else in global memory.
#if WITHIN
#define SUMS LOCAL
#define POOL WITH_LOCAL_POOL
#else
#define SUMS GLOBAL
#define POOL
#endif

DEVICE int room_of(PRIVATE const Blocks* b)
{
    return b->room[0] * b->room[1] * b->room[2];
}

// The node of an extended block at which stencils of this work-item's cell begin.
DEVICE int corner_of(int chunk, PRIVATE const Blocks* b)
{
    int at[3];
    coordinates_of((i64)chunk * GROUP_SIZE + LOCAL_ID, b->cells, at);
    return (at[0] * b->room[1] + at[1]) * b->room[2] + at[2];
}
#endif
