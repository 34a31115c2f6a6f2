// SPDX-License-Identifier: BSD-3-Clause
// A group per block of cells, a work-item per cell, as in spreading: each gathers for its particles from the nodes of
// the extended block, without barriers. VALUE and GRADIENT select the results; one pass gives both.

#include "orders/domain_copies.h"

#define SLOPES (GRADIENT ? SUPPORT_AXES : 0)
#define RESULTS (VALUE + SLOPES) // per component

// Nodes of the field to all extended blocks that contain them; zero where there is no node.
KERNEL copies_extend(GLOBAL const real* RESTRICT field, GLOBAL real* RESTRICT extended, const Lattice lattice,
                     const Blocks blocks, const Field layout)
{
    const i64 count = blocks_in_all(&blocks);
    const int room = room_of(&blocks);
    for (i64 k = GROUP_ID; k < count; k += GROUP_COUNT) {
        int block[3], at[3];
        coordinates_of(k, blocks.blocks, block);
        for (int n = LOCAL_ID; n < room; n += GROUP_SIZE) {
            coordinates_of(n, blocks.room, at);
            i64 from = layout.offset;
            int there = 1;
            for (int a = 0; a < 3; a++) {
                const int first = lattice.low[a] + block[a] * blocks.cells[a];
                const int node = place(first + at[a], layout.size[a], layout.wraps[a]);
                there = there && node >= 0;
                from += node * layout.stride[a];
            }
            UNROLL for (int c = 0; c < COMPONENTS; c++)
                extended[(c * count + k) * room + n] =
                    there ? field[from + c / PARTS * layout.channel + c % PARTS] : 0;
        }
    }
}

// A particle's results to the caller's array.
DEVICE void hand_over(PRIVATE const real* found, GLOBAL real* values, GLOBAL real* gradient, i64 i,
                      PRIVATE const Values* value_layout, PRIVATE const Values* gradient_layout)
{
    UNROLL for (int c = 0; c < COMPONENTS; c++) {
        const int channel = c / PARTS, part = c % PARTS;
#if VALUE
        values[number_at(value_layout, i, channel, part)] = found[c * RESULTS];
#endif
        UNROLL for (int b = 0; b < SLOPES; b++)
            gradient[number_at(gradient_layout, i, channel, part) + b * gradient_layout->axis] =
                found[c * RESULTS + VALUE + b];
    }
}

