// SPDX-License-Identifier: BSD-3-Clause
// A step of the column in one kernel: spheres read the lists of their cells, move, and enter the lists of the next step.
// The link of a list is the fourth real of a position. Three arrays of heads take turns: one is read, one is filled, one
// is cleared. LANES work-items share a sphere. Heads and links hold a place + 1; 0 ends a list.

#include "apps/dem/green.h"

#define WALK(VISIT)                                                                              \
    for (int near = lane; near < 27; near += LANES) {                                            \
        const int a = c0 + near / 9 - 1, b = c1 + near / 3 % 3 - 1, c = c2 + near % 3 - 1;        \
        if (a < 0 || a >= n || b < 0 || b >= n || c < 0 || c >= n) continue;                     \
        i64 q = heads[(a * n + b) * n + c];                                                 \
        while (q) {                                                                              \
            const real4 other = READ_4(positions + 4 * (q - 1));                                 \
            real d[3];                                                                           \
            const real r2 = apart(d, &own, other);                                               \
            if (IN_REACH(r2)) VISIT                                                              \
            q = INDEX_OF_REAL(other.w);                                                          \
        }                                                                                        \
    }

KERNEL step_lists(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                  GLOBAL const u32* RESTRICT heads, GLOBAL real* RESTRICT new_positions,
                  GLOBAL real* RESTRICT new_velocities, GLOBAL u32* RESTRICT new_heads,
                  GLOBAL u32* RESTRICT old_heads, GLOBAL u32* status, const i64 count, const i64 cells,
                  const Green green)
{
    WARP(warp);
    const int n = (int)cells, lane = LOCAL_ID % LANES;
    const i64 bins = cells * cells * cells, items = GROUP_COUNT * GROUP_SIZE;
    for (i64 c = GROUP_ID * GROUP_SIZE + LOCAL_ID; c < bins; c += items) old_heads[c] = 0;
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count * LANES; base += items) {
        const i64 k = (base + LOCAL_ID) / LANES;
        Sphere own;
        own.push[0] = own.push[1] = own.push[2] = 0;
        if (k < count) {
            read_sphere(&own, positions, velocities, k);
            const int c0 = cell_along(own.x[0], n), c1 = cell_along(own.x[1], n), c2 = cell_along(own.x[2], n);
            WALK({ collide(&own, d, r2, READ_4(velocities + 4 * (q - 1)), &green); })
        }
        for (int step = 1; step < LANES; step *= 2)
            for (int a = 0; a < 3; a++) {
                const real others = WARP_SHUFFLE(warp, own.push[a], LANE ^ step);
                own.push[a] += others;
            }
        if (k < count && lane == 0) {
            const real name = velocities[4 * k + 3];
            advance(&own, (real)cells, &green, status, INDEX_OF_REAL(name));
            const int cell = cell_of(own.x[0], own.x[1], own.x[2], n);
            const i64 next = ATOMIC_EXCHANGE_U32(new_heads + cell, k + 1);
            STORE_4(new_positions + 4 * k, own.x[0], own.x[1], own.x[2], REAL_FROM_INDEX(next));
            STORE_4(new_velocities + 4 * k, own.v[0], own.v[1], own.v[2], name);
        }
    }
}

// The lists of what is already somewhere: heads were cleared.
KERNEL enter_lists(GLOBAL real* positions, GLOBAL u32* RESTRICT heads, const i64 count, const i64 cells)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        const real4 x = READ_4(positions + 4 * k);
        const i64 next = ATOMIC_EXCHANGE_U32(heads + cell_of(x.x, x.y, x.z, (int)cells), k + 1);
        positions[4 * k + 3] = REAL_FROM_INDEX(next);
    }
}

KERNEL reach_lists(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                   GLOBAL const u32* RESTRICT heads, GLOBAL u32* in_reach, const i64 count, const i64 cells)
{
    WARP(warp);
    const int n = (int)cells, lane = LOCAL_ID % LANES;
    for (i64 base = GROUP_ID * GROUP_SIZE; base < count * LANES; base += GROUP_COUNT * GROUP_SIZE) {
        const i64 k = (base + LOCAL_ID) / LANES;
        u32 found = 0;
        if (k < count) {
            Sphere own;
            read_sphere(&own, positions, velocities, k);
            const int c0 = cell_along(own.x[0], n), c1 = cell_along(own.x[1], n), c2 = cell_along(own.x[2], n);
            WALK({ found++; })
        }
        for (int step = 1; step < LANES; step *= 2) {
            const u32 others = WARP_SHUFFLE_U32(warp, found, LANE ^ step);
            found += others;
        }
        if (k < count && lane == 0) in_reach[k] = found;
    }
}
