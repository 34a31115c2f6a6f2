// SPDX-License-Identifier: BSD-3-Clause
// A work-group copies the nodes that a tile's stencils reach to local memory, and interpolates for the tile's particles
// from there. A few neighbouring lanes share a particle, as stencil.h divides stencils.
//
// Compile-time facts beside those of stencil.h, where VECTOR is the reals per read of local memory: COPY (reals per copy
// of the field), ALIGN (rows of a tile begin at multiples of so many nodes of the field), TILE_X, TILE_Y (nodes of a tile),
// CHUNKS (copies of a row along z), OPEN (nodes may be missing), ROW_PITCH, LEVEL_PITCH (reals to the next row and level),
// LINES (of blocks in a tile), LINES_Z (of them along z), FIELD_IS_WIDE, SYMMETRIC, VALUE, GRADIENT.

#define REALS (CHANNELS * PARTS)
#define RESULTS ((VALUE + GRADIENT * SUPPORT_AXES) * REALS)
#include "interpolate/shares.h"
#include "interpolate/weightless.h"
#include "orders/block_tiles.h"
#include "interpolate/tile_box.h"

// ---- the nodes that a tile's stencils reach come to local memory ---------------------------------------------------

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
#include "interpolate/local_particles.h"

// A part of a tile's particles, and the run of one line of each lane: it comes apart, as it waits for the rest.
typedef struct {
    Part part;
    u32 run[2];
} Turn;

DEVICE void find_runs(PRIVATE Turn* turn, GLOBAL const u32* start, PRIVATE const Blocks* blocks, PRIVATE const Tiles* tiles)
{
    turn->run[0] = turn->run[1] = 0;
    if (LANE < LINES) run_of(start, blocks, tiles, turn->part.first, LANE / LINES_Z, LANE % LINES_Z, turn->run);
}

// The warp's share of a part of a tile whose nodes are `box`; none if the part is not `there`.
DEVICE void share_of(WARP_PARAMETER warp, PRIVATE Share* own, PRIVATE const Turn* turn, PRIVATE const Box* box,
                     PRIVATE const Blocks* blocks, const u32 most, const int there)
{
    PRIVATE const Part* part = &turn->part;
    own->bx = part->first[0], own->slot = 0;
    own->line.base = base_of_line(box, blocks, part->first[1] + LANE / LINES_Z, part->first[2] + LANE % LINES_Z);
    const u32 before = part->number * most, in_tile = number_runs(warp, &own->line, turn->run);
    deal(own, before, !there ? 0 : in_tile - before < most ? (int)(in_tile - before) : (int)most);
}

// The offsets of the next part's nodes, and the warp's share of it, if it is `there`. Then its successor is the next.
DEVICE void go_on(WARP_PARAMETER warp, LOCAL offset_t* offsets, PRIVATE Share* own, PRIVATE Turn* next, PRIVATE Turn* second,
                  GLOBAL const u32* start, PRIVATE const Blocks* blocks, PRIVATE const Tiles* tiles,
                  PRIVATE const Field* field, const u32 most, const int there)
{
    Box box;
    box_of(&box, next->part.first, blocks, tiles);
    offsets_of(offsets, &box, field);
    share_of(warp, own, next, &box, blocks, most, there);
    *next = *second;
    find_runs(next, start, blocks, tiles);
}

KERNEL interpolate_tile(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
                        GLOBAL const u32* RESTRICT located, // read if PACKED
                        GLOBAL const int* RESTRICT node,    // (3, rows), read if not, nor WEIGHTLESS_LAST
                        GLOBAL const u32* RESTRICT listed, GLOBAL const u32* RESTRICT parts,
                        GLOBAL const real* RESTRICT field,
                        GLOBAL real* RESTRICT values,   // written if VALUE
                        GLOBAL real* RESTRICT gradient, // written if GRADIENT, per user length
                        const i64 most, const i64 particles, const i64 rows, const Blocks blocks, const Tiles tiles,
                        const Values value_layout, const Values gradient_layout, const Field field_layout,
                        const Window window, const Jacobian jacobian WITH_LOCAL_POOL)
{
    WARP(warp);
    LOCAL_POOL(real, nodes);
    LOCAL_ARRAY(offset_t, both_offsets, 2 * OFFSETS); // of a tile and of the next
    SHARED_PARTICLES;
    const i64 all = listed[0];
    const int nx = blocks.counts[0];
    field += field_layout.offset;
    // All groups take neighbours at a time: memory near the chip still has the nodes that they share.
    const i64 from = GROUP_ID, step = GROUP_COUNT;
    // What a part needs comes in steps that wait for each other. Each is asked for while one more part is processed. The
    // first turn has no part: it prepares the next.
    Turn next, second;
    Share own, then; // of the present part, and of the next
    next.part.number = second.part.number = own.before = 0;
    own.begin = own.end = own.bx = own.slot = own.line.base = 0, own.line.shift = own.line.end = 0;
    UNROLL for (int n = 0; n < 2; n++) next.run[n] = second.run[n] = 0;
    UNROLL for (int a = 0; a < 3; a++) next.part.first[a] = second.part.first[a] = 0;
    if (from < all) {
        find_part(&next.part, parts, from, all);
        find_part(&second.part, parts, from + step, all);
        find_runs(&next, start, &blocks, &tiles);
    }
    int odd = 0;
    for (i64 k = from - step; k < all; k += step) {
        LOCAL const offset_t* offsets = both_offsets + odd * OFFSETS;
        LOCAL offset_t* next_offsets = both_offsets + (1 - odd) * OFFSETS;
        const int more = k + step < all;
        for (int c = 0; c < CHANNELS; c++) {
            BARRIER(); // others may still read the nodes before these
            if (k >= from) copy_nodes(nodes, field + c * field_layout.channel, offsets, 1);
            u32 words[RECORD_WORDS]; // of the first particles
            UNROLL for (int w = 0; w < RECORD_WORDS; w++) words[w] = 0;
            const int of_line = find_record(warp, records, &own, own.begin, words);
            if (CHANNELS == 1) { // while the nodes come
                go_on(warp, next_offsets, &then, &next, &second, start, &blocks, &tiles, &field_layout, (u32)most, more);
                find_part(&second.part, parts, k + 3 * step, all);
            }
            COPY_WAIT();
            BARRIER();
            take_share(warp, nodes, &own, words, of_line, origins, index, records, values, gradient, c, &blocks,
                       &value_layout, &gradient_layout, &window, &jacobian);
        }
        if (CHANNELS > 1) {
            go_on(warp, next_offsets, &then, &next, &second, start, &blocks, &tiles, &field_layout, (u32)most, more);
            find_part(&second.part, parts, k + 3 * step, all);
        }
        own = then, odd = 1 - odd;
    }
    const i64 taken = start[(i64)nx * blocks.counts[1] * blocks.counts[2]];
    if (taken < particles)
        clear_weightless(located, node, values, gradient, taken, particles, rows, &value_layout, &gradient_layout);
}
