// SPDX-License-Identifier: BSD-3-Clause
// Overlaps from tight lists, each pair once. A work-item takes a particle i through the lists of the cells that it
// touches. LISTS 0: the number of each particle's pairs with larger indices; images of itself count in the forward half
// of directions; 1: the pairs themselves, from `place` on. BOXES: items are boxes; HALF_EDGES: with three half edges
// each. faults[count + 1]: ~i of the first particle i whose extent the type cannot search with, or 0. WANT_I, WANT_J, WANT_SHIFT, WANT_DISTANCE, WANT_VECTOR: the outputs.

#include "grid/builders/tight.h"

// The extent of particle i: a radius, or half edges.
DEVICE void own_extents(PRIVATE coordinate* own, GLOBAL const real* extents, coordinate radius, i64 i)
{
    for (int a = 0; a < 3; a++) {
#if HALF_EDGES
        own[a] = extents[3 * i + a];
#else
        own[a] = radius;
#endif
    }
}

DEVICE int overlap(PRIVATE const coordinate* d, PRIVATE const coordinate* mine, PRIVATE const coordinate* other)
{
#if BOXES
    return fabs(d[0]) <= mine[0] + other[0] && fabs(d[1]) <= mine[1] + other[1] && fabs(d[2]) <= mine[2] + other[2];
#else
    return is_within(SQUARED(d), mine[0] + other[0]);
#endif
}

// The image of a particle that an entry stands for, seen in cell `along + turn size`, in the list of cell `along`.
DEVICE int image_of_entry(int turn, int along, int bit, int size, int axis, const real4 there,
                          PRIVATE const Geometry* geometry)
{
    if (along != (bit ? 0 : size - 1)) return turn;
    coordinate s = 0;
    s += geometry->inverse[3 * axis] * (there.x - geometry->origin[0]);
    s += geometry->inverse[3 * axis + 1] * (there.y - geometry->origin[1]);
    s += geometry->inverse[3 * axis + 2] * (there.z - geometry->origin[2]);
    const int before = begins_before(s, size);
    return bit ? turn - !before : turn + before; // that cell lies past the box, or before it
}

KERNEL overlaps(GLOBAL const u32* RESTRICT heads, GLOBAL const u32* RESTRICT next, GLOBAL const real* RESTRICT bounds,
                GLOBAL const real* RESTRICT extents, GLOBAL const u64* RESTRICT turns,
                GLOBAL const u64* RESTRICT status, GLOBAL u64* RESTRICT place, GLOBAL int* RESTRICT out_i,
                GLOBAL int* RESTRICT out_j, GLOBAL int* RESTRICT out_shift, GLOBAL real* RESTRICT out_distance,
                GLOBAL real* RESTRICT out_vector, GLOBAL u64* RESTRICT faults, const i64 count, const Geometry geometry, const Frame frame,
                const Cells cells, const Reach reach)
{
    const int axes = 3 - frame.missing;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
#if LISTS
        i64 at = (i64)place[i];
        if ((i64)place[i + 1] == at) continue;
#else
        u64 found = 0;
#endif
        const real4 here = READ_4(bounds + 4 * i);
        if (here.w >= 0) { // not left out
            const coordinate x[3] = {here.x, here.y, here.z};
            coordinate s[3], mine[3];
            int size[3], low[3], high[3], turn[3], along[3];
            own_extents(mine, extents, here.w, i);
#if !LISTS
            for (int a = 0; a < 3; a++)
                if (!holds_squares(mine[a], !BOXES)) ATOMIC_MAX_U64(faults + count + 1, ~(u64)i);
#endif
            fractions(s, x, &geometry);
            for (int a = 0; a < 3; a++) {
                size[a] = cells_of_level(&cells, 0, a);
                const coordinate wide = reach_along(mine, a, &geometry, &reach) + SEARCH_MARGINS * reach.margin[a];
                cells_within(low + a, high + a, s[a], wide, size[a], frame.periodic[a]);
            }
            for (int c0 = low[0]; c0 <= high[0]; c0++) {
                turn[0] = floor_div(c0, size[0]), along[0] = c0 - turn[0] * size[0];
                for (int c1 = low[1]; c1 <= high[1]; c1++) {
                    turn[1] = floor_div(c1, size[1]), along[1] = c1 - turn[1] * size[1];
                    for (int c2 = low[2]; c2 <= high[2]; c2++) {
                        turn[2] = floor_div(c2, size[2]), along[2] = c2 - turn[2] * size[2];
                        const u32 mask = 4 * (c0 != low[0]) + 2 * (c1 != low[1]) + (c2 != low[2]);
                        const i64 cell = ((i64)along[0] * size[1] + along[1]) * size[2] + along[2];
                        for (u32 link = heads[cell]; link; link = next[link - 1]) {
                            const u32 entry = link - 1;
                            const i64 j = entry >> 3;
                            if ((entry & mask) || j < i) continue;
                            const real4 there = READ_4(bounds + 4 * j);
                            int image[3] = {0, 0, 0};
                            for (int a = 0; a < 3; a++)
                                if (frame.periodic[a])
                                    image[a] = image_of_entry(turn[a], along[a], entry >> (2 - a) & 1, size[a], a,
                                                              there, &geometry);
                            if (j == i && !turns_forward(image)) continue;
                            coordinate shift[3], other[3], d[3];
                            image_shift(shift, image, &geometry);
                            own_extents(other, extents, there.w, j);
                            VECTOR(d, there, x, shift);
                            if (!overlap(d, mine, other)) continue;
#if LISTS
#if WANT_I
                            out_i[at] = (int)i;
#endif
#if WANT_J
                            out_j[at] = (int)j;
#endif
#if WANT_SHIFT
                            for (int a = frame.missing; a < 3; a++) {
                                int given = image[a]; // of the given positions
                                if (status[STATUS_FOLDED]) given += turn_of(turns[i], a) - turn_of(turns[j], a);
                                out_shift[at * axes + a - frame.missing] = given;
                            }
#endif
#if WANT_DISTANCE
                            out_distance[at] = sqrt(SQUARED(d));
#endif
#if WANT_VECTOR
                            for (int a = frame.missing; a < 3; a++) out_vector[at * axes + a - frame.missing] = d[a];
#endif
                            at++;
#else
                            found++;
#endif
                        }
                    }
                }
            }
        }
#if !LISTS
        place[i] = found;
#endif
    }
}
