// SPDX-License-Identifier: BSD-3-Clause
// The column over a grid's own storage (particlemesh.grid.storage), as in the paper: one kernel walks the cells around
// each sphere, another one moves the spheres. IN_REACH_ONLY: results are how many spheres are in reach, one real each;
// otherwise changes of velocity, four reals each.

#include "green.h"

// A sphere at `place` of an array with four reals each, whose number is `number`.
#if IN_REACH_ONLY
#define BEGIN(i) real near = 0;
#define VISIT(other, number)                          \
    {                                                 \
        real d[3];                                    \
        if (IN_REACH(apart(d, &own, other))) near++;  \
    }
#define END(i) results[i] = near;
#else
#define BEGIN(i)
#define VISIT(other, number)                                                                            \
    {                                                                                                   \
        real d[3];                                                                                      \
        const real r2 = apart(d, &own, other);                                                          \
        if (IN_REACH(r2)) collide(&own, d, r2, READ_4(velocities + 4 * (i64)(number)), &green);         \
    }
#define END(i) STORE_4(results + 4 * (i), own.push[0], own.push[1], own.push[2], 0);
#endif

#define FOR_SPHERES for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE)
#define FOR_CELLS                                                                                                 \
    const int n = (int)cells;                                                                                     \
    const int c0 = cell_along(own.x[0], n), c1 = cell_along(own.x[1], n), c2 = cell_along(own.x[2], n);            \
    for (int a = c0 > 0 ? c0 - 1 : 0; a < n && a <= c0 + 1; a++)                                                  \
        for (int b = c1 > 0 ? c1 - 1 : 0; b < n && b <= c1 + 1; b++)                                              \
            for (int c = c2 > 0 ? c2 - 1 : 0; c < n && c <= c2 + 1; c++)
#define CELL (((i64)a * n + b) * n + c)

// Heads and links are a sphere's number + 1; 0 ends a list. The arrays of heads and counts begin where arguments say.
KERNEL walk_lists(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                  GLOBAL const u32* RESTRICT heads, GLOBAL const u32* RESTRICT next, GLOBAL real* RESTRICT results,
                  const i64 heads_at, const i64 count, const i64 cells, const Green green)
{
    FOR_SPHERES {
        Sphere own;
        read_sphere(&own, positions, velocities, i);
        BEGIN(i)
        FOR_CELLS for (i64 q = heads[heads_at + CELL]; q; q = next[q - 1]) VISIT(READ_4(positions + 4 * (q - 1)), q - 1)
        END(i)
    }
}

// Nodes have the link as their fourth real.
KERNEL walk_nodes(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                  GLOBAL const u32* RESTRICT heads, GLOBAL const real* RESTRICT nodes, GLOBAL real* RESTRICT results,
                  const i64 heads_at, const i64 count, const i64 cells, const Green green)
{
    FOR_SPHERES {
        Sphere own;
        read_sphere(&own, positions, velocities, i);
        BEGIN(i)
        FOR_CELLS {
            i64 q = heads[heads_at + CELL];
            while (q) {
                const real4 other = READ_4(nodes + 4 * (q - 1));
                VISIT(other, q - 1)
                q = INDEX_OF_REAL(other.w);
            }
        }
        END(i)
    }
}

// Entry 8 i + mask, + 1, is sphere i in a cell; bits of the mask are axes along which the cell before has it as well. A
// pair counts where the masks have no common bit. `wide` is half a diameter as a fraction of the box, as builds have it.
KERNEL walk_tight(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                  GLOBAL const u32* RESTRICT heads, GLOBAL const u32* RESTRICT next,
                  GLOBAL const real* RESTRICT bounds, GLOBAL const real* RESTRICT wide, GLOBAL real* RESTRICT results,
                  const i64 count, const i64 cells, const Green green)
{
    const real size = (real)cells, half_width = wide[0];
    FOR_SPHERES {
        Sphere own;
        read_sphere(&own, positions, velocities, i);
        int first[3], more[3];
        for (int a = 0; a < 3; a++) {
            const real s = own.x[a] / size;
            const real low = floor((s - half_width) * size), high = floor((s + half_width) * size);
            first[a] = low < 0 ? 0 : (int)low;
            more[a] = (high < size ? (int)high : (int)cells - 1) > first[a];
        }
        BEGIN(i)
        for (int mask = 0; mask < 8; mask++) {
            const int a = mask >> 2, b = mask >> 1 & 1, c = mask & 1;
            if (a > more[0] || b > more[1] || c > more[2]) continue;
            i64 entry = heads[((first[0] + a) * cells + first[1] + b) * cells + first[2] + c];
            while (entry) {
                const i64 q = (entry - 1) >> 3;
                if (!(mask & (int)(entry - 1) & 7)) VISIT(READ_4(bounds + 4 * q), q)
                entry = next[entry - 1];
            }
        }
        END(i)
    }
}

