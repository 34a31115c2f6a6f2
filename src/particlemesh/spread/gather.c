// SPDX-License-Identifier: BSD-3-Clause
// Each node gathers from the particles around it. Every cell (a node at which stencils may begin) has a slot for one
// particle; particles without a slot are listed, for the particle method.
//
// Only the placement has atomics. Then fractions, and with each call values, lie in planes by cell, so that
// neighbouring nodes along z read neighbours.

#include "spread/gathering.h"

#define EMPTY 9 // the fraction along z of a cell without a particle; those of particles are at most a half

// Slots hold an index + 1. The particle with the largest index keeps the slot, in any order of execution.
KERNEL gather_place(GLOBAL const int* RESTRICT node, GLOBAL u32* RESTRICT slots, GLOBAL u32* RESTRICT listed,
                    GLOBAL int* RESTRICT list, const i64 count, const i64 rows, const Lattice lattice)
{
    WARP(warp);
    const i64 stop = (count + GROUP_SIZE - 1) / GROUP_SIZE * GROUP_SIZE;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < stop; i += GROUP_COUNT * GROUP_SIZE) {
        u32 leaves = 0;
        if (i < count && node[2 * rows + i] != SKIP) {
            int at[3];
            for (int a = 0; a < 3; a++) at[a] = node[a * rows + i] - lattice.low[a];
            const u32 mine = (u32)i + 1, other = ATOMIC_MAX_U32(slots + cell_at(&lattice, at[0], at[1], at[2]), mine);
            leaves = other < mine ? other : mine;
        }
        // One addition per warp: crowded particles would all wait for this word.
        const u32 leaving = WARP_BALLOT(warp, leaves != 0);
        u32 first = 0;
        if (LANE == 0 && leaving != 0) first = ATOMIC_ADD_U32(listed, POPCOUNT_U32(leaving));
        first = WARP_SHUFFLE_U32(warp, first, 0);
        if (leaves != 0) list[first + POPCOUNT_U32(leaving & (((u32)1 << LANE) - 1))] = (int)(leaves - 1);
    }
}

KERNEL gather_fractions(GLOBAL const u32* RESTRICT slots, GLOBAL const real* RESTRICT fraction,
                        GLOBAL real* RESTRICT placed, const i64 cells, const i64 rows) // placed: (axes, cells), z first
{
    for (i64 c = GROUP_ID * GROUP_SIZE + LOCAL_ID; c < cells; c += GROUP_COUNT * GROUP_SIZE) {
        const u32 slot = slots[c];
        if (slot == 0) placed[c] = EMPTY;
        else
            for (int a = 0; a < SUPPORT_AXES; a++) placed[a * cells + c] = fraction[(2 - a) * rows + (slot - 1)];
    }
}

KERNEL gather_values(GLOBAL const u32* RESTRICT slots, GLOBAL const real* RESTRICT values,
                     GLOBAL real* RESTRICT brought, const i64 cells, // brought: (QUANTITIES, cells)
                     const Values value_layout, const Jacobian jacobian)
{
    for (i64 c = GROUP_ID * GROUP_SIZE + LOCAL_ID; c < cells; c += GROUP_COUNT * GROUP_SIZE) {
        const u32 slot = slots[c];
        if (slot == 0) continue;
        real q[QUANTITIES];
        values_of(q, values, (i64)slot - 1, &value_layout, &jacobian);
        UNROLL for (int n = 0; n < QUANTITIES; n++) brought[n * cells + c] = q[n];
    }
}

KERNEL gather_nodes(GLOBAL const real* RESTRICT placed, GLOBAL const real* RESTRICT brought,
                    GLOBAL real* RESTRICT field, const i64 cells, const i64 nodes, const Lattice lattice,
                    const Field layout, const Window window)
{
    TABLE(table, window);
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < nodes; n += GROUP_COUNT * GROUP_SIZE) {
        int node[3];
        coordinates_of(n, layout.size, node);
        real sum[SUMS];
        UNROLL for (int c = 0; c < SUMS; c++) sum[c] = 0;
        Polynomial along[3]; // the axes' weights with which a cell reaches the node
        ROLL for (int kx = 0; kx < SUPPORT_X; kx++) {
            along[0] = polynomial(table, kx);
            ROLL for (int ky = 0; ky < SUPPORT_Y; ky++) {
                along[1] = polynomial(table, ky);
                const i64 line = line_meeting(&lattice, node[0], node[1], kx, ky);
                if (line < 0) continue;
                UNROLL_ROWS for (int kz = 0; kz < SUPPORT_Z; kz++) {
                    const int cell = cell_meeting(&lattice, 2, node[2], kz);
                    if (cell < 0) continue;
                    const i64 at = line + cell;
                    real fraction = READ_1(placed + at);
                    if (fraction > 1) continue; // EMPTY
                    real weight[3] = {1, 1, weight_of(&window, kz, fraction)};
                    real slope[3] = {0, 0, 0};
#if GRADIENT
                    slope[2] = slope_of(&window, kz, fraction);
#endif
                    UNROLL for (int a = 3 - SUPPORT_AXES; a < 2; a++) {
                        fraction = READ_1(placed + (2 - a) * cells + at);
                        weight[a] = value_at(&along[a], fraction);
#if GRADIENT
                        slope[a] = slope_at(&along[a], fraction);
#endif
                    }
                    take(sum, weight, slope, brought, cells, at);
                }
            }
        }
        give(field, node, sum, &layout);
    }
}
