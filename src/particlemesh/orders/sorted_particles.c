// SPDX-License-Identifier: BSD-3-Clause
// Particles in the order of their blocks: those with zero weight, and stencils from the records.
//
// PACKED: located particles have the form of particles/packed.h, else they are in node and fraction.

#include "orders/blocks.h"

DEVICE int left_out(GLOBAL const int* node, i64 rows, i64 i)
{
#if PACKED
    u32 words[PACKED_WORDS];
    Located located;
    read_quads(words, (GLOBAL const u32*)node + PACKED_WORDS * i, PACKED_WORDS / 4);
    unpack_located(&located, words);
    return !located.taken;
#else
    return node[2 * rows + i] == SKIP;
#endif
}

// Appends particles with zero weight in any order, unless they are in the order already. Copies the status to where
// later positions do not overwrite it.
KERNEL come_last(GLOBAL const u32* RESTRICT start, GLOBAL const int* RESTRICT node, GLOBAL u32* RESTRICT order,
                 GLOBAL const u64* RESTRICT counts, GLOBAL u64* RESTRICT status, GLOBAL u32* RESTRICT left,
                 const i64 count, const i64 rows, const i64 total, const i64 in_order)
{
    const i64 taken = start[total], stop = in_order || taken == count ? 0 : count;
    if (GROUP_ID == 0 && LOCAL_ID < 3) status[LOCAL_ID] = counts[LOCAL_ID];
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < stop; i += GROUP_COUNT * GROUP_SIZE)
        if (left_out(node, rows, i)) order[taken + (i64)ATOMIC_ADD_U32(left, 1)] = (u32)i;
}

// Node and fraction by place.
KERNEL unpack_places(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                        GLOBAL int* RESTRICT node, GLOBAL real* RESTRICT fraction, const i64 count, const i64 rows,
                        const Blocks blocks)
{
    const i64 nx = blocks.counts[0], lines = (i64)blocks.counts[1] * blocks.counts[2], taken = start[lines * nx];
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        if (k >= taken) {
            for (int a = 0; a < 3; a++) node[a * rows + k] = SKIP, fraction[a * rows + k] = 0;
            continue;
        }
        u32 words[RECORD_WORDS];
        Placed placed;
        read_record(records, k, words);
        particle_of(words, &placed);
        i64 low = 0, high = lines; // the record has the block along x, the place gives the line of blocks
        while (high - low > 1) {
            const i64 middle = low + (high - low) / 2;
            if (start[middle * nx] <= k)
                low = middle;
            else
                high = middle;
        }
        const int block[3] = {placed.bx, (int)(low / blocks.counts[2]), (int)(low % blocks.counts[2])};
        for (int a = 0; a < 3; a++) {
            node[a * rows + k] = begin_of(&blocks, a, block[a]) + placed.offset[a];
            fraction[a * rows + k] = placed.fraction[a];
        }
    }
}
