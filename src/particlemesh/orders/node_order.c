// SPDX-License-Identifier: BSD-3-Clause
// Particles by the first node of their stencils, or by tiles of 2^bits such nodes per axis.

#include "particles/lattice.h"

// `left_out` is the key of particles without weight; lattice.extent has the cells or tiles along each axis.
KERNEL node_keys(GLOBAL const int* RESTRICT node, GLOBAL int* RESTRICT keys, const i64 count, const i64 rows,
                 const i64 bits, const i64 left_out, const Lattice lattice)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        int at[3];
        for (int a = 0; a < 3; a++) at[a] = (int)(((i64)node[a * rows + i] - lattice.low[a]) >> bits);
        keys[i] = (int)(node[2 * rows + i] == SKIP ? left_out : cell_at(&lattice, at[0], at[1], at[2]));
    }
}

// Up to the last cell: after it an unstable order has nothing.
KERNEL node_places(GLOBAL const u32* RESTRICT start, GLOBAL const int* RESTRICT order, GLOBAL const int* RESTRICT node,
                   GLOBAL const real* RESTRICT fraction, GLOBAL int* RESTRICT placed_node,
                   GLOBAL real* RESTRICT placed_fraction, const i64 cells, const i64 rows, const i64 placed_rows)
{
    const i64 count = start[cells];
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = order[k];
        for (int a = 0; a < 3; a++) {
            placed_node[a * placed_rows + k] = node[a * rows + i];
            placed_fraction[a * placed_rows + k] = fraction[a * rows + i];
        }
    }
}
