// SPDX-License-Identifier: BSD-3-Clause
// Spreading into 64-bit integers (fixed.h), particle by particle.

#include "spread/fixed.h"

typedef u64 Sink;
#if VECTOR != 1
#error "integer adds have no vector form"
#endif
#define DEPOSIT(field, at, vector) add_whole((field) + (at), (vector)[0])
#include "spread/rows.h"

// How many stencils begin in each tile of SUPPORT nodes per axis: two tiles per axis reach a node.
KERNEL fixed_crowd(GLOBAL const int* RESTRICT node, GLOBAL u32* RESTRICT tiles, const i64 count, const i64 rows,
                   const i64 low_x, const i64 low_y, const i64 low_z, const i64 tiles_y, const i64 tiles_z)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        if (node[2 * rows + i] == SKIP) continue;
        const i64 x = (node[i] - low_x) / SUPPORT_X, y = (node[rows + i] - low_y) / SUPPORT_Y;
        const i64 z = (node[2 * rows + i] - low_z) / SUPPORT_Z;
        ATOMIC_ADD_U32(tiles + (x * tiles_y + y) * tiles_z + z, 1);
    }
}

KERNEL fixed_spread(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                    GLOBAL const real* RESTRICT values, GLOBAL u64* RESTRICT sums,
                    GLOBAL const u32* RESTRICT most, GLOBAL const u32* RESTRICT largest, const i64 headroom,
                    const i64 count, const i64 rows, const Values value_layout, const Field sums_layout,
                    const Window window, const Jacobian jacobian)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count * LANES; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = k / LANES;
        if (node[2 * rows + i] == SKIP) continue;
        Stencil s;
        stencil_of(&s, node, fraction, i, rows, (int)(k % LANES), &sums_layout, &window);
        real q[QUANTITIES];
        values_of(q, values, i, &value_layout, &jacobian);
        scale_values(q, most, largest, headroom);
        spread_rows(&s, q, sums, &sums_layout);
    }
}
