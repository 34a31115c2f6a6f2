// SPDX-License-Identifier: BSD-3-Clause
// Tight lists: an entry in each cell that a particle's bounding box touches, one atomic exchange per entry. Heads and
// links hold an entry + 1; 0 ends a list. Entry 8 i + mask is of particle i; a bit of the mask (4, 2, 1 for axes 0, 1,
// 2) is set if the previous cell has the particle as well. bounds: each particle's folded position and its radius,
// negative if it was left out.

// A particle is listed in every cell that its bounding box touches, one or two per axis: `first` and, with its bit set,
// the next. So entries of two particles without a common bit meet in one place only: where the later of the two begins.
// Cells of periodic axes are counted past the ends, from -1 to `size`, and wrap.
//
// Rounding. A particle as wide as a cell may seem to touch three. The third is not listed: a search adds to each
// particle's reach what this and all other rounding may take. Of one cell along a periodic axis every particle has both
// entries; there its first cell follows from the half of the box that it is in.

#include "grid/queries/search.h"

#define WIDER_THAN_A_CELL (1 + 32 * ((coordinate)1 - (coordinate)BELOW_ONE)) // by 16 units of rounding

// The extent of an item along an axis, in fractions of the box.
DEVICE coordinate reach_along(PRIVATE const coordinate* extents, int axis, PRIVATE const Geometry* geometry,
                              PRIVATE const Reach* reach)
{
#if EXTENTS == 3
    coordinate wide = 0;
    for (int b = 0; b < 3; b++) wide += fabs(geometry->inverse[3 * axis + b]) * extents[b];
    return wide;
#else
    return extents[0] * reach->per[axis];
#endif
}

#define STATUS_WIDE 6   // ~(index of the first item wider than a cell)
#define STATUS_WIDEST 7 // bits of the largest extent of such items: half of the cell thickness needed

KERNEL linked_list_tight(ITEMS, GLOBAL u64* RESTRICT status, GLOBAL u32* RESTRICT heads, GLOBAL u32* RESTRICT next,
                         GLOBAL real* RESTRICT bounds, GLOBAL u64* RESTRICT turns, const i64 count ITEM_RECORDS,
                         const Reach reach)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        Item item;
        TAKE_ITEM(status, i);
        const coordinate own[3] = {extent_of(extents, i, 0), extent_of(extents, i, 1), extent_of(extents, i, 2)};
        int size[3], first[3], more[3];
        coordinate needed = 0;
        for (int a = 0; item.bin >= 0 && a < 3; a++) {
            size[a] = cells_of_level(&cells, 0, a);
            const coordinate wide = reach_along(own, a, &geometry, &reach), s = item.s[a];
            int low = 0, high = 0;
            const int few = size[a] <= (frame.periodic[a] ? 0 : 2); // then it cannot touch too many
            if (!few && 2 * wide * (coordinate)size[a] > WIDER_THAN_A_CELL) {
                const coordinate distance = wide / reach.per[a];
                needed = distance > needed ? distance : needed;
            } else if (frame.periodic[a] && size[a] == 1) {
                low = s < (coordinate)0.5 ? -1 : 0;
                high = low + 1;
            } else {
                cells_within(&low, &high, s, wide, size[a], frame.periodic[a]);
                low = low < size[a] ? low : size[a] - 1; // a fraction may be 1
            }
            first[a] = low < 0 ? low + size[a] : low;
            more[a] = high > low;
        }
        if (needed > 0) {
            item.bin = -1;
            record_item(status, BAD_RADIUS, i);
            ATOMIC_MAX_U64(status + STATUS_WIDE, ~(u64)i);
            ATOMIC_MAX_U64(status + STATUS_WIDEST, INDEX_OF_REAL(needed));
        }
        if (item.bin < 0) {
            STORE_4(bounds + 4 * i, 0, 0, 0, -1);
            continue;
        }
        STORE_4(bounds + 4 * i, item.x[0], item.x[1], item.x[2], EXTENTS == 3 ? (coordinate)0 : own[0]);
        turns[i] = packed_turns(item.turns);
        for (int mask = 0; mask < 8; mask++) {
            i64 cell = 0;
            int touched = 1;
            for (int a = 0; a < 3; a++) {
                const int bit = mask >> (2 - a) & 1;
                int along = first[a] + bit;
                if (along == size[a]) along = 0;
                touched = touched && bit <= more[a];
                cell = cell * size[a] + along;
            }
            const i64 entry = 8 * i + mask;
            if (touched) next[entry] = ATOMIC_EXCHANGE_U32(heads + cell, entry + 1);
        }
    }
}
