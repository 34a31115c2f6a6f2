// SPDX-License-Identifier: BSD-3-Clause
// Which particles of a rank belong to others, and which of them others see as ghosts, in one pass; and ghosts on their
// way into a local grid. The arithmetic is that of surroundings.py, rounding by rounding: real is double.

#include "particles/coordinates.h"
#include "distributed/owner.h"

typedef struct {
    real coefficient[9], matrix[9]; // nodes per length, and lattice vectors as rows
    real origin[3], offset[3], least[3], most[3]; // the last two are bounds of open axes
    real one; // it is, but compilers do not know: fma(one, a, b * c) rounds the product
    int nodes[3], cut[3], periodic[3];
    int axes, depth, per_rank, rank;
    int unused;
} Cuts;

// Coordinates in nodes within the mesh, the cells there, and the periods that were added.
DEVICE void place(PRIVATE real* u, PRIVATE int* cell, PRIVATE real* turns, PRIVATE const coordinate* x,
                  PRIVATE const Cuts* cuts)
{
    for (int a = 0; a < 3; a++) {
        u[a] = turns[a] = 0, cell[a] = 0;
        if (a >= cuts->axes || !cuts->cut[a]) continue;
        for (int b = 0; b < cuts->axes; b++) {
            const real coefficient = cuts->coefficient[3 * a + b];
            if (coefficient == 0) continue;
            const real moved = ((real)x[b] - cuts->origin[b]) * coefficient;
            u[a] = fma(cuts->one, moved, u[a]);
        }
        u[a] -= cuts->offset[a];
        real down = floor(u[a]);
        if (cuts->periodic[a]) {
            turns[a] = -floor(down / cuts->nodes[a]);
            down += turns[a] * cuts->nodes[a]; // whole numbers
            u[a] += turns[a] * cuts->nodes[a];
        }
        cell[a] = (int)down;
    }
}

DEVICE int owner_of(PRIVATE const int* cell, GLOBAL const int* planes, PRIVATE const Cuts* cuts)
{
    int inside[3];
    for (int a = 0; a < 3; a++) {
        const int most = cuts->nodes[a] - 1;
        inside[a] = cell[a] < 0 ? 0 : cell[a] > most ? most : cell[a];
    }
    return part_of(inside, planes, cuts->depth) / cuts->per_rank;
}

// Counts a particle in a bin, and writes both if there is room. Numbers are from 1 on: 0 is where nothing was written.
DEVICE void push(GLOBAL u64* control, GLOBAL u32* index, GLOBAL u32* bin, const i64 room, const i64 what, const i64 i)
{
    const u64 place = ATOMIC_ADD_U64(control, 1);
    if (place < (u64)room) index[place] = (u32)(i + 1), bin[place] = (u32)(what + 1);
}

// control: what is listed, bad particles, and whether any is periods away. Particles are listed in the bin of the rank
// that owns them, if it is another, and in bin ranks + n, if they are in a box of neighbour n: `boxes` has two corners
// of each.
KERNEL survey(GLOBAL const coordinate* RESTRICT x, GLOBAL const int* RESTRICT planes, GLOBAL const real* RESTRICT boxes,
              GLOBAL const int* RESTRICT neighbour, GLOBAL u64* RESTRICT control, GLOBAL u32* RESTRICT index,
              GLOBAL u32* RESTRICT bin, const i64 count, const i64 box_count, const i64 ranks, const i64 room, const Cuts cuts)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        coordinate own[3];
        int bad = 0;
        for (int a = 0; a < 3; a++) {
            own[a] = a < cuts.axes ? x[cuts.axes * i + a] : (coordinate)0;
            if (!(own[a] - own[a] == 0)) bad = 1;
            if (a < cuts.axes && !cuts.periodic[a] && !((real)own[a] >= cuts.least[a] && (real)own[a] <= cuts.most[a]))
                bad = 1;
        }
        if (bad) {
            ATOMIC_ADD_U64(control + 1, 1);
            continue;
        }
        real u[3], turns[3];
        int cell[3];
        place(u, cell, turns, own, &cuts);
        if (turns[0] != 0 || turns[1] != 0 || turns[2] != 0) ATOMIC_MAX_U64(control + 2, 1);
        const int owner = owner_of(cell, planes, &cuts);
        if (owner != cuts.rank) push(control, index, bin, room, owner, i);
        int last = -1;
        for (i64 box = 0; box < box_count; box++) {
            if (neighbour[box] == last) continue;
            int inside = 1;
            for (int a = 0; a < 3; a++)
                if (a < cuts.axes && cuts.cut[a])
                    inside &= u[a] >= boxes[6 * box + a] && u[a] <= boxes[6 * box + 3 + a];
            if (inside) last = neighbour[box], push(control, index, bin, room, ranks + last, i);
        }
    }
}

// Rows with the positions of listed particles and the bits of their indices, as other ranks get them.
KERNEL survey_rows(GLOBAL const u32* RESTRICT positions, GLOBAL const u32* RESTRICT index, GLOBAL u32* RESTRICT rows,
                   const i64 room, const i64 axes)
{
    const i64 words = (i64)sizeof(coordinate) / 4;
    for (i64 k = GROUP_ID * GROUP_SIZE + LOCAL_ID; k < room; k += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = (i64)index[k] - 1;
        if (i < 0) continue;
        GLOBAL u32* row = rows + (axes * words + 2) * k;
        for (i64 w = 0; w < axes * words; w++) row[w] = positions[axes * words * i + w];
        row[axes * words] = (u32)i, row[axes * words + 1] = 0;
    }
}

// Rows of `pitch` numbers, of which the first are positions, into an array of positions: those of a segment of rows are
// beside each other there, moved into the mesh and then by the segment's image. Segments: first row (ascending),
// place, image.
KERNEL carry(GLOBAL const coordinate* RESTRICT rows, GLOBAL coordinate* RESTRICT every,
             GLOBAL const i64* RESTRICT segments, const i64 count, const i64 pitch, const i64 segment_count,
             const Cuts cuts)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        i64 n = 0;
        while (n + 1 < segment_count && segments[5 * (n + 1)] <= i) n++;
        coordinate x[3];
        for (int a = 0; a < 3; a++) x[a] = a < cuts.axes ? rows[pitch * i + a] : (coordinate)0;
        real u[3], turns[3];
        int cell[3];
        place(u, cell, turns, x, &cuts);
        for (int a = 0; a < cuts.axes; a++) {
            if (!cuts.cut[a]) continue;
            const real periods = turns[a] + (real)segments[5 * n + 2 + a];
            for (int b = 0; b < cuts.axes; b++) {
                const coordinate step = (coordinate)(periods * cuts.matrix[3 * a + b]);
                x[b] = fma((coordinate)cuts.one, step, x[b]);
            }
        }
        const i64 to = segments[5 * n + 1] + i - segments[5 * n];
        for (int a = 0; a < cuts.axes; a++) every[cuts.axes * to + a] = x[a];
    }
}
