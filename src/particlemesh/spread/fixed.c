// SPDX-License-Identifier: BSD-3-Clause
// Before and after sums of 64-bit integers (fixed.h): their bounds, and their addition to the field.

#include "orders/blocks.h"
#include "spread/fixed.h"

DEVICE void keep_largest(WARP_PARAMETER warp, GLOBAL u32* result, u32 mine)
{
    for (int step = 16; step > 0; step /= 2) {
        const u32 other = WARP_SHUFFLE_U32(warp, mine, LANE ^ step);
        mine = other > mine ? other : mine;
    }
    if (LANE == 0 && mine > PEEK_U32(result)) ATOMIC_MAX_U32(result, mine); // it only grows
}

// The maximum of `count` numbers, or of sums of two.
KERNEL fixed_most(GLOBAL const u32* numbers, GLOBAL const u32* others, GLOBAL u32* RESTRICT most, const i64 count,
                  const i64 both)
{
    WARP(warp);
    u32 mine = 0;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const u32 sum = both ? numbers[i] + others[i] : numbers[i];
        mine = sum > mine ? sum : mine;
    }
    keep_largest(warp, most, mine);
}

// The most particles in one of `count` blocks.
KERNEL fixed_fullest(GLOBAL const u32* RESTRICT start, GLOBAL u32* RESTRICT most, const i64 count)
{
    WARP(warp);
    u32 mine = 0;
    for (i64 b = GROUP_ID * GROUP_SIZE + LOCAL_ID; b < count; b += GROUP_COUNT * GROUP_SIZE) {
        const u32 own = start[b + 1] - start[b];
        mine = own > mine ? own : mine;
    }
    keep_largest(warp, most, mine);
}

DEVICE void larger_of(PRIVATE u32* mine, GLOBAL const real* values, const i64 i, PRIVATE const Values* layout,
                      PRIVATE const Jacobian* jacobian)
{
    real q[QUANTITIES];
    values_of(q, values, i, layout, jacobian);
    for (int k = 0; k < QUANTITIES; k++) {
        const u32 magnitude = MAGNITUDE(q[k]);
        const int c = k / (QUANTITIES / COMPONENTS);
        mine[c] = magnitude > mine[c] ? magnitude : mine[c];
    }
}

// The largest value of each component, of particles with weight: of those with nodes,
KERNEL fixed_largest(GLOBAL const int* RESTRICT node, GLOBAL const real* RESTRICT values,
                     GLOBAL u32* RESTRICT largest, const i64 count, const i64 rows, const Values value_layout,
                     const Jacobian jacobian)
{
    WARP(warp);
    u32 mine[COMPONENTS];
    for (int c = 0; c < COMPONENTS; c++) mine[c] = 0;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE)
        if (node[2 * rows + i] != SKIP) larger_of(mine, values, i, &value_layout, &jacobian);
    for (int c = 0; c < COMPONENTS; c++) keep_largest(warp, largest + c, mine[c]);
}

// or of those with records. Usually all particles have weight: then the values' order is used.
KERNEL fixed_largest_recorded(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                              GLOBAL const real* RESTRICT values, GLOBAL u32* RESTRICT largest, const i64 count,
                              const i64 blocks, const Values value_layout, const Jacobian jacobian)
{
    WARP(warp);
    u32 mine[COMPONENTS];
    for (int c = 0; c < COMPONENTS; c++) mine[c] = 0;
    const i64 taken = start[blocks];
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < taken; k += GROUP_COUNT * GROUP_SIZE)
        larger_of(mine, values, taken == count ? k : (i64)records[RECORD_WORDS * (k + 1) - 1], &value_layout, &jacobian);
    for (int c = 0; c < COMPONENTS; c++) keep_largest(warp, largest + c, mine[c]);
}

// Add sums to the field, one warp per row along z. Each real has a mesh of integers.
KERNEL fixed_finish(GLOBAL const u64* RESTRICT sums, GLOBAL real* RESTRICT field, GLOBAL const u32* RESTRICT most,
                    GLOBAL const u32* RESTRICT largest, GLOBAL u32* RESTRICT not_finite, const i64 headroom,
                    const Field from, const Field to)
{
    const i64 rows = (i64)CHANNELS * to.size[0] * to.size[1];
    const int length = to.size[2], p = LANE % PARTS;
    for (i64 row = (GROUP_ID * GROUP_SIZE + LOCAL_ID) / WARP_SIZE; row < rows;
         row += GROUP_COUNT * GROUP_SIZE / WARP_SIZE) {
        const i64 y = row % to.size[1], x = row / to.size[1] % to.size[0], c = row / to.size[1] / to.size[0];
        GLOBAL const u32* own = largest + c * PARTS + p;
        const int scale = scale_of(most, own, headroom), finite = (own[0] >> EXPONENT_BITS) < EXPONENT_ALL;
        GLOBAL const u64* sum = sums + (c * PARTS + p) * from.channel + x * from.stride[0] + y * from.stride[1];
        GLOBAL real* node = field + to.offset + c * to.channel + x * to.stride[0] + y * to.stride[1] + p;
        for (int z = LANE / PARTS; z < length; z += WARP_SIZE / PARTS) {
            const i64 whole = (i64)sum[z * from.stride[2]];
            node[z * to.stride[2]] += finite ? ldexp((real)whole, -scale) : (real)REAL_FROM_BITS_U32(0x7fc00000u);
        }
        if (!finite) ATOMIC_MAX_U32(not_finite, 1);
    }
}
