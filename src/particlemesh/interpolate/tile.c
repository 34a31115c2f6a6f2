// SPDX-License-Identifier: BSD-3-Clause
// A work-group copies the nodes that a tile's stencils reach to local memory, and interpolates for the tile's particles
// from there. A few neighbouring lanes share a particle, as stencil.h divides stencils.
//
// Compile-time facts beside those of stencil.h, where VECTOR is the reals per read of local memory: COPY (reals per copy
// of the field), TILE_X, TILE_Y (nodes of a tile), CHUNKS (copies of a row along z, with those that only fill it up), LINES
// (of blocks in a tile), FIELD_IS_WIDE, SYMMETRIC, VALUE, GRADIENT.

#define REALS (CHANNELS * PARTS)
#define RESULTS ((VALUE + GRADIENT * SUPPORT_AXES) * REALS)
#define AT_ONCE (TEAM > 8 ? TEAM : 8)
#include "interpolate/shares.h"
#include "interpolate/weightless.h"
#include "orders/block_tiles.h"

#define ROWS (TILE_X * TILE_Y)
#define ROW_PITCH (CHUNKS * COPY) // reals from one row to the next, and from one level
#define LEVEL_PITCH (TILE_Y * ROW_PITCH)
#define WARPS (GROUP_SIZE / WARP_SIZE)
#define DEAL (LANES > 1 ? TEAM : WARP_SIZE) // warps get multiples of so many particles
#define HALF_OF_LINES (LINES > 16 ? 16 : LINES > 8 ? 8 : LINES > 4 ? 4 : LINES > 2 ? 2 : LINES > 1 ? 1 : 0)
#define COPIES_OF_NODE (COPY < PARTS ? PARTS / COPY : 1)
#define NODES_OF_COPY (COPY < PARTS ? 1 : COPY / PARTS)

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

