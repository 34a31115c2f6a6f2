// SPDX-License-Identifier: BSD-3-Clause
// Spreading into 64-bit integers: sums of integers do not depend on their order.
//
// A contribution is scaled by a power of two that no sum can overflow: |sum| <= crowd * steepest * largest,
// where crowd bounds how many stencils meet at a node (positions), steepest a stencil's weight (window) and
// largest the values. All three are found by integer operations, so they too are the same every time.

typedef u64 Sink;
#if VECTOR != 1
#error "integer adds have no vector form"
#endif
#define DEPOSIT(field, at, vector)                                                                  \
    if ((vector)[0] != 0) ATOMIC_ADD_U64((field) + (at), (u64)(i64)rint((vector)[0]))
#include "spread/rows.h"

#if REAL_IS_DOUBLE
#define MAGNITUDE(x) (HIGH_BITS_OF_DOUBLE(x) & 0x7fffffffu)
#define EXPONENT_BITS 20
#define EXPONENT_ALL 2047
#define EXPONENT_BIAS 1022
#else
#define MAGNITUDE(x) (BITS_OF_FLOAT(x) & 0x7fffffffu)
#define EXPONENT_BITS 23
#define EXPONENT_ALL 255
#define EXPONENT_BIAS 126
#endif

#define COMPONENTS (CHANNELS * PARTS) // each with a scale of its own: a small one loses no digits to a large one

// How many stencils begin in each tile of SUPPORT nodes an axis: a node is reached from two tiles an axis.
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

DEVICE void keep_largest(WARP_PARAMETER warp, GLOBAL u32* result, u32 mine)
{
    for (int step = 16; step > 0; step /= 2) {
        const u32 other = WARP_SHUFFLE_U32(warp, mine, LANE ^ step);
        mine = other > mine ? other : mine;
    }
    if (LANE == 0 && mine > 0) ATOMIC_MAX_U32(result, mine);
}

KERNEL fixed_most(GLOBAL const u32* RESTRICT tiles, GLOBAL u32* RESTRICT most, const i64 count)
{
    WARP(warp);
    u32 mine = 0;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE)
        mine = tiles[i] > mine ? tiles[i] : mine;
    keep_largest(warp, most, mine);
}

KERNEL fixed_largest(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT values,
                     GLOBAL u32* RESTRICT largest, const i64 count, const i64 rows, const Values value_layout,
                     const Jacobian jacobian)
{
    WARP(warp);
    u32 mine[COMPONENTS];
    for (int c = 0; c < COMPONENTS; c++) mine[c] = 0;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        if (node[2 * rows + i] == SKIP) continue;
        real q[QUANTITIES];
        values_of(q, values, i, &value_layout, &jacobian);
        for (int k = 0; k < QUANTITIES; k++) {
            const u32 magnitude = MAGNITUDE(q[k]);
            const int c = k / (QUANTITIES / COMPONENTS);
            mine[c] = magnitude > mine[c] ? magnitude : mine[c];
        }
    }
    for (int c = 0; c < COMPONENTS; c++) keep_largest(warp, largest + c, mine[c]);
}

// The power of two by which values are scaled; `headroom` holds the window's share and the tiles' 2^axes.
DEVICE int scale_of(GLOBAL const u32* most, GLOBAL const u32* largest, i64 headroom)
{
    int crowd = 0;
    while (crowd < 32 && (most[0] >> crowd) != 0) crowd++;
    return 62 - (int)headroom - crowd - ((int)(largest[0] >> EXPONENT_BITS) - EXPONENT_BIAS);
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
        for (int n = 0; n < QUANTITIES; n++)
            q[n] = ldexp(q[n], scale_of(most, largest + n / (QUANTITIES / COMPONENTS), headroom));
        spread_rows(&s, q, sums, &sums_layout);
    }
}

KERNEL fixed_finish(GLOBAL const u64* RESTRICT sums, GLOBAL real* RESTRICT field, GLOBAL const u32* RESTRICT most,
                    GLOBAL const u32* RESTRICT largest, GLOBAL u32* RESTRICT not_finite, const i64 headroom,
                    const i64 count, const Field layout)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        i64 rest = k / PARTS;
        const int z = (int)(rest % layout.size[2]);
        rest /= layout.size[2];
        const int y = (int)(rest % layout.size[1]);
        rest /= layout.size[1];
        const int x = (int)(rest % layout.size[0]);
        const i64 channel = rest / layout.size[0];
        GLOBAL const u32* own = largest + channel * PARTS + k % PARTS;
        const int scale = scale_of(most, own, headroom), finite = (own[0] >> EXPONENT_BITS) < EXPONENT_ALL;
        const i64 at = layout.offset + channel * layout.channel + x * layout.stride[0]
                     + y * layout.stride[1] + z * layout.stride[2] + k % PARTS;
        field[at] += finite ? ldexp((real)(i64)sums[k], -scale) : (real)REAL_FROM_BITS_U32(0x7fc00000u);
        if (!finite) ATOMIC_MAX_U32(not_finite, 1);
    }
}
