// SPDX-License-Identifier: BSD-3-Clause
// The nodes that a tile's stencils reach come to local memory.
//
// Compile-time facts beside those of tile_box.h: OPEN (nodes may be missing), TILE_X, CHUNKS, as tile.c has them.

#include "interpolate/tile_box.h"

#define ROWS (TILE_X * TILE_Y)
#define ROWS_AT_ONCE (GROUP_SIZE / CHUNKS > 0 ? GROUP_SIZE / CHUNKS : 1)

// Where rows and the copies of a row are in the field.
#define OFFSETS (ROWS + CHUNKS)
#define EACH (ROWS / ROWS_AT_ONCE) // copies of a row that every work-item has; some have one more
#define SOME 4                     // whose offsets are read at a time

DEVICE void offsets_of(LOCAL offset_t* offsets, PRIVATE const Box* box, PRIVATE const Field* field)
{
    ROLL for (int n = LOCAL_ID; n < OFFSETS; n += GROUP_SIZE) {
        offset_t at = LEFT_OUT;
        if (n < ROWS) {
            const int x = box->first[0] + n / TILE_Y, y = box->first[1] + n % TILE_Y;
            if (x < box->past[0] && y < box->past[1]) {
                const int node_x = place(x, field->size[0], field->wraps[0]);
                const int node_y = place(y, field->size[1], field->wraps[1]);
                at = node_x < 0 || node_y < 0 ? MISSING : (offset_t)(node_x * field->stride[0] + node_y * field->stride[1]);
            }
        } else {
            const int chunk = n - ROWS, z = box->row + chunk / COPIES_OF_NODE * NODES_OF_COPY;
            const int node_z = place(z, field->size[2], field->wraps[2]);
            if (z < box->past[2])
                at = node_z < 0 ? MISSING : (offset_t)(node_z * field->stride[2]) + chunk % COPIES_OF_NODE * COPY;
        }
        offsets[n] = at;
    }
}

// `count` copies of a work-item, whose rows are ROWS_AT_ONCE apart. Nodes that are missing are zeros.
DEVICE void copy_some(LOCAL real* to, GLOBAL const real* from, LOCAL const offset_t* of_rows, const int there, const int count)
{
    offset_t at[SOME];
    UNROLL for (int k = 0; k < SOME; k++)
        if (k < count) at[k] = of_rows[k * ROWS_AT_ONCE];
    UNROLL for (int k = 0; k < SOME; k++)
        if (k < count && at[k] != LEFT_OUT) {
            const int found = !OPEN || (there && at[k] != MISSING);
            COPY_LOCAL(to + k * (ROWS_AT_ONCE * ROW_PITCH), from + (found ? at[k] : 0), COPY, found);
        }
}

// All copies of the group; zeros if nothing is `here`.
DEVICE void copy_nodes(LOCAL real* nodes, GLOBAL const real* plane, LOCAL const offset_t* offsets, const int here)
{
    if (LOCAL_ID >= ROWS_AT_ONCE * CHUNKS) return;
    const int row = LOCAL_ID / CHUNKS;
    for (int chunk = LOCAL_ID % CHUNKS; chunk < CHUNKS; chunk += GROUP_SIZE) {
        const offset_t of_z = offsets[ROWS + chunk];
        if (of_z == LEFT_OUT) continue;
        const int there = !OPEN || (here && of_z != MISSING);
        GLOBAL const real* from = plane + (there ? of_z : 0);
        POINTER_ANEW(from); // else the compiler adds up all offsets for each copy
        LOCAL real* to = nodes + (row * ROW_PITCH + chunk * COPY);
        LOCAL const offset_t* of_rows = offsets + row;
        ROLL for (int turn = 0; turn < EACH / SOME; turn++) {
            copy_some(to, from, of_rows, there, SOME);
            to += SOME * ROWS_AT_ONCE * ROW_PITCH, of_rows += SOME * ROWS_AT_ONCE;
        }
        if (EACH % SOME) copy_some(to, from, of_rows, there, EACH % SOME);
        to += EACH % SOME * ROWS_AT_ONCE * ROW_PITCH, of_rows += EACH % SOME * ROWS_AT_ONCE;
        if (row + EACH * ROWS_AT_ONCE < ROWS) copy_some(to, from, of_rows, there, 1);
    }
}
