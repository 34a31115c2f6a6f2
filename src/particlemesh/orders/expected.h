// SPDX-License-Identifier: BSD-3-Clause
// Particles in block order, as ordered.h returns them, in less time where they are spread evenly: the line of a place is
// looked for where it is expected, and all loads are independent.

#include "orders/ordered.h"

typedef struct {
    real each; // lines per particle
} Even;

// The particle at place `at`: where its stencil begins, its fractions, and its index. All lanes of a warp call it with
// consecutive places; LANES of them share one. `here` becomes 0 at places without a particle, whose results are
// undefined. There are `count` in order, and memory for the records of `particles`: those behind are read, not used.
DEVICE i64 expected_particle(WARP_PARAMETER warp, GLOBAL const u32* records, GLOBAL const u32* start, const i64 at,
                             const i64 particles, const u32 count, PRIVATE const Even* even, PRIVATE const Blocks* blocks,
                             PRIVATE int* here, PRIVATE int* first, PRIVATE real* fraction)
{
    const int nx = blocks->counts[LINES_ALONG], lines = lines_of_blocks(blocks);
    u32 words[RECORD_WORDS];
    UNROLL for (int k = 0; k < RECORD_WORDS; k++) words[k] = 0;
    if (at < particles) read_record(records, at, words);
    const i64 begin = at - LANE / LANES; // of the warp
    const int guess = (int)((real)(u32)begin * even->each) - WARP_SIZE / 4, most = lines - WARP_SIZE;
    const int low = guess < most ? guess : most, from = low < 0 ? 0 : low;
    const u32 begins = start[(i64)(from + LANE < lines ? from + LANE : lines) * nx];
    *here = at < count;
    const u32 asked = *here ? (u32)at : count - 1, earliest = begin < count ? (u32)begin : count - 1;
    const u32 before = WARP_BALLOT(warp, begins <= earliest);
    const int passed = POPCOUNT_U32(before);
    int line = from + passed - 1;
    u32 end = WARP_SHUFFLE_U32(warp, begins, passed % WARP_SIZE); // of the line
    if (passed == 0 || passed == WARP_SIZE) line = line_of(warp, start, earliest, lines, nx), end = 0;
    if (WARP_BALLOT(warp, asked >= end)) line = lines_of(warp, start, asked, line, lines, nx);
    return particle_in_line(words, line, blocks, first, fraction);
}
