// SPDX-License-Identifier: BSD-3-Clause
// Spreading into 64-bit integers, particle by particle. The bounds that fix their unit hold for one cell and one value,
// so their maximum over parts of a mesh is that of the whole, however it is cut.

#include "spread/fixed.h"

typedef u64 Sink;
#if VECTOR != 1
#error "integer adds have no vector form"
#endif
#define DEPOSIT(field, at, vector) add_whole((field) + (at), (vector)[0])
#include "spread/rows.h"

// How many stencils begin at each node.
KERNEL fixed_crowd(GLOBAL const int* RESTRICT node, GLOBAL u32* RESTRICT cells, const i64 count, const i64 rows,
                   const i64 low_x, const i64 low_y, const i64 low_z, const i64 extent_y, const i64 extent_z)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        if (node[2 * rows + i] == SKIP) continue;
        const i64 x = node[i] - low_x, y = node[rows + i] - low_y, z = node[2 * rows + i] - low_z;
        ATOMIC_ADD_U32(cells + (x * extent_y + y) * extent_z + z, 1);
    }
}

// bounds[0]: the exponent of the largest sum of weights, which is crowd * share / 256 at most.
KERNEL fixed_node_bound(GLOBAL const u32* RESTRICT crowd, GLOBAL int* RESTRICT bounds, const i64 share)
{
    if (GROUP_ID == 0 && LOCAL_ID == 0) {
        const u64 most = (u64)crowd[0] * (u64)share;
        int bits = 0;
        while (bits < 64 && (most >> bits) != 0) bits++;
        bounds[0] = bits > 8 ? bits - 8 : 0;
    }
}

// The exponents of components, from bounds[first] on.
KERNEL fixed_value_bounds(GLOBAL const u32* RESTRICT largest, GLOBAL int* RESTRICT bounds, const i64 first)
{
    if (GROUP_ID == 0 && LOCAL_ID < COMPONENTS) {
        const int exponent = (int)(largest[LOCAL_ID] >> EXPONENT_BITS);
        bounds[first + LOCAL_ID] = exponent < EXPONENT_ALL ? exponent - EXPONENT_BIAS : NO_BOUND;
    }
}

KERNEL fixed_spread(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT fraction,
                    GLOBAL const real* RESTRICT values, GLOBAL u64* RESTRICT sums, GLOBAL const int* RESTRICT bounds,
                    const i64 first, const i64 count, const i64 rows, const Values value_layout,
                    const Field sums_layout, const Window window, const Jacobian jacobian)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count * LANES; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = k / LANES;
        if (node[2 * rows + i] == SKIP) continue;
        Stencil s;
        stencil_of(&s, node, fraction, i, rows, (int)(k % LANES), &sums_layout, &window);
        real q[QUANTITIES];
        values_of(q, values, i, &value_layout, &jacobian);
        scale_bounded(q, bounds, first);
        spread_rows(&s, q, sums, &sums_layout);
    }
}

// Integers to reals, one warp per row along z; added to the field if `adds`.
KERNEL fixed_convert(GLOBAL const u64* RESTRICT sums, GLOBAL real* RESTRICT field, GLOBAL const int* RESTRICT bounds,
                     GLOBAL u32* RESTRICT not_finite, const i64 first, const i64 adds, const Field from, const Field to)
{
    const i64 rows = (i64)CHANNELS * to.size[0] * to.size[1];
    const int length = to.size[2], p = LANE % PARTS;
    for (i64 row = (GROUP_ID * GROUP_SIZE + LOCAL_ID) / WARP_SIZE; row < rows;
         row += GROUP_COUNT * GROUP_SIZE / WARP_SIZE) {
        const i64 y = row % to.size[1], x = row / to.size[1] % to.size[0], c = row / to.size[1] / to.size[0];
        const int finite = bounds[first + c * PARTS + p] != NO_BOUND;
        const int scale = finite ? -power_of(bounds, first + c * PARTS + p) : 0;
        GLOBAL const u64* sum = sums + from.offset + c * from.channel + p + x * from.stride[0] + y * from.stride[1];
        GLOBAL real* node = field + to.offset + c * to.channel + x * to.stride[0] + y * to.stride[1] + p;
        for (int z = LANE / PARTS; z < length; z += WARP_SIZE / PARTS) {
            const i64 whole = (i64)sum[z * from.stride[2]];
            const real number = finite ? ldexp((real)whole, scale) : (real)REAL_FROM_BITS_U32(0x7fc00000u);
            node[z * to.stride[2]] = adds ? node[z * to.stride[2]] + number : number;
        }
        if (!finite) ATOMIC_MAX_U32(not_finite, 1);
    }
}
