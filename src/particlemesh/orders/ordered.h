// SPDX-License-Identifier: BSD-3-Clause
// Particles in block order, one per LANES neighbouring lanes: those of a group are neighbours, and share nodes in the
// cache.

#include "orders/blocks.h"
#include "orders/lines.h"

// Unpack a record of a line: where the particle's stencil begins, and its fractions. Return its index.
DEVICE i64 particle_in_line(PRIVATE const u32* words, const int line, PRIVATE const Blocks* blocks, PRIVATE int* first,
                            PRIVATE real* fraction)
{
    Placed p;
    particle_of(words, &p);
    int block[3];
    block_in_line(block, line, p.bx, blocks);
    for (int a = 0; a < 3; a++) {
        first[a] = begin_of(blocks, a, block[a]) + p.offset[a];
        fraction[a] = p.fraction[a];
    }
    return p.index;
}

// The particle at place `at` of the order: where its stencil begins, its fractions, and its index. All lanes of a warp
// call it with consecutive places; results without a place (`here` is 0) are undefined.
DEVICE i64 ordered_particle(WARP_PARAMETER warp, GLOBAL const u32* records, GLOBAL const u32* start, const i64 at,
                            const int here, PRIVATE const Blocks* blocks, PRIVATE int* first, PRIVATE real* fraction)
{
    const int nx = blocks->counts[LINES_ALONG], lines = lines_of_blocks(blocks);
    const i64 count = start[(i64)lines * nx], asked = here ? at : count - 1;
    int line = line_of(warp, start, at - LANE / LANES, lines, nx);
    if (WARP_BALLOT(warp, asked >= (i64)start[(i64)(line + 1) * nx]))
        line = lines_of(warp, start, asked, line, lines, nx);
    u32 words[RECORD_WORDS];
    UNROLL for (int k = 0; k < RECORD_WORDS; k++) words[k] = 0;
    if (here) read_record(records, at, words);
    return particle_in_line(words, line, blocks, first, fraction);
}
