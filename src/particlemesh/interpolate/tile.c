// SPDX-License-Identifier: BSD-3-Clause
// A work-group copies the nodes that a tile's stencils reach to local memory, and interpolates for the tile's particles
// from there. A few neighbouring lanes share a particle, as stencil.h divides stencils.
//
// Compile-time facts beside those of stencil.h, where VECTOR is the reals per read of local memory: COPY (reals per copy
// of the field), ALIGN (rows of a tile begin at multiples of so many nodes of the field), TILE_X, TILE_Y (nodes of a tile),
// CHUNKS (copies of a row along z), ROW_PITCH (reals from one row to the next), LINES (of blocks in a tile),
// LINES_Z (of them along z), FIELD_IS_WIDE, SYMMETRIC, VALUE, GRADIENT.

#define REALS (CHANNELS * PARTS)
#define RESULTS ((VALUE + GRADIENT * SUPPORT_AXES) * REALS)
#include "interpolate/shares.h"
#include "interpolate/weightless.h"
#include "orders/block_tiles.h"
#include "interpolate/tile_nodes.h"

#define WARPS (GROUP_SIZE / WARP_SIZE)
#define DEAL (LANES > 1 ? TEAM : WARP_SIZE) // warps get multiples of so many particles
#define HALF_OF_LINES (LINES > 16 ? 16 : LINES > 8 ? 8 : LINES > 4 ? 4 : LINES > 2 ? 2 : LINES > 1 ? 1 : 0)

DEVICE void load_local(LOCAL const real* from, PRIVATE real* f)
{
#if VECTOR == 4
    LOAD_LOCAL_4(from, f);
#elif VECTOR == 2
    LOAD_LOCAL_2(from, f);
#else
    f[0] = *from;
#endif
}

// One lane's share of a particle's results: of each part the value, and with GRADIENT the slopes in node coordinates.
DEVICE void gather(PRIVATE real* sums, LOCAL const real* nodes, const int base, const int lane, PRIVATE const Weights* w)
{
    const int lane_z = lane % LANES_Z, row = lane / LANES_Z * LANE_ROWS; // the first of its rows
    LOCAL const real* from = nodes + (base - shift_of(base) + lane_z * VECTOR + row * ROW_PITCH);
    real flat[SLOTS_Z], along_x[SLOTS_Z], along_y[SLOTS_Z]; // sums over levels
    UNROLL for (int v = 0; v < SLOTS_Z; v++) flat[v] = along_x[v] = along_y[v] = 0;
    UNROLL_ROWS for (int a = 0; a < SUPPORT_X; a++) {
        real level[SLOTS_Z], slope[SLOTS_Z]; // sums over rows
        UNROLL for (int v = 0; v < SLOTS_Z; v++) level[v] = slope[v] = 0;
        UNROLL_ROWS for (int b = 0; b < LANE_ROWS; b++) {
            const int there = (LANES_Y - 1) * LANE_ROWS + b < SUPPORT_Y || row + b < SUPPORT_Y;
            UNROLL for (int m = 0; m < LANE_SLOTS; m++) {
                real f[VECTOR];
                UNROLL for (int v = 0; v < VECTOR; v++) f[v] = 0;
                if (there) load_local(from + a * LEVEL_PITCH + b * ROW_PITCH + m * LANES_Z * VECTOR, f);
                UNROLL for (int v = 0; v < VECTOR; v++) {
                    level[m * VECTOR + v] += w->y[0][b] * f[v];
                    if (GRADIENT) slope[m * VECTOR + v] += w->y[GRADIENT][b] * f[v];
                }
            }
        }
        UNROLL for (int v = 0; v < SLOTS_Z; v++) {
            flat[v] += w->x[0][a] * level[v];
            if (GRADIENT) along_x[v] += w->x[GRADIENT][a] * level[v], along_y[v] += w->x[0][a] * slope[v];
        }
    }
    sums_along_z(sums, flat, along_x, along_y, lane_z, w);
}

// A tile's runs of particles, a line of blocks along x each; every lane of a warp has one.
typedef struct {
    u32 shift; // from a particle's number in the tile to its place in the order
    u32 end;   // of the line's particles in the tile
    int base;  // where the line begins in local memory
} Line;

// A part of a tile's particles: the tile's first blocks, the part's number, and the run of one line of each lane.
typedef struct {
    int first[3];
    u32 number, run[2];
} Part;

