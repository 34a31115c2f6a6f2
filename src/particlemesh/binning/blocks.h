// SPDX-License-Identifier: BSD-3-Clause
// Blocks of cells, a cell being a node that stencils may begin at, and records of the particles in them. All stencils
// of a block reach into one window of the mesh, so that a warp can hold the window while it goes through the block.
//
// Block (bx, by, bz) is number (by * counts[2] + bz) * counts[0] + bx: in this order one walks along x.

#ifndef BLOCKS_H
#define BLOCKS_H

typedef struct {
    int base[3];   // where the first block begins
    int cells[3];  // of a block
    int counts[3]; // of blocks
} Blocks;

// A particle's centred fractions, its cell within the block, the block's place along x, and which particle it is.
typedef struct {
    real fraction[3];
    int offset[3];
    int bx;
    u32 index;
} Placed;

// Bits of a record for the cell within a block: 3 along x and y, 4 along z.
#if REAL_IS_DOUBLE
// Three fractions as they are; offsets and bx from bit 0 on; the index.
#define RECORD_WORDS 8
#else
// Words 0 to 2: fraction + 1/2 in units of 2^-24, and below it, in 8 bits: both offsets of the first and second axis and
// the two highest bits of bx; that of the third and the next four; the others. Word 3: the index.
#define RECORD_WORDS 4
#endif

#if REAL_IS_DOUBLE
DEVICE void pack_record(GLOBAL u32* to, PRIVATE const real* fraction, PRIVATE const int* offset, int bx, u32 index)
{
    const u32 place = (u32)offset[0] | (u32)offset[1] << 3 | (u32)offset[2] << 6 | (u32)bx << 10;
    const u64 last = (u64)index << 32 | place;
    STORE_4((GLOBAL real*)to, fraction[0], fraction[1], fraction[2], REAL_FROM_INDEX((i64)last));
}

DEVICE void particle_of(PRIVATE const u32* words, PRIVATE Placed* placed)
{
    for (int a = 0; a < 3; a++)
        placed->fraction[a] = REAL_FROM_INDEX((i64)((u64)words[2 * a + 1] << 32 | words[2 * a]));
    placed->offset[0] = (int)(words[6] & 7);
    placed->offset[1] = (int)(words[6] >> 3 & 7);
    placed->offset[2] = (int)(words[6] >> 6 & 15);
    placed->bx = (int)(words[6] >> 10);
    placed->index = words[7];
}
#else
// Rounded once: the product is exact, and the sum has 24 bits.
DEVICE u32 fixed_fraction(real fraction)
{
    const real scaled = rint(fraction * (real)16777216 + (real)8388608);
    return scaled < (real)16777215 ? (u32)scaled : (u32)16777215;
}

DEVICE void pack_record(GLOBAL u32* to, PRIVATE const real* fraction, PRIVATE const int* offset, int bx, u32 index)
{
    uint4 words;
    words.x = fixed_fraction(fraction[0]) << 8 | (u32)offset[0] | (u32)offset[1] << 3 | (u32)(bx >> 12) << 6;
    words.y = fixed_fraction(fraction[1]) << 8 | (u32)offset[2] | (u32)(bx >> 8 & 15) << 4;
    words.z = fixed_fraction(fraction[2]) << 8 | (u32)(bx & 255);
    words.w = index;
    *(GLOBAL uint4*)to = words;
}

DEVICE void particle_of(PRIVATE const u32* words, PRIVATE Placed* placed)
{
    for (int a = 0; a < 3; a++)
        placed->fraction[a] = (real)((int)(words[a] >> 8) - 8388608) * (real)5.9604644775390625e-8;
    placed->offset[0] = (int)(words[0] & 7);
    placed->offset[1] = (int)(words[0] >> 3 & 7);
    placed->offset[2] = (int)(words[1] & 15);
    placed->bx = (int)((words[0] >> 6 & 3) << 12 | (words[1] >> 4 & 15) << 8 | (words[2] & 255));
    placed->index = words[3];
}
#endif

// The record of a place, to be taken apart later: its load may then be far ahead.
DEVICE void read_record(GLOBAL const u32* records, i64 place, PRIVATE u32* words)
{
    GLOBAL const uint4* quads = (GLOBAL const uint4*)(records + RECORD_WORDS * place);
    UNROLL for (int q = 0; q < RECORD_WORDS / 4; q++) {
        const uint4 quad = quads[q];
        words[4 * q] = quad.x, words[4 * q + 1] = quad.y, words[4 * q + 2] = quad.z, words[4 * q + 3] = quad.w;
    }
}

#endif
