// SPDX-License-Identifier: BSD-3-Clause
// A work-group walks along x through a column of the mesh, with the levels that stencils reach in local memory. They lie on
// a ring: a step copies only levels that the last one did not have. They come while the group interpolates for the
// particles of the step before.
//
// A column is cut into tiles of several steps. A group takes a part of a tile's particles, in the order of their steps.
//
// Compile-time facts: those of tile.c but TILE_X, and STEP, STEP_BLOCKS (levels and blocks of a step along x).

#define REALS (CHANNELS * PARTS)
#define RESULTS ((VALUE + GRADIENT * SUPPORT_AXES) * REALS)
#define LEVELS (STEP + SUPPORT_X - 1) // that the stencils of a step reach
#define RING (LEVELS + STEP)
#include "interpolate/shares.h"
#include "interpolate/weightless.h"
#include "orders/block_tiles.h"
#include "interpolate/tile_box.h"
#include "interpolate/local_particles.h"

// What is ahead of a group in its part.
typedef struct {
    GLOBAL const u32* start; // of the lane's line of blocks
    u32 run[2];              // its run of the next step, and of the step after that
    int bx, end;             // the first block of the next step, and the one behind the tile's last
    int there;               // whether the lane has a line
    u32 skipped, left;       // particles of the tile: before the part's, and the part's
} Ahead;

// Where the particles of the lane's line begin, from block bx on.
DEVICE u32 start_of(PRIVATE const Ahead* ahead, const int bx)
{
    return ahead->there ? ahead->start[bx < ahead->end ? bx : ahead->end] : 0;
}

DEVICE void begin_part(WARP_PARAMETER warp, PRIVATE Ahead* ahead, PRIVATE Share* own, PRIVATE const Part* part,
                       GLOBAL const u32* start, PRIVATE const Blocks* blocks, PRIVATE const Tiles* tiles, const u32 most)
{
    const int y = LANE / LINES_Z, by = part->first[1] + y, bz = part->first[2] + LANE % LINES_Z, nx = blocks->counts[0];
    ahead->there = y < tiles->blocks[1] && by < blocks->counts[1] && bz < blocks->counts[2];
    ahead->start = start + ((i64)by * blocks->counts[2] + bz) * nx;
    ahead->bx = part->first[0];
    ahead->end = part->first[0] + tiles->blocks[0] < nx ? part->first[0] + tiles->blocks[0] : nx;
    u32 all[2] = {start_of(ahead, ahead->bx), start_of(ahead, ahead->end)};
    ahead->run[0] = all[0], ahead->run[1] = start_of(ahead, ahead->bx + STEP_BLOCKS);
    const u32 in_tile = number_runs(warp, &own->line, all);
    ahead->skipped = part->number * most;
    ahead->left = in_tile - ahead->skipped < most ? in_tile - ahead->skipped : most;
}

// The warp's share of the next step; then the step after it is the next. Returns the group's particles of the step.
DEVICE u32 begin_step(WARP_PARAMETER warp, PRIVATE Ahead* ahead, PRIVATE Share* own)
{
    const u32 in_step = number_runs(warp, &own->line, ahead->run);
    const u32 before = ahead->skipped < in_step ? ahead->skipped : in_step;
    const u32 size = in_step - before < ahead->left ? in_step - before : ahead->left;
    deal(own, before, (int)size);
    own->bx = ahead->bx;
    ahead->skipped -= before, ahead->left -= size, ahead->bx += STEP_BLOCKS;
    ahead->run[0] = ahead->run[1], ahead->run[1] = start_of(ahead, ahead->bx + STEP_BLOCKS);
    return size;
}

// The copies of a level that a work-item has: from where in a level of the field, and to where in one of the ring. Eight
// neighbouring work-items copy from one line of memory, of 128 bytes: parts of several lines are written one by one.
#define LINE 8                                                     // copies of 16 bytes
#define LEAD (ALIGN * PARTS / COPY > 0 ? ALIGN * PARTS / COPY : 1) // rows begin at multiples of it in their line
#define PLACES ((LINE - LEAD + CHUNKS + LINE - 1) / LINE * LINE)   // of a row, with some before it and behind it
#define COPIES ((TILE_Y * PLACES + GROUP_SIZE - 1) / GROUP_SIZE)
typedef struct {
    offset_t from[COPIES];
    int to[COPIES];
} Copies;