// Slot k of cell c is slots[c * cell_stride + k * slot_stride].
KERNEL walk_slots(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                  GLOBAL const u32* RESTRICT counts, GLOBAL const u32* RESTRICT slots, GLOBAL real* RESTRICT results,
                  const i64 counts_at, const i64 count, const i64 cells, const i64 capacity,
                  const i64 cell_stride, const i64 slot_stride, const Green green)
{
    FOR_SPHERES {
        Sphere own;
        read_sphere(&own, positions, velocities, i);
        BEGIN(i)
        FOR_CELLS {
            const i64 here = counts[counts_at + CELL], most = here < capacity ? here : capacity;
            for (i64 k = 0; k < most; k++) {
                const i64 q = slots[CELL * cell_stride + k * slot_stride];
                VISIT(READ_4(positions + 4 * q), q)
            }
        }
        END(i)
    }
}

// Spheres in the order of cells.
KERNEL reorder(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
               GLOBAL const u32* RESTRICT order, GLOBAL real* RESTRICT new_positions,
               GLOBAL real* RESTRICT new_velocities, const i64 count)
{
    FOR_SPHERES {
        const i64 q = order[i];
        const real4 x = READ_4(positions + 4 * q), v = READ_4(velocities + 4 * q);
        STORE_4(new_positions + 4 * i, x.x, x.y, x.z, x.w);
        STORE_4(new_velocities + 4 * i, v.x, v.y, v.z, v.w);
    }
}

KERNEL walk_sorted(GLOBAL const real* RESTRICT positions, GLOBAL const real* RESTRICT velocities,
                   GLOBAL const u32* RESTRICT start, GLOBAL real* RESTRICT results, const i64 count, const i64 cells,
                   const Green green)
{
    FOR_SPHERES {
        Sphere own;
        read_sphere(&own, positions, velocities, i);
        BEGIN(i)
#define STRIP \
    for (i64 q = from; q < to; q++) VISIT(READ_4(positions + 4 * q), q)
#include "strips.h"
        END(i)
    }
}

// Motion by changes of velocity, `width` reals each; new arrays may be the old ones. capacity > 0: the status gets the fullest cell that has no room.
KERNEL move(GLOBAL const real* positions, GLOBAL const real* velocities, GLOBAL const real* RESTRICT pushes,
            GLOBAL real* new_positions, GLOBAL real* new_velocities, GLOBAL const u32* RESTRICT counts,
            GLOBAL u32* status, const i64 count, const i64 cells, const i64 width, const i64 capacity,
            const i64 counts_at, const Green green)
{
    FOR_SPHERES {
        Sphere own;
        read_sphere(&own, positions, velocities, i);
        if (capacity) {
            const u32 here = counts[counts_at + cell_of(own.x[0], own.x[1], own.x[2], (int)cells)];
            if (here > capacity) ATOMIC_MAX_U32(status + FULLEST, here);
        }
        for (int a = 0; a < 3; a++) own.push[a] = pushes[width * i + a];
        const real name = velocities[4 * i + 3];
        advance(&own, (real)cells, &green, status, INDEX_OF_REAL(name));
        STORE_4(new_positions + 4 * i, own.x[0], own.x[1], own.x[2], 0);
        STORE_4(new_velocities + 4 * i, own.v[0], own.v[1], own.v[2], name);
    }
}
