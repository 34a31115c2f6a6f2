// SPDX-License-Identifier: BSD-3-Clause
// Blocks of cells, and records of the particles in them. A cell is a node at which stencils may begin. All stencils of
// a block reach into one patch of the mesh, so a warp can hold the patch while it processes the block. Where blocks do
// not divide the mesh, several are narrow, instead of the last one alone: it would have few particles.
//
// Blocks of a line along x are neighbours: block (bx, by, bz) is number (by * counts[2] + bz) * counts[0] + bx, the order
// of a walk. LINES_ALONG is another axis where that keeps particles that are read at a time closer in memory.

#ifndef BLOCKS_H
#define BLOCKS_H

#include "particles/packed.h"

#ifndef LINES_ALONG
#define LINES_ALONG 0
#endif
#define LINES_SLOW (LINES_ALONG == 0 ? 1 : 0) // a line's place along this axis, times the blocks along the next one, and
#define LINES_FAST (LINES_ALONG == 2 ? 1 : 2) // its place along that

typedef struct {
    int base[3];   // where the first block begins
    int cells[3];  // of a wide block
    int counts[3]; // of blocks
    int wide[3];   // the number of wide blocks; those after them are narrow
    int narrow[3]; // of a narrow block
} Blocks;

// The first node of a block along an axis.
DEVICE int begin_of(PRIVATE const Blocks* blocks, const int axis, const int block)
{
    const int wide = block < blocks->wide[axis] ? block : blocks->wide[axis];
    return blocks->base[axis] + wide * blocks->cells[axis] + (block - wide) * blocks->narrow[axis];
}

DEVICE int lines_of_blocks(PRIVATE const Blocks* blocks)
{
    return blocks->counts[LINES_SLOW] * blocks->counts[LINES_FAST];
}

// The place of a block: the `along`th of a line.
DEVICE void block_in_line(PRIVATE int* block, const int line, const int along, PRIVATE const Blocks* blocks)
{
    const int slow = (int)((u32)line / (u32)blocks->counts[LINES_FAST]);
    block[LINES_ALONG] = along, block[LINES_SLOW] = slow, block[LINES_FAST] = line - slow * blocks->counts[LINES_FAST];
}

// A particle's centred fractions, its cell within the block, the block's place in its line, and the particle's index.
typedef struct {
    real fraction[3];
    int offset[3];
    int bx;
    u32 index;
} Placed;

// A record has 3 bits for the cell along x and y, 4 along z, and BX_BITS for the block's place in its line (bx).
#define BX_BITS 14
#if REAL_IS_DOUBLE
// Three fractions unpacked; offsets and bx from bit 0 on; the index.
#define RECORD_WORDS 8

DEVICE void record_of(PRIVATE u32* words, PRIVATE const kept_t* fraction, PRIVATE const int* offset, int bx, u32 index)
{
    fraction_words(words, fraction);
    words[6] = (u32)offset[0] | (u32)offset[1] << 3 | (u32)offset[2] << 6 | (u32)bx << 10;
    words[7] = index;
}

DEVICE int bx_of(PRIVATE const u32* words)
{
    return (int)(words[6] >> 10);
}

DEVICE void set_bx(PRIVATE u32* words, int bx)
{
    words[6] = (words[6] & 1023) | (u32)bx << 10;
}

DEVICE void particle_of(PRIVATE const u32* words, PRIVATE Placed* placed)
{
    fractions_of(placed->fraction, words);
    placed->offset[0] = (int)(words[6] & 7);
    placed->offset[1] = (int)(words[6] >> 3 & 7);
    placed->offset[2] = (int)(words[6] >> 6 & 15);
    placed->bx = bx_of(words);
    placed->index = words[7];
}
#else
// Words 0 to 2: fraction + 1/2 in units of 2^-24, and below it 8 bits: in word 0 offsets 0 and 1 and the two highest
// bits of bx; in word 1 offset 2 and the next four; in word 2 the other bits of bx. Word 3: the index.
#define RECORD_WORDS 4

DEVICE void record_of(PRIVATE u32* words, PRIVATE const kept_t* fraction, PRIVATE const int* offset, int bx, u32 index)
{
    words[0] = fraction[0] << 8 | (u32)offset[0] | (u32)offset[1] << 3 | (u32)(bx >> 12) << 6;
    words[1] = fraction[1] << 8 | (u32)offset[2] | (u32)(bx >> 8 & 15) << 4;
    words[2] = fraction[2] << 8 | (u32)(bx & 255);
    words[3] = index;
}

DEVICE int bx_of(PRIVATE const u32* words)
{
    return (int)((words[0] >> 6 & 3) << 12 | (words[1] >> 4 & 15) << 8 | (words[2] & 255));
}

DEVICE void set_bx(PRIVATE u32* words, int bx)
{
    words[0] = (words[0] & ~(3u << 6)) | (u32)(bx >> 12) << 6;
    words[1] = (words[1] & ~(15u << 4)) | (u32)(bx >> 8 & 15) << 4;
    words[2] = (words[2] & ~255u) | (u32)(bx & 255);
}

DEVICE void particle_of(PRIVATE const u32* words, PRIVATE Placed* placed)
{
    for (int a = 0; a < 3; a++) placed->fraction[a] = CENTRED(words[a] >> 8);
    placed->offset[0] = (int)(words[0] & 7);
    placed->offset[1] = (int)(words[0] >> 3 & 7);
    placed->offset[2] = (int)(words[1] & 15);
    placed->bx = bx_of(words);
    placed->index = words[3];
}
#endif

// The record of a place, unpacked later: its load may then be far ahead.
DEVICE void read_record(GLOBAL const u32* records, i64 place, PRIVATE u32* words)
{
    read_quads(words, records + RECORD_WORDS * place, RECORD_WORDS / 4);
}

#endif