// A warp's share of a part: its line, numbers in the tile from `before` + `begin` to `before` + `end`, the first block
// along x.
typedef struct {
    Line line;
    u32 before;
    int begin, end, bx;
} Share;

// The part at place `k` of the list, or the last. Its runs come apart, as they wait for the rest.
DEVICE void find_part(PRIVATE Part* part, GLOBAL const u32* parts, const i64 k, const i64 all)
{
    u32 words[4];
    read_quads(words, parts + 4 * (k < all ? k : all > 0 ? all - 1 : 0), 1);
    UNROLL for (int a = 0; a < 3; a++) part->first[a] = (int)words[a];
    part->number = words[3];
}

DEVICE void find_runs(PRIVATE Part* part, GLOBAL const u32* start, PRIVATE const Blocks* blocks, PRIVATE const Tiles* tiles)
{
    part->run[0] = part->run[1] = 0;
    if (LANE < LINES) run_of(start, blocks, tiles, part->first, LANE / LINES_Z, LANE % LINES_Z, part->run);
}

// The warp's share of a part of a tile whose nodes are `box`; none if the part is not `there`.
DEVICE void share_of(WARP_PARAMETER warp, PRIVATE Share* own, PRIVATE const Part* part, PRIVATE const Box* box,
                     PRIVATE const Blocks* blocks, const u32 most, const int there)
{
    u32 sum = part->run[1] - part->run[0]; // of the lines up to this one
    UNROLL for (int step = 1; step < LINES; step *= 2) {
        const u32 lower = WARP_SHUFFLE_U32(warp, sum, LANE - step);
        if (LANE >= step) sum += lower;
    }
    const int by = part->first[1] + LANE / LINES_Z, bz = part->first[2] + LANE % LINES_Z;
    own->line.end = sum, own->line.shift = part->run[1] - sum;
    own->line.base = (begin_of(blocks, 1, by) - box->first[1]) * ROW_PITCH + (begin_of(blocks, 2, bz) - box->row) * PARTS;
    const u32 in_tile = WARP_SHUFFLE_U32(warp, sum, LINES - 1);
    own->before = part->number * most, own->bx = part->first[0];
    const int size = !there ? 0 : in_tile - own->before < most ? (int)(in_tile - own->before) : (int)most;
    const int each = (size + WARPS * DEAL - 1) / (WARPS * DEAL) * DEAL; // equal shares: warps wait for each other
    own->begin = LOCAL_ID / WARP_SIZE * each;
    own->end = own->begin + each < size ? own->begin + each : size;
}

// The record of the lane's particle in the batch at `batch` of a share, and where its line begins. The whole warp calls it.
DEVICE int find_record(WARP_PARAMETER warp, GLOBAL const u32* records, PRIVATE const Share* share, const int batch,
                       PRIVATE u32* words)
{
    const u32 q = share->before + (u32)(batch + LANE);
    int own = 0; // the line: how many end at q or before
    UNROLL for (int step = HALF_OF_LINES; step > 0; step /= 2) {
        const u32 end = WARP_SHUFFLE_U32(warp, share->line.end, own + step - 1); // in no branch: it may hold a barrier
        if (end <= q) own += step;
    }
    const u32 shift = WARP_SHUFFLE_U32(warp, share->line.shift, own);
    const int base = (int)WARP_SHUFFLE_U32(warp, (u32)share->line.base, own);
    if (batch + LANE < share->end) read_record(records, (i64)(q + shift), words);
    return base;
}