KERNEL copies_interpolate(GLOBAL const real* RESTRICT position, GLOBAL const real* RESTRICT extended,
                          GLOBAL real* RESTRICT result, // (components, results, copies, places), written
                          GLOBAL const u32* RESTRICT fullest, GLOBAL const u32* RESTRICT start,
                          GLOBAL const int* RESTRICT order, GLOBAL const real* RESTRICT fraction,
                          GLOBAL real* RESTRICT values, GLOBAL real* RESTRICT gradient, const i64 rows,
                          const Lattice lattice, const Blocks blocks, const Values value_layout,
                          const Values gradient_layout, const Window window, const Jacobian jacobian POOL)
{
#if WITHIN
    LOCAL_POOL(real, nodes);
#endif
    const i64 places = places_of(&blocks), count = blocks_in_all(&blocks), copies = blocks.copies * places;
    const int room = room_of(&blocks);
    for (i64 block = GROUP_ID; block < count; block += GROUP_COUNT) {
#if WITHIN
        const int plane = room;
        for (int c = 0; c < COMPONENTS; c++)
            for (int n = LOCAL_ID; n < room; n += GROUP_SIZE)
                nodes[c * plane + n] = extended[(c * count + block) * room + n];
        BARRIER();
#else
        const i64 plane = count * room;
        GLOBAL const real* nodes = extended + block * room;
#endif
        for (int chunk = 0; chunk < blocks.chunks; chunk++) {
            const i64 here = block * blocks.chunks + chunk;
            const int most = (int)fullest[here];
            SUMS const real* corner = nodes + corner_of(chunk, &blocks);
            for (int i = 0; i < most; i++) {
                const i64 place = i * places + here * GROUP_SIZE + LOCAL_ID;
                const int deep = i >= blocks.copies; // found through node order
                real at[3] = {0, 0, 0};
                i64 particle = -1;
                if (!deep) {
                    UNROLL for (int a = FIRST_AXIS; a < 3; a++) at[a] = position[(a - FIRST_AXIS) * copies + place];
                } else {
                    const Cell cell = cell_of(here, start, &lattice, &blocks);
                    if (i < cell.count) {
                        UNROLL for (int a = FIRST_AXIS; a < 3; a++) at[a] = fraction[a * rows + cell.first + i];
                        particle = order[cell.first + i];
                    }
                }
                real z[SUPPORT_Z], found[COMPONENTS * RESULTS];
                UNROLL for (int k = 0; k < SUPPORT_Z; k++) z[k] = weight_of(&window, k, at[2]);
#if VALUE
                real sum[COMPONENTS];
                UNROLL for (int c = 0; c < COMPONENTS; c++) sum[c] = 0;
#endif
#if GRADIENT
                real dz[SUPPORT_Z], g[COMPONENTS * 3];
                UNROLL for (int k = 0; k < SUPPORT_Z; k++) dz[k] = slope_of(&window, k, at[2]);
                UNROLL for (int c = 0; c < COMPONENTS * 3; c++) g[c] = 0;
#endif
                ROLL for (int a = 0; a < SUPPORT_X; a++) {
                    const real x = weight_along(&window, 0, a, at[0]);
                    ROLL for (int b = 0; b < SUPPORT_Y; b++) {
                        const real y = weight_along(&window, 1, b, at[1]);
#if GRADIENT
                        const real dx = slope_along(&window, 0, a, at[0]), dy = slope_along(&window, 1, b, at[1]);
#endif
                        UNROLL for (int c = 0; c < COMPONENTS; c++) {
                            SUMS const real* row = corner + c * plane + (a * blocks.room[1] + b) * blocks.room[2];
                            real flat = 0;
                            UNROLL for (int k = 0; k < SUPPORT_Z; k++) flat += z[k] * row[k];
#if VALUE
                            sum[c] += x * y * flat;
#endif
#if GRADIENT
                            real steep = 0;
                            UNROLL for (int k = 0; k < SUPPORT_Z; k++) steep += dz[k] * row[k];
                            g[3 * c] += dx * y * flat;
                            g[3 * c + 1] += x * dy * flat;
                            g[3 * c + 2] += x * y * steep;
#endif
                        }
                    }
                }
                UNROLL for (int c = 0; c < COMPONENTS; c++) {
#if VALUE
                    found[c * RESULTS] = sum[c];
#endif
#if GRADIENT
                    UNROLL for (int b = FIRST_AXIS; b < 3; b++)
                        found[c * RESULTS + VALUE + b - FIRST_AXIS] = g[3 * c] * jacobian.row[b]
                            + g[3 * c + 1] * jacobian.row[3 + b] + g[3 * c + 2] * jacobian.row[6 + b];
#endif
                }
                if (!deep) {
                    UNROLL for (int k = 0; k < COMPONENTS * RESULTS; k++) result[k * copies + place] = found[k];
                } else if (particle >= 0) {
                    hand_over(found, values, gradient, particle, &value_layout, &gradient_layout);
                }
            }
        }
#if WITHIN
        BARRIER(); // before the next block's nodes are loaded
#endif
    }
}

// Results of particles to the caller's order, without dummies. Those of deeper particles are there already.
KERNEL copies_collect(GLOBAL const int* RESTRICT node, GLOBAL const u32* RESTRICT start,
                      GLOBAL const int* RESTRICT rank, GLOBAL const real* RESTRICT result,
                      GLOBAL real* RESTRICT values, GLOBAL real* RESTRICT gradient, const i64 count, const i64 rows,
                      const Lattice lattice, const Blocks blocks, const Values value_layout,
                      const Values gradient_layout)
{
    const i64 places = places_of(&blocks), copies = blocks.copies * places;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        real found[COMPONENTS * RESULTS];
        UNROLL for (int k = 0; k < COMPONENTS * RESULTS; k++) found[k] = 0;
        if (rank[i] >= 0) {
            int at[3];
            for (int a = 0; a < 3; a++) at[a] = node[a * rows + i] - lattice.low[a];
            const i64 copy = (i64)rank[i] - (i64)start[cell_at(&lattice, at[0], at[1], at[2])];
            if (copy >= blocks.copies) continue;
            const i64 place = copy * places + place_of(at, &blocks);
            UNROLL for (int k = 0; k < COMPONENTS * RESULTS; k++) found[k] = result[k * copies + place];
        }
        hand_over(found, values, gradient, i, &value_layout, &gradient_layout);
    }
}
