// SPDX-License-Identifier: BSD-3-Clause
// The extent of each particle, in cell order, and the largest of each level. EXTENTS: 1 a radius each, 3 half an edge
// per axis. Faults are recorded, and such particles get NaN.

#include "grid/queries/search.h"

#define AXES EXTENTS // axes with extents
#define MOST_CELLS_AWAY 536870912 // 2^29: two of them, and the box between, are fewer than 2^31

// Bits of non-negative numbers have the order of the numbers.
DEVICE u64 ordered_bits(coordinate extent)
{
    return (u64)INDEX_OF_REAL(extent);
}

KERNEL gather_reaches(SYSTEM_ARRAYS GLOBAL const real* RESTRICT records, GLOBAL const u32* RESTRICT start,
                      GLOBAL const end_t* RESTRICT ends, GLOBAL const coordinate* RESTRICT extents,
                      GLOBAL coordinate* RESTRICT reaches, GLOBAL u64* largest, GLOBAL u64* found, const i64 count,
                      const i64 bins, BOX_RECORDS)
{
    WARP(warp);
    const i64 taken = start[bins];
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 slot = base + LOCAL_ID;
        int level = 0;
        u64 bits[3] = {0, 0, 0};
        if (slot < taken) {
            IN_SYSTEM_OF_PARTICLE(slot)
            const i64 i = INDEX_OF_REAL(records[4 * slot + 3]);
            coordinate own[3];
            int good = 1;
            for (int a = 0; a < AXES; a++) {
                own[a] = extent_of(extents, i, a);
                good = good && holds_squares(own[a], AXES == 1);
            }
            // Cells along a periodic axis are counted in integers, image after image.
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < AXES; b++)
                    if (frame.periodic[a])
                        good = good && own[b] * reach.per[a] * (coordinate)cells.size[a] < (coordinate)MOST_CELLS_AWAY;
            if (!good) record_item(found, BAD_RADIUS, i);
            for (int a = 0; a < AXES; a++) {
                if (good) bits[a] = ordered_bits(own[a]);
                else own[a] = REAL_FROM_BITS_U32(0x7fc00000u);
#if AXES == 1
                reaches[slot] = own[a];
#else
                reaches[4 * slot + a] = own[a];
#endif
            }
            while (level + 1 < cells.levels && slot >= BEGIN_OF(CELLS_BEFORE + first_of_level(&cells, level + 1))) level++;
        }
        // Neighbours mostly have one level: one lane writes for the warp.
        const int level_of_first = (int)WARP_SHUFFLE_U32(warp, level, 0);
        const u32 others = WARP_BALLOT(warp, slot < taken && level != level_of_first);
        for (int a = 0; a < AXES; a++) {
            u64 most = bits[a];
            for (int step = WARP_SIZE / 2; step > 0; step /= 2) {
                const u64 theirs = WARP_SHUFFLE_U64(warp, most, LANE ^ step);
                most = theirs > most ? theirs : most;
            }
            const u64 mine = others ? bits[a] : most;
            if (slot < taken && (others || LANE == 0) && mine > PEEK_U64(largest + 3 * level + a))
                ATOMIC_MAX_U64(largest + 3 * level + a, mine);
        }
    }
}