// The offsets of the next part's nodes, and the warp's share of it, if it is `there`. Then its successor is the next.
DEVICE void go_on(WARP_PARAMETER warp, LOCAL offset_t* offsets, PRIVATE Share* own, PRIVATE Part* next, PRIVATE Part* second,
                  GLOBAL const u32* start, PRIVATE const Blocks* blocks, PRIVATE const Tiles* tiles,
                  PRIVATE const Field* field, const u32 most, const int there)
{
    Box box;
    box_of(&box, next->first, blocks, tiles);
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
#if LANES > 1
    LOCAL_ARRAY(real4, origin_memory, GROUP_SIZE); // fractions and beginnings of a warp's particles
    LOCAL_ARRAY(u32, indices, GROUP_SIZE);
    LOCAL real* origins = (LOCAL real*)origin_memory + LOCAL_ID / WARP_SIZE * (4 * WARP_SIZE);
    LOCAL u32* index = indices + LOCAL_ID / WARP_SIZE * WARP_SIZE;
#endif
    const i64 all = listed[0];
    const int nx = blocks.counts[0];
    field += field_layout.offset;
    // All groups take neighbours at a time: memory near the chip still has the nodes that they share.
    const i64 from = GROUP_ID, step = GROUP_COUNT;
    // What a part needs comes in steps that wait for each other. Each is asked for while one more part is processed. The
    // first turn has no part: it prepares the next.
    Part next, second;
    Share own, then; // of the present part, and of the next
    next.number = second.number = own.before = 0;
    own.begin = own.end = own.bx = own.line.base = 0, own.line.shift = own.line.end = 0;
    UNROLL for (int n = 0; n < 2; n++) next.run[n] = second.run[n] = 0;
    UNROLL for (int a = 0; a < 3; a++) next.first[a] = second.first[a] = 0;
    if (from < all) {
        find_part(&next, parts, from, all);
        find_part(&second, parts, from + step, all);
        find_runs(&next, start, &blocks, &tiles);
    }
    int odd = 0;
    for (i64 k = from - step; k < all; k += step) {
        LOCAL const offset_t* offsets = both_offsets + odd * OFFSETS;
        LOCAL offset_t* next_offsets = both_offsets + (1 - odd) * OFFSETS;
        const int more = k + step < all;
        for (int c = 0; c < CHANNELS; c++) {
            BARRIER(); // others may still read the nodes before these
            if (k >= from) copy_nodes(nodes, field + c * field_layout.channel, offsets);
            u32 words[RECORD_WORDS]; // of the first particles
            UNROLL for (int w = 0; w < RECORD_WORDS; w++) words[w] = 0;
            int of_line = find_record(warp, records, &own, own.begin, words);
            if (CHANNELS == 1) { // while the nodes come
                go_on(warp, next_offsets, &then, &next, &second, start, &blocks, &tiles, &field_layout, (u32)most, more);
                find_part(&second, parts, k + 3 * step, all);
            }
            COPY_WAIT();
            BARRIER();
            for (int batch = own.begin; batch < own.end; batch += WARP_SIZE) {
                Placed p;
                particle_of(words, &p);
                int base = ((p.bx - own.bx) * blocks.cells[0] + p.offset[0]) * LEVEL_PITCH
                         + p.offset[1] * ROW_PITCH + p.offset[2] * PARTS + of_line;
                if (batch + LANE >= own.end) base = 0; // its results are not written
#if HAS_WARP // elsewhere a barrier may not stand in a branch
                if (batch + WARP_SIZE < own.end)
#endif
                    of_line = find_record(warp, records, &own, batch + WARP_SIZE, words);
                Weights w;
                real sums[SUMS];
#if LANES > 1
                STORE_LOCAL_4(origins + 4 * LANE, p.fraction[0], p.fraction[1], p.fraction[2], REAL_FROM_INDEX(base));
                index[LANE] = p.index;
                WARP_SYNC(warp);
                ROLL for (int team = 0; team < WARP_SIZE && batch + team < own.end; team += TEAM) {
                    const int mine = team + LANE / LANES;
                    real origin[4];
#if REAL_IS_DOUBLE
                    LOAD_LOCAL_2(origins + 4 * mine, origin);
                    LOAD_LOCAL_2(origins + 4 * mine + 2, origin + 2);
#else
                    LOAD_LOCAL_4(origins + 4 * mine, origin);
#endif
                    base = (int)INDEX_OF_REAL(origin[3]);
                    weights_of_lane(&w, &window, origin, base, LANE % LANES);
                    gather(sums, nodes, base, LANE % LANES, &w);
                    deal_results(warp, sums, batch + mine < own.end, values, gradient, (i64)index[mine], c, &value_layout,
                                 &gradient_layout, &jacobian);
                }
                WARP_SYNC(warp);
#else
                weights_of_lane(&w, &window, p.fraction, base, 0);
                gather(sums, nodes, base, 0, &w);
                deal_results(warp, sums, batch + LANE < own.end, values, gradient, (i64)p.index, c, &value_layout,
                             &gradient_layout, &jacobian);
#endif
            }
        }
        if (CHANNELS > 1) {
            go_on(warp, next_offsets, &then, &next, &second, start, &blocks, &tiles, &field_layout, (u32)most, more);
            find_part(&second, parts, k + 3 * step, all);
        }
        own = then, odd = 1 - odd;
    }
    const i64 taken = start[(i64)nx * blocks.counts[1] * blocks.counts[2]];
    if (taken < particles)
        clear_weightless(located, node, values, gradient, taken, particles, rows, &value_layout, &gradient_layout);
}
