// SPDX-License-Identifier: BSD-3-Clause
// A located particle, and its packed form of 16 bytes (float64: 32), in the caller's order.

#ifndef PACKED_H
#define PACKED_H

// A centred fraction in memory. In float32 it is a multiple of 2^-24 in every form of storage, so that results do not
// depend on the form. Positions in a box are not more precise.
#if REAL_IS_DOUBLE
typedef real kept_t;
#define KEPT(fraction) (fraction)
#define CENTRED(kept) (kept)
#else
typedef u32 kept_t; // fraction + 1/2 in units of 2^-24
#define KEPT(fraction) kept_fraction(fraction)
#define CENTRED(kept) ((real)((int)(kept) - 8388608) * (real)5.9604644775390625e-8)
// Rounded once: the product is exact, and the sum has 24 bits.
DEVICE kept_t kept_fraction(real fraction)
{
    const real scaled = rint(fraction * (real)16777216 + (real)8388608);
    return scaled < (real)16777215 ? (u32)scaled : (u32)16777215;
}
#endif

typedef struct {
    int at[3]; // first node of the stencil, counted from the lowest possible one, for z from an even one
    kept_t fraction[3];
    int taken; // whether the particle has weight
} Located;

#if REAL_IS_DOUBLE
#define PACKED_WORDS 8
#define AXIS_BITS 21 // of a node
#else
#define PACKED_WORDS 4
#define AXIS_BITS 18
#endif
#define AXIS_MASK ((1 << AXIS_BITS) - 1)

// Writes and reads 32-bit words, 16 bytes at a time.
DEVICE void write_quads(GLOBAL u32* to, PRIVATE const u32* words, const int quads)
{
    UNROLL for (int q = 0; q < quads; q++) {
        uint4 quad;
        quad.x = words[4 * q], quad.y = words[4 * q + 1], quad.z = words[4 * q + 2], quad.w = words[4 * q + 3];
        ((GLOBAL uint4*)to)[q] = quad;
    }
}

DEVICE void read_quads(PRIVATE u32* words, GLOBAL const u32* from, const int quads)
{
    UNROLL for (int q = 0; q < quads; q++) {
        const uint4 quad = ((GLOBAL const uint4*)from)[q];
        words[4 * q] = quad.x, words[4 * q + 1] = quad.y, words[4 * q + 2] = quad.z, words[4 * q + 3] = quad.w;
    }
}

#if REAL_IS_DOUBLE
// Three fractions, then the nodes from bit 0 on; the last bit is set if the particle has zero weight.
DEVICE void fraction_words(PRIVATE u32* words, PRIVATE const kept_t* fraction)
{
    for (int a = 0; a < 3; a++) {
        const u64 bits = (u64)INDEX_OF_REAL(fraction[a]);
        words[2 * a] = (u32)bits, words[2 * a + 1] = (u32)(bits >> 32);
    }
}

DEVICE void fractions_of(PRIVATE kept_t* fraction, PRIVATE const u32* words)
{
    for (int a = 0; a < 3; a++)
        fraction[a] = REAL_FROM_INDEX((i64)((u64)words[2 * a + 1] << 32 | words[2 * a]));
}

DEVICE void pack_located(PRIVATE u32* words, PRIVATE const Located* located)
{
    PRIVATE const int* at = located->at;
    const u64 nodes = (u64)at[0] | (u64)at[1] << AXIS_BITS | (u64)at[2] << 2 * AXIS_BITS | (u64)!located->taken << 63;
    fraction_words(words, located->fraction);
    words[6] = (u32)nodes, words[7] = (u32)(nodes >> 32);
}

DEVICE void unpack_located(PRIVATE Located* located, PRIVATE const u32* words)
{
    const u64 nodes = (u64)words[7] << 32 | words[6];
    fractions_of(located->fraction, words);
    for (int a = 0; a < 3; a++) located->at[a] = (int)(nodes >> a * AXIS_BITS) & AXIS_MASK;
    located->taken = !(nodes >> 63);
}
#else
// Words 0 to 2: a fraction, and 8 bits below it. Those of word 0: the highest four of y, the highest two of z, and a
// last bit that is set if the particle has zero weight. Word 1: the lowest of z. Word 2: the next of z.
// Word 3: x, and the lowest 14 bits of y.
DEVICE void pack_located(PRIVATE u32* words, PRIVATE const Located* located)
{
    const u32 x = (u32)located->at[0], y = (u32)located->at[1], z = (u32)located->at[2];
    words[0] = located->fraction[0] << 8 | y >> 14 | z >> 16 << 4 | (u32)!located->taken << 7;
    words[1] = located->fraction[1] << 8 | (z & 255);
    words[2] = located->fraction[2] << 8 | (z >> 8 & 255);
    words[3] = x | y << AXIS_BITS;
}

DEVICE void unpack_located(PRIVATE Located* located, PRIVATE const u32* words)
{
    for (int a = 0; a < 3; a++) located->fraction[a] = words[a] >> 8;
    located->at[0] = (int)(words[3] & AXIS_MASK);
    located->at[1] = (int)(words[3] >> AXIS_BITS | (words[0] & 15) << 14);
    located->at[2] = (int)((words[1] & 255) | (words[2] & 255) << 8 | (words[0] >> 4 & 3) << 16);
    located->taken = !(words[0] & 128);
}
#endif

#ifdef PACKED
// Particle i, of packed ones in the place of `node`, or of node and fraction; nodes are counted from `base`.
DEVICE void read_located(PRIVATE Located* located, GLOBAL const int* node, GLOBAL const real* fraction, i64 rows,
                         i64 i, PRIVATE const int* base)
{
#if PACKED
    u32 words[PACKED_WORDS];
    read_quads(words, (GLOBAL const u32*)node + PACKED_WORDS * i, PACKED_WORDS / 4);
    unpack_located(located, words);
#else
    located->taken = node[2 * rows + i] != SKIP;
    for (int a = 0; a < 3; a++) {
        located->at[a] = node[a * rows + i] - base[a];
        located->fraction[a] = KEPT(fraction[a * rows + i]);
    }
#endif
}
#endif

#endif
