// SPDX-License-Identifier: BSD-3-Clause
// A step of the column over spheres in the order of cells: forces, motion and the count of the next cells in one kernel;
// a scan; then every sphere goes to its place. LANES work-items share a sphere. QUEUE > 0: spheres in reach are queued
// in local memory and collide afterwards, so that the loop of tests does not diverge.

#include "green.h"

#define TESTS 4 // spheres read at a time: their latencies overlap

#if QUEUE
#include "queue.h"
#endif

// The sum of all lanes of a sphere, in each of them.
#define SUM_LANES(warp, own)                                       \
    for (int step = 1; step < LANES; step *= 2)                    \
        for (int a = 0; a < 3; a++) {                              \
            const real others = WARP_SHUFFLE(warp, own.push[a], LANE ^ step); \
            own.push[a] += others;                                 \
        }

KERNEL step_sorted(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                   GLOBAL const u32* RESTRICT start, GLOBAL real* RESTRICT new_positions,
                   GLOBAL real* RESTRICT new_velocities, GLOBAL u32* RESTRICT counts, GLOBAL u32* RESTRICT rank,
                   GLOBAL u32* status, const i64 count, const i64 cells, const Green green)
{
    WARP(warp);
#if QUEUE
    LOCAL_ARRAY(u32, queue, QUEUE * GROUP_SIZE);
#endif
    const int items = (int)GROUP_COUNT * GROUP_SIZE; // all work-items are fewer than 2^31
    for (int base = (int)GROUP_ID * GROUP_SIZE; base < (int)count * LANES; base += items) {
        const int k = (base + LOCAL_ID) / LANES;
        const int lane = LOCAL_ID % LANES;
        Sphere own;
        own.push[0] = own.push[1] = own.push[2] = 0;
        if (k < count) {
            read_sphere(&own, positions, velocities, k);
#if QUEUE
            int place = LOCAL_ID;
#define STRIP                                                                                       \
    ROLL for (int q = from + lane; q < to; q += TESTS * LANES) {                                    \
        real4 other[TESTS];                                                                         \
        UNROLL for (int t = 0; t < TESTS; t++)                                                      \
            if (q + t * LANES < to) other[t] = READ_4(positions + 4 * (i64)(q + t * LANES));        \
        UNROLL for (int t = 0; t < TESTS; t++) {                                                    \
            real d[3];                                                                              \
            if (q + t * LANES < to && apart(d, &own, other[t]) < 1) ENQUEUE(q + t * LANES)          \
        }                                                                                           \
        if (QUEUE_LACKS(TESTS)) COLLIDE_QUEUED                                                      \
    }
#include "strips.h"
            COLLIDE_QUEUED
#else
#define STRIP                                                                                  \
    for (int q = from + lane; q < to; q += LANES) {                                            \
        real d[3];                                                                             \
        const real r2 = apart(d, &own, READ_4(positions + 4 * (i64)q));                        \
        if (IN_REACH(r2)) collide(&own, d, r2, READ_4(velocities + 4 * (i64)q), &green);       \
    }
#include "strips.h"
#endif
        }
        SUM_LANES(warp, own)
        if (k < count && lane == 0) {
            const real name = velocities[4 * (i64)k + 3];
            advance(&own, (real)cells, &green, status, INDEX_OF_REAL(name));
            STORE_4(new_positions + 4 * (i64)k, own.x[0], own.x[1], own.x[2], 0);
            STORE_4(new_velocities + 4 * (i64)k, own.v[0], own.v[1], own.v[2], name);
            rank[k] = ATOMIC_ADD_U32(counts + cell_of(own.x[0], own.x[1], own.x[2], (int)cells), 1);
        }
    }
}

// The count alone: a build of what is already somewhere.
KERNEL count_cells(GLOBAL const real* RESTRICT positions, GLOBAL u32* RESTRICT counts, GLOBAL u32* RESTRICT rank,
                   const i64 count, const i64 cells)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        const real4 x = READ_4(positions + 4 * k);
        rank[k] = ATOMIC_ADD_U32(counts + cell_of(x.x, x.y, x.z, (int)cells), 1);
    }
}

// Spheres to their places. WITH_LISTS: and lists of each cell, whose heads were cleared. Clears the counts for the next
// step, with the control words of the scan behind them.
KERNEL place(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
             GLOBAL const u32* RESTRICT rank, GLOBAL const u32* RESTRICT start, GLOBAL real* RESTRICT new_positions,
             GLOBAL real* RESTRICT new_velocities, GLOBAL u64* RESTRICT counts, GLOBAL u32* RESTRICT heads,
             const i64 count, const i64 cells, const i64 words)
{
    const i64 first = GROUP_ID * GROUP_SIZE + LOCAL_ID, items = GROUP_COUNT * GROUP_SIZE;
    for (i64 w = first; w < words; w += items) counts[w] = 0;
    for (i64 k = first; k < count; k += items) {
        const real4 x = READ_4(positions + 4 * k), v = READ_4(velocities + 4 * k);
        const int cell = cell_of(x.x, x.y, x.z, (int)cells);
        const i64 begin = start[cell], at = begin + rank[k];
#if WITH_LISTS
        if (at == begin) heads[cell] = (u32)at + 1;
        const i64 next = at + 1 < (i64)start[cell + 1] ? at + 2 : 0;
        STORE_4(new_positions + 4 * at, x.x, x.y, x.z, REAL_FROM_INDEX(next));
#else
        STORE_4(new_positions + 4 * at, x.x, x.y, x.z, 0);
#endif
        STORE_4(new_velocities + 4 * at, v.x, v.y, v.z, v.w);
    }
}

// How many are in reach of each sphere.
KERNEL reach_sorted(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                    GLOBAL const u32* RESTRICT start, GLOBAL u32* RESTRICT in_reach, const i64 count,
                    const i64 cells)
{
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < count; k += GROUP_COUNT * GROUP_SIZE) {
        Sphere own;
        read_sphere(&own, positions, velocities, k);
        u32 near = 0;
#define STRIP                                                                      \
    for (int q = from; q < to; q++) {                                              \
        real d[3];                                                                 \
        if (IN_REACH(apart(d, &own, READ_4(positions + 4 * (i64)q)))) near++;      \
    }
#include "strips.h"
        in_reach[k] = near;
    }
}