DEVICE void copies_of(PRIVATE Copies* copies, PRIVATE const Box* box, PRIVATE const Field* layout)
{
    const int lead = box->row * PARTS / COPY & (LINE - 1);
    UNROLL for (int k = 0; k < COPIES; k++) {
        const int n = LOCAL_ID + k * GROUP_SIZE, row = n / PLACES, chunk = n - row * PLACES - lead;
        const int y = box->first[1] + row, z = box->row + chunk / COPIES_OF_NODE * NODES_OF_COPY;
        offset_t from = LEFT_OUT;
        if (row < TILE_Y && y < box->past[1] && chunk >= 0 && chunk < CHUNKS && z < box->past[2]) {
            const int node_y = place(y, layout->size[1], layout->wraps[1]);
            const int node_z = place(z, layout->size[2], layout->wraps[2]);
            from = node_y < 0 || node_z < 0 ? MISSING : (offset_t)(node_y * layout->stride[1] + node_z * layout->stride[2])
                                                            + chunk % COPIES_OF_NODE * COPY;
        }
        copies->from[k] = from, copies->to[k] = row * ROW_PITCH + chunk * COPY;
    }
}

// Copy `count` levels, from node x on, to the ring's places from `slot` on.
DEVICE void copy_levels(LOCAL real* nodes, GLOBAL const real* field, PRIVATE const Copies* copies, const int x, int slot,
                        const int count, PRIVATE const Field* layout)
{
    const int size = layout->size[0], wraps = layout->wraps[0];
    const i64 stride = layout->stride[0];
    int node = wraps ? wrapped(x, size) : x;
    GLOBAL const real* level = field + (OPEN && (node < 0 || node >= size) ? 0 : node * stride);
    ROLL for (int l = 0; l < count; l++) {
        const int here = !OPEN || (node >= 0 && node < size);
        LOCAL real* to = nodes + slot * LEVEL_PITCH;
        POINTER_ANEW(level); // else the compiler adds up all offsets for each copy
        LOCAL_ANEW(to);
        UNROLL for (int k = 0; k < COPIES; k++)
            if (copies->from[k] != LEFT_OUT) {
                const int found = !OPEN || (here && copies->from[k] != MISSING);
                COPY_LOCAL(to + copies->to[k], level + (found ? copies->from[k] : 0), COPY, found);
            }
        node++, slot = further(slot, 1);
        level = !OPEN || (node > 0 && node < size) ? level + stride : field;
        if (wraps && node == size) node = 0, level = field;
    }
}

KERNEL interpolate_ring(GLOBAL const u32* RESTRICT records, GLOBAL const u32* RESTRICT start,
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
    SHARED_PARTICLES;
    const i64 all = listed[0];
    field += field_layout.offset;
    Part part, next;
    find_part(&next, parts, GROUP_ID, all);
    for (i64 k = GROUP_ID; k < all; k += GROUP_COUNT) {
        part = next;
        find_part(&next, parts, k + GROUP_COUNT, all);
        Share own, then; // of the present step, and of the next
        Box box;
        box_of(&box, part.first, &blocks, &tiles);
        Copies copies;
        copies_of(&copies, &box, &field_layout);
        own.line.base = base_of_line(&box, &blocks, part.first[1] + LANE / LINES_Z, part.first[2] + LANE % LINES_Z);
        for (int c = 0; c < CHANNELS; c++) {
            GLOBAL const real* plane = field + c * field_layout.channel;
            Ahead ahead;
            begin_part(warp, &ahead, &own, &part, start, &blocks, &tiles, (u32)most);
            u32 words[RECORD_WORDS], next_words[RECORD_WORDS]; // of the first particles
            UNROLL for (int w = 0; w < RECORD_WORDS; w++) words[w] = next_words[w] = 0;
            int of_line = 0, begun = 0, more = 1;
            own.begin = own.end = own.slot = own.bx = 0; // the first turn has no step: it prepares the next
            while (more) { // one place copies: PoCL 3.0 spoils a kernel with two such loops between barriers
                COPY_WAIT();
                BARRIER(); // so have others, and nobody reads the levels that the next replace
                more = ahead.left > 0;
                then = own, then.slot = begun ? further(own.slot, STEP) : 0;
                const u32 size = begin_step(warp, &ahead, &then);
                if (more && (begun || size)) { // steps without particles at the beginning are passed over
                    const int kept = begun ? SUPPORT_X - 1 : 0;
                    copy_levels(nodes, plane, &copies, begin_of(&blocks, 0, then.bx) + kept, further(then.slot, kept),
                                LEVELS - kept, &field_layout);
                    begun = 1;
                }
                const int of_next = first_records(warp, records, &then, next_words);
                take_share(warp, nodes, &own, words, of_line, origins, index, records, values, gradient, c, &blocks,
                           &value_layout, &gradient_layout, &window, &jacobian);
                own = then, of_line = of_next;
                UNROLL for (int w = 0; w < RECORD_WORDS; w++) words[w] = next_words[w];
            }
        }
    }
    const i64 taken = start[(i64)blocks.counts[0] * blocks.counts[1] * blocks.counts[2]];
    if (taken < particles)
        clear_weightless(located, node, values, gradient, taken, particles, rows, &value_layout, &gradient_layout);
}
