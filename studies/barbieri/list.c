// SPDX-License-Identifier: BSD-3-Clause
// A step of the column in one kernel: spheres read the lists of their cells, move, and enter the lists of the next step.
// The link of a list is the fourth real of a position. Three arrays of heads take turns: one is read, one is filled, one
// is cleared. LANES work-items share a sphere. Heads and links hold a place + 1; 0 ends a list.

#include "green.h"
#include "queue.h"

#define LISTS ((27 + LANES - 1) / LANES)  // of a work-item
#define TOGETHER (LISTS < 9 ? LISTS : 9)  // lists that it follows at once: their latencies overlap
#if QUEUE <= 9
#error "a queue has a place for each list, and one more"
#endif

KERNEL step_lists(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                  GLOBAL const u32* RESTRICT heads, GLOBAL real* RESTRICT new_positions,
                  GLOBAL real* RESTRICT new_velocities, GLOBAL u32* RESTRICT new_heads,
                  GLOBAL u32* RESTRICT old_heads, GLOBAL u32* status, const i64 count, const i64 cells,
                  const Green green)
{
    WARP(warp);
    LOCAL_ARRAY(u32, queue, QUEUE * GROUP_SIZE);
    const int n = (int)cells, lane = LOCAL_ID % LANES;
    const int bins = n * n * n, items = (int)GROUP_COUNT * GROUP_SIZE; // all work-items are fewer than 2^31
    for (int c = (int)GROUP_ID * GROUP_SIZE + LOCAL_ID; c < bins; c += items) old_heads[c] = 0;
    for (int base = (int)GROUP_ID * GROUP_SIZE; base < (int)count * LANES; base += items) {
        const int k = (base + LOCAL_ID) / LANES;
        Sphere own;
        own.push[0] = own.push[1] = own.push[2] = 0;
        if (k < count) {
            read_sphere(&own, positions, velocities, k);
            const int c0 = cell_along(own.x[0], n), c1 = cell_along(own.x[1], n), c2 = cell_along(own.x[2], n);
            int place = LOCAL_ID;
            ROLL for (int list = 0; list < LISTS; list += TOGETHER) {
                int link[TOGETHER], more = 0;
                UNROLL for (int t = 0; t < TOGETHER; t++) {
                    const int near = lane + (list + t) * LANES;
                    const int a = c0 + near / 9 - 1, b = c1 + near / 3 % 3 - 1, c = c2 + near % 3 - 1;
                    const int inside = near < 27 && a >= 0 && a < n && b >= 0 && b < n && c >= 0 && c < n;
                    link[t] = inside ? (int)heads[(a * n + b) * n + c] : 0;
                    more |= link[t];
                }
                while (more) {
                    real4 other[TOGETHER];
                    more = 0;
                    UNROLL for (int t = 0; t < TOGETHER; t++)
                        if (link[t]) other[t] = READ_4(positions + 4 * (i64)(link[t] - 1));
                    UNROLL for (int t = 0; t < TOGETHER; t++)
                        if (link[t]) {
                            real d[3];
                            if (apart(d, &own, other[t]) < 1) ENQUEUE(link[t] - 1)
                            link[t] = (int)INDEX_OF_REAL(other[t].w);
                            more |= link[t];
                        }
                    if (QUEUE_LACKS(TOGETHER)) COLLIDE_QUEUED
                }
            }
            COLLIDE_QUEUED
        }
        for (int step = 1; step < LANES; step *= 2)
            for (int a = 0; a < 3; a++) {
                const real others = WARP_SHUFFLE(warp, own.push[a], LANE ^ step);
                own.push[a] += others;
            }
        if (k < count && lane == 0) {
            const real name = velocities[4 * (i64)k + 3];
            advance(&own, (real)cells, &green, status, INDEX_OF_REAL(name));
            const int cell = cell_of(own.x[0], own.x[1], own.x[2], n);
            const i64 next = ATOMIC_EXCHANGE_U32(new_heads + cell, k + 1);
            STORE_4(new_positions + 4 * (i64)k, own.x[0], own.x[1], own.x[2], REAL_FROM_INDEX(next));
            STORE_4(new_velocities + 4 * (i64)k, own.v[0], own.v[1], own.v[2], name);
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
            for (int near = lane; near < 27; near += LANES) {
                const int a = c0 + near / 9 - 1, b = c1 + near / 3 % 3 - 1, c = c2 + near % 3 - 1;
                if (a < 0 || a >= n || b < 0 || b >= n || c < 0 || c >= n) continue;
                i64 q = heads[(a * n + b) * n + c];
                while (q) {
                    const real4 other = READ_4(positions + 4 * (q - 1));
                    real d[3];
                    if (IN_REACH(apart(d, &own, other))) found++;
                    q = INDEX_OF_REAL(other.w);
                }
            }
        }
        for (int step = 1; step < LANES; step *= 2) {
            const u32 others = WARP_SHUFFLE_U32(warp, found, LANE ^ step);
            found += others;
        }
        if (k < count && lane == 0) in_reach[k] = found;
    }
}
