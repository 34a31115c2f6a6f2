// SPDX-License-Identifier: BSD-3-Clause
// Positions in domain copies: the fullest cell of each chunk, and each particle's fractions at its place.

#include "orders/domain_copies.h"

KERNEL copies_place(GLOBAL const u32* RESTRICT start, GLOBAL const real* RESTRICT fraction, // (3, rows), node order
                    GLOBAL u32* RESTRICT fullest,   // (blocks, chunks)
                    GLOBAL real* RESTRICT position, // (axes, copies, places)
                    const i64 rows, const i64 axes, const Lattice lattice, const Blocks blocks)
{
    LOCAL_ARRAY(int, counts, GROUP_SIZE);
    const i64 places = places_of(&blocks), chunks = blocks_in_all(&blocks) * blocks.chunks;
    for (i64 chunk = GROUP_ID; chunk < chunks; chunk += GROUP_COUNT) {
        const Cell cell = cell_of(chunk, start, &lattice, &blocks);
        counts[LOCAL_ID] = cell.count;
        BARRIER();
        for (int step = GROUP_SIZE / 2; step > 0; step /= 2) {
            const int mine = counts[LOCAL_ID], other = counts[LOCAL_ID ^ step];
            BARRIER();
            counts[LOCAL_ID] = mine > other ? mine : other;
            BARRIER();
        }
        const int most = counts[LOCAL_ID];
        if (LOCAL_ID == 0) fullest[chunk] = (u32)most;
        for (int i = 0; i < (most < blocks.copies ? most : blocks.copies); i++)
            for (int a = 0; a < (int)axes; a++) {
                const i64 k = (3 - axes + a) * rows + cell.first + i;
                position[(a * blocks.copies + i) * places + chunk * GROUP_SIZE + LOCAL_ID] =
                    i < cell.count ? fraction[k] : 0; // a dummy's weights must be finite
            }
    }
}