// The record of the tile's particle `q`, and where its line begins. The whole warp calls it.
DEVICE int find_record(WARP_PARAMETER warp, GLOBAL const u32* records, PRIVATE const Line* line, const u32 q,
                       const int there, PRIVATE u32* words)
{
    int own = 0; // the line: how many end at q or before
    UNROLL for (int step = HALF_OF_LINES; step > 0; step /= 2) {
        const u32 end = WARP_SHUFFLE_U32(warp, line->end, own + step - 1); // in no branch: it may hold a barrier
        if (end <= q) own += step;
    }
    const u32 shift = WARP_SHUFFLE_U32(warp, line->shift, own);
    const int base = (int)WARP_SHUFFLE_U32(warp, (u32)line->base, own);
    if (there) read_record(records, (i64)(q + shift), words);
    return base;
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
    LOCAL_ARRAY(offset_t, offsets, ROWS + CHUNKS); // of rows and of their copies in the field
#if LANES > 1
    LOCAL_ARRAY(real4, origin_memory, GROUP_SIZE); // fractions and beginnings of a warp's particles
    LOCAL_ARRAY(real4, staged_memory, WARPS * AT_ONCE * STAGED_PITCH / 4 + 1);
    LOCAL_ARRAY(u32, indices, GROUP_SIZE);
    LOCAL real* origins = (LOCAL real*)origin_memory + LOCAL_ID / WARP_SIZE * (4 * WARP_SIZE);
    LOCAL real* staged = (LOCAL real*)staged_memory + LOCAL_ID / WARP_SIZE * (AT_ONCE * STAGED_PITCH);
    LOCAL u32* index = indices + LOCAL_ID / WARP_SIZE * WARP_SIZE;
    for (int n = LANE; n < AT_ONCE * STAGED_PITCH; n += WARP_SIZE) staged[n] = 0;
#endif
    const i64 all = listed[0];
    const int nx = blocks.counts[0];
    for (i64 k = GROUP_ID; k < all; k += GROUP_COUNT) {
        int first[3];
        blocks_of_tile(&tiles, parts[2 * k], first);
        u32 run[2] = {0, 0};
        if (LANE < LINES) run_of(start, &blocks, &tiles, first, LANE, run);
        // The tile's first node along each axis, and the node behind those that its stencils reach.
        const int past_x = first[0] + tiles.blocks[0] < nx ? first[0] + tiles.blocks[0] : nx;
        const int past_y = first[1] + tiles.blocks[1] < blocks.counts[1] ? first[1] + tiles.blocks[1] : blocks.counts[1];
        const int past_z = first[2] + tiles.blocks[2] < blocks.counts[2] ? first[2] + tiles.blocks[2] : blocks.counts[2];
        const int x0 = begin_of(&blocks, 0, first[0]), x1 = begin_of(&blocks, 0, past_x) + SUPPORT_X - 1;
        const int y0 = begin_of(&blocks, 1, first[1]), y1 = begin_of(&blocks, 1, past_y) + SUPPORT_Y - 1;
        const int z0 = begin_of(&blocks, 2, first[2]), z1 = begin_of(&blocks, 2, past_z) + SUPPORT_Z - 1;
        const int row0 = z0 & ~(NODES_OF_COPY - 1); // rows begin where copies are aligned
        ROLL for (int n = LOCAL_ID; n < ROWS + CHUNKS; n += GROUP_SIZE) {
            offset_t at = OFF_FIELD;
            if (n < ROWS) {
                const int x = x0 + n / TILE_Y, y = y0 + n % TILE_Y;
                const int node_x = x < x1 ? place(x, field_layout.size[0], field_layout.wraps[0]) : -1;
                const int node_y = y < y1 ? place(y, field_layout.size[1], field_layout.wraps[1]) : -1;
                if (node_x >= 0 && node_y >= 0)
                    at = (offset_t)(node_x * field_layout.stride[0] + node_y * field_layout.stride[1]);
            } else {
                const int chunk = n - ROWS, z = row0 + chunk / COPIES_OF_NODE * NODES_OF_COPY;
                const int node_z = z < z1 ? place(z, field_layout.size[2], field_layout.wraps[2]) : -1;
                if (node_z >= 0) at = (offset_t)(node_z * field_layout.stride[2]) + chunk % COPIES_OF_NODE * COPY;
            }
            offsets[n] = at;
        }
        BARRIER();
        for (int c = 0; c < CHANNELS; c++) {
            GLOBAL const real* plane = field + field_layout.offset + c * field_layout.channel;
            for (int n = LOCAL_ID; n < ROWS * CHUNKS; n += GROUP_SIZE) {
                const int row = (int)((u32)n / CHUNKS);
                const offset_t of_row = offsets[row], of_z = offsets[ROWS + n - row * CHUNKS];
                const int there = of_row != OFF_FIELD && of_z != OFF_FIELD;
                COPY_LOCAL(nodes + n * COPY, plane + (of_row + of_z), COPY, there);
            }

            Line line;
            u32 sum = run[1] - run[0]; // of the lines up to this one
            UNROLL for (int step = 1; step < LINES; step *= 2) {
                const u32 before = WARP_SHUFFLE_U32(warp, sum, LANE - step);
                if (LANE >= step) sum += before;
            }
            line.end = sum, line.shift = run[1] - sum;
            const int jy = LANE / tiles.blocks[2], by = first[1] + jy, bz = first[2] + LANE - jy * tiles.blocks[2];
            line.base = (begin_of(&blocks, 1, by) - y0) * ROW_PITCH + (begin_of(&blocks, 2, bz) - row0) * PARTS;
            const u32 in_tile = WARP_SHUFFLE_U32(warp, sum, LINES - 1), before = parts[2 * k + 1] * (u32)most;
            const int size = in_tile - before < (u32)most ? (int)(in_tile - before) : (int)most;

            u32 words[RECORD_WORDS];
            UNROLL for (int w = 0; w < RECORD_WORDS; w++) words[w] = 0;
            const int share = (size + WARPS * DEAL - 1) / (WARPS * DEAL) * DEAL; // of a warp: equal ones, as all wait below
            int batch = LOCAL_ID / WARP_SIZE * share;
            const int end = batch + share < size ? batch + share : size;
            int of_line = find_record(warp, records, &line, before + (u32)(batch + LANE), batch + LANE < end, words);
            COPY_WAIT();
            BARRIER();
            for (; batch < end; batch += WARP_SIZE) {
                Placed p;
                particle_of(words, &p);
                int base = ((p.bx - first[0]) * blocks.cells[0] + p.offset[0]) * LEVEL_PITCH
                         + p.offset[1] * ROW_PITCH + p.offset[2] * PARTS + of_line;
                if (batch + LANE >= end) base = 0; // its results are not written
                const int next = batch + WARP_SIZE + LANE;
                of_line = find_record(warp, records, &line, before + (u32)next, next < end, words);
                Weights w;
                real sums[SUMS];
#if LANES > 1
                STORE_LOCAL_4(origins + 4 * LANE, p.fraction[0], p.fraction[1], p.fraction[2], REAL_FROM_INDEX(base));
                index[LANE] = p.index;
                WARP_SYNC(warp);
                ROLL for (int some = 0; some < WARP_SIZE && batch + some < end; some += AT_ONCE) {
                    UNROLL for (int k = 0; k < 3; k += SHARE) {
                        const int axis = k + LANE % SHARE, one = LANE / SHARE;
                        if (axis < 3)
                            stage_weights(staged + one * STAGED_PITCH, &window, axis, origins[4 * (some + one) + axis]);
                    }
                    WARP_SYNC(warp);
                    ROLL for (int turn = 0; turn < AT_ONCE && batch + some + turn < end; turn += TEAM) {
                        const int one = turn + LANE / LANES, mine = some + one;
                        base = (int)INDEX_OF_REAL(origins[4 * mine + 3]);
                        own_weights(&w, staged + one * STAGED_PITCH, base, LANE % LANES);
                        gather(sums, nodes, base, LANE % LANES, &w);
                        UNROLL for (int step = LANES / 2; step > 0; step /= 2)
                            UNROLL for (int n = 0; n < SUMS; n++) sums[n] += WARP_SHUFFLE(warp, sums[n], LANE ^ step);
                        if (LANE % LANES == 0 && batch + mine < end)
                            write_results(sums, values, gradient, (i64)index[mine], c, &value_layout, &gradient_layout,
                                          &jacobian);
                    }
                    WARP_SYNC(warp);
                }
#else
                all_weights(&w, &window, p.fraction, base);
                gather(sums, nodes, base, 0, &w);
                if (batch + LANE < end)
                    write_results(sums, values, gradient, (i64)p.index, c, &value_layout, &gradient_layout, &jacobian);
#endif
            }
            BARRIER(); // before the next nodes come
        }
    }
    const i64 taken = start[(i64)nx * blocks.counts[1] * blocks.counts[2]];
    if (taken < particles)
        clear_weightless(located, node, values, gradient, taken, particles, rows, &value_layout, &gradient_layout);
}
